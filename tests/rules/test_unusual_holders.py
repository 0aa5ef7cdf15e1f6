"""Who keeps memory where no plain list does, in programs as they run: the rule, the line, the name, the advice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from example_runs import forked

TRAINING = """
import asyncio, contextlib, functools, itertools, threading, weakref
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(32, 64), nn.Tanh(), nn.Linear(64, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
{before}

def main():
    for step in range(60):
        x = torch.randn(64, 32)
        out = model(x)
        loss = nn.functional.cross_entropy(out, x[:, :8].argmax(1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        {each}

main()
"""

OWN = """
own = threading.local()
def remember(features):
    if not hasattr(own, "features"):
        own.features = []
    own.features.append(features)
"""
GIVEN = """
def log(rows, every, row):
    rows.append(row)
callback = functools.partial(log, [], 10)
"""
ERRORS = """
class Skipped(ValueError):
    pass
def judge(x):
    activations = torch.relu(x @ x.T)
    raise Skipped(f"mean {{activations.mean().item()}}")
class Guard:
    def __init__(self):
        self.kept = {{}}
    def __enter__(self):
        return self
    def __exit__(self, kind, error, traceback):
        self.kept.setdefault("bad", []).append({stored})
        return True
guard = Guard()
"""
GROUPS = """
rows = {}
def keep(key, row):
    if key not in rows:
        rows[key] = []
    rows[key].append(row)
"""
PHASES = """
optimizers = []
def new():
    optimizers.append(torch.optim.Adam(model.parameters(), lr=1e-4))
    return optimizers[-1]
"""
AHEAD = """
now, ahead = itertools.tee(torch.randn(64, 32) for _ in itertools.count())
"""
LINKS = """
class Step:
    def __init__(self, out, before):
        self.out, self.before = out, before
last = None
def link(out):
    global last
    last = Step(out, last)
"""
EPOCHS = """
history = {}
def note(epoch, **values):
    for key, value in values.items():
        history.setdefault(epoch, {}).setdefault(key, []).append(value)
"""
TASKS = """
waiting = asyncio.Queue()
def pass_on(x):
    waiting.put_nowait(x)
    waiting.put_nowait(2 * x)
    return waiting.get_nowait()
"""
FINALIZED = """
class Session: ...
sessions = []
def close(features): ...
def open_one(features):
    session = Session()
    weakref.finalize(session, close, features).atexit = False
    sessions.append(session)
"""
LISTENERS = """
listeners = []
def listen(function):
    listeners.append(function)
"""
AHEAD_OF_US = """
import queue
class Ahead(threading.Thread):
    def __init__(self):
        super().__init__(daemon=True)
        self.buffer, self.over = queue.Queue(maxsize=2), False
        self.start()
    def run(self):
        while not self.over:
            self.buffer.put(torch.randn(64, 32))
    def close(self):
        self.over = True
        while self.is_alive():
            while not self.buffer.empty():
                self.buffer.get()
            self.join(timeout=0.001)
"""
GUARDED = "with guard: judge(x)"


def grown(before: str, each: str, tmp_path: Path) -> list[dict[str, Any]]:
    """What is said of growth at warning or above."""
    program = TRAINING.format(before=before, each=each)
    found = forked(program, tmp_path)
    assert found is not None
    lines = program.splitlines()
    for one in found:
        one["text"] = lines[one["location"]["line"] - 1].strip() if one["location"] else ""
    return [f for f in found if f["severity"] != "info" and f["measured"]["bytes_per_step"]]


KEPT = {
    "of a thread": (OWN, "remember(out.detach())", "MEM102", "own.features", "remember(out.detach())"),
    "under keys": (GROUPS, "keep('out', out.detach())", "MEM102", "rows['out']", "keep('out', out.detach())"),
    "given beforehand": (
        GIVEN, "callback((out * out).sum())", "MEM101", "callback.<partial log>.rows", "rows.append(row)",
    ),
    "own exceptions": (
        ERRORS.format(stored="error"), GUARDED, "MEM108", "guard.kept['bad']",
        'self.kept.setdefault("bad", []).append(error)',
    ),
    "exceptions in tuples": (
        ERRORS.format(stored="(1, error)"), GUARDED, "MEM108", "guard.kept['bad']",
        'self.kept.setdefault("bad", []).append((1, error))',
    ),
    "replaced optimizers": (
        PHASES, "new().step()", "MEM102", "optimizers",
        "optimizers.append(torch.optim.Adam(model.parameters(), lr=1e-4))",
    ),
    "the other side of a tee": (
        AHEAD, "next(now)", "MEM114", "ahead (itertools.tee)",
        "now, ahead = itertools.tee(torch.randn(64, 32) for _ in itertools.count())",
    ),
    "a chain of links": (LINKS, "link(out.detach())", "MEM102", "last.before", "last = Step(out, last)"),
    "one list after another": (
        EPOCHS, "note(step // 12, mean=0.0, out=out.detach())", "MEM102", "history",
        "history.setdefault(epoch, {}).setdefault(key, []).append(value)",
    ),
    "a queue between tasks": (TASKS, "pass_on(x + 1) * 2", "MEM102", "waiting", "pass_on(x + 1) * 2"),
    "called when others die": (
        FINALIZED, "open_one(out.detach())", "MEM102", "weakref.finalize", "open_one(out.detach())",
    ),
    "what functions close over": (
        LISTENERS, "listen(lambda out=out.detach(): out.mean())", "MEM102", "listeners",
        "listen(lambda out=out.detach(): out.mean())",
    ),
    "threads that wait for ever": (
        AHEAD_OF_US, "Ahead().buffer.get()", "MEM102", "<threads in Ahead.run>", "self.buffer.put(torch.randn(64, 32))",
    ),
}  # fmt: skip

ADVICE = {
    "replaced optimizers": "only the optimizer that is in use", "a queue between tasks": "`maxsize`",
    "what functions close over": "keeps the tensors that it closes over", "the other side of a tee": "in step",
    "threads that wait for ever": "set its stop flag",
}  # fmt: skip


@pytest.mark.parametrize("case", KEPT)
def test_an_unusual_holder_is_named(case: str, tmp_path: Path) -> None:
    before, each, code, name, line = KEPT[case]
    (found,) = grown(before, each, tmp_path)
    assert (found["code"], found["holder"]["name"], found["text"]) == (code, name, line)
    assert ADVICE.get(case, "") in found["remedy"]["summary"]


SILENT = {
    "text of exceptions": (ERRORS.format(stored="str(error)"), GUARDED),
    "one optimizer in use": (PHASES.replace("optimizers.append", "optimizers[:] = [None]; optimizers.append"),
                             "new().step()"),
    "called when each dies": (FINALIZED.replace("sessions.append", "id"), "open_one(out.detach())"),
    "threads that end": (AHEAD_OF_US, "ahead = Ahead(); ahead.buffer.get(); ahead.close()"),
    # `tee` frees items in blocks of 57: read one at a time they would pile up for nearly the whole run.
    "both sides read": (AHEAD, "for _ in range(8): next(now), next(ahead)"),
}  # fmt: skip


@pytest.mark.parametrize("case", SILENT)
def test_what_is_let_go_of_is_not(case: str, tmp_path: Path) -> None:
    assert grown(*SILENT[case], tmp_path) == []


LAGGING = """
import collections, itertools
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(64, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

def batches(count):
    for _ in range(count):
        yield torch.randn(64, 64)

def rounds(stream):
    ahead, behind = itertools.tee(stream)
    while True:
        {rounds}

def main():
    for number, turn in enumerate(rounds(batches(170))):
        for x in turn:
            loss = model(x).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if number == {last}:
            break

main()
"""


def test_an_iterator_of_tee_that_lags_in_a_suspended_generator_is_named(tmp_path: Path) -> None:
    """The items lie in blocks of 57: the iterator that is read has passed the first of them."""
    late = "yield itertools.islice(ahead, 1000)\n        collections.deque(itertools.islice(behind, 1000), 0)"
    found = forked(LAGGING.format(rounds=late, last=0), tmp_path)
    assert found is not None
    (one,) = [f for f in found if f["severity"] != "info"]
    assert one["code"] == "MEM114" and "rounds(): behind" in one["holder"]["name"]
    assert one["measured"]["bytes_per_step"] == pytest.approx(64 * 64 * 4, rel=0.2)


def test_iterators_of_tee_that_are_read_in_step_are_none(tmp_path: Path) -> None:
    in_step = "yield itertools.islice(ahead, 10)\n        collections.deque(itertools.islice(behind, 10), 0)"
    found = forked(LAGGING.format(rounds=in_step, last=16), tmp_path)
    assert found is not None and not [f for f in found if f["severity"] != "info"]

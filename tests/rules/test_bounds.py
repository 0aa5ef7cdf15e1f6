"""What keeps a growing name within limits, and how grave it is then."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from handmade import FILE, GIB, census, holding, outcome, program, rank, steps

from torchvet.analysis import growth_of
from torchvet.recording import Recording
from torchvet.recording.records.base import Place, Record, Source
from torchvet.recording.records.training import HostSamples, LoopBound
from torchvet.rules import rule
from torchvet.rules.shared.bounds import bound_of

TICKS = (20, 40, 80, 160, 240)


def told(text: str, extra: tuple[Record, ...] = (), every: int = 1, name: str = "kept", **more: Any) -> list[str]:
    """Severity, and limit where there is one, of a container that takes in 10,000 bytes at every so many steps."""
    looks = []
    for tick in TICKS:
        count = tick // every
        facts = {
            "direct": 10_000 * count,
            "tensors": count,
            "length": count,
            "items": count,
            "item_type": "Tensor",
            **more,
        }
        looks.append(census(tick, holding(name, scope="__main__", **facts)))
    kept = Source(path=FILE, text=text)
    one = Recording([rank(program(), kept, steps(250), extra, looks, outcome(250))])
    (growth,) = growth_of(one.ranks[0]).growths
    (finding,) = rule("MEM102").in_recording(one)
    bound = bound_of(growth, one)
    return [finding.severity, *([bound.text] if bound is not None else []), *([str(bound.bytes)] if bound else [])]


APPENDS = "kept = []\nfor step in range(250):\n    kept.append(net(step))\n"
ROUNDS = "kept = []\nfor turn in range({}):\n    for x in xs:\n        net(x)\n    kept.append(net.state())\n"


def test_a_loop_of_steps_is_no_limit() -> None:
    assert told(APPENDS) == ["error"]


def flat(since: int, until: int = 250, grows: int = 0) -> HostSamples:
    ticks = list(range(1, until))
    heap = [1_000_000 + 10_000 * min(tick, since) + grows * max(0, tick - since) for tick in ticks]
    return HostSamples(ticks=ticks, heap=heap)


EARLY = (2, 4, 6, 8, 12)


def test_what_memory_shows_no_more_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first epoch has filled it, and searching for names was too dear to go on."""
    monkeypatch.setitem(told.__globals__, "TICKS", EARLY)
    assert told(APPENDS, (flat(16),)) == ["info", "it may have ended: memory has not risen since step 129", "None"]
    # No evidence: growth that goes on, a heap that was not sampled, or for too few steps.
    assert told(APPENDS, (flat(250),)) == told(APPENDS) == told(APPENDS, (flat(16, 40),)) == ["error"]
    assert told(APPENDS, (flat(16, grows=9_000),)) == ["error"]
    # A queue is worked off beside it, a little faster.
    assert told(APPENDS, (flat(16, grows=-1_000),)) == ["error"]


def test_what_gets_ever_slower_may_be_filling_up(monkeypatch: pytest.MonkeyPatch) -> None:
    def kept(sizes: list[int]) -> str:
        facts = [{"direct": size, "tensors": n, "length": n, "items": n} for n, size in enumerate(sizes)]
        looks = [census(n * 20 + 20, holding("kept", scope="__main__", **one)) for n, one in enumerate(facts)]
        one = Recording([rank(program(memory_limit=64 * GIB), steps(250), looks, outcome(250))])
        (finding,) = rule("MEM102").in_recording(one)
        return finding.severity + (": it gets ever slower" if "it gets ever slower" in finding.message else "")

    fills = [0, *itertools.accumulate(range(200_000, 40_000, -20_000))]
    assert kept(fills) == "info: it gets ever slower"
    assert kept([100_000 * n for n in range(10)]) == "warning"
    # Slower once, and the same from then on.
    assert kept([0, 0, 400_000, *(400_000 + 20_000 * n for n in range(1, 8))]) == "warning"


def test_a_loop_over_rounds_ends() -> None:
    assert told(ROUNDS.format(30), every=20) == ["info", "the loop in line 2 has 30 turns", "320000"]
    assert told(ROUNDS.format(3 * GIB), every=20)[0] == "error", "the limit is beyond the memory"
    assert told(ROUNDS.format("args.rounds"), every=20) == ["warning"]
    assert told(ROUNDS.format(30), every=2)[0] == "error", "more than the rounds can have stored"


JOINS = "kept = first\nfor turn in range({}):\n    for x in xs:\n        net(x)\n    kept = torch.cat([kept, more()])\n"


def test_what_is_joined_in_each_round() -> None:
    facts = {"every": 20, "container": "Tensor", "length": None, "items": 0, "tensors": 1}
    assert told(JOINS.format(12), **facts) == ["info", "the loop in line 2 has 12 turns", "1440000"]
    assert told(JOINS.format(100), **facts) == ["warning"], "its turns may be steps"


def test_a_model_of_each_training_is_kept() -> None:
    text = """
kept = []
for fold in folds:
    model = build()
    optimizer = SGD(model.parameters())
    for batch in fold:
        step(model, optimizer, batch)
    kept.append(model)
"""
    bound = "one for each training: the loop in line 3 makes the model anew"
    assert told(text, every=20, item_type="Net") == ["info", bound, "None"]


def test_places_made_beforehand_are_taken_one_by_one() -> None:
    text = "kept = [None] * 1000\nfor i in range(250):\n    kept[i] = net(i)\n"
    assert told(text, length=1000) == ["info", "it has 1,000 places, of which 240 are taken", "10000000"]
    assert told(text, length=1000, item_type="list") == ["error"], "each place may be a list that grows"


def test_a_dict_whose_items_grow_has_no_places() -> None:
    assert told("kept = {}\n", container="dict", length=1000) == ["error"]


CUT = "kept = []\nfor step in range(250):\n    kept.append(net(step))\n    kept = kept[-{}:]\n"


def test_a_window_that_is_cut_with_each_store() -> None:
    assert told(CUT.format(300)) == ["info", "line 4 keeps it to 300 items", "3000000"]
    assert told(CUT.format(30)) == ["error"], "it holds more"


DATASET = """
class Images(Dataset):
    def __len__(self):
        return 9000

    def __getitem__(self, i):
        if i not in self.kept:
            self.kept[i] = decode(i)
        return self.kept[i]

images = Images()
"""


@pytest.mark.parametrize(
    ("batches", "expected"),
    [
        (300, ["info", "it is full when every item of the dataset has been read", "3000000"]),
        (100, ["error"]),
    ],
)
def test_a_datasets_cache_is_full_after_an_epoch(batches: int, expected: list[str]) -> None:
    loop = LoopBound(place=Place(FILE, 20, "main"), length=batches)
    assert told(DATASET, (loop,), name="images .kept", container="dict") == expected


def test_a_removal_is_a_bound_only_where_it_is_known_to_come() -> None:
    text = "kept = []\nfor step in range(9999):\n    kept.append(net(step))\n    if {}: kept.clear()\n"
    assert told(text.format("config.clear")) == ["error"], "never seen to come"
    assert told(text.format("step % 1000 == 0")) == ["info", "line 4 empties it every 1,000 steps", "10000000"]
    assert told(text.format("step % 1000000 == 0"))[0] == "error", "more than there is memory"


def test_growths_share_one_forecast() -> None:
    looks = [
        census(t, holding("left", direct=1_000_000 * t), holding("right", direct=1_000_000 * t), holding("tag", 4 * t))
        for t in TICKS
    ]
    one = Recording([rank(program(), steps(250), looks, outcome(250))])
    found = {f.holder.name: f for f in rule("MEM102").in_recording(one) if f.holder is not None}
    ends = {f.measured.exhausted_at_step for n, f in found.items() if n != "tag"}
    assert len(ends) == 1 and 0 < (ends.pop() or 0) < 600
    assert found["tag"].severity == "info" and found["tag"].measured.exhausted_at_step is None


OFFLOADS = """
class Offload(saved_tensors_hooks):
    def __init__(self):
        self.kept = {}
        super().__init__(self.pack, self.unpack)

    def pack(self, x):
        self.kept[len(self.kept)] = x
        return len(self.kept) - 1

    def unpack(self, key):
        x = self.kept[key]
        MORE
        return x

offload = Offload()
for step in range(250):
    with offload:
        loss = net(step)
    loss.backward()
"""


def test_what_is_taken_out_only_when_it_is_asked_for_is_no_limit() -> None:
    """Packed tensors of a branch that goes backward nowhere are never unpacked."""
    kind = {"name": "offload.kept", "container": "dict"}
    assert told(OFFLOADS.replace("MORE", "del self.kept[key]"), **kind) == ["error"]
    assert told(OFFLOADS.replace("MORE", "self.kept.clear()"), **kind)[0] == "warning"

"""Calls that seed torch's global generator by the same number in each turn of a loop that trains."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from torchvet.rules.kit import SourceFile
from torchvet.rules.shared.training_loops import effects_in, loop_text
from torchvet.source.model import Event
from torchvet.source.walking import Loop, walk

SEEDS = ("torch.manual_seed", "torch.random.manual_seed")
_BEGINS_ANEW = re.compile(
    r"optim\.|Optimi[sz]er\b|Adam|SGD|configure|build|make|create|reset|init_|_init\b|load(_\w+)?\(|fork_rng|rng_state"
)
"""What a loop may hold that is a trial of its own in each turn, or puts the state back."""
_DRAWS = re.compile(r"[Dd]ropout|shuffle=True|randperm|randn|torch\.rand\b|rand_like|randint|RandomSampler|Random[A-Z]")


def seeded_in_turn(file: SourceFile) -> Iterator[Event]:
    """Such calls. What a function does that the loop calls is not followed: it may belong to a trial."""
    if not _DRAWS.search(file.text):
        return
    for event in file.calls("manual_seed"):
        loop = event.loop
        if loop is None or loop.comprehension or file.dotted(event.call.func) not in SEEDS:
            continue
        around = list(_outward(loop))
        # The outermost one that trains: what is made within it is made anew in each turn.
        training = [one for one in around if effects_in(event.unit, one, "step")]
        if training and _is_sure(event, training) and not _BEGINS_ANEW.search(_code(loop_text(file, around[-1]))):
            yield event


def _code(text: str) -> str:
    return "\n".join(line.partition("#")[0] for line in text.splitlines())


def _outward(loop: Loop | None) -> Iterator[Loop]:
    while loop is not None:
        yield loop
        loop = loop.parent


def _is_sure(event: Event, training: list[Loop]) -> bool:
    """Whether the call is made in each turn, with one number."""
    given = event.call.args[0] if len(event.call.args) == 1 and not event.call.keywords else None
    inner, outer = training[0], training[-1]
    branches = [one for one, _ in event.context.arms if isinstance(one, (ast.If, ast.IfExp, ast.Try))]
    # A call may give another number each time.
    if given is None or any(isinstance(node, (ast.Call, ast.Subscript)) for node in ast.walk(given)):
        return False
    if any(one.lineno > inner.first for one in branches):
        return False
    return not {_name(node) for node in ast.walk(given)} & {_name(node) for node in walk(outer.node) if _is_bound(node)}


def _is_bound(node: ast.AST) -> bool:
    return isinstance(getattr(node, "ctx", None), ast.Store)


def _name(node: ast.AST) -> str | None:
    """The last part of a name; of all else a text that is none."""
    return getattr(node, "attr", getattr(node, "id", f"{id(node)}"))

"""Finds, on the stack at the moment of the failure, what to run again: a frame, a statement of it, and its slice."""

from __future__ import annotations

import ast
import dataclasses
import linecache
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import CodeType, FrameType
from typing import Any, NamedTuple

import torch

from torchvet.probes.base.callers import Whereabouts
from torchvet.probes.base.kit import of_program
from torchvet.probes.internals.finite import is_finite
from torchvet.probes.objects.containers import tensors_in
from torchvet.probes.replay.building import Refused, build
from torchvet.probes.replay.effects import effects_of
from torchvet.probes.replay.slicing import Slice, State, Way, everything, slice_of, way_to

_MOST_PLANS = 4
# They are run with the function that holds them, whose names they use.
_PARTS = ("<lambda>", "<genexpr>", "<listcomp>", "<dictcomp>", "<setcomp>")


class Spot(NamedTuple):
    """Where a frame was: which frame, its code, its instruction. Keeps no frame alive."""

    frame: int
    code: CodeType
    instruction: int


@dataclass
class Plan:
    """Code to run in a copy of a frame's names."""

    code: CodeType
    names: dict[str, Any]
    before: dict[str, Any]
    """The frame's own names as they are, to compare with."""
    score: float
    missing: dict[str, str] = field(default_factory=dict)
    written: set[str] = field(default_factory=set)
    wanted: list[tuple[Any, str]] = field(default_factory=list)
    """Objects and attributes of theirs that something further out has made."""


def live(frame: FrameType | None) -> Iterator[FrameType]:
    """The frames of the program, innermost first."""
    return of_program(frame)


def spots(stack: Whereabouts) -> tuple[Spot, ...]:
    """The same, to be looked into."""
    return tuple(map(Spot._make, stack))


def plans(
    frame: FrameType,
    remembered: tuple[Spot, ...] | None,
    has_batch: bool,
    backward: bool,
    before: tuple[Spot, ...] = (),
) -> tuple[list[Plan], str]:
    """What could be run again, the best first, and why there is nothing (or less).

    `remembered` is where the backward pass was called from, if that is past; `backward` whether values that autograd
    made are to be made anew, for their gradients. `before` is the stack of the step before: a frame that was there and
    has a loop goes round all steps, and beyond it lies the whole program, which is never run again.
    """
    found: list[Plan] = []
    wanted: list[tuple[Any, str]] = []
    why = "the call stands in no source file that can be read"
    # Frames that were there in the step before: they outlive a step.
    lasting = {(s.frame, s.code) for s in before}
    # Innermost first: the smallest piece that can be done again is the likeliest to come out alike.
    for one, instruction, running in _candidates(frame, remembered):
        try:
            way = _way(one.f_code, instruction)
            if way is None:
                continue
            mine = list(_of_frame(one, way, running, has_batch, backward, wanted))
            found += mine
            # Attributes that the inner frame lacks are made further out.
            wanted = [w for p in mine[:1] for w in p.wanted]
            # A slice that has all its inputs cannot be bettered, and beyond the loop over steps lies the whole program.
            # A loop of a frame that lasts goes round the steps.
            if any(p.score == 0 for p in found) or (way.in_loop and (not lasting or (id(one), one.f_code) in lasting)):
                break
        except Refused as error:
            why = str(error)
            if not lasting or (id(one), one.f_code) in lasting:
                break
    found.sort(key=lambda p: p.score)
    return found[:_MOST_PLANS], why


def _candidates(frame: FrameType, remembered: tuple[Spot, ...] | None) -> Iterator[tuple[FrameType, int, bool]]:
    """Frames with the instruction to look from, and whether they are at it now."""
    stack = list(live(frame))
    if remembered is not None:
        alive = {id(f): f for f in stack}
        # A frame's identity is used again after its end: its code has to be the same, too.
        common = next((s for s in remembered if s.frame in alive and alive[s.frame].f_code is s.code), None)
        if common is None:
            return
        first = alive[common.frame]
        # It may have gone on since then: what the statement binds is bound by now.
        yield first, common.instruction, first.f_lasti == common.instruction
        stack = stack[stack.index(first) + 1 :]
    for one in stack:
        if one.f_code.co_name not in _PARTS:
            yield one, one.f_lasti, True


def _of_frame(
    one: FrameType, way: Way, running: bool, has_batch: bool, backward: bool, wanted: list[tuple[Any, str]]
) -> Iterator[Plan]:
    # Only in a process of its own: what reading leaves behind dies with it.
    own = dict(one.f_locals)
    names = {**one.f_globals, **own}
    # A call that has returned: names may be bound anew by now.
    after = set() if running else _written_after(way, one.f_lineno)
    entered = {i for i, s in enumerate(way.steps) if isinstance(s.node, ast.With) and (running or _around(s.node, one))}
    state = _states(names, backward)
    more = {f"{name}.{attribute}" for name, value in own.items() for o, attribute in wanted if value is o}
    least = slice_of(way, state, running=running, overwritten=after, batch=has_batch, more=more)
    yield _plan(one, way, least, names, own, entered, _score(least))
    # Also the whole body of the loop, since a slice may have missed what a call does by its side effects.
    whole = everything(way, has_batch)
    # Its score lies behind slices whose inputs are all there, and before those that miss some.
    if way.in_loop and whole.chosen != least.chosen:
        yield _plan(one, way, whole, names, own, entered, 1.5)


def _plan(
    one: FrameType, way: Way, found: Slice, names: dict[str, Any], own: dict[str, Any], entered: set[int], score: float
) -> Plan:
    owner = _class_of(own)
    code = build(found, one.f_code, owner, entered)
    written = {n for i in found.chosen if found.items[i].node is not way.target for n in found.items[i].effects.writes}
    made = [n.partition(".") for n, why in found.missing.items() if "." in n and why != "overwritten"]
    wanted = [(names[base], attribute) for base, _, attribute in made if base in names]
    return Plan(code, dict(names), own, score, found.missing, {w for w in written if "." not in w}, wanted)


def _score(found: Slice) -> float:
    """0: every input is what it was; 1: some inputs were not finite when they came; more: less sure."""
    reasons = set(found.missing.values())
    if not reasons:
        return 0.0
    if reasons == {"bad"}:
        return 1.0
    return 3.0 if "made" in reasons else 2.0


def _around(node: ast.With, frame: FrameType) -> bool:
    return node.lineno <= frame.f_lineno <= (node.end_lineno or 0)


def _written_after(way: Way, line: int) -> set[str]:
    """Names bound in the function between the target and the line that it is at now."""
    scope = way.steps[0].node
    end = way.target.end_lineno or way.target.lineno
    # The effects of a compound statement are those of the simple ones within it.
    simple = (s for s in ast.walk(scope) if isinstance(s, ast.stmt) and not hasattr(s, "body"))
    after = [s for s in simple if end < s.lineno <= line]
    return effects_of(way.target).writes | effects_of(*after).writes


def _class_of(own: dict[str, Any]) -> str | None:
    # A method that uses `super()` has this cell: the class that defines it, and not that of `self`.
    cell = own.get("__class__")
    if isinstance(cell, type):
        return cell.__name__
    return type(own["self"]).__name__ if "self" in own else None


def _way(code: CodeType, instruction: int) -> Way | None:
    text = "".join(linecache.getlines(code.co_filename))
    if not text:
        raise Refused(f"{os.path.basename(code.co_filename)} has no source text")
    try:
        tree = ast.parse(text)
        # The file may have been edited since it was imported: its bytecode is compared, which has no line numbers.
        # Running an edited file would repeat another program.
        if not _is_of(compile(text, code.co_filename, "exec", dont_inherit=True), code):
            raise Refused(f"{os.path.basename(code.co_filename)} has changed since it was read")
    except (SyntaxError, ValueError) as error:
        raise Refused(f"{os.path.basename(code.co_filename)}: {error}") from None
    first, last, column = _position(code, instruction)
    return way_to(tree, first, last, column)


def _is_of(whole: CodeType, code: CodeType) -> bool:
    if whole.co_name == code.co_name and whole.co_firstlineno == code.co_firstlineno:
        # By name, first line and bytecode: functions of one name may stand in one file.
        return whole.co_code == code.co_code
    return any(_is_of(c, code) for c in whole.co_consts if isinstance(c, CodeType))


def _position(code: CodeType, instruction: int) -> tuple[int, int, int | None]:
    """First and last line and first column of an instruction; before Python 3.11 only its line is known."""
    if hasattr(code, "co_positions"):
        for index, (first, last, column, _) in enumerate(code.co_positions()):
            if index == instruction // 2 and first is not None:
                return first, last or first, column
    line = next((n for s, e, n in code.co_lines() if s <= instruction < e and n), code.co_firstlineno)
    return line, line, None


def _states(names: dict[str, Any], backward: bool) -> Callable[[str], State]:
    known: dict[str, State] = {}

    def state(name: str) -> State:
        if name not in known:
            known[name] = _state(name, names, backward)
        return known[name]

    return state


def _state(name: str, names: dict[str, Any], backward: bool) -> State:
    base, _, attribute = name.partition(".")
    # A builtin is as it was.
    if base not in names:
        builtins = names.get("__builtins__", {})
        # `__builtins__` is a module in `__main__`, and a dict in every other module.
        space = builtins if isinstance(builtins, dict) else vars(builtins)
        return "fine" if base in space else "absent"
    value = names[base]
    if attribute:
        value = _attribute(value, attribute)
    # Modules have their parameters, which are looked at apart.
    elif isinstance(value, (torch.nn.Module, type)) or callable(value):
        return "fine"
    worst: State = "fine"
    for tensor in _tensors(value):
        bad = not is_finite(tensor)
        # For gradients the graph is needed anew: the backward pass has freed the one that there was.
        if tensor.grad_fn is not None and (bad or backward):
            return "made"
        # A parameter is never made anew by a statement of the step.
        if bad and not isinstance(tensor, torch.nn.Parameter):
            worst = "bad"
    return worst


def _attribute(value: Any, attribute: str) -> Any:
    try:
        space = vars(value)
    except TypeError:
        return None
    if attribute in space:
        return space[attribute]
    for table in ("_parameters", "_buffers"):
        found = space.get(table)
        if isinstance(found, dict) and attribute in found:
            return found[attribute]
    return None


def _tensors(value: Any) -> list[torch.Tensor]:
    """What is to be finite of a value: of an object that is no plain container only a dataclass's fields."""
    found = tensors_in(value, 3)
    if not found and dataclasses.is_dataclass(value) and not isinstance(value, type):
        return tensors_in(dict(vars(value)) if hasattr(value, "__dict__") else {}, 2)
    return found

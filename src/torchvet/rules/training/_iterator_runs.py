"""Which uses find an iterator used up: in a sequence, in the turns of a loop, in functions within, in methods."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, field

from torchvet.rules.kit import SourceFile
from torchvet.rules.training._iterator_uses import LOOPS, Reader, Use
from torchvet.rules.training._iterators import Made
from torchvet.source import model
from torchvet.source.model import Event, Loop, Unit, holds, is_literal, targets_of, terminal, torch_names
from torchvet.source.walking import Arm

_BEFORE = -1
_OFTEN = re.compile(r"step|epoch|batch|iter|clip|update|train|loss|regular|freeze|penal")
"""Methods that are called more than once, by their names."""


@dataclass(frozen=True)
class UsedUp:
    """A use that finds an iterator used up by the `first`, or by itself in the turn before of a `loop`.

    `certain`: who comes there has been through the first. `others` are further uses that find it used up.
    """

    made: Made
    again: Use
    first: Use | None
    certain: bool
    loop: ast.AST | None = None
    sole: bool = False
    """Whether it is the only use."""
    others: list[Use] = field(default_factory=list)

    @property
    def first_text(self) -> str:
        """What the first use is, in words."""
        return _doing(self.first, self.made.unit.file) if self.first is not None else ""

    @property
    def message(self) -> str:
        """What the use finds, and why."""
        name = f"self.{self.made.name}" if self.made.attribute else self.made.name
        if self.first is not None:
            gone = f"{self.first_text} on line {self.first.line} has gone through it"
            return f"{name} is used up here, and {self.effect}: {gone}"
        over = getattr(self.loop, "lineno", None)
        turn = f"the first turn of the loop on line {over}" if over is not None else "the first call"
        return f"{name} is used up after {turn}, and {self.effect}: it is made once, on line {self.made.event.line}"

    @property
    def effect(self) -> str:
        """What comes of it."""
        at, name = self.again.at, terminal(self.again.at)
        if isinstance(at, ast.Call):
            if "optimizer" in torch_names.role_of_call(self.made.unit.file.dotted(at.func)):
                return f"{name} raises, as its list of parameters is empty"
            return {
                **dict.fromkeys(("clip_grad_norm_", "clip_grad_norm", "clip_grad_value_"), f"{name} clips nothing"),
                "sum": "the sum is 0",
            }.get(name, f"{name} gets nothing")
        return "the loop does nothing" if isinstance(at, LOOPS) else "nothing is left in it"


def _doing(use: Use, file: SourceFile) -> str:
    if isinstance(use.at, ast.Call):
        return f"`{file.segment(use.at.func)}`"
    return "the loop" if isinstance(use.at, LOOPS) else "what stands"


def used_up(file: SourceFile, made: Made) -> UsedUp | None:
    """The first use that finds an iterator used up; None where there is none, or where it is gone through in parts."""
    if made.attribute:
        return _of_attribute(file, made)
    reader = Reader(made.unit)
    uses, within = reader.uses(made.name, False), _in_functions(file, made)
    if uses is None or within is None or _bound_elsewhere(made) or _takes_on(uses):
        return None
    start = _BEFORE if made.given else made.event.index
    mine = [use for use in uses if use.event.index > start and not _bound_between(made, start, use.event.index)]
    later = _in_sequence(reader, made, mine) + _in_loops(reader, made, mine)
    later = later or _beside_functions(made, mine, within)
    if not later:
        return None
    best = min(later, key=lambda f: (not f.certain, f.again.event.index))
    rest = [f.again for f in later if f.again is not best.again]
    return UsedUp(made, best.again, best.first, best.certain, best.loop, len(uses) + len(within) == 1, rest)


def _takes_on(uses: list[Use]) -> bool:
    """Whether the loop over an iterator takes more of it in its body, as one that reads a head and then the rest."""
    loops = [u.at for u in uses if isinstance(u.at, LOOPS)]
    return any(u.at is not one and holds(one, u.node) for one in loops for u in uses)


def _bound_elsewhere(made: Made) -> bool:
    """Whether a function within may bind the name as well."""
    return any(made.name in u.outer_names for u in made.unit.file.units if u is not made.unit)


def _bound_between(made: Made, start: int, stop: int) -> bool:
    bound = made.unit.bindings.get(made.name, ())
    return any(start < e.index < stop and e is not made.event for e in bound)


def _in_sequence(reader: Reader, made: Made, uses: list[Use]) -> list[UsedUp]:
    found: list[UsedUp] = []
    for number, again in enumerate(uses):
        before = (u for u in uses[:number] if u.whole and _comes_after(reader, u, again))
        first = next((u for u in before if _comparable(made, u, again)), None)
        if first is not None and _matters(again, made):
            sure = _within(first.arms, again.arms) and _within(_arms_of(made), again.arms)
            found.append(UsedUp(made, again, first, sure and _for_sure(again)))
    return found


def _matters(use: Use, made: Made) -> bool:
    """Whether it is sure to go through it, or is handed on where somebody will; not to say that nothing is left."""
    statement = use.event.statement
    said = isinstance(statement, ast.Expr) and terminal(statement.value).startswith("assert")
    if said or isinstance(statement, ast.Assert):
        return False
    return use.whole or isinstance(use.at, LOOPS) or (made.parts and not isinstance(use.at, ast.Return))


def _for_sure(use: Use) -> bool:
    return use.whole or isinstance(use.at, LOOPS)


def _comes_after(reader: Reader, first: Use, again: Use) -> bool:
    if (
        first.event is again.event
        or first.event.statement is again.event.statement
        or first.event.excludes(again.event)
    ):
        return False
    handled = [arm for arm in again.arms if arm not in first.arms and _handles(arm)]
    return not handled and reader.goes_on(first, reader.shared(first.event.statement, again.event.statement))


def _handles(arm: Arm) -> bool:
    """Whether an arm is an `except`, which runs where what was tried did not come to its end."""
    return arm[0].__class__.__name__ in ("Try", "TryStar") and arm[1] > 0


def _comparable(made: Made, first: Use, again: Use) -> bool:
    """Whether no two of them depend on tests of which neither knows of the other's."""
    all_arms = (_arms_of(made), first.arms, again.arms)
    return all(_within(a, b) or _within(b, a) for a in all_arms for b in all_arms)


def _arms_of(made: Made) -> tuple[Arm, ...]:
    return () if made.given else made.event.context.arms


def _within(few: tuple[Arm, ...], many: tuple[Arm, ...]) -> bool:
    return all(arm in many for arm in few)


# Loops ------------------------------------------------------------------------------------------------------------


def _in_loops(reader: Reader, made: Made, uses: list[Use]) -> list[UsedUp]:
    found = []
    for use in uses:
        loop = _turned_by(made, use) if use.whole else None
        if loop is None or any(e.inside(loop) for e in made.unit.bindings.get(made.name, ())):
            continue
        if not _comes_again(loop) or not reader.goes_on(use, loop.node, turns=True):
            continue
        inner = [arm for arm in use.arms if _lies_in(arm[0], loop)]
        if any(
            _changes(arm[0], loop) for arm in (*inner, *(g for g in use.event.context.guards if _lies_in(g[0], loop)))
        ):
            continue
        sure = not isinstance(loop.node, ast.While) and _within(_arms_of(made), use.arms)
        found.append(UsedUp(made, use, None, sure, loop.node))
    return found


def _turned_by(made: Made, use: Use) -> Loop | None:
    """The innermost loop around a use that the iterator is not made in."""
    loop, outer = use.loop, None if made.given else made.event.loop
    if loop is None or (outer is not None and outer.within(loop)):
        return None
    return loop


def _comes_again(loop: Loop) -> bool:
    """Whether a loop has more than one turn, as far as its text says."""
    node = loop.node
    over = node.iter if isinstance(node, (ast.For, ast.AsyncFor)) else None
    if isinstance(over, (ast.List, ast.Tuple)):
        return len(over.elts) > 1
    return not (
        isinstance(over, ast.Call) and terminal(over) == "range" and len(over.args) == 1 and is_literal(over.args[0], 1)
    )


def _lies_in(node: ast.AST, loop: Loop) -> bool:
    return loop.first <= int(getattr(node, "lineno", 0)) <= loop.last and node is not loop.node


def _changes(branch: ast.AST, loop: Loop) -> bool:
    """Whether a test may come out otherwise in the next turn; one that counts (`step % 10 == 0`) comes round."""
    test = getattr(branch, "test", None)
    if test is None:
        return True
    if any(isinstance(n, ast.Mod) for n in ast.walk(test)):
        return False
    bound = model.names_bound([loop.node])
    return bool(model.names_in(test) & bound) or any(isinstance(n, (ast.Call, ast.Subscript)) for n in ast.walk(test))


# Functions and methods --------------------------------------------------------------------------------------------


def _in_functions(file: SourceFile, made: Made) -> list[Use] | None:
    """What functions that see the name from within do with it; None where one goes through it in parts."""
    found: list[Use] = []
    for unit in file.units_with(made.name):
        if unit is made.unit or unit.home(made.name) is not made.unit:
            continue
        own = Reader(unit).uses(made.name, False)
        if own is None:
            return None
        found += own
    return found


def _beside_functions(made: Made, uses: list[Use], within: list[Use]) -> list[UsedUp]:
    """Uses in functions that go through all of it, beside one in the unit itself."""
    first = next((u for u in uses if u.whole and not u.arms), None)
    if made.given or first is None or len(made.unit.bindings.get(made.name, ())) != 1:
        return []
    return [UsedUp(made, u, first, True) for u in within if u.whole and made.unit.file.callers(u.event.unit)]


def _of_attribute(file: SourceFile, made: Made) -> UsedUp | None:
    """An attribute that `__init__` binds, and nobody else."""
    once = made.unit.name == "__init__" and made.event.loop is None and _bound_once(file, made)
    uses = _of_methods(file, made) if once else None
    return _in_other_methods(file, made, uses) if uses else None


def _in_other_methods(file: SourceFile, made: Made, uses: list[Use]) -> UsedUp | None:
    """A use in another method, beside one in `__init__`; else in a method that is called again and again."""
    sure = [u for u in uses if u.whole]
    first = next((u for u in sure if u.event.unit is made.unit and not u.arms), None)
    again = [u for u in sure if u.event.unit is not made.unit]
    if first is None:
        again = [u for u in again if not u.arms and _is_called_often(file, u.event.unit)]
    if not again:
        return None
    certain = first is not None or _in_a_loop(file, again[0].event.unit)
    return UsedUp(made, again[0], first, certain, None, len(uses) == 1, again[1:])


def _bound_once(file: SourceFile, made: Made) -> bool:
    """Whether an attribute is bound nowhere else in the file, and no other class and no function reads one like it."""
    for unit in file.units_with(made.name):
        if any(True for e in unit.events for _ in _stores(e, made)):
            return False
        if unit.method_class() is made.unit.owner:
            continue
        if any(model.is_attribute(n, made.name) and file.unit_at(n.lineno) is unit for n in model.walk(unit.node)):
            return False
    return True


def _of_methods(file: SourceFile, made: Made) -> list[Use] | None:
    """The uses in all methods, in the order of the file; None where one is in parts."""
    units = (unit for unit in file.units_with(made.name) if unit.method_class() is made.unit.owner)
    uses = [Reader(unit).uses(made.name, True) for unit in units]
    return [one for own in uses if own is not None for one in own] if None not in uses else None


def _stores(event: Event, made: Made) -> list[ast.expr]:
    return [t for t in targets_of(event.node) if terminal(t) == made.name and event is not made.event]


def _in_a_loop(file: SourceFile, unit: Unit) -> bool:
    return any(e.loop is not None and e.loop.statement() is not None for e in file.callers(unit))


def _is_called_often(file: SourceFile, unit: Unit) -> bool:
    callers = file.callers(unit)
    return _in_a_loop(file, unit) or (not callers and bool(_OFTEN.search(unit.name)) and unit.name != "__init__")

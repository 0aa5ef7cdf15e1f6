"""Finds inputs and labels that a function puts into different orders before it pairs them."""

from __future__ import annotations

import ast
import re
from itertools import combinations, pairwise
from typing import NamedTuple

from torchvet.rules.kit import Iterator, SourceFile
from torchvet.source.model import (
    ClassModel,
    Event,
    Unit,
    is_name,
    keyword,
    name_set,
    names_in,
    terminal,
    value_bound,
    walk,
)

_LABELS = re.compile(r"(?i)(?:^|_)(?:y|ys|yb|labels?|lbls?|targets?|classes|gt|answers?)(?:_|\d|$)")
_INPUTS = re.compile(
    r"(?i)(?:^|_)(?:x|xs|xb|inputs?|images?|imgs?|features?|feats?|data|samples?|texts?|sentences?|sequences?|docs?|files?"
    r"|paths?)(?:_|\d|$)"
)
_ON_PURPOSE = re.compile(
    r"(?i)nois|corrupt|rand(?:om)?_?(?:label|target|y)|null|fake|wrong|neg|placebo|baseline|memori|unpaired|marginal|pred"
    r"|importance|permutation_test|ablat|surrogate|control"
)
"""Words of names and functions that break the pairing because they want to."""
_LOSSES = re.compile(r"(?i)loss|^crit|cross_entropy|^mse|^bce|^nll|^objective|^kl_div")
_SETS = re.compile(r"(?i)mmd|wasser|sinkhorn|chamfer|coral|hsic|moment|energy|sliced|mine|info|contrast|triplet|margin")
"""Losses of sets, in which no row belongs to another."""
_MADE = name_set("""
    arange range linspace rand randn randint random normal uniform choice ones zeros full empty eye ones_like zeros_like
    rand_like randn_like
""")
"""What a program makes values of: such have no partner yet."""
_PAIRS = name_set("TensorDataset zip")
_DRAWS = ("torch.randperm", "numpy.random.permutation")
_INDICES = name_set("randperm permutation")
_SHUFFLES = ("random.shuffle", "numpy.random.shuffle")
_SEEDS = name_set("""
    seed manual_seed set_seed seed_everything set_state setstate set_rng_state default_rng RandomState fork_rng
    manual_seed_all
""")
_LINKS = 3
"""Names that are followed from a pair to what was shuffled. Chosen, not measured."""


class Shuffled(NamedTuple):
    """A line that shuffles one of a pair, and the line that shuffles the other one by itself, if there is one."""

    event: Event
    name: str
    other: str
    by_itself: Event | None
    pair: Event


class _Move(NamedTuple):
    event: Event
    name: str
    key: int
    """Which draw it is: calls of their own differ."""
    alone: bool
    """Whether the order is lost with the line, so that nothing else can be put into it."""


def shuffled_pairs(file: SourceFile) -> Iterator[Shuffled]:
    """Every such pair in a file."""
    if file.path.replace("\\", "/").rpartition("/")[2].startswith(("test_", "conftest")):
        return
    units = [unit for word in ("randperm", "permutation", "shuffle") for unit in file.units_with(word)]
    yield from _within_sets(file) if units else ()
    calling = [event.unit for unit in units if len(unit.given_parameters) == 1 for event in file.callers(unit)]
    for unit in dict.fromkeys(units + calling):
        if not _ON_PURPOSE.search(unit.name) and _draws_freely(unit):
            yield from _in_unit(file, unit)


def split_pairs(file: SourceFile) -> Iterator[Shuffled]:
    """Inputs and labels that `train_test_split` is called on one by one."""
    for unit in file.units_with("train_test_split"):
        calls = [e for e in unit.calls.get("train_test_split", ()) if _splits_one(e)]
        for first, second in pairwise(calls):
            one, other = (e.call.args[0].id for e in (first, second) if isinstance(e.call.args[0], ast.Name))
            if _are_pair(one, other) and second.sure_after(first):
                yield Shuffled(first, one, other, second, second)


def _splits_one(event: Event) -> bool:
    call = event.call
    known = {"random_state", "shuffle", None} & {each.arg for each in call.keywords}
    return len(call.args) == 1 and isinstance(call.args[0], ast.Name) and not known


def _draws_freely(unit: Unit) -> bool:
    """Whether two draws differ: with equal seeds they are the same."""
    return not _SEEDS.intersection(unit.calls) & _after_first(unit)


def _after_first(unit: Unit) -> set[str]:
    """Seeds that are set once something was drawn, or that are set more than once."""
    drawn = [e.index for word in ("randperm", "permutation", "shuffle") for e in unit.calls.get(word, ())]
    first = min(drawn, default=0)
    return {
        name
        for name in _SEEDS.intersection(unit.calls)
        if len(unit.calls[name]) > 1 or any(e.index > first or e.loop is not None for e in unit.calls[name])
    }


def _in_unit(file: SourceFile, unit: Unit) -> Iterator[Shuffled]:
    moves = list(_moves(file, unit))
    reported: set[int] = set()
    for pair, sides, surely in _pairs(file, unit) if moves else ():
        lasting = [move for move in moves if move.event.index < pair.index and not _moved_later(unit, move, pair)]
        for move in lasting:
            if pair.sure_after(move.event) and id(move.event) not in reported:
                found = _apart(unit, lasting, move, sides, pair)
                if found is not None and (surely or found.by_itself is not None):
                    reported.update(id(one) for one in (found.event, found.by_itself))
                    yield found


def _apart(unit: Unit, moves: list[_Move], move: _Move, sides: list[set[str]], pair: Event) -> Shuffled | None:
    """What a moved name is paired with in another order; None where the two may be in one."""
    for name in _partners(moves, move, sides):
        its = next((one for one in reversed(moves) if one.name == name), None)
        of_one = its is not None and _may_be_pair(move.name, name) and _of_one(unit, move.name, name)
        if _may_be_letters(pair, name) or not (of_one or _are_pair(move.name, name)):
            continue
        if its is not None and its.key != move.key:
            # A run that sees it happen names the labels' line.
            first, second = (move, its) if _LABELS.search(move.name) else (its, move)
            return Shuffled(first.event, first.name, second.name, second.event, pair)
        if its is None and move.alone and _is_as_before(unit, name, move, pair):
            return Shuffled(move.event, move.name, name, None, pair)
    return None


def _may_be_letters(pair: Event, name: str) -> bool:
    """Letters that are zipped or returned are coordinates as well, or draws of two distributions."""
    return len(name) == 1 and (isinstance(pair.node, ast.Return) or terminal(pair.call) == "zip")


def _partners(moves: list[_Move], move: _Move, sides: list[set[str]]) -> list[str]:
    """The names on the other side of a pair, those that were moved before all others."""
    moved = {one.name for one in moves}
    found: list[str] = []
    for mine, other in (sides, sides[::-1]):
        if move.name in mine:
            names = other - mine
            found += sorted(names & moved or names)
    return found


def _are_pair(one: str, other: str) -> bool:
    """Whether names say that one has labels and the other one what they are of."""
    meant = _ON_PURPOSE.search(one) or _ON_PURPOSE.search(other)
    # The data of a target domain are no labels.
    inputs, labels = ([bool(words.search(name)) for name in (one, other)] for words in (_INPUTS, _LABELS))
    return not meant and sorted(inputs) == sorted(labels) == [False, True] and inputs != labels


def _may_be_pair(one: str, other: str) -> bool:
    """Whether one name is that of inputs, or of labels, and the other one says nothing against it."""
    said = [bool(words.search(name)) for name in (one, other) for words in (_INPUTS, _LABELS)]
    return sum(said) == 1 and not _ON_PURPOSE.search(one) and not _ON_PURPOSE.search(other)


def _of_one(unit: Unit, one: str, other: str) -> bool:
    """Whether one of two names is computed from the other, or both are parts of one table."""
    values = {name: [value_bound(e.node, name) for e in unit.bindings.get(name, ())] for name in (one, other)}
    if any(other in names_in(v) for v in values[one]) or any(one in names_in(v) for v in values[other]):
        return True
    tables = [
        {
            n.value.id
            for v in found
            if v is not None
            for n in walk(v)
            if isinstance(n, ast.Subscript) and isinstance(n.value, ast.Name)
        }
        for found in values.values()
    ]
    return not tables[0].isdisjoint(tables[1])


def _moved_later(unit: Unit, move: _Move, pair: Event) -> bool:
    """Whether the name is something else by the time that it is paired."""
    return any(
        move.event.index < one.index < pair.index for one in unit.bindings.get(move.name, ()) if one is not move.event
    )


def _is_as_before(unit: Unit, name: str, move: _Move, pair: Event) -> bool:
    """Whether a name was there before its partner was shuffled, and nothing was done to it afterwards."""
    bound = unit.bindings.get(name, [])
    known = (name in unit.parameters or bool(bound)) and all(one.index < move.event.index for one in bound)
    if not known or not _belong(unit, move.name, name):
        return False
    touched = (
        one
        for calls in (unit.calls.get("shuffle", ()), unit.calls.get("sort", ()))
        for one in calls
        if name in names_in(one.call)
    )
    return not any(one.index < pair.index for one in touched)


def _belong(unit: Unit, one: str, other: str) -> bool:
    """Whether two names have values for the same rows: made of each other, or from elsewhere."""
    if _of_one(unit, one, other):
        return True
    values = [value_bound(e.node, name) for name in (one, other) for e in unit.bindings.get(name, ())]
    calls = (n for v in values if v is not None for n in walk(v) if isinstance(n, ast.Call))
    return not any(terminal(call) in _MADE for call in calls)


def _moves(file: SourceFile, unit: Unit) -> Iterator[_Move]:
    for name, bound in unit.bindings.items():
        for event in bound:
            value = value_bound(event.node, name)
            found = list(_drawn(file, event, value)) if value is not None else []
            if isinstance(value, ast.Call) and _is_shuffler(file, unit, value):
                yield _Move(event, name, id(value), is_name(value.args[0], name))
            elif len(found) == 1:
                key, alone = found[0]
                # Of `x = x[torch.randperm(n)]` nothing has the order afterwards.
                rows = value.value if isinstance(value, ast.Subscript) else None
                yield _Move(event, name, key, alone and is_name(rows, name))
    for event in unit.calls.get("shuffle", ()):
        call = event.call
        if file.dotted(call.func) in _SHUFFLES and len(call.args) == 1 and isinstance(call.args[0], ast.Name):
            yield _Move(event, call.args[0].id, id(call), True)


def _drawn(file: SourceFile, event: Event, value: ast.expr) -> Iterator[tuple[int, bool]]:
    """Permutations by which an expression picks rows: which one, and whether it is written in place."""
    for node in walk(value):
        if not isinstance(node, ast.Subscript) or not isinstance(node.value, (ast.Name, ast.Attribute)):
            continue
        # Of an order that is drawn for a pass a batch takes a part.
        index = node.slice.value if isinstance(node.slice, ast.Subscript) else node.slice
        if _is_draw(file, index):
            yield id(index), True
        elif isinstance(index, ast.Name) and event.is_own(index):
            bound = event.binding_of(index.id)
            drawn = value_bound(bound.node, index.id) if bound is not None else None
            if drawn is not None and _is_draw(file, drawn):
                yield id(drawn), False


def _is_shuffler(file: SourceFile, unit: Unit, call: ast.Call) -> bool:
    """Whether a call runs a function of the file that gives the rows of its one argument in an order of its own."""
    event = unit.call_of(call)
    given = len(call.args) == 1 and not call.keywords and isinstance(call.args[0], ast.Name)
    callee = file.callee(event) if given and event is not None else None
    if callee is None or len(callee.given_parameters) != 1 or _SEEDS.intersection(callee.calls):
        return False
    (rows,) = callee.given_parameters
    return len(callee.returned) == 1 and all(
        isinstance(value, ast.Subscript) and is_name(value.value, rows) and any(_drawn(file, gives, value))
        for value, gives in callee.returned
    )


def _is_draw(file: SourceFile, node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and file.dotted(node.func) in _DRAWS and keyword(node, "generator") is None


def _pairs(file: SourceFile, unit: Unit) -> Iterator[tuple[Event, list[set[str]], bool]]:
    """What pairs two values, with the names that each of these comes of, and whether it surely does so by rows."""
    for event in unit.events:
        given, surely = _paired(file, event)
        for two in combinations(given, 2):
            yield event, [_behind(event, one) for one in two], surely


def _paired(file: SourceFile, event: Event) -> tuple[list[ast.expr], bool]:
    node = event.node
    if isinstance(node, ast.Return):
        two = node.value.elts if isinstance(node.value, ast.Tuple) and len(node.value.elts) == 2 else []
        return list(two), False
    if not isinstance(node, ast.Call):
        return [], False
    name = terminal(node)
    if name in _PAIRS or (_LOSSES.search(name) and not _SETS.search(name) and len(node.args) == 2):
        return node.args, True
    made = file.classes.get(name)
    known = made is not None and not _ON_PURPOSE.search(name)
    return list(_rows_of(made, event)) if made is not None and known else [], False


def _rows_of(model: ClassModel, event: Event) -> Iterator[ast.expr]:
    """What a call that makes a data set gives it for its rows."""
    init = model.method("__init__")
    for attribute in sorted(_indexed(model)) if init is not None else ():
        for _, value in model.attributes.get(attribute, ()):
            if init is not None and isinstance(value, ast.Name):
                yield from model.file.passed(event, init, value.id)


def _indexed(model: ClassModel) -> set[str]:
    """The attributes of which a data set gives the rows of one index."""
    gives = model.method("__getitem__")
    if gives is None or len(gives.given_parameters) != 1:
        return set()
    (index,), own = gives.given_parameters, gives.self_name()
    return {
        node.value.attr
        for node in walk(gives.node)
        if isinstance(node, ast.Subscript)
        and isinstance(node.value, ast.Attribute)
        and is_name(node.value.value, own)
        and is_name(node.slice, index)
    }


def _within_sets(file: SourceFile) -> Iterator[Shuffled]:
    """Data sets that shuffle what they are given when they are made."""
    for model in file.classes.values():
        init, gives = model.method("__init__"), model.method("__getitem__")
        if init is None or gives is None or _ON_PURPOSE.search(model.name) or not _draws_freely(init):
            continue
        for one, other in combinations(sorted(_indexed(model)), 2):
            # The labels last.
            names = (one, other) if _LABELS.search(other) else (other, one)
            last = [model.attributes[name][-1] for name in names if name in model.attributes]
            if (
                len(last) == 2
                and _are_pair(one, other)
                and not any(e.context.arms or e.unit is not init for e, _ in last)
            ):
                yield from _moved_apart(file, names, last, gives.events[0])


def _moved_apart(
    file: SourceFile, names: tuple[str, str], last: list[tuple[Event, ast.expr | None]], pair: Event
) -> Iterator[Shuffled]:
    keys = [[key for key, _ in _drawn(file, event, value)] if value is not None else [] for event, value in last]
    (inputs, labels), (one, other) = names, last
    if len(keys[0]) == len(keys[1]) == 1 and keys[0] != keys[1]:
        yield Shuffled(other[0], labels, inputs, one[0], pair)
    for name, kept_name, (event, value), (_, kept) in ((inputs, labels, one, other), (labels, inputs, other, one)):
        in_place = isinstance(value, ast.Subscript) and _is_draw(file, value.slice)
        if in_place and isinstance(kept, ast.Name):
            yield Shuffled(event, name, kept_name, None, pair)


def _behind(event: Event, node: ast.expr) -> set[str]:
    """The names that an expression is computed from."""
    found = _read_in(node)
    waiting = found
    for _ in range(_LINKS):
        values = ((name, event.binding_of(name)) for name in waiting)
        bound = {below for name, one in values if one is not None for below in _read_in(value_bound(one.node, name))}
        waiting = bound - found
        found |= bound
    return found


def _read_in(node: ast.expr | None) -> set[str]:
    """The variables of which an expression needs more than how long they are."""
    if node is None:
        return set()
    measured = {id(below) for one in walk(node) if _is_measure(one) for below in walk(one)}
    return {one.id for one in walk(node) if isinstance(one, ast.Name) and id(one) not in measured}


def _is_measure(node: ast.AST) -> bool:
    if isinstance(node, ast.Attribute):
        return node.attr == "shape"
    return isinstance(node, ast.Call) and (terminal(node) in ("len", "size", "range") or terminal(node) in _INDICES)

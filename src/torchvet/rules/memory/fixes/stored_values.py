"""Edits where a run has seen what is stored: the line and the holder are known, and that it is a tensor."""

from __future__ import annotations

import ast

from torchvet.rules.core.fixing import all_or_none, events_at, held, may_be_tensor, storing, unit_of, with_method
from torchvet.rules.kit import Edit, Edits, Finding, Iterable, Iterator, Recording, SourceFile
from torchvet.rules.memory._stores import Stored, put_by, store, under_a_key
from torchvet.rules.shared.growth_rule import growths_of, is_tensor_class, item_type
from torchvet.source import model, syntax
from torchvet.source.model import destinations, edits

_DEEPEST = 4
_OF_PARTS = (*syntax.DISPLAYS, ast.BoolOp)


def stored_at(file: SourceFile, finding: Finding) -> Iterator[Stored]:
    """What the line of a finding stores into what holds the memory."""
    return _into_holder(events_at(file, finding), finding)


def _into_holder(events: list[model.Event], finding: Finding) -> Iterator[Stored]:
    """What some events store into what holds the memory of a finding."""
    for event in events:
        kept = _defaulted(event) or _stored_by(event)
        # Empty: what is stored into has no name, as `get()[k] = v`.
        if kept is not None and _into(kept) in ("", held(finding)):
            yield kept


def _stored_by(event: model.Event) -> Stored | None:
    return store(event) or _bound(event) or _queued(event)


def _into(kept: Stored) -> str:
    """The last identifier of what is stored into: `rows` of `self.rows.setdefault(key, [])`."""
    base, _ = syntax.peel(kept.holder)
    return syntax.ident(base) or model.terminal(kept.holder)


def _defaulted(event: model.Event) -> Stored | None:
    """`holder.setdefault(key, []).append(value)`."""
    found = put_by(event) if model.is_call(event.node, "append", "add") else None
    called = found is not None and model.is_call(found.holder, "setdefault")
    return found if called else None


def _queued(event: model.Event) -> Stored | None:
    """`queue.put(value)`."""
    node = event.node
    on = model.receiver(node) if model.is_call(node, "put", "put_nowait") else None
    if not isinstance(node, ast.Call) or not isinstance(on, (ast.Name, ast.Attribute)) or not node.args:
        return None
    return Stored(event, on, node.args[0])


def _bound(event: model.Event) -> Stored | None:
    """`holder[key] = value`, and the whole of `holder = 0.9 * holder + 0.1 * value`."""
    node = event.node
    target = model.sole_target(node)
    if not isinstance(node, ast.Assign) or not isinstance(target, (ast.Name, ast.Attribute)):
        return under_a_key(event)
    # A plain assignment stores nothing more than was there.
    again = any(syntax.same(one, target) for one in _read_in(node.value))
    return Stored(event, target, node.value) if again else None


def _read_in(value: ast.expr) -> Iterator[ast.expr]:
    """Names and attributes that an expression reads, those spelled `getattr(self, "mean", 0)` among them."""
    for one in model.walk(value):
        base = syntax.peel(one)[0] if isinstance(one, ast.Call) else one
        if isinstance(base, (ast.Name, ast.Attribute)):
            yield base


def stored_with(file: SourceFile, finding: Finding, method: str) -> Edits:
    """What is stored goes in by way of a method: `losses.append(loss.detach())`."""
    for kept in stored_at(file, finding):
        # `extend` takes a row of values, which has no `.detach()`.
        if not (model.is_call(kept.event.node, "extend")):
            # None means that it is no container; an empty list that it is one which cannot be edited.
            fills = filled_with(file, kept, method)
            if fills is not None:
                return fills
            return with_method(file, kept.value, method) or parts_with(file, kept.value, kept.event, method)
    handed = _handed_in(file, finding)
    given = [value for value in handed if may_be_tensor(value)]
    # Several arguments may be tensors: which of them is stored is asked below.
    if len(given) == 1:
        return with_method(file, given[0], method)
    return parts_with(file, handed[0], events_at(file, finding)[0], method) if len(handed) == 1 else ()


def copied(file: SourceFile, finding: Finding) -> Edits:
    """What is stored goes in as a copy. Of a line that stores what surely has a storage of its own, other lines that
    store under the same name are taken."""
    kept = list(stored_at(file, finding))
    if not kept or any(_may_be_view(one.value) for one in kept):
        # Of a row that is written down only the views need a copy.
        parts = [p for one in kept if isinstance(one.value, _OF_PARTS) for p in syntax.parts(one.value) if _is_part(p)]
        return stored_with(file, finding, "clone()") or _cloned(file, parts)
    # What is stored there has a storage of its own: the growing view is another line's.
    own = kept[0].event.line
    others = (file.events_on(line) for line in file.lines_with(held(finding)) if line != own)
    values = (one.value for events in others for one in _into_holder(events, finding))
    return _cloned(file, filter(_may_be_view, values))


def _cloned(file: SourceFile, values: Iterable[ast.expr]) -> list[Edit]:
    return [edit for value in values for edit in with_method(file, value, "clone()")]


_FRESH = {"clone", "tensor", "as_tensor", "zeros", "ones", "stack", "cat", "mean", "sum", "relu", "softmax", "item"}
"""What these make has a storage of its own, or is none."""
_VIEWS = model.name_set("view squeeze unsqueeze permute transpose narrow select expand detach t flatten")


def _may_be_view(node: ast.expr) -> bool:
    return not (model.is_call(node, *_FRESH))


def _is_part(node: ast.expr | None) -> bool:
    """`images[0]`, `rows.detach()[0]`, `x[0].view(-1)`."""
    called = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and model.terminal(node) in _VIEWS
    return isinstance(node, ast.Subscript) or called


def detached(file: SourceFile, finding: Finding, recording: Recording) -> Edits:
    """What is stored goes in without its graph, and as a copy where the run saw that it is a small part of a storage,
    as what `F.mse_loss` returns on the CPU: the rest would stay. No method of tensors on what was seen to be none."""
    mine = growths_of(finding, recording)
    # Half: what the tensors show against what their storages take.
    pins = any(g.visible_per_step < 0.5 * g.direct_per_step for g in mine)
    # A detached view shares its storage: 4 MB stay for a slice of one column of 1000 by 1000.
    method = "detach().clone()" if pins else "detach()"
    made = tensors_only(stored_with(file, finding, method), finding, file, recording)
    kinds = {item_type(g.holding, _stored_line(file, finding)) for g in mine}
    # Only if all ranks saw the same type.
    return made or (_each_with(file, finding, kinds.pop(), method) if len(kinds) == 1 else ())


def tensors_only(made: Edits, finding: Finding, file: SourceFile, recording: Recording) -> Edits:
    """Edits that call a method on what is stored; none where they take the whole item of a container whose items the
    run has seen to be something else: tuples off a queue, log records."""
    line = _stored_line(file, finding)
    # An unknown type counts as a tensor's.
    if all(is_tensor_class(item_type(growth.holding, line)) for growth in growths_of(finding, recording)):
        return made
    whole = {(edits.start_of(file, v), edits.end_of(file, v)) for v in _items(file, finding)}
    return () if any((e.start, e.end) in whole for e in made) else made


def _stored_line(file: SourceFile, finding: Finding) -> str:
    """The line that puts it away, where that is in this file."""
    places = (storing(finding), finding.location)
    line = next((p.line for p in places if p is not None and p.line is not None and p.path == file.path), None)
    return file.lines[line - 1] if line is not None and line <= len(file.lines) else ""


def _items(file: SourceFile, finding: Finding) -> Iterator[ast.expr]:
    """What becomes an item as it is; `means[key] += value` makes another of it."""
    for kept in stored_at(file, finding):
        if not isinstance(kept.event.node, ast.AugAssign):
            yield kept.value
    stored = storing(finding)
    if stored is not None and stored.path == file.path:
        yield from _handed_in(file, finding)


def parts_with(file: SourceFile, made: ast.expr, event: model.Event, method: str) -> Edits:
    """What an object or a container that is written down there is made of: those of its parts that surely have a
    graph, each by way of a method. Nothing where there is none, or one of them cannot be."""
    spread = _spread(made)
    tensors = [p for p in _parts_of(made) if may_be_tensor(p) and p not in spread]
    with_graph = [p for p in tensors if _has_graph(file, p, event)]
    if not with_graph and not isinstance(made, ast.Call):  # a run has seen that there is one
        # If only one part can have it, it is that one.
        possible = [p for p in tensors if file.gradients.carries(p, event) != "no"]
        with_graph = possible if spread or len(possible) == 1 else []
    within = (_each_of(file, mapping, "dict", method) for mapping in spread)
    return all_or_none([*(with_method(file, part, method) for part in with_graph), *within])


def _spread(made: ast.expr) -> list[ast.expr]:
    """The mappings that a dict is written down with: `scores` of `{"loss": loss, **scores}`."""
    return [v for k, v in zip(made.keys, made.values, strict=True) if k is None] if isinstance(made, ast.Dict) else []


def _parts_of(made: ast.expr) -> list[ast.expr]:
    if isinstance(made, (*_OF_PARTS, *syntax.COMPREHENSIONS)):
        return syntax.parts(made)
    return syntax.given(made) if isinstance(made, ast.Call) and not may_be_tensor(made) else []


_EACH = {
    "dict": "{{k: v.{0} if torch.is_tensor(v) else v for k, v in {1}.items()}}",
    "list": "[v.{0} if torch.is_tensor(v) else v for v in {1}]",
    "tuple": "tuple(v.{0} if torch.is_tensor(v) else v for v in {1})",
}
"""A container of tensors with a method called on each, by its type."""


def _each_with(file: SourceFile, finding: Finding, kind: str | None, method: str) -> Edits:
    """Each tensor of a container that is stored whole goes in by way of a method, where the run has seen its type."""
    # Where it is stored, or where a caller hands it in.
    values = [*(k.value for k in stored_at(file, finding)), *_handed_in(file, finding)]
    return _each_of(file, values[0], kind, method) if kind in _EACH and len(values) == 1 else ()


def _each_of(file: SourceFile, value: ast.expr, kind: str, method: str) -> Edits:
    plain = isinstance(value, (ast.Name, ast.Attribute, ast.Call, ast.Subscript)) and edits.on_one_line(value)
    if not plain or file.imports.names.get("torch") != "torch":
        return ()
    return [edits.replace(file, value, _EACH[kind].format(method, file.segment(value)))]


def _has_graph(file: SourceFile, node: ast.expr, event: model.Event, depth: int = 0) -> bool:
    """Whether an expression surely has a graph, also by way of an attribute that a method of the class binds or of
    `x.max(dim=1).values`."""
    answer = file.gradients.carries(node, event)
    if answer != "unknown" or depth > _DEEPEST:
        return answer == "yes"
    if not isinstance(node, ast.Attribute):
        return False
    # The named result of `max`, `sort` and `topk`.
    if node.attr == "values" and isinstance(node.value, ast.Call):
        return _has_graph(file, node.value, event, depth + 1)
    owner = event.unit.method_class()
    on_self = model.is_name(node.value, event.unit.self_name())
    bound = owner.attributes.get(node.attr, ()) if owner is not None and on_self else ()
    values = [(v, e) for e, v in bound if not model.is_literal(v, None)]
    return bool(values) and all(v is not None and _has_graph(file, v, e, depth + 1) for v, e in values)


def _handed_in(file: SourceFile, finding: Finding) -> list[ast.expr]:
    """What a call on the line of a finding gives to the method that stores it: `memory.push(loss)`."""
    stored = storing(finding)
    calls = [e for e in events_at(file, finding) if isinstance(e.parent, ast.Expr) and isinstance(e.node, ast.Call)]
    # With two calls on a line it is not known which one stores.
    if stored is None or stored.line is None or len(calls) != 1:
        return []
    # The method is in another file: then all arguments come into question.
    if stored.path != file.path:
        return syntax.given(calls[0].call)
    unit = file.unit_at(stored.line)
    values = (kept.value for kept in map(_stored_by, file.events_on(stored.line)) if kept is not None)
    name = next((v.id for v in values if isinstance(v, ast.Name)), "")
    return file.passed(calls[0], unit, name) if name and model.terminal(calls[0].node) == unit.name else []


CACHES = {"functools.lru_cache", "functools.cache"}
"""Decorators that remember results."""


def caching_decorator(file: SourceFile, unit: model.Unit) -> ast.expr | None:
    """The decorator that caches what a function returns."""
    if isinstance(unit.node, ast.Module):
        return None
    decorators = unit.node.decorator_list
    return next((d for d in decorators if file.dotted(d.func if isinstance(d, ast.Call) else d) in CACHES), None)


def without_cache(file: SourceFile, finding: Finding) -> Edits:
    """The decorator of a cached function taken out, where nothing asks for the cache's figures or empties it."""
    # Only the decorated function has these; without the decorator the line would raise.
    if file.mentions("cache_info", "cache_clear", "__wrapped__"):
        return ()
    units = [unit_of(file, finding), *(unit for unit in file.units if unit.name == held(finding))]
    decorators = (caching_decorator(file, unit) for unit in units if unit is not None)
    found = {d.lineno: d for d in decorators if d is not None}
    return without_decorator(file, next(iter(found.values()))) if len(found) == 1 else ()


def without_decorator(file: SourceFile, decorator: ast.expr) -> list[Edit]:
    """Take a decorator's line out; nothing where it shares it or goes over several."""
    line = file.lines[decorator.lineno - 1]
    if decorator.lineno != decorator.end_lineno or line.strip() != f"@{file.segment(decorator)}":
        return []
    return [Edit(path=file.path, start=(decorator.lineno, 1), end=(decorator.lineno + 1, 1), text="")]


_MADE = ("dict", "list", "defaultdict", "OrderedDict", "deque", "Counter")


def filled_with(file: SourceFile, kept: Stored, method: str) -> Edits | None:
    """`out["loss"] += loss.detach()` where `history.append(out)` is what a run has named: everything that may have a
    graph goes in by way of a method. None where what is stored is no container that the same function makes."""
    value, unit = kept.value, kept.event.unit
    if not isinstance(value, ast.Name) or unit.home(value.id) is not unit or value.id in unit.parameters:
        return None
    made = [_is_container(v) for v in _values(value.id, kept.event)]
    # None of them: then it is a value, for which another edit is right.
    if not any(made):
        return None
    fills = [f for f in _fills(unit, value.id) if may_be_tensor(f.value)] if all(made) else []
    by_answer: dict[str, list[ast.expr]] = {}
    for one in fills:
        by_answer.setdefault(file.gradients.carries(one.value, one.event), []).append(one.value)
    # Where something surely has a graph, what may have one is left alone.
    filled = by_answer.get("yes") or by_answer.get("unknown", [])
    return all_or_none(with_method(file, one, method) for one in filled)


def _values(name: str, event: model.Event) -> Iterator[ast.expr | None]:
    """What a name may be bound to at an event: a list that was joined to one tensor is none there any more."""
    for binding in destinations.reaching(name, event):
        if not isinstance(binding.node, ast.AugAssign):
            yield model.value_bound(binding.node, name)


def _is_container(value: ast.expr | None) -> bool:
    """Whether an expression is a container written down, or one made empty."""
    shown = (ast.Dict, ast.List, ast.DictComp, ast.ListComp)
    return isinstance(value, shown) or (model.is_call(value, *_MADE))


def _fills(unit: model.Unit, name: str) -> Iterator[Stored]:
    """What the function stores into a name, or into what the name holds: `out["mae"].append(x)`."""
    for event in unit.events:
        one = store(event) or under_a_key(event)
        if one is not None and one.variable == name:
            yield one

"""Edits that hold gradients back: the passes before the last one of an accumulation window under `model.no_sync()`."""

from __future__ import annotations

import ast
import re
from typing import NamedTuple

from torchvet.rules.kit import Edit, Identity, SourceFile
from torchvet.rules.shared import training_loops as loops
from torchvet.source.model import Event, Unit, blocks, names_in, origins, steps, target_names, targets_of, value_for
from torchvet.source.statements import spans
from torchvet.source.syntax import given
from torchvet.source.walking import walk

_DEEPEST = 4
_LEAVES = re.compile(r"\b(continue|break)\b")
_SURE = (ast.Name, ast.Attribute, ast.Constant, ast.Compare, ast.BoolOp, ast.BinOp, ast.UnaryOp)


class Held(NamedTuple):
    """The edits, and the call of the model that the passes begin with."""

    edits: list[Edit]
    run: Event


class _Model(NamedTuple):
    """What the loop calls the model, and whether it is in DistributedDataParallel whatever branches are taken."""

    text: str
    surely: bool


class _Passes(NamedTuple):
    """The body of the loop, the positions in it between which a pass runs, and the calls there that run the model."""

    body: list[ast.stmt]
    first: int
    last: int
    running: list[Event]


class _Nothing(NamedTuple):
    """What the file calls the context manager that does nothing, and the edits that import it."""

    name: str
    imported: list[Edit]


def held_back(file: SourceFile, window: loops.Window, wrapped: Identity) -> Held | None:
    """The passes of a window under `no_sync` but for the last; None where anything about that is not sure: which
    statements a pass is, what the model is called there, or how the last pass is recognized before it begins."""
    backwards = {id(e.event) for e in window.step.of("backward")}
    passes = _passes(file, window, wrapped) if len(backwards) == 1 and not file.mentions("static_graph") else None
    if passes is None:
        return None
    model, nothing = _model(file, passes.running, wrapped), _nullcontext(file)
    last = _last_pass(file, window, passes)
    if model is None or nothing is None or not last:
        return None
    if not model.surely:
        kind = _wrapper(file)
        if not kind:
            return None
        # A model that is not wrapped has no `no_sync`.
        last += f" or not isinstance({model.text}, {kind})"
    head = f"{nothing.name}() if {last} else {model.text}.no_sync()"
    moved = blocks.under_with(file, passes.body[passes.first : passes.last + 1], head)
    return Held([*nothing.imported, *moved], passes.running[0]) if moved else None


def _passes(file: SourceFile, window: loops.Window, wrapped: Identity) -> _Passes | None:
    """The statements that each pass of a window runs; None where its backward may not run, or the order is another."""
    backward = window.backward.event
    loop, together = backward.loop, backward.unit is window.stepped.event.unit
    if not together or loop is None or not isinstance(loop.node, (ast.For, ast.While)):
        return None
    body = loop.node.body
    last = next((n for n, s in enumerate(body) if _holds(s, backward.statement)), None)
    if last is None:
        return None
    running = [e for e in backward.unit.calls_inside(loop) if _runs(file, e, wrapped)]
    calling = [n for n, s in enumerate(body) if any(spans([s], e.line) for e in running)]
    # A forward pass behind the backward belongs to the next one.
    return _Passes(body, calling[0], last, running) if calling and calling[-1] <= last else None


def _nullcontext(file: SourceFile) -> _Nothing | None:
    """How the file writes `contextlib.nullcontext`; None where nothing imports it and no import can be added."""
    names = {what: name for name, what in file.imports.names.items()}
    if "contextlib.nullcontext" in names:
        return _Nothing(names["contextlib.nullcontext"], [])
    if "contextlib" in names:
        return _Nothing(f"{names['contextlib']}.nullcontext", [])
    imported = blocks.importing(file, "contextlib")
    return _Nothing("contextlib.nullcontext", imported) if imported else None


def _holds(statement: ast.stmt, wanted: ast.stmt) -> bool:
    """Whether a statement of the loop is another, or a `with` that has it: what a branch does is not sure."""
    if statement is wanted:
        return True
    return isinstance(statement, ast.With) and any(_holds(s, wanted) for s in statement.body)


def _runs(file: SourceFile, event: Event, wrapped: Identity, depth: int = 0) -> bool:
    """Whether a call runs the wrapped model, by itself or in functions of this file."""
    if (
        isinstance(event.call.func, (ast.Name, ast.Attribute))
        and origins.identity(event.call.func, event.unit) & wrapped
    ):
        return True
    callee = file.callee(event) if depth < _DEEPEST else None
    return callee is not None and any(_runs(file, e, wrapped, depth + 1) for e in callee.calls_inside(None))


def _model(file: SourceFile, running: list[Event], wrapped: Identity) -> _Model | None:
    """What the loop calls the model; None where it has no one name."""
    found: dict[str, bool] = {}
    for event in running:
        for one in (event.call.func, *given(event.call)):
            if isinstance(one, (ast.Name, ast.Attribute)) and origins.identity(one, event.unit) & wrapped:
                found[steps.text_of(one)] = found.get(steps.text_of(one), True) and _is_wrapped(file, one, event, 0)
    return _Model(*next(iter(found.items()))) if len(found) == 1 else None


def _wrapper(file: SourceFile) -> str:
    """What the file calls DistributedDataParallel, by an import that all of it sees; empty where it has none."""
    top = [s for s in file.tree.body if isinstance(s, (ast.Import, ast.ImportFrom))]
    known = {(alias.asname or alias.name).partition(".")[0] for statement in top for alias in statement.names}
    for made in file.calls("DistributedDataParallel", "DDP"):
        written = steps.text_of(made.call.func)
        torchs = file.dotted(made.call.func).endswith("nn.parallel.DistributedDataParallel")
        if torchs and written.partition(".")[0] in known:
            return written
    return ""


def _is_wrapped(file: SourceFile, node: ast.expr, event: Event, depth: int) -> bool:
    """Whether a name, parameter or attribute is what `DistributedDataParallel(…)` gave, whatever branch is taken."""
    if isinstance(node, ast.Call):
        return file.dotted(node.func).endswith("nn.parallel.DistributedDataParallel")
    if depth > _DEEPEST:
        return False
    if isinstance(node, ast.Attribute):
        return isinstance(node.value, ast.Name) and _attribute_wrapped(file, node, event, depth)
    return isinstance(node, ast.Name) and _name_wrapped(file, node.id, event, depth)


def _name_wrapped(file: SourceFile, name: str, event: Event, depth: int) -> bool:
    home = event.unit.home(name)
    bound = home.bindings.get(name, []) if home is not None else []
    if home is not event.unit:
        return bool(bound) and not bound[-1].context.arms and _gives(file, bound[-1], name, depth)
    if not bound:
        return _passed(file, home, name, depth)
    reaching = file.devices.reaching(name, event)
    return len(reaching) == 1 and _gives(file, reaching[0], name, depth)


def _gives(file: SourceFile, binding: Event, name: str, depth: int) -> bool:
    target = next((t for t in targets_of(binding.node) if steps.text_of(t) == name), None)
    value = value_for(binding.node, target) if target is not None else None
    return value is not None and steps.text_of(value) != name and _is_wrapped(file, value, binding, depth + 1)


def _passed(file: SourceFile, unit: Unit, name: str, depth: int) -> bool:
    """Whether every caller in this file gives a parameter such a model."""
    callers = file.callers(unit)
    models = [(m, e) for e in callers for m in file.passed(e, unit, name)]
    return len(models) == len(callers) > 0 and all(_is_wrapped(file, m, e, depth + 1) for m, e in models)


def _attribute_wrapped(file: SourceFile, node: ast.Attribute, event: Event, depth: int) -> bool:
    owner = event.unit.method_class() if steps.text_of(node.value) == event.unit.self_name() else None
    bound = [e for e, _ in owner.attributes.get(node.attr, [])] if owner is not None else []
    if not bound or bound[-1].context.arms or len({id(e.unit) for e in bound}) != 1:
        return False
    name = f"{bound[-1].unit.self_name()}.{node.attr}"
    return _gives(file, bound[-1], name, depth)


def _last_pass(file: SourceFile, window: loops.Window, passes: _Passes) -> str:
    """What says, before a pass begins, that it is the last one of its window; empty where nothing does."""
    stepped, around = window.stepped.event, window.backward.event.context.arms
    own = [arm for arm in stepped.context.arms if arm not in around]
    if not own:
        return _end_of(file, window, passes.body)
    branch, number = own[0]
    if not isinstance(branch, ast.If) or number != 0 or branch not in passes.body[passes.last + 1 :]:
        return ""
    if not loops.tells_last(branch, stepped.unit) or branch.test.lineno != branch.test.end_lineno:
        return ""
    between = passes.body[passes.first : passes.body.index(branch) + 1]
    return file.segment(branch.test) if _same_before(file, branch.test, between, stepped.unit) else ""


def _same_before(file: SourceFile, test: ast.expr, between: list[ast.stmt], unit: Unit) -> bool:
    """Whether a test has the same value before some statements, of which it is the last, as where it stands."""
    if not all(_only_reads(n) for n in walk(test)):
        return False
    names, first, last = names_in(test), between[0].lineno, between[-1].lineno - 1
    if any(target_names(e.node) & names for e in unit.events if first <= e.line <= last):
        return False
    # An attribute may be changed by any function that a pass calls.
    attributes = {n.attr for n in walk(test) if isinstance(n, ast.Attribute)}
    changed = (t for u in file.units if u.name != "__init__" for e in u.events for t in targets_of(e.node))
    return not any(isinstance(t, ast.Attribute) and t.attr in attributes for t in changed)


def _only_reads(node: ast.AST) -> bool:
    """Whether a part of a test depends on names and attributes alone; of calls, only `len(x)` does."""
    if isinstance(node, ast.Call):
        return steps.text_of(node.func) == "len" and len(node.args) == 1 and not node.keywords
    return isinstance(node, _SURE)


def _end_of(file: SourceFile, window: loops.Window, body: list[ast.stmt]) -> str:
    """`micro == n - 1` of `for micro in range(n):`, where each pass goes to its end."""
    loop = window.backward.event.loop
    if loop is None or loop is window.stepped.event.loop:
        return ""
    counted = ast.Name | ast.Attribute | ast.Constant
    match loop.node:
        case ast.For(ast.Name(micro), ast.Call(ast.Name("range"), [number]), orelse=[]) if isinstance(number, counted):
            names = {micro, steps.text_of(number)}
        case _:
            return ""
    within = loops.text_between(file, body[0].lineno, blocks.last_line(body[-1]))
    inside = (e.node for e in window.backward.event.unit.events if e.inside(loop) and e.node is not loop.node)
    if _LEAVES.search(within) or any(steps.text_of(t) in names for node in inside for t in targets_of(node)):
        return ""
    if isinstance(number, ast.Constant):
        return f"{micro} == {number.value - 1}" if isinstance(number.value, int) else ""
    return f"{micro} == {file.segment(number)} - 1"

"""Edits that hold gradients back: the passes before the last one of an accumulation window under `model.no_sync()`."""

from __future__ import annotations

import ast
import re
from typing import NamedTuple

from torchvet.rules.kit import Edit, Identity, SourceFile
from torchvet.rules.shared import training_loops as loops
from torchvet.rules.shared.training_loops import Window
from torchvet.source.model import Event, Unit, blocks, given, keyword, names_in, targets_of, value_for, walk
from torchvet.source.model.origins import identity
from torchvet.source.model.steps import text_of

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


def held_back(file: SourceFile, window: Window, wrapped: Identity) -> Held | None:
    """The passes of a window under `no_sync` but for the last; None where anything about that is not sure: which
    statements a pass is, what the model is called there, or how the last pass is recognized before it begins."""
    backward, stepped = window.backward, window.stepped
    loop = backward.event.loop
    together = backward.event.unit is stepped.event.unit
    if not together or loop is None or not isinstance(loop.node, (ast.For, ast.While)) or file.mentions("static_graph"):
        return None
    if len({id(e.event) for e in window.step.of("backward")}) != 1:
        return None
    body = loop.node.body
    last = next((n for n, s in enumerate(body) if _holds(s, backward.event.statement)), None)
    if last is None:
        return None
    calls = [e for e in backward.event.unit.events if isinstance(e.node, ast.Call) and e.inside(loop)]
    running = [e for e in calls if _runs(file, e, wrapped)]
    first = next((n for n, s in enumerate(body) if any(_within(s, e) for e in running)), None)
    if first is None or first > last or any(_within(s, e) for s in body[last + 1 :] for e in running):
        return None
    model = _model(file, running, wrapped)
    test = _last_pass(file, window, body, (first, last))
    kind = "" if model is None or model.surely else _wrapper(file)
    if model is None or not test or not (model.surely or kind):
        return None
    # A model that is not wrapped has no `no_sync`.
    alone = test if model.surely else f"{test} or not isinstance({model.text}, {kind})"
    names = {what: name for name, what in file.imports.names.items()}
    nothing = names.get("contextlib.nullcontext") or names.get("contextlib", "contextlib") + ".nullcontext"
    moved = blocks.under_with(file, body[first : last + 1], f"{nothing}() if {alone} else {model.text}.no_sync()")
    imported = [] if nothing in names.values() or "contextlib" in names else blocks.importing(file, "contextlib")
    known = nothing in names.values() or "contextlib" in names
    return Held([*imported, *moved], running[0]) if moved and (known or imported) else None


def _holds(statement: ast.stmt, wanted: ast.stmt) -> bool:
    """Whether a statement of the loop is another, or a `with` that has it: what a branch does is not sure."""
    if statement is wanted:
        return True
    return isinstance(statement, ast.With) and any(_holds(s, wanted) for s in statement.body)


def _within(statement: ast.stmt, event: Event) -> bool:
    return statement.lineno <= event.line <= (statement.end_lineno or statement.lineno)


def _runs(file: SourceFile, event: Event, wrapped: Identity, depth: int = 0) -> bool:
    """Whether a call runs the wrapped model, by itself or in functions of this file."""
    if isinstance(event.call.func, (ast.Name, ast.Attribute)) and identity(event.call.func, event.unit) & wrapped:
        return True
    callee = file.callee(event) if depth < _DEEPEST else None
    calls = (e for e in callee.events if isinstance(e.node, ast.Call)) if callee is not None else ()
    return any(_runs(file, e, wrapped, depth + 1) for e in calls)


def _model(file: SourceFile, running: list[Event], wrapped: Identity) -> _Model | None:
    """What the loop calls the model; None where it has no one name."""
    found: dict[str, bool] = {}
    for event in running:
        for one in (event.call.func, *given(event.call)):
            if isinstance(one, (ast.Name, ast.Attribute)) and identity(one, event.unit) & wrapped:
                found[text_of(one)] = found.get(text_of(one), True) and _is_wrapped(file, one, event, 0)
    return _Model(*next(iter(found.items()))) if len(found) == 1 else None


def _wrapper(file: SourceFile) -> str:
    """What the file calls DistributedDataParallel, by an import that all of it sees; empty where it has none."""
    top = [s for s in file.tree.body if isinstance(s, (ast.Import, ast.ImportFrom))]
    known = {(alias.asname or alias.name).partition(".")[0] for statement in top for alias in statement.names}
    for made in file.calls("DistributedDataParallel", "DDP"):
        written = text_of(made.call.func)
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
    home = event.unit.home(node.id) if isinstance(node, ast.Name) else None
    if home is None or not isinstance(node, ast.Name):
        return False
    bound = home.bindings.get(node.id, [])
    if home is event.unit:
        reaching = file.devices.reaching(node.id, event) if bound else []
        if reaching or bound:
            return len(reaching) == 1 and _gives(file, reaching[0], node.id, depth)
        return _passed(file, home, node.id, depth)
    return bool(bound) and not bound[-1].context.arms and _gives(file, bound[-1], node.id, depth)


def _gives(file: SourceFile, binding: Event, name: str, depth: int) -> bool:
    target = next((t for t in targets_of(binding.node) if text_of(t) == name), None)
    value = value_for(binding.node, target) if target is not None else None
    return value is not None and text_of(value) != name and _is_wrapped(file, value, binding, depth + 1)


def _passed(file: SourceFile, unit: Unit, name: str, depth: int) -> bool:
    """Whether every caller in this file gives a parameter such a model."""
    callers = file.callers(unit)
    models = [(m, e) for e in callers for m in file.passed(e, unit, name)]
    return len(models) == len(callers) > 0 and all(_is_wrapped(file, m, e, depth + 1) for m, e in models)


def _attribute_wrapped(file: SourceFile, node: ast.Attribute, event: Event, depth: int) -> bool:
    owner = event.unit.method_class() if text_of(node.value) == event.unit.self_name() else None
    bound = [e for e, _ in owner.attributes.get(node.attr, [])] if owner is not None else []
    if not bound or bound[-1].context.arms or len({id(e.unit) for e in bound}) != 1:
        return False
    name = f"{bound[-1].unit.self_name()}.{node.attr}"
    return _gives(file, bound[-1], name, depth)


def _last_pass(file: SourceFile, window: Window, body: list[ast.stmt], span: tuple[int, int]) -> str:
    """What tells, before a pass begins, that it is the last one of its window; empty where nothing does."""
    stepped, around = window.stepped.event, window.backward.event.context.arms
    own = [branch for branch, number in stepped.context.arms if (branch, number) not in around]
    if not own:
        return _end_of(file, window, body)
    branch = own[0]
    place = next((n for n, s in enumerate(body) if s is branch), None)
    if place is None or place <= span[1] or not isinstance(branch, ast.If) or (branch, 0) not in stepped.context.arms:
        return ""
    if not loops.tells_last(branch, stepped.unit) or branch.test.lineno != branch.test.end_lineno:
        return ""
    return file.segment(branch.test) if _same_before(file, branch.test, body[span[0] : place + 1], window) else ""


def _same_before(file: SourceFile, test: ast.expr, between: list[ast.stmt], window: Window) -> bool:
    """Whether a test has the same value before some statements, of which it is the last, as where it stands."""
    unit = window.stepped.event.unit
    lengths = [n for n in walk(test) if isinstance(n, ast.Call)]
    if any(text_of(n.func) != "len" or len(n.args) != 1 or n.keywords for n in lengths):
        return False
    if not all(isinstance(n, (*_SURE, ast.Call)) for n in walk(test)):
        return False
    names = names_in(test)
    attributes = {n.attr for n in walk(test) if isinstance(n, ast.Attribute)}
    first, last = between[0].lineno, between[-1].lineno - 1
    bound = (t for e in unit.events if first <= e.line <= last for t in targets_of(e.node))
    if any(isinstance(t, ast.Name) and t.id in names for t in bound):
        return False
    changed = (t for u in file.units if u.name != "__init__" for e in u.events for t in targets_of(e.node))
    return not attributes or not any(isinstance(t, ast.Attribute) and t.attr in attributes for t in changed)


def _end_of(file: SourceFile, window: Window, body: list[ast.stmt]) -> str:
    """`micro == n - 1` of `for micro in range(n):`, where each pass goes to its end."""
    loop = window.backward.event.loop
    head = loop.node if loop is not None else None
    if loop is None or not isinstance(head, ast.For) or loop is window.stepped.event.loop or head.orelse:
        return ""
    over = head.iter
    counted = isinstance(over, ast.Call) and text_of(over.func) == "range" and len(over.args) == 1
    if not counted or not isinstance(over, ast.Call) or not isinstance(head.target, ast.Name):
        return ""
    number = over.args[0]
    if not isinstance(number, (ast.Name, ast.Attribute, ast.Constant)) or keyword(over, "start") is not None:
        return ""
    within = loops.text_between(file, body[0].lineno, body[-1].end_lineno or body[-1].lineno)
    names = {head.target.id, text_of(number)}
    inside = (e.node for e in window.backward.event.unit.events if e.inside(loop) and e.node is not head)
    if _LEAVES.search(within) or any(text_of(t) in names for node in inside for t in targets_of(node)):
        return ""
    if isinstance(number, ast.Constant):
        return f"{head.target.id} == {number.value - 1}" if isinstance(number.value, int) else ""
    return f"{head.target.id} == {file.segment(number)} - 1"

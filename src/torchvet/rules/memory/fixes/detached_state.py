"""Edits that cut recurrent state from the graph of the steps before."""

from __future__ import annotations

import ast

from torchvet.rules.kit import Edit, Edits, Finding, Iterator, Sequence, SourceFile, about, events_at, held, with_method
from torchvet.source.model import Event, blocks, edits, is_literal, names_in, targets_of, terminal, walk
from torchvet.source.syntax import DISPLAYS, parts

CONTAINERS = ("tuple", "list")
"""Variants of a state of several tensors: `state = tuple(t.detach() for t in state)`. Several `operands` are the
variables of one state."""
PASSED = "passed"
"""The role of the line of a state's own function from which a backward was run that failed for it."""


def state_cut(file: SourceFile, finding: Finding) -> Edits:
    """The edits for the line that binds the state anew from its own last value."""
    for event in events_at(file, finding):
        target = next((t for t in targets_of(event.node) if _name(t) == held(finding)), None)
        if target is None or not isinstance(event.node, (ast.Assign, ast.AugAssign)):
            continue
        # The best place first: once the backward has run, the cut costs no gradient of its pass.
        put = _after_backward(file, event, target, _statement(file, target, finding))
        if isinstance(target, ast.Subscript):
            put = _item_cut(file, event, target)
        elif not put and isinstance(target, ast.Attribute):
            put = _attribute_cut(file, event, target, finding)
        elif not put:
            put = _where_read(file, event, target, finding) or _after_pass(file, event, target, finding)
        # Last: it cuts what the pass itself stores.
        return put or _cut_as_stored(file, event, target)
    return ()


def _cut_as_stored(file: SourceFile, event: Event, target: ast.expr) -> list[Edit]:
    """Each tensor cut as it goes into what keeps the state from pass to pass: the entries of a dict, an attribute. What
    the pass itself goes on with is another name."""
    node = event.node
    if not isinstance(node, ast.Assign) or len(node.targets) != 1 or isinstance(target, ast.Name):
        return []
    values = _stored_as(node, target)
    # An expression is nobody else's, and read as an item of the state alone.
    only_there = isinstance(target, ast.Subscript) and not any(_reads(event.unit.node, target.value, but=target))
    if not values or not (only_there or all(isinstance(value, ast.Name) for value in values)):
        return []
    return [edit for value in values for edit in with_method(file, value, "detach()")]


def _stored_as(node: ast.Assign, target: ast.expr) -> Sequence[ast.expr]:
    """What an assignment stores as a state: of `h, c = a, b` only that part."""
    into = node.targets[0]
    if not isinstance(into, (ast.Tuple, ast.List)):
        return _parts(node.value)
    if not isinstance(node.value, (ast.Tuple, ast.List)) or len(node.value.elts) != len(into.elts):
        return []
    return [v for t, v in zip(into.elts, node.value.elts, strict=True) if _name(t) == _name(target)]


def _parts(value: ast.expr) -> list[ast.expr]:
    """The tensors of a state that is written down: `(h, c)`, `{"h": h, "c": c}`."""
    return parts(value) if isinstance(value, DISPLAYS) else [value]


def _name(target: ast.expr) -> str:
    return terminal(target.value if isinstance(target, ast.Subscript) else target)


def _statement(file: SourceFile, target: ast.expr, finding: Finding) -> str:
    """The cut as a statement of its own; of several variables of one line all of them."""
    names = about(finding).operands
    if len(names) > 1:
        return f"{', '.join(names)} = {', '.join(f'{n}.detach()' for n in names)}"
    name = file.segment(target)
    return f"{name} = {_cut(name, finding)}"


def _cut(name: str, finding: Finding) -> str:
    container = about(finding).variant
    return f"{container}(t.detach() for t in {name})" if container in CONTAINERS else f"{name}.detach()"


def _reads(value: ast.AST, target: ast.expr, but: ast.Subscript | None = None) -> Iterator[ast.expr]:
    """Where code reads what it is bound to; without the place that binds an item of it."""
    wanted = ast.unparse(target)
    for node in walk(value):
        if not isinstance(node, (ast.Name, ast.Attribute, ast.Subscript)) or not isinstance(node.ctx, ast.Load):
            continue
        if but is not None and node is but.value:
            continue
        if ast.unparse(node) == wanted:
            yield node


def _where_read(file: SourceFile, event: Event, target: ast.expr, finding: Finding) -> list[Edit]:
    """Of a sum that a name is bound to: the cut where the name is read, if it is a tensor from the start."""
    value = event.node.value  # type: ignore[attr-defined]
    if not isinstance(event.node, ast.Assign) or not isinstance(value, ast.BinOp):
        return []
    first = [b.node for b in event.unit.bindings.get(terminal(target), ()) if b is not event and b.index < event.index]
    # `state = None` or `0` at first has no `.detach()`.
    if any(isinstance(getattr(n, "value", None), ast.Constant) for n in first):
        return []
    return [edits.replace(file, one, _cut(file.segment(one), finding)) for one in _reads(value, target)]


def _attribute_cut(file: SourceFile, event: Event, target: ast.Attribute, finding: Finding) -> list[Edit]:
    """The cut of what a module keeps from one run to the next. What it computes goes on with its graph, and is read
    further down: the value of the run before is cut, where it is read or before the loop that reads it."""
    name, value = file.segment(target), event.node.value  # type: ignore[attr-defined]
    cut = _cut(name, finding)
    reads = list(_reads(value, target))
    if not reads:
        # Read further down in the same pass, it must keep its graph.
        later = [n for n in _reads(event.unit.node, target) if n.lineno > event.line]
        return [] if later or event.loop is not None else edits.after(file, event.statement, f"{name} = {cut}")
    # `self.h += x` reads and binds in one: no place between the two.
    if isinstance(event.node, ast.AugAssign):
        return []
    if event.loop is None and not _may_be_none(event, target):
        return [edits.replace(file, one, cut) for one in reads]
    return _before_the_pass(file, event, target, cut, _may_be_none(event, target))


def _item_cut(file: SourceFile, event: Event, target: ast.Subscript) -> list[Edit]:
    """The cut of a state that is kept for each of several layers, where it is read: each once in a pass, as the loop
    right around goes over the keys."""
    loop = event.loop.node if event.loop is not None else None
    keys = names_in(loop.target) if isinstance(loop, ast.For) else set()
    # With another key an item could be read twice in one pass, and need its graph.
    if not (isinstance(target.slice, ast.Name) and target.slice.id in keys) or not isinstance(event.node, ast.Assign):
        return []
    backward = [e for e in event.unit.calls.get("backward", ()) if e.inside(event.loop)]
    reads = _reads(event.node.value, target) if not backward else ()
    return [edits.replace(file, one, f"{file.segment(one)}.detach()") for one in reads]


def _may_be_none(event: Event, target: ast.Attribute) -> bool:
    """Whether an attribute may be None where it is read: some method says so, and none sees to it here before."""
    owner = event.unit.method_class()
    known = owner.attributes.get(target.attr, ()) if owner is not None else ()
    own = ast.unparse(target)
    seen_to = any(
        isinstance(s, ast.If) and s.lineno < event.line and own in ast.unparse(s.test) and _binds(s.body, own)
        for s in getattr(event.unit.node, "body", ())
    )
    none = any(is_literal(v, None) for _, v in known)
    # An attribute that the class does not bind may be anything, None too.
    return (not known or none) and not seen_to


def _binds(block: Sequence[ast.stmt], name: str) -> bool:
    return any(ast.unparse(t) == name for s in block for t in targets_of(s))


def _before_the_pass(file: SourceFile, event: Event, target: ast.Attribute, cut: str, may_be_none: bool) -> list[Edit]:
    """The cut, below `if self.state is not None:` where it may be, before the statement of the method's own block that
    reads it first."""
    body: list[ast.stmt] = getattr(event.unit.node, "body", [])
    first = next((s for s in body if any(True for _ in _reads(s, target))), None)
    own = blocks.holding(body, event.statement)
    # What reads it first must be the statement, or the loop, that binds it too: another reads it with its graph.
    if first is None or own is None or body.index(first) != own or not edits.stands_alone(file, first):
        return []
    name, margin = file.segment(target), blocks.margin(file, first)
    if not may_be_none:
        return edits.before(file, first, f"{name} = {cut}")
    more = "\t" if margin.endswith("\t") else blocks.step_of(file, file.tree.body, None)
    inside = f"{file.newline}{margin}{more}{name} = {cut}"
    return edits.before(file, first, f"if {name} is not None:{inside}")


def _after_backward(file: SourceFile, run: Event, target: ast.expr, cut: str) -> list[Edit]:
    """The cut right after the one backward of the loop, or of the function that a state outlives, which keeps its graph
    no longer. Where the state is bound in one arm of a branch that the backward is not in, the cut comes before it is
    read, in the same arm."""
    outlives = isinstance(target, ast.Attribute) or terminal(target) in run.unit.outer_names
    backwards = [
        e
        for e in run.unit.calls.get("backward", ())
        if (e.loop is not None or outlives) and run.inside(e.loop) and e.index > run.index
    ]
    # Several may each need the state's graph.
    if len(backwards) != 1:
        return []
    if backwards[0].sure_after(run):
        put = edits.after(file, backwards[0].statement, cut)
    # In the same turn, and the state is surely no None.
    elif backwards[0].loop is run.loop and _is_state_before(run, cut.partition(" ")[0]):
        put = edits.before(file, run.statement, cut)
    else:
        put = []
    # `retain_graph=True` was there for this graph; kept, it would hold each pass's until the next.
    return [*_not_retained(file, backwards), *put] if put else []


def _not_retained(file: SourceFile, calls: list[Event]) -> list[Edit]:
    return [edit for event in calls for edit in edits.without_argument(file, event.call, "retain_graph")]


def _is_state_before(run: Event, name: str) -> bool:
    """Whether what binds a name before in the function is a call, so that it is no None before the first step."""
    others = [b.node for b in run.unit.bindings.get(name, ()) if b is not run and b.index < run.index]
    return bool(others) and all(isinstance(n, ast.Assign) and isinstance(n.value, ast.Call) for n in others)


def _after_pass(file: SourceFile, event: Event, target: ast.expr, finding: Finding) -> list[Edit]:
    """The cut where the pass is over by what a run has seen: after the line of the function from which the backward is
    run, or where the state is bound, if that comes later."""
    outlives = event.loop is not None or terminal(target) in event.unit.outer_names
    through = _through(file, event, finding) if outlives else []
    if not through or not event.inside(through[0].loop):
        return []
    cut = _statement(file, target, finding)
    if through[-1].index > event.index:
        return edits.after(file, through[-1].statement, cut) if through[-1].sure_after(event) else []
    retained = [e for e in through if terminal(e.node) == "backward"]
    name, value = file.segment(target), getattr(event.node, "value", None)
    put = edits.after(file, event.statement, cut)
    # `state = new`: cut in place, without a line more.
    if isinstance(value, ast.Name) and cut == f"{name} = {name}.detach()":
        put = [edits.called_on(file, value, "detach()")]
    return [*_not_retained(file, retained), *put] if put else []


def _through(file: SourceFile, event: Event, finding: Finding) -> list[Event]:
    """The calls on the line of an event's function from which the backward of a finding was run."""
    # The line in the state's own function, else where it raised.
    passed = next((r for role in (PASSED, "raised") for r in finding.related if r.role == role), None)
    if passed is None or passed.path != file.path:
        return []
    return [e for e in event.unit.events if e.line == passed.line and isinstance(e.node, ast.Call)]

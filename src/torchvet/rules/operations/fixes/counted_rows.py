"""An edit for logits of rows that the loss ignores: the rows that count are selected before the last layer."""

from __future__ import annotations

import ast

from torchvet.rules.kit import Edits, Finding, Iterator, SourceFile
from torchvet.source.model import Event, edits, is_call, names_in, reads_of, walk

_DEFAULT = "-100"
"""What `cross_entropy` ignores where it is not told."""
_MASKS = ("counted", "counted_rows")
_SHAPING = ("view", "reshape", "flatten", "long", "to", "contiguous", "squeeze")
_PLAIN = (ast.Name, ast.Attribute, ast.Call, ast.Constant, ast.UnaryOp, ast.expr_context, ast.unaryop)


def selected_first(file: SourceFile, finding: Finding) -> Edits:
    """`counted = targets != -100`, then `head(hidden[counted])` and `cross_entropy(logits, targets[counted])`."""
    for loss in _losses(file, finding):
        call = loss.call
        given = {k.arg: file.segment(k.value) for k in call.keywords}
        # Weights and other reductions count rows in other ways.
        if file.dotted(call.func) != "torch.nn.functional.cross_entropy" or not given.keys() <= {"ignore_index"}:
            continue
        if len(call.args) == 2 and all(map(edits.on_one_line, call.args)):
            made = _selected(file, loss, call.args[0], call.args[1], given.get("ignore_index", _DEFAULT))
            if made:
                return made
    return ()


def _losses(file: SourceFile, finding: Finding) -> Iterator[Event]:
    places = [finding.location, *(r for r in finding.related if r.role == "loss")]
    for place in places:
        if place is not None and place.path == file.path and place.line is not None:
            yield from file.calls_on(place.line, "cross_entropy")


def _selected(file: SourceFile, loss: Event, logits: ast.expr, targets: ast.expr, ignored: str) -> Edits:
    rows, labels = _as_rows(logits, ("view", "reshape", "flatten")), targets
    if rows is not logits:
        # `logits.view(-1, n)` beside `targets.view(-1)`: both have the same shape before, but for the columns.
        labels = _as_rows(targets, ("view", "reshape", "flatten"))
        if labels is targets:
            return ()
    head = _made_by(loss, rows) if isinstance(rows, ast.Name) else None
    mask = next((name for name in _MASKS if name not in names_in(loss.unit.node)), "")
    if head is None or not mask or not _is_known(loss, head, labels):
        return ()
    assert isinstance(head.node, ast.Assign) and isinstance(head.node.value, ast.Call) and isinstance(rows, ast.Name)
    hidden = head.node.value.args[0]
    test = edits.before(file, head.statement, f"{mask} = {file.segment(labels)} != {ignored}")
    if not test:
        return ()
    return [
        *test,
        edits.replace(file, hidden, f"{edits.operand(file, hidden)}[{mask}]"),
        edits.replace(file, logits, rows.id),
        edits.replace(file, targets, f"{edits.operand(file, labels)}[{mask}]"),
    ]


def _as_rows(node: ast.expr, methods: tuple[str, ...]) -> ast.expr:
    """What is made rows of, by a method that joins the first dimensions; the expression itself where none is called."""
    if is_call(node, *methods) and isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Name):
        return node.func.value
    return node


def _made_by(loss: Event, name: ast.Name) -> Event | None:
    """The one statement that binds a name, which nothing but the loss reads: a call of one argument beside the loss."""
    bound = loss.unit.bindings.get(name.id, ())
    if len(bound) != 1 or len(reads_of(loss.unit.node, name.id)) != 1 or name.id in loss.unit.parameters:
        return None
    event = bound[0]
    value = event.node.value if isinstance(event.node, ast.Assign) and len(event.node.targets) == 1 else None
    plain = isinstance(value, ast.Call) and len(value.args) == 1 and not value.keywords
    if not plain or not isinstance(value, ast.Call) or isinstance(value.args[0], ast.Starred):
        return None
    beside = event.loop is loss.loop and event.context.arms == loss.context.arms and event.index < loss.index
    return event if beside and edits.on_one_line(value.args[0]) else None


def _is_known(loss: Event, head: Event, labels: ast.expr) -> bool:
    """Whether the targets are an expression that is the same where the last layer is called."""
    plain = all(isinstance(n, _PLAIN) for n in walk(labels))
    # Worked out twice.
    plain = plain and all(is_call(n, *_SHAPING) for n in walk(labels) if isinstance(n, ast.Call))
    bound = [event for name in names_in(labels) for event in loss.unit.bindings.get(name, ())]
    return plain and all(event.index < head.index for event in bound)

"""OPS202: `.contiguous()` copies what needs no copy, or undoes channels_last."""

from __future__ import annotations

import ast

from torchvet.rules.kit import Edit, Finding, Iterator, Rule, SourceFile
from torchvet.source.model import Event, edits, keyword, receiver, terminal, value_for

_PRODUCTS = ("torch.matmul", "torch.bmm", "torch.mm")
_LAST_TWO = ((-2, -1), (-1, -2))


class ContiguousHurts(Rule):
    """`.contiguous()` copies what needs no copy, or undoes channels_last."""

    severity = "warning"
    words = (".contiguous()",)
    cost = "copies"

    def in_file(self, file: SourceFile) -> Iterator[Finding]:
        """A transposed operand of a product made contiguous; a channels_last tensor made contiguous."""
        for event in file.calls("contiguous"):
            on = receiver(event.call)
            # A comment on the line says what it is for.
            explained = "contiguous" in file.lines[event.line - 1].partition("#")[2]
            if on is None or event.call.args or event.call.keywords or explained:
                continue
            # A product takes a transpose natively (16.6 ms either way), and the copy comes on top.
            if (_transposed(on) or _of_matrices(file, on, event)) and _in_product(file, event):
                change = [edits.replace(file, event.call, file.segment(on))] if edits.on_one_line(on) else []
                yield self._finding(file, event, "a matrix product takes the transposed operand as it is", change)
            # A convolution took 106 ms in place of 72 after `contiguous()` had undone channels_last.
            elif file.mentions("channels_last") and _in_channels_last(file, on, event):
                yield self._finding(file, event, f"it undoes the channels_last layout of {file.segment(on)}", [])

    def _finding(self, file: SourceFile, event: Event, reason: str, change: list[Edit]) -> Finding:
        message = f"{file.segment(event.node)[-60:]} copies for nothing: {reason}"
        or_else = "" if change else ", or say .contiguous(memory_format=torch.channels_last)"
        advice = f"leave .contiguous() out{or_else}"
        return self.suspect(file, event, message, cause=reason, advice=advice, edits=change)


def _in_product(file: SourceFile, event: Event) -> bool:
    parent = event.parent
    if isinstance(parent, ast.BinOp):
        return isinstance(parent.op, ast.MatMult)
    return isinstance(parent, ast.Call) and event.node in parent.args[:2] and file.dotted(parent.func) in _PRODUCTS


def _in_channels_last(file: SourceFile, on: ast.expr, event: Event) -> bool:
    """Whether the last binding of a name converted it to channels_last."""
    if not isinstance(on, ast.Name):
        return _converts(on)
    reaching = file.devices.reaching(on.id, event)
    values = [value_for(b.node, t) for b in reaching for t in getattr(b.node, "targets", ())]
    return bool(values) and all(map(_converts, values))


def _converts(node: ast.AST | None) -> bool:
    return isinstance(node, ast.Call) and terminal(keyword(node, "memory_format")) == "channels_last"


def _transposed(on: ast.expr) -> bool:
    """Whether an expression transposes the last two dimensions, which products do without a copy."""
    if isinstance(on, ast.Attribute):
        return on.attr in ("T", "mT")
    if not isinstance(on, ast.Call) or receiver(on) is None:
        return False
    if terminal(on) == "t":
        return not on.args
    given = tuple(ast.literal_eval(a) for a in on.args if isinstance(a, (ast.Constant, ast.UnaryOp)))
    return terminal(on) in ("transpose", "swapaxes") and len(on.args) == 2 and given in _LAST_TWO


def _of_matrices(file: SourceFile, on: ast.expr, event: Event) -> bool:
    """Whether the last two dimensions are swapped where the number of dimensions is known: `bmm` takes three."""
    if not isinstance(on, ast.Call) or not all(isinstance(a, ast.Constant) for a in on.args):
        return False
    given = tuple(a.value for a in on.args if isinstance(a, ast.Constant))
    if terminal(on) == "permute":
        return given in ((1, 0), (0, 2, 1), (0, 1, 3, 2))
    three = isinstance(event.parent, ast.Call) and file.dotted(event.parent.func) == "torch.bmm"
    return terminal(on) in ("transpose", "swapaxes") and three and given in ((1, 2), (2, 1))

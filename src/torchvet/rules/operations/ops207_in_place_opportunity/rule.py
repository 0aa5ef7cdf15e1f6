"""OPS207: tensors outside any graph are computed anew where they could be updated in place."""

from __future__ import annotations

import ast
import re

from torchvet.rules.kit import Finding, Iterator, Rule, SourceFile
from torchvet.rules.operations.fixes.in_place import written_into
from torchvet.source.model import Event, Unit, receiver, targets_of, terminal, value_bound, walk
from torchvet.source.model.steps import text_of

_PARAMETERS = frozenset(("parameters", "named_parameters", "state_dict", "buffers", "named_buffers"))
_POINTWISE = frozenset(("mul", "add", "sub", "div", "clamp", "exp", "log", "log10", "sqrt", "abs", "neg", "pow", "tanh",
                        "sigmoid", "relu", "round", "floor", "maximum", "minimum"))  # fmt: skip
_LONG = 3
_KEPT = re.compile(r"^[ \t]+([\w.]+)\[[^\n=]+\][ \t]*=(?!=)", re.MULTILINE)
_COPIED = re.compile(r"(\.copy_\()\s*[^\n]*[*+]")
_OVER = re.compile(r"parameters\(\)|state_dict\(\)|buffers\(\)")
_AGAIN = re.compile(r"^[ \t]+(\w+)[ \t]*(?::[^\n=]+)?=[ \t]*(?:[\w.]+\(\s*)?\1[ \t]*[-+*/.,)]", re.MULTILINE)
_DEEPEST = 3


class InPlaceOpportunity(Rule):
    """Tensors outside any graph are computed anew where they could be updated in place."""

    code = "OPS207"
    name = "in-place-opportunity"
    summary = "Tensors outside any graph are computed anew where they could be updated in place"
    severity = "info"
    words = (".data", "copy_(", "no_grad", "inference_mode")

    cost = "memory"

    def in_file(self, file: SourceFile) -> Iterator[Finding]:
        """`p.data = p.data * a + …` in a loop; averages kept in a dict; chains without a graph."""
        if file.mentions(".data = ", ".data="):
            yield from self._on_data(file)
        copying = _units_at(file, _COPIED, 1) if file.mentions("copy_") else ()
        for event in (e for u in copying for e in u.calls.get("copy_", ())):
            on, given = receiver(event.call), event.call.args[0] if event.call.args else None
            if event.loop is None or not isinstance(on, (ast.Name, ast.Attribute)) or not isinstance(given, ast.BinOp):
                continue
            data = isinstance(on, ast.Attribute) and on.attr == "data"
            if self._reads(given, on) and (data or file.gradients.enabled(event) == "no"):
                yield self._finding(file, event, on, given, "is computed anew and copied over")
        if not file.mentions("no_grad", "inference_mode"):
            return
        if file.mentions("]") and file.mentions("parameters()", "state_dict()", "buffers()"):
            for unit in _units_at(file, _KEPT, 1):
                lines = file.lines[unit.first - 1 : unit.last]
                if any("for " in line and _OVER.search(line) for line in lines):
                    yield from self._averages(file, unit)
        for unit in _units_at(file, _AGAIN, _LONG):
            yield from self._chains(file, unit)

    def _on_data(self, file: SourceFile) -> Iterator[Finding]:
        for unit in file.units_with("data"):
            for event in unit.events:
                if (
                    isinstance(event.node, ast.Assign)
                    and event.loop is not None
                    and isinstance(event.node.value, ast.BinOp)
                ):
                    target = targets_of(event.node)[0]
                    if (
                        isinstance(target, ast.Attribute)
                        and target.attr == "data"
                        and self._of_itself(event.node.value, target)
                    ):
                        yield self._finding(file, event, target, event.node.value)

    def _averages(self, file: SourceFile, unit: Unit) -> Iterator[Finding]:
        """`shadow[name] = shadow[name] * decay + …` over parameters or a state dict, names between followed."""
        for event in unit.events:
            node = event.node
            if not isinstance(node, ast.Assign) or event.loop is None or not isinstance(event.loop.node, ast.For):
                continue
            target = targets_of(node)[0]
            over = {terminal(n) for n in walk(event.loop.node.iter) if isinstance(n, ast.Call)}
            if not isinstance(target, ast.Subscript) or not over & _PARAMETERS:
                continue
            value = _followed(file, node.value, event, 0)
            if value is None or not isinstance(value, ast.BinOp):
                continue
            if self._of_itself(value, target, file, event) and file.gradients.enabled(event) == "no":
                yield self._finding(file, event, target, node.value)

    def _chains(self, file: SourceFile, unit: Unit) -> Iterator[Finding]:
        """Three statements and more in a row that rebind one name to an elementwise function of itself."""
        chain: list[Event] = []
        for event in [e for e in unit.events if isinstance(e.node, ast.Assign)]:
            name = _elementwise(event)
            joined = chain and name == _elementwise(chain[-1]) and _next_to(chain[-1], event)
            if name and joined and event.loop is chain[-1].loop and event.context.arms == chain[-1].context.arms:
                chain.append(event)
                continue
            yield from self._of_chain(file, chain)
            chain = [event] if name else []
        yield from self._of_chain(file, chain)

    def _of_chain(self, file: SourceFile, chain: list[Event]) -> Iterator[Finding]:
        """The first statement makes a tensor of its own: from the second on it can be written to."""
        if len(chain) < _LONG or file.gradients.enabled(chain[0]) != "no":
            return
        name = _elementwise(chain[0])
        reaching = file.devices.reaching(name, chain[0])
        values = [getattr(b.node, "value", None) for b in reaching]
        values += [getattr(e.node, "value", None) for e in chain]
        if not any(file.roles.of(v, chain[0].unit) & {"tensor", "output"} or _of_torch(file, v) for v in values):
            return
        message = f"{name} is made anew {len(chain)} times in a row where it could be updated in place"
        cause = f"each statement of lines {chain[0].line} to {chain[-1].line} allocates a tensor as large as {name}"
        advice = "from the second on use the in-place forms: mul_, add_, sub_, div_, clamp_"
        yield self.suspect(file, chain[1], message, cause=cause, advice=advice)

    @staticmethod
    def _reads(value: ast.BinOp, target: ast.expr) -> bool:
        """Whether `target.copy_(value)` computes, elementwise, from what the target holds."""
        waiting: list[ast.expr] = [value]
        while waiting:
            node = waiting.pop()
            if isinstance(node, ast.BinOp) and not isinstance(node.op, ast.MatMult):
                waiting.extend((node.left, node.right))
            elif text_of(node) == text_of(target):
                return True
        return False

    @staticmethod
    def _of_itself(
        value: ast.expr, target: ast.expr, file: SourceFile | None = None, event: Event | None = None
    ) -> bool:
        """Whether the new value is computed, elementwise, from the old one; with an event names are followed."""
        waiting: list[ast.expr] = [value]
        while waiting:
            node = waiting.pop()
            if isinstance(node, ast.Name) and file is not None and event is not None:
                node = _followed(file, node, event, 0) or node
            if isinstance(node, ast.BinOp) and not isinstance(node.op, ast.MatMult):
                waiting.extend((node.left, node.right))
            elif isinstance(node, (ast.Attribute, ast.Subscript)) and text_of(node) == text_of(target):
                return True
        return False

    def _finding(
        self, file: SourceFile, event: Event, target: ast.expr, value: ast.expr, how: str = "gets new storage"
    ) -> Finding:
        name = text_of(target)
        message = f"{name} {how} at every step where it could be updated in place"
        cause = "each operator of the expression allocates a tensor as large as the result"
        advice = f"use {name}.mul_(…).add_(…) or {name}.lerp_(…)"
        return self.suspect(
            file, event, message, cause=cause, advice=advice, edits=written_into(file, event, target, value)
        )


def _units_at(file: SourceFile, pattern: re.Pattern[str], least: int) -> list[Unit]:
    """Units that hold at least so many lines of a pattern."""
    found = [file.unit_at(file.line_of(m.start(1))) for m in pattern.finditer(file.text)]
    return [u for u in {id(u): u for u in found}.values() if sum(u is other for other in found) >= least]


def _followed(file: SourceFile, node: ast.expr, event: Event, depth: int) -> ast.expr | None:
    """What a name stands for, `.clone()` left out."""
    while isinstance(node, ast.Call) and terminal(node) in ("clone", "detach") and receiver(node) is not None:
        on = receiver(node)
        assert on is not None
        node = on
    if not isinstance(node, ast.Name) or depth > _DEEPEST:
        return node
    reaching = file.devices.reaching(node.id, event)
    if len(reaching) != 1 or reaching[0].loop is not event.loop:
        return None
    value = value_bound(reaching[0].node, node.id)
    return _followed(file, value, reaching[0], depth + 1) if value is not None else None


def _next_to(first: Event, second: Event) -> bool:
    """Whether no other statement that does anything stands between two."""
    between = first.unit.events[first.index + 1 : second.index]
    return all(e.statement is second.statement for e in between)


def _elementwise(event: Event) -> str:
    """The name that a statement rebinds to an elementwise function of itself and of what may be smaller."""
    node = event.node
    if not isinstance(node, ast.Assign) or len(node.targets) != 1 or not isinstance(node.targets[0], ast.Name):
        return ""
    name, value = node.targets[0].id, node.value
    if isinstance(value, ast.BinOp) and isinstance(value.op, (ast.Add, ast.Sub, ast.Mult, ast.Div)):
        return name if isinstance(value.left, ast.Name) and value.left.id == name else ""
    if not isinstance(value, ast.Call):
        return ""
    on = receiver(value)
    if event.unit.file.dotted(value.func).startswith("torch.") and value.args:
        on = value.args[0]
    if isinstance(on, ast.Name) and on.id == name and terminal(value) in _POINTWISE:
        return name
    return ""


def _of_torch(file: SourceFile, node: ast.AST | None) -> bool:
    """Whether something is computed by torch or by a method that only tensors have."""
    if isinstance(node, ast.BinOp):
        if isinstance(node.op, ast.MatMult):
            return True
        return _of_torch(file, node.left) or _of_torch(file, node.right)
    if not isinstance(node, ast.Call):
        return False
    return file.dotted(node.func).startswith("torch.") or terminal(node) in ("float", "clamp", "sqrt", "unsqueeze")

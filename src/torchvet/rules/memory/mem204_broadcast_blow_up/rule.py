"""MEM204: a column meets a row, and every prediction is compared with every target."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from torchvet.formatting import size
from torchvet.recording import records
from torchvet.rules import kit
from torchvet.rules.memory._shapes import Shapes
from torchvet.rules.memory._sizes import Shape, blows_up
from torchvet.rules.shared.peaks import peak_of
from torchvet.source.model import Event, edits, is_call, origins, receiver, terminal, value_for, walk

_TO_ONE = re.compile(r"Linear\(\s*[^\n]*,\s*1\s*[,)]|out_features\s*=\s*1\b")
_FUNCTIONS = {"mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss"}
_CLASSES = {"MSELoss", "L1Loss", "SmoothL1Loss", "HuberLoss"}
_SHAPES = re.compile(r"\((\d+,(?: \d+)?)\)")
"""Of a column or of a row, as a finding says them."""
_MEANS = ("mean", "sum")
_OPERATORS: dict[str, type[ast.AST]] = {"sub": ast.Sub, "add": ast.Add, "eq": ast.Eq, "ne": ast.NotEq}


class BroadcastBlowUp(kit.Rule):
    """A column of predictions meets a row of targets: every one is compared with every other."""

    severity = "error"
    words = ("backward",)

    fix_changes_results = True
    silence_clears = False  # not each way to write such a loss is heard; what was heard disproves it

    def fixes(self, finding: kit.Finding, file: kit.SourceFile) -> kit.Edits:
        """The last dimension of the column dropped, where the line has one call, or one difference, of both."""
        seen = kit.about(finding)
        shapes = [s.split(", ") for s in seen.operands]
        calls = [e.call for e in kit.events_at(file, finding) if isinstance(e.node, ast.Call) and len(e.call.args) == 2]
        # Two operands in order: the column may be either.
        column = next((n for n, shape in enumerate(shapes[:2]) if len(shape) > 1 and shape[-1] == "1"), None)
        if len(shapes) < 2 or column is None:
            return ()
        # A difference that is written with an operator; else a call of two arguments.
        pairs = _written_at(file, finding, _OPERATORS[seen.variant]) if seen.variant in _OPERATORS else []
        if pairs:
            # What else is on the line may be a column or a row: `weights * (y - mean) ** 2 / variance`.
            alone = len(pairs) == 1 and not _meets_others(file, finding, *pairs[0])
            return kit.with_method(file, pairs[0][column], "squeeze(-1)") if alone else ()
        return kit.with_method(file, calls[0].args[column], "squeeze(-1)") if len(calls) == 1 else ()

    def disproves(self, recording: kit.Recording, suspicion: kit.Finding) -> bool:
        """The operators of the line were heard, and none made such a table."""
        at = suspicion.location
        tables = (one for rank in recording.ranks for one in rank.latest(records.memory.PairTable, "place", "operator"))
        here = [one for one in tables if at is not None and (one.place.path, one.place.line) == (at.path, at.line)]
        return any(one.fits for one in here) and not any(one.calls for one in here)

    def in_rank(self, rank: kit.RankRecording, recording: kit.Recording) -> kit.Findings:
        """Tables of a model's column against a row of as many values that were averaged or summed to one number."""
        for record in rank.latest(records.memory.PairTable, "place", "operator"):
            # A table of all pairs that is not reduced to one number may be wanted, as distances are.
            # Half of the calls, as some tables may be made outside of the loss.
            if record.reduced and 2 * record.reduced >= record.calls:
                yield self._observed(rank, record)

    def _observed(self, rank: kit.RankRecording, record: records.memory.PairTable) -> kit.Finding:
        peak = peak_of(rank)
        share = f", {record.bytes / peak:.0%} of the peak" if peak >= record.bytes else ""
        table = f"a table of {size(record.bytes)}{share}"
        if record.rows:
            table = f"{record.rows**2:,} answers for {record.rows:,} samples"
        what = (
            "the measure counts all pairs, and not a sample each"
            if record.rows
            else "the loss averages over all pairs, and is least where every prediction is the mean of the targets"
        )
        return self.observed(
            rank,
            severity="warning" if record.rows else self.severity,
            place=record.place,
            message=f"{record.operator} of {record.shapes} compares each with every other: {table}",
            cause=f"a column and a row broadcast to a table: {what}",
            advice="give both the same shape: `squeeze(-1)` on the column, or `unsqueeze(1)` on the row",
            measured=kit.Measured(bytes=record.bytes, peak_bytes=peak or None),
            about=kit.About(record.operator, tuple(_SHAPES.findall(record.shapes))),
        )

    def in_file(self, file: kit.SourceFile) -> kit.Findings:
        """A loss, or the mean of a difference, whose two sides stretch each other."""
        # Without a layer of width one there are no columns to be found.
        if not _TO_ONE.search(file.text):
            return
        shapes = Shapes(file)
        if file.mentions(*_FUNCTIONS, *_CLASSES):
            for event in _losses(file):
                left, right = event.call.args[:2]
                yield from self._judged(file, event, shapes, left, right)
        for event in file.calls(*_MEANS):
            pair = _difference(event)
            if pair is not None:
                yield from self._judged(file, event, shapes, *pair)

    def _judged(
        self, file: kit.SourceFile, event: Event, shapes: Shapes, left: ast.expr, right: ast.expr
    ) -> kit.Findings:
        one, other = shapes.of(left, event), shapes.of(right, event)
        # A table of distances between given points is wanted.
        if one is None or other is None or not blows_up(one, other) or not _learned(file, event, left, right):
            return
        columns = (left, one) if one[-1] == 1 and len(one) > len(other) else (right, other)
        name, rest = file.segment(columns[0]), file.segment(right if columns[0] is left else left)
        yield self.suspect(
            file,
            event,
            f"{file.segment(left)} is {_written(one)} and {file.segment(right)} {_written(other)}: "
            "each is compared with every other",
            cause="a column and a row broadcast to a table: the loss averages over all pairs",
            advice=f"`{name}.squeeze(-1)`, so that it has the shape of {rest}",
            edits=_squeezed(file, columns[0]),
        )


def _written_at(file: kit.SourceFile, finding: kit.Finding, operator: type[ast.AST]) -> list[tuple[ast.expr, ast.expr]]:
    """What an operator of the text joins on the line of a finding: no numbers."""
    line = finding.location.line if finding.location is not None else 0
    sides = [pair for s in _statements(file, finding) for n in walk(s) for pair in _joined(n, operator, line)]
    return [pair for pair in sides if not any(isinstance(side, ast.Constant) for side in pair)]


def _joined(node: ast.AST, operator: type[ast.AST], line: int) -> list[tuple[ast.expr, ast.expr]]:
    if isinstance(node, ast.BinOp) and node.lineno == line and isinstance(node.op, operator):
        return [(node.left, node.right)]
    if isinstance(node, ast.Compare) and node.lineno == line and isinstance(node.ops[0], operator):
        return [(node.left, node.comparators[0])] if len(node.ops) == 1 else []
    return []


def _meets_others(file: kit.SourceFile, finding: kit.Finding, left: ast.expr, right: ast.expr) -> bool:
    """Whether operators join a difference with what else the statement reads."""
    own = {id(n) for side in (left, right) for n in walk(side)}
    joined = (n for s in _statements(file, finding) for n in walk(s) if isinstance(n, ast.BinOp))
    sides = (side for node in joined for side in (node.left, node.right) if id(side) not in own)
    return any(isinstance(side, (ast.Name, ast.Attribute, ast.Subscript)) for side in sides)


def _statements(file: kit.SourceFile, finding: kit.Finding) -> list[ast.stmt]:
    return list({id(e.statement): e.statement for e in kit.events_at(file, finding)}.values())


def _losses(file: kit.SourceFile) -> Iterator[Event]:
    """Calls of the losses that broadcast, as functions and as modules."""
    yield from (
        e for e in file.calls(*_FUNCTIONS) if len(e.call.args) > 1 and file.dotted(e.call.func).startswith("torch.")
    )
    if not file.mentions(*_CLASSES):
        return
    for step in file.steps:
        for event in step.unit.events:
            if isinstance(event.node, ast.Call) and len(event.node.args) == 2 and _is_criterion(file, event):
                yield event


def _is_criterion(file: kit.SourceFile, event: Event) -> bool:
    if "criterion" not in file.roles.of(event.call.func, event.unit):
        return False
    made = [value for value, _ in origins.made_by(event.call.func, event.unit)]
    calls = [one for one in made if isinstance(one, ast.Call)]
    # `CrossEntropyLoss` raises for such shapes.
    return bool(calls) and all(terminal(one) in _CLASSES for one in calls)


def _difference(event: Event) -> tuple[ast.expr, ast.expr] | None:
    """`a` and `b` of `((a - b) ** 2).mean()`, also where the difference has a name."""
    file, node = event.unit.file, _operand(event.unit.file, event.call)
    # Powers, `abs` and names, one behind another: an end for `d = d ** 2`.
    for _ in range(6):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub):
            # Who writes `a[:, None] - b` wants the table.
            return None if _is_shaped(node.left) or _is_shaped(node.right) else (node.left, node.right)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow):
            node = node.left
        elif is_call(node, "abs", "square", "pow"):
            node = _operand(file, node)
        else:
            node = _value_of(node.id, event) if isinstance(node, ast.Name) else None
    return None


def _operand(file: kit.SourceFile, call: ast.Call) -> ast.expr | None:
    """What a method is called on, or a function, of torch or Python's own, is given."""
    on = receiver(call)
    return on if on is not None and file.dotted(on) != "torch" else next(iter(call.args), None)


def _is_shaped(side: ast.expr) -> bool:
    """Whether an expression says itself which dimensions it has."""
    return isinstance(side, ast.Subscript) or terminal(side) in ("unsqueeze", "view", "expand")


def _value_of(name: str, event: Event) -> ast.expr | None:
    bound = [b for b in event.unit.bindings.get(name, ()) if b.index < event.index]
    target = next((t for t in getattr(bound[-1].node, "targets", []) if terminal(t) == name), None) if bound else None
    return value_for(bound[-1].node, target) if target is not None else None


def _learned(file: kit.SourceFile, event: Event, left: ast.expr, right: ast.expr) -> bool:
    """Whether one side is what a model gave, so that the result is a loss and not a table that somebody wants."""
    return any(
        "output" in file.roles.of(one, event.unit) or file.gradients.carries(one, event) == "yes"
        for one in (left, right)
    )


def _written(shape: Shape) -> str:
    sizes = ["…" if d is ... else "N" if d is None or d == "batch" else str(d) for d in shape]
    return f"({', '.join(sizes)}{',' if len(sizes) == 1 else ''})"


def _squeezed(file: kit.SourceFile, node: ast.expr) -> list[kit.Edit]:
    plain = isinstance(node, (ast.Name, ast.Attribute, ast.Call, ast.Subscript))
    return [edits.replace(file, node, f"{file.segment(node)}.squeeze(-1)")] if plain else []

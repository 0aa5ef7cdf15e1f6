"""OPS205: a Python loop works through a tensor element by element."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from typing import TYPE_CHECKING

from torchvet.recording.records.base import Place
from torchvet.rules.kit import Finding, Iterator, RankRecording, Severity, SourceFile
from torchvet.rules.shared.line_costs import Cost, LineCostRule
from torchvet.rules.shared.step_code import few_turns
from torchvet.rules.shared.sure_tensors import surely_tensor
from torchvet.rules.shared.trace_costs import TraceRule, Worst
from torchvet.rules.shared.training_loops import is_test
from torchvet.source.model import Event, is_name, name_set, names_in, terminal, walk
from torchvet.source.model.steps import text_of
from torchvet.source.model.units import behind_progress

if TYPE_CHECKING:
    from torchvet.analysis.line_times import Timing
    from torchvet.recording.records.timing import LineTime, OperatorsAt

_VALUES = (ast.Name, ast.Constant, ast.Tuple, ast.Attribute, ast.Compare, ast.BoolOp)
_PLAIN = (ast.BinOp, ast.UnaryOp, ast.Subscript, *_VALUES, ast.keyword)
_Assigning = ast.Assign | ast.AugAssign
_CALLED = name_set(
    "norm dot abs exp sqrt log sum dist square pow maximum minimum item cosine_similarity pairwise_distance clamp "
    "clamp_min clamp_max clip relu sigmoid tanh sin cos atan2 hypot sign round floor ceil log1p expm1"
)
"""What may be called on elements or rows: each has a form for whole tensors."""
_HEAD = re.compile(r"[ \t]*for\s+(\w+)\s+in\b")
_READS = 100
"""Reads of elements in a step from which on a loop reads them one by one."""
_ADVICE = "one operation over the whole tensor, or `.tolist()` once, in place of the loop"
_NEAR = 4
"""Lines behind a loop's head, among which its body begins."""


class PythonLoopOverElements(TraceRule, LineCostRule):
    """A Python loop works through a tensor element by element."""

    severity = "warning"
    words = ("range(",)
    lost_in = "element_loops"
    silence_clears = False

    def in_file(self, file: SourceFile) -> Iterator[Finding]:
        """Innermost `for i in range(…)` loops whose whole body is arithmetic on single elements of tensors."""
        if not self._may_index(file):
            return
        for event in file.calls("range"):
            loop = event.statement
            over = behind_progress(loop.iter) if isinstance(loop, ast.For) else None
            if not isinstance(loop, ast.For) or over is not event.node or not isinstance(loop.target, ast.Name):
                continue
            # What a compiler makes a kernel of is no loop in Python.
            if few_turns(event.call) or any("jit" in name for name in event.unit.decorators):
                continue
            body = _statements(loop.body)
            # A recurrence has no form over whole tensors.
            if not body or _carries_over(body, loop.target.id) or is_test(file):
                continue
            tensors = [self._elements(file, statement, event) for statement in body]
            if all(tensors):
                yield self._finding(file, event, loop, sorted(set().union(*tensors)))

    def in_time(self, rank: RankRecording, timing: Timing) -> Iterator[Finding]:
        """Loops whose lines read elements by the hundred in each sampled step, by the time that the loop takes."""
        from torchvet.analysis.line_times import operators_of

        sampled, lines = operators_of(rank)
        if not sampled:
            return
        reads: dict[tuple[str, int, int], int] = defaultdict(int)
        for (path, line), seen in lines.items():
            first, last = _loop_around(timing, path, line)
            reads[path, first, last] += seen.reads
        often = {loop: number for loop, number in reads.items() if number >= _READS * sampled}
        for (path, first, last), number in often.items():
            parts = [p for p in timing.innermost(path, first, last) if _on_elements(lines.get((path, p.place.line)))]
            cost = Cost(timing, parts)
            # Of a loop in a loop the inner one tells it.
            if cost.counts and not any(_is_around((path, first, last), other) for other in often):
                head = Place(path, first, parts[0].place.function)
                yield self._loop(rank, parts, head, number / sampled, cost, timing)

    def _loop(
        self, rank: RankRecording, parts: list[LineTime], at: Place, reads: float, cost: Cost, timing: Timing
    ) -> Finding:
        most = timing.statements(parts)[0]
        related = [] if most.line == at.line else [self.beside("loop", "the loop that it is in", at)]
        recurs = _recurs(timing, at)
        return self.takes(
            rank,
            most.place,
            f"tensors are read element by element, {reads:,.0f} times a step or more: {cost.of_step()}",
            cost,
            cause="each is an operator of its own, dispatched for next to no work"
            + (
                "; a turn of the loop needs what another has written, which no operation over the whole does"
                if recurs
                else ""
            ),
            advice="make it ahead, or for more rows at once" if recurs else _ADVICE,
            severity="info" if recurs else None,
            related=related,
        )

    def slow(self, found: Worst) -> Finding:
        """On the CPU: long runs of nothing but reads of single elements. On a device each is a wait (OPS101)."""
        number = sum(cost.count for cost in found.costs)
        reservation, severity = found.slowed("them")
        message = f"{number:,.0f} elements{found.a_step} are read one by one{found.where()}: {found.of_step()}"
        cause = (
            "each index and each conversion to a number is an operator of its own, dispatched for one element"
            + reservation
        )
        return self.loses(found, message, cause, _ADVICE, severity)

    @staticmethod
    def _may_index(file: SourceFile) -> bool:
        """Whether the lines after a loop's head have the loop's variable in brackets, first or last."""
        for number in file.lines_with("range"):
            head = _HEAD.match(file.lines[number - 1])
            after = "".join(file.lines[number : number + _NEAR]) if head is not None else ""
            if head is not None and re.search(rf"\[\s*{head[1]}\s*[\],]|,\s*{head[1]}\s*\]", after):
                return True
        return False

    @staticmethod
    def _elements(file: SourceFile, statement: _Assigning, event: Event) -> set[str]:
        """The tensors that a statement, or a test of one, reads or writes an element of; empty where it does anything
        else."""
        written, read = [n for t in _targets(statement) for n in walk(t)], walk(statement.value)
        if not _works(statement) or not all(map(_is_elementwise, (*written, *read))):
            return set()
        targets = _targets(statement)
        inner = (n for n in (*read, *written) if not any(n is target for target in targets))
        if not any(isinstance(n, ast.Subscript) for n in inner):
            return set()
        subscripted = (n.value for n in (*written, *read) if isinstance(n, ast.Subscript))
        return {text_of(one) for one in subscripted if surely_tensor(file, one, event)}

    def _finding(self, file: SourceFile, event: Event, loop: ast.For, tensors: list[str]) -> Finding:
        verb = "are" if len(tensors) > 1 else "is"
        # What runs once, over rows, costs little whatever it does.
        severity: Severity | None = "info" if event.unit.is_module and event.loop is None else None
        message = f"{' and '.join(tensors)} {verb} worked through element by element in Python"
        cause = "each element is indexed, computed and stored by operations of its own"
        advice = "write the body of the loop as one operation over whole tensors"
        return self.suspect(file, event, message, cause=cause, advice=advice, node=loop.target, severity=severity)


def _loop_around(timing: Timing, path: str, line: int) -> tuple[int, int]:
    """The lines of the innermost loop around a line, or of that which goes through a tensor in its head; only its own
    where that is the loop that trains."""
    first, last = timing.files.loop_at(path, line) or timing.files.loop(path, line) or (line, line)
    trains = any(part.phase in ("backward", "optimizer") for part in timing.below(path, first, last))
    return (line, line) if trains else (first, last)


def _on_elements(seen: OperatorsAt | None) -> bool:
    """Whether a line may work on elements: not what Python does without operators, and no call of a module, which
    takes rows as well (OPS318)."""
    return seen is not None and not seen.modules


def _is_around(loop: tuple[str, int, int], other: tuple[str, int, int]) -> bool:
    return loop != other and loop[0] == other[0] and loop[1] <= other[1] and other[2] <= loop[2]


def _recurs(timing: Timing, at: Place) -> bool:
    """Whether the loop whose head is here is a recurrence, as far as its own statements tell."""
    loop = timing.files.statement(at, {}).node
    if not isinstance(loop, ast.For):
        return False
    body = [one for one in loop.body if isinstance(one, (ast.Assign, ast.AugAssign))]
    return any(_carries_over(body, name) for name in names_in(loop.target))


def _statements(body: list[ast.stmt]) -> list[_Assigning]:
    """A loop's assignments, those under a condition of their own among them; empty where it does anything else."""
    found: list[_Assigning] = []
    for statement in body:
        if isinstance(statement, (ast.Assign, ast.AugAssign)):
            found.append(statement)
            continue
        plain = isinstance(statement, ast.If) and all(isinstance(n, _PLAIN) for n in walk(statement.test))
        inner = _statements(statement.body) if isinstance(statement, ast.If) and not statement.orelse else []
        if not plain or not inner:
            return []
        found += inner
    return found


def _targets(statement: _Assigning) -> list[ast.expr]:
    return statement.targets if isinstance(statement, ast.Assign) else [statement.target]


def _is_elementwise(node: ast.AST) -> bool:
    """Whether a node of an expression takes single elements or computes from them."""
    if isinstance(node, ast.Subscript):
        return _is_element(node)
    if isinstance(node, ast.Call):
        return terminal(node) in _CALLED and not isinstance(node.func, ast.Name)
    return isinstance(node, _PLAIN)


def _carries_over(body: list[_Assigning], index: str) -> bool:
    """Whether a turn needs what another has written: `y[i - 1]`, or `h = h * a[i] + b[i]`."""
    bound = [(target, s.value) for s in body for target in _targets(s)]
    if any(_rebinds(value, name) for target, value in bound for name in _bound_in(target)):
        return True
    written = {text_of(target.value) for target, _ in bound if isinstance(target, ast.Subscript)}
    nodes = (n for s in body for n in walk(s) if isinstance(n, ast.Subscript) and text_of(n.value) in written)
    return any(isinstance(n, ast.BinOp) and index in names_in(n) for one in nodes for n in walk(one.slice))


def _bound_in(target: ast.expr) -> list[str]:
    """The names that an assignment gives a value: `h, c = cell(x, (h, c))` gives it to two."""
    parts = target.elts if isinstance(target, (ast.Tuple, ast.List)) else [target]
    return [part.id for part in parts if isinstance(part, ast.Name)]


def _rebinds(value: ast.expr, name: str) -> bool:
    """Whether a name's new value is made of its old one otherwise than by adding to it once."""
    read = [n for n in walk(value) if is_name(n, name)]
    sums = isinstance(value, ast.BinOp) and isinstance(value.op, (ast.Add, ast.Sub))
    if not sums or len(read) != 1 or not isinstance(value, ast.BinOp):
        return bool(read)
    return value.left is not read[0] and not (isinstance(value.op, ast.Add) and value.right is read[0])


def _works(statement: _Assigning) -> bool:
    """Whether it computes: a plain copy of one element from a list of another order may be meant."""
    return isinstance(statement, ast.AugAssign) or isinstance(statement.value, (ast.BinOp, ast.Call))


def _is_element(node: ast.Subscript) -> bool:
    """Whether a subscript of a name is made of names, numbers, sums of these, and elements."""
    parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    return isinstance(node.value, (ast.Name, ast.Attribute)) and all(map(_is_index, parts))


def _is_index(node: ast.expr) -> bool:
    if isinstance(node, ast.BinOp):
        return all(isinstance(n, (ast.BinOp, *_VALUES)) for n in walk(node))
    return isinstance(node, (ast.Name, ast.Constant)) or (isinstance(node, ast.Subscript) and _is_element(node))

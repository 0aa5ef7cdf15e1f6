"""OPS204: a tensor that grows by `torch.cat` in a loop, or a window that moves on, is copied whole each time."""

from __future__ import annotations

import ast
import re
from itertools import pairwise
from typing import TYPE_CHECKING

from torchvet.formatting import count, size
from torchvet.recording.records.timing import SlidingWindow
from torchvet.rules.kit import Finding, Iterator, RankRecording, Severity, SourceFile
from torchvet.rules.operations.fixes.gathering import gathered
from torchvet.rules.shared.line_costs import Cost, LineCostRule
from torchvet.rules.shared.training_loops import is_test
from torchvet.source.model import Event, Loop, holds, is_call, is_literal, targets_of, terminal, walk
from torchvet.source.model.devices import operands
from torchvet.source.model.steps import text_of

if TYPE_CHECKING:
    from torchvet.analysis.line_times import Timing
    from torchvet.recording.records.timing import OperatorsAt

_JOINS = ("cat", "concat", "concatenate", "hstack", "vstack")
_BINDS = re.compile(
    r"(?:.*;|[ \t]*(?:for|while|if|elif|else)\b.*?:)?[ \t]*([A-Za-z_]\w*(?:\.\w+)?)[ \t]*(?::[^=]+)?=(?!=)(.*)"
)
_GATHERED = re.compile(
    r"loader|batch(?!$)|data|shard|chunk|part|file|path|episode|frame|video|document|sequence|stream"
)
"""What goes over a data set or its parts; a name that ends in `batch` is one of these, whose samples are gone over."""
_FEW = 8
_SAMPLES = 4
"""Sampled steps from which on a tensor that was longer in each is one that grows."""


_COPIES = 4
"""Copies below which a window that moved on may be chance."""
_LEAST = 30e-6
"""Seconds of one copy below which to write a row costs about as much."""
_JOIN, _BYTE = 50e-6, 4e-9
"""Seconds that a join takes at most, and each byte of it: memory is quicker than 0.25 GB/s. Chosen."""
_MOVED = {
    "cat": "torch.cat makes a new tensor of nearly all of the one that this line made before",
    "stack": "torch.stack copies the tensors that this line joined before, but for the oldest",
    "roll": "torch.roll makes a new tensor of the one that this line made before, for a row that is then written",
    "copy_": "all rows but one are copied to the place of their neighbor",
}
_LIST = (
    "keep the rows in a list, or a deque of their number (clones, where they are changed later), "
    "and stack them once when they are read"
)
_RING = (
    "or write row i at i % n of one tensor of n rows; of 2 n rows, and at i % n + n as well, "
    "where every window is read in order"
)
_TWICE = (
    "make one tensor of twice its rows; write row i at i % n and at i % n + n, and read the n rows from i % n + 1 on: "
    "a view, in order"
)


class CatInLoop(LineCostRule):
    """A tensor that grows by `torch.cat` in a loop, or a window that moves on, is copied whole each time."""

    severity = "warning"
    words = ("cat(", "concat(", "concatenate(", "hstack(", "vstack(")
    cost = "memory"
    silence_clears = False

    def in_file(self, file: SourceFile) -> Iterator[Finding]:
        """`x = torch.cat([x, …])` in a loop that reads `x` nowhere else."""
        for event in self._growing(file):
            loop = event.loop
            name = self._grows(event) if loop is not None else ""
            if not name or loop is None or not file.dotted(event.call.func).startswith("torch."):
                continue
            if not _few_turns(loop) and self._only_gathered(file, event, name, loop):
                costly = _many_turns(file, loop, event) and not _at_an_interval(event, loop) and not is_test(file)
                yield self._finding(file, event, name, loop, None if costly else "info")

    def in_time(self, rank: RankRecording, timing: Timing) -> Iterator[Finding]:
        """Lines whose joined tensor was ever longer in the steps that were sampled, or a window that moved on, by
        their time."""
        from torchvet.analysis.line_times import operators_of

        grown = set()
        for (path, line), seen in operators_of(rank)[1].items():
            parts = timing.innermost(path, line, line)
            cost = Cost(timing, parts, _of_copies(seen, timing.per_step(sum(part.seconds for part in parts))))
            if _grew(seen) and cost.counts:
                grown.add((path, line))
                yield self._copied(rank, seen, cost)
        for window in rank.latest(SlidingWindow, "id"):
            at = window.place
            cost = Cost(timing, timing.innermost(at.path, at.line, at.line), _saved(window))
            if (at.path, at.line) not in grown and cost.counts:
                yield self._moved(rank, window, cost) if window.copies else self._piled(rank, window, cost)

    def _moved(self, rank: RankRecording, window: SlidingWindow, cost: Cost) -> Finding:
        times = round(window.copies / window.steps)
        often = f"{count(times)} times in a step" if times > 1 else "once in a step"
        advice = _TWICE if _is_read(window) else _LIST if window.graph else f"{_LIST}; {_RING}"
        return self.takes(
            rank,
            window.place,
            f"a window of {size(window.bytes)} is copied whole for each new row, {often}: {cost.of_step()}",
            cost,
            cause=_MOVED.get(window.operator, _MOVED["cat"]),
            advice=advice,
            hidden="backward copies its gradient as often" if window.graph else "other lines get faster as well",
        )

    def _piled(self, rank: RankRecording, window: SlidingWindow, cost: Cost) -> Finding:
        often = f"{count(round(window.grown / window.steps))} times in a step"
        return self.takes(
            rank,
            window.place,
            f"a tensor that grows to {size(window.bytes)} is copied whole {often}: {cost.of_step()}",
            cost,
            cause="torch.cat makes a new tensor of all that was there, and nothing reads it before the next",
            advice="append to a list and join it once after the loop; or write into a tensor of the final size",
            hidden="backward copies its gradient as often" if window.graph else "other lines get faster as well",
        )

    def _copied(self, rank: RankRecording, seen: OperatorsAt, cost: Cost) -> Finding:
        (first, *_), (*_, last) = seen.joined, seen.joined
        a_step = (last - first) / (seen.ticks[-1] - seen.ticks[0])
        message = f"a tensor that grows is copied whole in each step, {size(last)} by step {seen.ticks[-1]}"
        return self.takes(
            rank,
            seen.place,
            f"{message}: {cost.of_step()}, and more in each",
            cost,
            cause=f"torch.cat makes a new tensor of all that was there and {size(a_step)} more",
            advice="append to a list and join it once after the loop; or write into a tensor of the final size",
        )

    def _growing(self, file: SourceFile) -> Iterator[Event]:
        for name in _JOINS:
            for line in file.words.lines_calling(name):
                if self._may_grow(file, line):
                    yield from file.calls_on(line, name)

    @staticmethod
    def _may_grow(file: SourceFile, number: int) -> bool:
        """Whether a line binds a name to a call that is given that name, here or on the next lines."""
        bound = _BINDS.match(file.lines[number - 1])
        return bound is not None and bound[1] in " ".join([bound[2], *file.lines[number : number + 2]])

    @staticmethod
    def _grows(event: Event) -> str:
        """The name that a call joins to itself, whole, once."""
        statement, targets = event.statement, targets_of(event.statement)
        if not isinstance(statement, ast.Assign) or len(targets) != 1:
            return ""
        value, target = statement.value, targets[0]
        # `total = part if total is None else torch.cat([total, part])`
        begun = isinstance(value, ast.IfExp) and event.node in (value.body, value.orelse)
        joined = operands(event.call)
        if (value is not event.node and not begun) or len(joined) < 2:
            return ""
        name = text_of(target)
        own = isinstance(target, ast.Attribute) and terminal(target.value) == (event.unit.self_name() or name)
        if not own and not isinstance(target, ast.Name):
            return ""
        reads = _reads(event.node, name)
        return name if len(reads) == 1 and reads[0] in joined else ""

    @staticmethod
    def _only_gathered(file: SourceFile, event: Event, name: str, loop: Loop) -> bool:
        """Whether the loop neither reads the name elsewhere nor starts it afresh, and it begins before the loop."""
        if not isinstance(loop.node, (ast.For, ast.While)):
            return False
        start = [e for e in _bindings(event, name) if e.index < event.index]
        # Started afresh in each turn, it never gets long.
        if any(e.inside(loop) and not e.excludes(event) for e in start):
            return False
        if "." in name:
            if _read_by_methods(file, event, name, loop):
                return False
        elif not start or event.unit.home(name) is not event.unit:
            return False
        # Decoding reads the joined tensor in each turn (most real hits were that): a list would not do.
        return all(holds(event.node, n) or _is_start(n, loop.node) for n in _reads(loop.node, name))

    def _finding(self, file: SourceFile, event: Event, name: str, loop: Loop, severity: Severity | None) -> Finding:
        message = f"{name} is copied whole in every turn: {file.segment(event.node)[:70]}"
        cause = f"torch.cat makes a new tensor of all that {name} holds, and the loop reads it nowhere else"
        advice = f"append to a list and make {name} = torch.cat(list) once after the loop"
        made = gathered(file, event, name, loop)
        return self.suspect(file, event, message, cause=cause, advice=advice, severity=severity, edits=made, safe=True)


def _grew(seen: OperatorsAt) -> bool:
    """Whether each sampled step joined more than the one before, and the last twice as much as the first."""
    sizes = seen.joined
    return len(sizes) >= _SAMPLES and all(a < b for a, b in pairwise(sizes)) and sizes[-1] >= 2 * sizes[0]


def _of_copies(seen: OperatorsAt, a_step: float) -> float:
    """The part of a line's time that its joins take at most: the line may compute what it appends."""
    most = _JOIN + _BYTE * max(seen.joined, default=0)
    return min(1.0, most / a_step) if a_step else 1.0


def _is_read(window: SlidingWindow) -> bool:
    """Whether each window, or nearly, is read as a whole before it moves on."""
    return 2 * window.read >= window.copies


def _saved(window: SlidingWindow) -> float:
    """The part of its line's time that a window without copies saves; 0 where there is no such form."""
    if not window.copies:
        # What is read in each turn must be whole. To join a list copies each part once, as the last turn does.
        gathers = window.grown >= _COPIES * window.steps and _COPIES * window.grown_read <= window.grown
        last = 2 * window.steps / max(1, window.grown)
        return max(0.0, 1 - last) * window.seconds / window.all if gathers and window.all else 0.0
    moves = window.copies >= _COPIES and 2 * window.copies >= window.made
    # Those that are kept would be overwritten; so would what a graph needs, and a list is stacked at each read.
    fixed = 2 * window.kept >= window.copies or (window.graph and _is_read(window))
    if not moves or fixed or window.seconds < _LEAST * window.copies:
        return 0.0
    # A list is stacked as often as it is read.
    stacked = 0.0 if _is_read(window) else window.read / window.copies
    return (1 - stacked) * window.seconds / window.all


def _reads(code: ast.AST, name: str) -> list[ast.AST]:
    """Where a name or an attribute is read within some code."""
    return [n for n in walk(code) if isinstance(getattr(n, "ctx", None), ast.Load) and text_of(n) == name]


def _bindings(event: Event, name: str) -> list[Event]:
    """The other events of the unit that bind a name or an attribute."""
    if "." not in name:
        return event.unit.bindings[name]
    return [e for e in event.unit.events if any(text_of(t) == name for t in targets_of(e.node))]


def _read_by_methods(file: SourceFile, event: Event, name: str, loop: Loop) -> bool:
    """Whether a method of the file that the loop calls knows the attribute."""
    attribute = name.rpartition(".")[2]
    knowing = {id(u) for u in file.units_with(attribute)}
    return any(id(file.callee(call)) in knowing for call in event.unit.calls_inside(loop))


def _is_start(node: ast.AST, loop: ast.AST) -> bool:
    """`if total is None:` or `if len(total) == 0:`, which begins the gathering."""
    branches = (n for n in walk(loop) if isinstance(n, (ast.If, ast.IfExp)) and holds(n.test, node))
    test = next((branch.test for branch in branches), None)
    if isinstance(test, ast.UnaryOp):
        return isinstance(test.op, ast.Not) and terminal(test.operand) == "len"
    if not isinstance(test, ast.Compare):
        return False
    counted = is_literal(test.comparators[0], 0) and is_call(test.left, "len", "numel", "size", "nelement")
    return counted or isinstance(test.ops[0], (ast.Is, ast.IsNot))


def _few_turns(loop: Loop) -> bool:
    """Whether the loop is over a short constant range, or something written out."""
    over = loop.node.iter if isinstance(loop.node, ast.For) else None
    number = _last_number(over)
    return isinstance(over, (ast.List, ast.Tuple)) or (number is not None and number <= _FEW)


def _last_number(over: ast.expr | None) -> int | None:
    """The whole number that a call is given last: how far a range goes."""
    last = over.args[-1] if isinstance(over, ast.Call) and over.args else None
    return last.value if isinstance(last, ast.Constant) and isinstance(last.value, int) else None


def _many_turns(file: SourceFile, loop: Loop, event: Event) -> bool:
    """Whether the loop goes over a data set or its parts, or for long: over the images of one batch it costs little."""
    over = [loop.node.iter] if isinstance(loop.node, ast.For) else []
    for one in over:
        if is_call(one, "range") and one.args and isinstance(one.args[-1], ast.Constant):
            return (_last_number(one) or 0) > 2 * _FEW
        if isinstance(one, ast.Call):
            over.extend(one.args)
        elif _GATHERED.search(terminal(one).lower()) or file.roles.is_a("loader", one, event.unit):
            return True
    return not over


def _at_an_interval(event: Event, loop: Loop) -> bool:
    """`if step % 100 == 0:` within the loop."""
    tests = [b.test for b, _ in event.context.arms if isinstance(b, ast.If) and holds(loop.node, b)]
    return any("%" in ast.unparse(test) for test in tests)

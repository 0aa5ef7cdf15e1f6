"""OPS205: a Python loop works through a tensor element by element."""

from __future__ import annotations

import ast
import re

from torchvet.rules.kit import Finding, Iterator, SourceFile
from torchvet.rules.shared.step_code import few_turns
from torchvet.rules.shared.sure_tensors import surely_tensor
from torchvet.rules.shared.trace_costs import TraceRule, Worst
from torchvet.rules.shared.training_loops import is_test
from torchvet.source.model import Event, terminal, walk
from torchvet.source.model.steps import text_of
from torchvet.source.model.units import behind_progress

_PLAIN = (ast.BinOp, ast.UnaryOp, ast.Subscript, ast.Name, ast.Constant, ast.operator, ast.unaryop, ast.Load, ast.Store,
          ast.Tuple, ast.Attribute, ast.Compare, ast.BoolOp, ast.cmpop, ast.boolop)  # fmt: skip
_CALLED = frozenset(("norm", "dot", "abs", "exp", "sqrt", "log", "sum", "dist", "square", "pow", "maximum", "minimum",
                     "item", "cosine_similarity", "pairwise_distance", "clamp", "clamp_min", "clamp_max", "clip",
                     "relu", "sigmoid", "tanh", "sin", "cos", "atan2", "hypot", "sign", "round", "floor", "ceil",
                     "log1p", "expm1"))  # fmt: skip
"""What may be called on elements or rows: each has a form for whole tensors."""
_HEAD = re.compile(r"[ \t]*for\s+(\w+)\s+in\b")
_NEAR = 4
"""Lines behind a loop's head, among which its body begins."""


class PythonLoopOverElements(TraceRule):
    """A Python loop works through a tensor element by element."""

    code = "OPS205"
    name = "python-loop-over-elements"
    summary = "A Python loop works through a tensor element by element"
    severity = "warning"
    words = ("range(",)

    lost_in = "element_loops"

    def in_file(self, file: SourceFile) -> Iterator[Finding]:
        """Innermost `for i in range(…)` loops whose whole body is arithmetic on single elements of tensors."""
        if not self._may_index(file):
            return
        for event in file.calls("range"):
            loop = event.statement
            over = behind_progress(loop.iter) if isinstance(loop, ast.For) else None
            if not isinstance(loop, ast.For) or over is not event.node or not isinstance(loop.target, ast.Name):
                continue
            body = _statements(loop.body)
            if few_turns(event.call) or not body or _carries_over(body, loop.target.id) or is_test(file):
                continue
            if any("jit" in name for name in event.unit.decorators):
                continue  # a kernel: its loop is no Python
            tensors = [self._elements(file, s, loop.target.id, event) for s in body]
            if all(tensors):
                yield self._finding(file, event, loop, sorted(set().union(*tensors)))

    def slow(self, found: Worst) -> Finding:
        """On the CPU: long runs of nothing but reads of single elements. On a device each is a wait (OPS101)."""
        number = sum(cost.count for cost in found.costs)
        reservation, severity = found.slowed("them")
        message = f"{number:,.0f} elements a step are read one by one{found.where()}: {found.of_step()}"
        cause = (
            "each index and each conversion to a number is an operator of its own, dispatched for one element"
            + reservation
        )
        advice = "one operation over the whole tensor, or `.tolist()` once, in place of the loop"
        return self.loses(found, message, cause, advice, severity)

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
    def _elements(file: SourceFile, statement: ast.stmt, index: str, event: Event) -> set[str]:
        """The tensors that a statement, or a test of one, reads or writes an element of; empty where it does anything
        else."""
        parts: list[ast.expr] = [*_targets(statement), _value(statement)]
        found: set[str] = set()
        for node in (n for part in parts for n in walk(part)):
            if isinstance(node, ast.Subscript):
                if not _is_element(node):
                    return set()
                if surely_tensor(file, node.value, event):
                    found.add(text_of(node.value))
            elif isinstance(node, ast.Call):
                if terminal(node) not in _CALLED or isinstance(node.func, ast.Name):
                    return set()
            elif not isinstance(node, (*_PLAIN, ast.keyword)):
                return set()
        reads = any(isinstance(n, ast.Subscript) for n in walk(_value(statement)))
        reads = reads or any(isinstance(n, ast.Subscript) for t in _targets(statement) for n in walk(t) if n is not t)
        return found if reads and _works(statement) else set()

    def _finding(self, file: SourceFile, event: Event, loop: ast.For, tensors: list[str]) -> Finding:
        which = " and ".join(tensors)
        return self.suspect(
            file, event, f"{which} {'are' if len(tensors) > 1 else 'is'} worked through element by element in Python",
            cause="each element is indexed, computed and stored by operations of its own",
            advice="write the body of the loop as one operation over whole tensors", node=loop.target,
            # What runs once, over rows, costs little whatever it does.
            severity="info" if event.unit.is_module and event.loop is None else None,
        )  # fmt: skip


def _statements(body: list[ast.stmt]) -> list[ast.stmt]:
    """A loop's assignments, those under a condition of their own among them; empty where it does anything else."""
    found: list[ast.stmt] = []
    for statement in body:
        if isinstance(statement, ast.If) and not statement.orelse:
            inner = _statements(statement.body)
            if not inner or not all(isinstance(n, (*_PLAIN, ast.keyword)) for n in walk(statement.test)):
                return []
            found.extend(inner)
        elif isinstance(statement, (ast.Assign, ast.AugAssign)):
            found.append(statement)
        else:
            return []
    return found


def _targets(statement: ast.stmt) -> list[ast.expr]:
    return statement.targets if isinstance(statement, ast.Assign) else [statement.target]  # type: ignore[attr-defined]


def _value(statement: ast.stmt) -> ast.expr:
    value: ast.expr = statement.value  # type: ignore[attr-defined]
    return value


def _carries_over(body: list[ast.stmt], index: str) -> bool:
    """Whether a turn needs what another has written: `y[i - 1]`, or `h = h * a[i] + b[i]`."""
    written = {text_of(t.value) for s in body for t in _targets(s) if isinstance(t, ast.Subscript)}
    for statement in body:
        for node in walk(statement):
            shifted = isinstance(node, ast.Subscript) and text_of(node.value) in written and any(
                isinstance(n, ast.BinOp) and any(isinstance(m, ast.Name) and m.id == index for m in walk(n))
                for n in walk(node.slice)
            )  # fmt: skip
            if shifted:
                return True
        value = _value(statement)
        for target in (t for t in _targets(statement) if isinstance(t, ast.Name)):
            read = [n for n in walk(value) if isinstance(n, ast.Name) and n.id == target.id]
            added = isinstance(value, ast.BinOp) and isinstance(value.op, (ast.Add, ast.Sub)) and value.left in read
            added = added or (isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add) and value.right in read)
            if read and not (added and len(read) == 1):
                return True
    return False


def _works(statement: ast.stmt) -> bool:
    """Whether it computes: a plain copy of one element from a list of another order may be meant."""
    return isinstance(statement, ast.AugAssign) or isinstance(_value(statement), (ast.BinOp, ast.Call))


def _is_element(node: ast.Subscript) -> bool:
    """Whether a subscript of a name is made of names, numbers, sums of these, and elements."""
    parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    named = isinstance(node.value, (ast.Name, ast.Attribute))
    return named and all(
        isinstance(p, (ast.Name, ast.Constant))
        or (isinstance(p, ast.Subscript) and _is_element(p))
        or (isinstance(p, ast.BinOp) and all(isinstance(n, (*_PLAIN[:1], *_PLAIN[3:])) for n in walk(p)))
        for p in parts
    )

"""OPS205: a Python loop works through a tensor element by element."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from torchvet.rules.base import Rule
from torchvet.rules.device._tensors import surely_tensor
from torchvet.source.model.walking import walk

if TYPE_CHECKING:
    from torchvet.finding import Finding
    from torchvet.source.model import Event, SourceFile

_PLAIN = (ast.BinOp, ast.UnaryOp, ast.Subscript, ast.Name, ast.Constant, ast.operator, ast.unaryop, ast.Load, ast.Store,
          ast.Tuple, ast.Attribute)  # fmt: skip
_HEAD = re.compile(r"[ \t]*for (\w+) in range")
_FEW = 8


class PythonLoopOverElements(Rule):
    """A Python loop works through a tensor element by element."""

    code = "OPS205"
    name = "python-loop-over-elements"
    summary = "A Python loop works through a tensor element by element"
    severity = "warning"

    what = (
        "Each `x[i]` makes a new tensor object, and each sum or product of two of them is an operation of its own, "
        "dispatched for one number, and a node of the graph where gradients are recorded."
    )
    why = (
        "A dispatch costs a microsecond or more, the arithmetic a fraction of a nanosecond; on CUDA every element is "
        "a kernel launch. The graph has a node per element, and the backward visits each."
    )
    when_not = (
        "Loops over time steps or layers that carry a state, loops that call a module, and recurrences (`y[i - 1]`) "
        "cannot simply be written as one operation; a few turns do not matter."
    )
    proof = (
        "torch 2.13.0, CPU: a product of two (100, 100) tensors element by element took 139 ms, as `a * b` 2.2 µs; a "
        "sum of squares over 1,000 elements 7.8 ms, as `(v * v).sum()` 2.4 µs."
    )
    remedy = "Write it over whole tensors: `a * b`, `(x * w).sum()`, a slice, `torch.where`, `cumsum`, `einsum`."

    BAD = """\
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(16, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for step in range(40):
    x = torch.randn(32, 16)
    target = torch.zeros(32, 1)
    for i in range(x.size(0)):
        for j in range(x.size(1)):
            target[i, 0] += x[i, j]
    loss = nn.functional.mse_loss(model(x), target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 9:
        print(f"step {step + 1} loss {loss.item():.4f}")
"""

    GOOD = """\
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(16, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for step in range(40):
    x = torch.randn(32, 16)
    target = x.sum(1, keepdim=True)
    loss = nn.functional.mse_loss(model(x), target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 9:
        print(f"step {step + 1} loss {loss.item():.4f}")
"""

    def in_source(self, file: SourceFile) -> Iterator[Finding]:
        """Innermost `for i in range(…)` loops whose whole body is arithmetic on single elements of tensors."""
        if not file.mentions("range(") or not self._may_index(file):
            return
        for event in file.calls("range"):
            loop = event.parent
            if not isinstance(loop, ast.For) or loop.iter is not event.node or not isinstance(loop.target, ast.Name):
                continue
            if _few(event.call) or not all(isinstance(s, (ast.Assign, ast.AugAssign)) for s in loop.body):
                continue
            tensors = [self._elements(file, s, loop.target.id, event) for s in loop.body]
            if all(tensors):
                yield self._finding(file, event, loop, sorted(set().union(*tensors)))

    @staticmethod
    def _may_index(file: SourceFile) -> bool:
        """Whether the line after a loop's head has the loop's variable in brackets, last."""
        for number in file.lines_with("range"):
            head = _HEAD.match(file.lines[number - 1])
            after = file.lines[number] if head is not None and number < len(file.lines) else ""
            if head is not None and (f"[{head[1]}]" in after or f", {head[1]}]" in after or f"[{head[1]}," in after):
                return True
        return False

    @staticmethod
    def _elements(file: SourceFile, statement: ast.stmt, index: str, event: Event) -> set[str]:
        """The tensors that a statement reads or writes an element of; empty where it does anything else."""
        assert isinstance(statement, (ast.Assign, ast.AugAssign))
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        found: set[str] = set()
        for part in (*targets, statement.value):
            for node in walk(part):
                if isinstance(node, ast.Subscript):
                    if not _is_element(node, index):
                        return set()
                    if isinstance(node.value, ast.Name) and surely_tensor(file, node.value, event):
                        found.add(node.value.id)
                elif not isinstance(node, (*_PLAIN, ast.AugAssign)):
                    return set()
        reads = any(isinstance(n, ast.Subscript) for n in walk(statement.value))
        return found if reads and _works(statement) else set()

    def _finding(self, file: SourceFile, event: Event, loop: ast.For, tensors: list[str]) -> Finding:
        which = " and ".join(tensors)
        return self.suspect(
            file, event, f"{which} {'are' if len(tensors) > 1 else 'is'} worked through element by element in Python",
            cause="each element is indexed, computed and stored by operations of its own",
            advice="write the body of the loop as one operation over whole tensors", node=loop.target,
        )  # fmt: skip


def _works(statement: ast.stmt) -> bool:
    """Whether it computes: a plain copy of one element from a list of another order may be meant."""
    return isinstance(statement, ast.AugAssign) or isinstance(getattr(statement, "value", None), ast.BinOp)


def _is_element(node: ast.Subscript, index: str) -> bool:
    """Whether a subscript is made of bare names and constants, the loop's variable among them or outside of it."""
    parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    return isinstance(node.value, ast.Name) and all(isinstance(p, (ast.Name, ast.Constant)) for p in parts)


def _few(call: ast.Call) -> bool:
    last = call.args[-1] if call.args else None
    return isinstance(last, ast.Constant) and isinstance(last.value, int) and last.value <= _FEW

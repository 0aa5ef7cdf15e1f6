"""MEM113: a small view keeps a large storage alive."""

from __future__ import annotations

import ast
import re
from math import prod

from torchvet.rules.kit import About, Edits, Finding, Findings, Growth, Recording, SourceFile, Store
from torchvet.rules.memory._lasting import kept_in_loops, kept_under_keys
from torchvet.rules.memory._shapes import Shapes
from torchvet.rules.memory._sizes import Shape, indexed, number
from torchvet.rules.memory._stores import UNDER_A_KEY, Stored
from torchvet.rules.memory.fixes.stored_values import copied, tensors_only
from torchvet.rules.shared.growth_rule import GrowthRule, closed, no_tensor, nodes_outweigh
from torchvet.rules.shared.number_format import size as in_bytes
from torchvet.source.model import Event, edits, is_call, receiver


class ViewPinsStorage(GrowthRule):
    """A small view keeps a large storage alive."""

    severity = "error"

    specificity = 2
    bounded_matters = True

    def recognises(self, growth: Growth, recording: Recording) -> bool:
        """Less than half of the bytes that are held are shown by the tensors that hold them, and no graphs that are
        kept with them take more."""
        held = growth.direct_per_step
        pinned = held > 0 and held >= 0.5 * growth.bytes_per_step and growth.visible_per_step < 0.5 * held
        return pinned and not nodes_outweigh(growth)

    def cause(self, growth: Growth, store: Store | None) -> str:
        """View and storage sizes."""
        shown, held = in_bytes(growth.visible_per_step), in_bytes(growth.direct_per_step)
        what = "arrays" if growth.holding.item_type == _ARRAY else "tensors"
        return f"the {what} in {growth.holding.name} show {shown} per step but are views into storages of {held}"

    def advice(self, growth: Growth, store: Store | None) -> str:
        """Clone."""
        value = closed(store.value) if store is not None and store.value else "view"
        if growth.holding.item_type == _ARRAY:
            return f"copy the part that is kept: `{value}.copy()`, so that the large array can go"
        if kind := no_tensor(growth, store):
            return (
                f"copy the parts that are kept: `.clone()` (after `.detach()`) of what each {kind} holds, before it "
                f"goes into {growth.holding.name}, so that the large storage can go"
            )
        return f"copy the part that is kept: `{value}.clone()` (after `.detach()`), so that the large storage can go"

    def fixes(self, finding: Finding, file: SourceFile) -> Edits:
        """Copy what is stored."""
        return copied(file, finding)

    def fixes_seen(self, finding: Finding, file: SourceFile, recording: Recording) -> Edits:
        """No method of tensors on what was seen to be none."""
        return tensors_only(self.fixes(finding, file), finding, file, recording)

    def in_file(self, file: SourceFile) -> Findings:
        """A part of a tensor is put into a container in a loop without a copy."""
        # By text first: most files have no such line.
        lines = [file.line_of(m.start()) for m in _STORED_PART.finditer(file.text)]
        shapes = Shapes(file)
        keyed = [file.line_of(m.start(1)) for m in file.words.lines_like(_KEYED_PART, UNDER_A_KEY)]
        for kept in (*kept_in_loops(file, lines), *kept_under_keys(file, keyed)):
            view = None if kept.adds else _view(file, kept.value, kept.event, shapes)
            # A view with a graph is MEM101's, whose fix copies as well.
            if view is not None and file.gradients.carries(kept.value, kept.event) == "no":
                yield from self._judged(file, kept, view, shapes)

    def _judged(self, file: SourceFile, kept: Stored, view: ast.Subscript, shapes: Shapes) -> Findings:
        whole = shapes.of(view.value, kept.event)
        ratio = _ratio(whole, view)
        # A ratio that is not known is still worth a note.
        if ratio is not None and ratio < _WORTH_A_LINE:
            return
        seen, value = file.segment(view), file.segment(kept.value)
        much = f", {ratio:,} times as much" if ratio is not None else ""
        base = file.segment(view.value)
        yield self.suspect(
            file, kept.event, f"{kept.name} keeps the whole storage of {base}{much}, for {seen}", node=kept.value,
            severity="warning" if ratio is not None else "info",
            cause=f"{seen} is a view: it shares the storage of {base}",
            advice=f"copy what is kept: `{value}.clone()`",
            edits=[edits.replace(file, kept.value, f"{value}.clone()")], safe=True, about=About(operands=(kept.name,)),
        )  # fmt: skip


_STORED_PART = re.compile(r"\.(?:append|appendleft|add)\(\s*[^\n]*\[[^\]\n]*\d")
"""`list.append(x[0, :4])`: only where a line looks so is anything walked."""
_KEYED_PART = re.compile(r"[ \t]*([A-Za-z_][\w.]*\[[^\]\n]+\])[ \t]*=(?!=)[^\n]*\[[^\]\n]*\d")
"""`newest[camera] = clip[-1]`."""
_ARRAY = "ndarray"
"""The type of NumPy's arrays."""
_WORTH_A_LINE = 8
"""Times that the storage has to be larger than the view for a finding."""
_SAME_STORAGE = {"detach", "squeeze", "unsqueeze", "view", "t", "transpose", "permute", "flatten", "data"}


def _view(file: SourceFile, node: ast.AST | None, event: Event, shapes: Shapes) -> ast.Subscript | None:
    """The slice `x[0, :4]` behind `x[0, :4].detach()`, where `x` is a tensor; None where something copies."""
    for _ in range(6):
        if isinstance(node, ast.Subscript):
            if not _cuts(node.slice):
                return None
            # A slice of a list is a copy.
            tensor = file.roles.of(node.value, event.unit) & {"tensor", "output"}
            return node if tensor or shapes.of(node.value, event) is not None else None
        if is_call(node, *_SAME_STORAGE):
            node = receiver(node)
        elif isinstance(node, ast.Attribute) and node.attr in _SAME_STORAGE:
            node = node.value
        else:
            return None
    return None


def _cuts(index: ast.expr) -> bool:
    """Whether an index makes a view that leaves something out: numbers and slices; lists, masks and names may copy."""
    parts = index.elts if isinstance(index, ast.Tuple) else [index]
    plain = all(isinstance(p, ast.Slice) or number(p) is not None or _is_marker(p) for p in parts)
    return plain and any(number(p) is not None or (isinstance(p, ast.Slice) and (p.lower or p.upper)) for p in parts)


def _is_marker(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value in (None, ...)


def _ratio(whole: Shape | None, view: ast.Subscript) -> int | None:
    """How many times larger the storage is than the view; None where a size that matters is not known."""
    part = indexed(whole, view.slice) if whole is not None else None
    if whole is None or part is None:
        return None
    sizes, kept = list(whole), list(part)
    for size in part:
        # A size without a number that both have (the batch) cancels out.
        if not isinstance(size, int) and size in sizes:
            sizes.remove(size)
            kept.remove(size)
    large, small = ([d for d in ds if isinstance(d, int)] for ds in (sizes, kept))
    # One size unknown, and the ratio is as well; an empty view has none.
    if len(large) < len(sizes) or len(small) < len(kept) or not prod(small):
        return None
    return prod(large) // prod(small)

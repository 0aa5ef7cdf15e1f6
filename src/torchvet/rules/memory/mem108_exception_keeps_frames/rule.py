"""MEM108: a stored exception keeps the frames it passed through, and their tensors."""

from __future__ import annotations

import ast
import re

from torchvet.rules.core.fixing import with_method
from torchvet.rules.kit import About, Edits, Finding, Findings, Growth, Iterator, Recording, SourceFile, Store, records
from torchvet.rules.memory import _lasting, _stores
from torchvet.rules.memory.fixes.kept_exceptions import without_traceback
from torchvet.rules.memory.fixes.stored_values import stored_at
from torchvet.rules.shared.growth_rule import GrowthRule
from torchvet.source.model import Event, edits, is_name, targets_of, terminal, walk
from torchvet.source.statements import spans
from torchvet.source.syntax import parts


class ExceptionKeepsFrames(GrowthRule):
    """A stored exception keeps the frames it passed through, and their tensors."""

    severity = "error"
    words = ("except",)

    specificity = 5

    def recognises(self, growth: Growth, recording: Recording) -> bool:
        """The path runs through an exception's traceback."""
        # The name may end at the list, above the exceptions.
        return "exception" in growth.holding.via or _below_is_exception(growth, recording)

    def cause(self, growth: Growth, store: Store | None) -> str:
        """The traceback keeps the frames."""
        return (
            f"{growth.holding.name} keeps exceptions; an exception keeps its traceback, that keeps the frames it went "
            "through, and those keep their local tensors"
        )

    def advice(self, growth: Growth, store: Store | None) -> str:
        """Keep the text."""
        return "store the text (`str(error)` or `traceback.format_exc()`), or `error.with_traceback(None)`"

    def fixes(self, finding: Finding, file: SourceFile) -> Edits:
        """Store the exception without its traceback."""
        stored = [kept.value for kept in stored_at(file, finding) if isinstance(kept.value, ast.Name)]
        made = [edit for value in stored for edit in with_method(file, value, "with_traceback(None)")]
        return made or without_traceback(file, finding)

    def in_file(self, file: SourceFile) -> Findings:
        """An `except` block of a loop that collects its exceptions, around code that works on tensors."""
        # Without a name an exception can only be had from `sys`.
        if not (_NAMED.search(file.text) or file.mentions("exc_info()")):
            return
        put = list(_stores.put(file, "append", "appendleft", "put"))
        for store in (*put, *_stores.keyed(file), *_handed_on(put)):
            handler, attempt = _handler_of(store.event)
            given = _exception_in(file, store.value, handler.name or "") if handler is not None else None
            if given is None or attempt is None or _tries_in_turn(attempt):
                continue
            if not _works_on_tensors(file, store.event, attempt):
                continue
            kept = _lasting.kept_on(file, _stores.Stored(store.event, store.holder, given, key=store.key))
            if kept is not None:
                yield self._suspected(file, kept)

    def _suspected(self, file: SourceFile, store: _stores.Stored) -> Finding:
        holder, error = file.segment(store.root), file.segment(store.value)
        return self.suspect(
            file, store.event,
            f"{holder} keeps {error} with its traceback: the frames it went through, and their tensors",
            severity="warning", about=About(operands=(holder,)),
            cause=f"{error} refers to its traceback, that to each frame between raise and except, and those to their "
            "local tensors",
            advice="store the text, `traceback.format_exc()`" if isinstance(store.value, ast.Call) else
            f"store `str({error})` or `traceback.format_exc()`; where the object is needed, "
            f"`{error}.with_traceback(None)`",
            edits=[edits.replace(file, store.value, f"{error}.with_traceback(None)")] if isinstance(
                store.value, ast.Name) else (),
        )  # fmt: skip


_NAMED = re.compile(r"except\b[^\n]*\bas\s+\w+\s*:")


def _handed_on(put: list[_stores.Stored]) -> Iterator[_stores.Stored]:
    """`result.error = error` in an `except` block of a loop that then collects `result`."""
    for added in put:
        if not isinstance(added.value, ast.Name):
            continue
        for event in added.event.unit.events:
            target = next(iter(targets_of(event.node)), None) if isinstance(event.node, ast.Assign) else None
            if not isinstance(target, ast.Attribute) or event.loop is not added.event.loop:
                continue
            if is_name(target.value, added.value.id):
                yield _stores.Stored(event, added.holder, event.node.value)  # type: ignore[attr-defined]


def _handler_of(event: Event) -> tuple[ast.ExceptHandler | None, ast.Try | None]:
    """The innermost `except` block that an event stands in."""
    for branch, arm in reversed(event.context.arms):
        # Arm 0 is the `else`.
        if isinstance(branch, ast.Try) and 0 < arm <= len(branch.handlers):
            return branch.handlers[arm - 1], branch
    return None, None


def _exception_in(file: SourceFile, node: ast.expr, name: str) -> ast.expr | None:
    """The exception itself in what is stored: alone, or an element of a tuple, list or dict; `sys.exc_info()` holds
    it, too."""
    if isinstance(node, ast.Name):
        return node if node.id == name else None
    if isinstance(node, ast.Call):
        return node if file.dotted(node.func) == "sys.exc_info" else None
    within = parts(node) if isinstance(node, (ast.Tuple, ast.List, ast.Dict)) else []
    return next(filter(None, (_exception_in(file, one, name) for one in within)), None)


def _tries_in_turn(attempt: ast.Try) -> bool:
    """Whether a success ends the loop: one of several ways is looked for, and the failures go when it is found."""
    # For example, several backends are tried until one works.
    return any(
        isinstance(node, (ast.Break, ast.Return)) for part in (*attempt.body, *attempt.orelse) for node in walk(part)
    )


def _works_on_tensors(file: SourceFile, event: Event, attempt: ast.Try) -> bool:
    """Whether the `try` body runs a module, torch's functions or a backward, itself or in a function of this file."""
    calls = [e for e in event.unit.events if isinstance(e.node, ast.Call) and spans(attempt.body, e.line)]
    callees = (file.callee(e) for e in calls)
    within = (e for unit in callees if unit is not None for e in unit.events if isinstance(e.node, ast.Call))
    return any(_on_tensors(file, e) for e in calls) or any(_on_tensors(file, e) for e in within)


_NOT_ON_TENSORS = tuple(
    f"torch.{name}" for name in ("_", "utils", "distributed", "save", "load", "device", "cuda", "backends")
)


def _on_tensors(file: SourceFile, event: Event) -> bool:
    dotted = file.dotted(event.call.func)
    if terminal(event.node) == "backward" or file.gradients.forwards.runs_module(event.call, event.unit):
        return True
    # Functions that make or take tensors stand no deeper in torch's modules.
    return dotted.startswith("torch.") and dotted.count(".") < 4 and not dotted.startswith(_NOT_ON_TENSORS)


def _below_is_exception(growth: Growth, recording: Recording) -> bool:
    """The container's items are exceptions, or hold such: their paths run through tracebacks."""
    if "exception" in growth.holding.below:
        return True
    prefix = (growth.holding.scope, *growth.holding.path)
    censuses = (rank.last(records.base.Census) for rank in recording.ranks)
    thrown = (h for census in censuses if census is not None for h in census.holdings if "exception" in h.via)
    return any((holding.scope, *holding.path)[: len(prefix)] == prefix for holding in thrown)

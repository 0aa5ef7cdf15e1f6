"""An edit for a message that is made and not written: the logger is asked first."""

from __future__ import annotations

import ast

from torchvet.rules.kit import Edits, Finding, SourceFile
from torchvet.rules.operations.fixes.sinking import changes_nothing
from torchvet.source.model import blocks, edits, walk

_LEVELS = {"warn": "WARNING", "exception": "ERROR", "fatal": "CRITICAL"}
_BINDING = (ast.NamedExpr, ast.Await, ast.Yield, ast.YieldFrom)


def asked_first(file: SourceFile, finding: Finding) -> Edits:
    """`if log.isEnabledFor(logging.DEBUG):` around `log.debug(...)`. Nothing where the arguments do more than read, as
    a draw of random numbers or a metric's `compute` would: those are there for more than the message."""
    at = finding.location
    if at is None or at.path != file.path or at.line is None:
        return ()
    module = next((name for name, whole in file.imports.names.items() if whole == "logging"), "")
    for event in file.events_on(at.line) if module else ():
        statement = event.statement
        call = statement.value if isinstance(statement, ast.Expr) else None
        if isinstance(statement, ast.Expr) and isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute):
            return _guarded(file, statement, call, call.func, module)
    return ()


def _guarded(file: SourceFile, statement: ast.Expr, call: ast.Call, method: ast.Attribute, module: str) -> Edits:
    name = method.attr
    level = file.segment(call.args[0]) if name == "log" else f"{module}.{_LEVELS.get(name, name.upper())}"
    logger = file.segment(method.value)
    # The module has no such function; its root logger has.
    logger = f"{logger}.root" if file.dotted(method.value) == "logging" else logger
    given = [*call.args, *(k.value for k in call.keywords)]
    safe = edits.on_one_line(method) and all(_only_reads(file, one) for one in given)
    return blocks.under(file, [statement], f"if {logger}.isEnabledFor({level}):") if safe else ()


def _only_reads(file: SourceFile, node: ast.expr) -> bool:
    return not any(isinstance(one, _BINDING) for one in walk(node)) and changes_nothing(file, node)

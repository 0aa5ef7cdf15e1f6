"""A program whose comments hold what its author wrongly believes, and which has a second fault."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Set

from casebook.variants.beliefs import belief
from casebook.variants.text import Edit, Line, Module

KEPT = "losses_so_far"
"""What the second fault is called where it is a list that every loss is put into."""

KEPT_CODES = ("MEM101", "MEM112", "MEM113")
"""What such a list may rightly be called."""

DETACHED_CODES = ("MEM102", "MEM113")
"""And what, where the losses in it have no graphs."""


def believed(module: Module, code: str, faulty: int, wanted: Set[int]) -> tuple[Module, tuple[str, ...]]:
    """The module with comments at the faulty line and with a second fault, and codes one of which the latter has."""
    edits, inserted, codes = _second_fault(module, code, wanted)
    edited = module.edited(edits)
    lines: list[Line] = []
    for number, line in enumerate(edited.lines, start=1):
        if number == faulty:
            indent = len(line.text) - len(line.text.lstrip())
            lines += [Line(" " * indent + f"# {text}") for text in belief(code)]
        lines.append(line)
        lines += inserted.get(number, [])
    return Module(tuple(lines)), codes


def _second_fault(
    module: Module, code: str, wanted: Set[int]
) -> tuple[list[Edit], dict[int, list[Line]], tuple[str, ...]]:
    """Edits, lines put in after others, and codes. A leak gets a fault of another kind, all else a leak."""
    leak = code.startswith("MEM1")
    clearing = [n for n in _calls(module, "zero_grad") if not n.args and not n.keywords and n.lineno not in wanted]
    if leak and clearing:
        call = clearing[0]
        return [module.edit(call, ast.unparse(call)[:-1] + "set_to_none=False)")], {}, ("MEM203",)
    for statement in ast.walk(module.tree):
        if not (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call)):
            continue
        name = _differentiated(statement.value)
        if name is None:
            continue
        end = statement.end_lineno or statement.lineno
        text = module.lines[statement.lineno - 1].text
        # Graphs are left to a leak of graphs: who of two holds one has no answer.
        what = f"{name}.detach()" if leak else name
        kept = Line(f"{KEPT}.append({what})").indented(len(text) - len(text.lstrip()))
        codes = DETACHED_CODES if leak else KEPT_CODES
        return [], {end: [kept], _last_import(module): [Line(""), Line(f"{KEPT} = []")]}, codes
    return [], {}, ()


def _differentiated(call: ast.Call) -> str | None:
    """The name of what ``name.backward()`` or ``scaler.scale(name).backward()`` goes back from."""
    if not (isinstance(call.func, ast.Attribute) and call.func.attr == "backward"):
        return None
    loss = call.func.value
    if isinstance(loss, ast.Call) and isinstance(loss.func, ast.Attribute) and loss.func.attr == "scale" and loss.args:
        loss = loss.args[0]
    return loss.id if isinstance(loss, ast.Name) else None


def _calls(module: Module, name: str) -> Iterator[ast.Call]:
    return (
        node
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == name
    )


def _last_import(module: Module) -> int:
    imports = (s for s in module.tree.body if isinstance(s, (ast.Import, ast.ImportFrom)))
    return max((s.end_lineno or 0 for s in imports), default=0)

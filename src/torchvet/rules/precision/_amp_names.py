"""Uses of torch's deprecated AMP names in a file, and how they are written with the names of today."""

from __future__ import annotations

import ast
import io
import re
import tokenize

from torchvet.rules.kit import Edit, Iterator, SourceFile
from torchvet.source.model import Event, Unit, edits
from torchvet.source.model.events import Context

NAMES = ("autocast", "GradScaler", "custom_fwd", "custom_bwd")
DEVICES = {"torch.cuda.amp": "cuda", "torch.cpu.amp": "cpu"}
_POSITIONAL = ("enabled", "dtype", "cache_enabled")
_ANNOTATES = re.compile(r"(\w\s*:|->|Optional\[|\||isinstance\([^()]*,)\s*(\w+\.)?$")


def deprecated(dotted: str) -> tuple[str, str] | None:
    """The device and the last name of a deprecated dotted name."""
    module, _, name = dotted.rpartition(".")
    return (DEVICES[module], name) if module in DEVICES and name in NAMES else None


def converted(file: SourceFile, call: ast.Call, name: str, device: str) -> list[Edit] | None:
    """Edits that give a call its device as an argument; None where the call is not plain enough."""
    if any(isinstance(a, ast.Starred) for a in call.args):
        return None
    given: list[ast.expr | ast.keyword] = sorted([*call.args, *call.keywords], key=lambda n: (n.lineno, n.col_offset))
    first = f'"{device}"' if name in ("autocast", "GradScaler") else f'device_type="{device}"'
    if name.startswith("custom_") and call.args:
        return None
    if not given:
        return _into_empty(file, call, first)
    if not _right_after_bracket(file, call, given[0]):
        return None
    made = [_insert(file, edits.start_of(file, given[0]), f"{first}, ")]
    if name == "autocast" and call.args:
        made = [_insert(file, edits.start_of(file, argument), f"{keyword}=")
                for argument, keyword in zip(call.args, _POSITIONAL, strict=False)]  # fmt: skip
        made[0] = _insert(file, made[0].start, f"{first}, {made[0].text}")
    return made


def _right_after_bracket(file: SourceFile, call: ast.Call, argument: ast.expr | ast.keyword) -> bool:
    """Whether nothing but the call's own bracket stands before its first argument: it may have brackets of its own."""
    (line, column), (end, last) = edits.end_of(file, call.func), edits.start_of(file, argument)
    rows = file.lines[line - 1 : end]
    rows[-1] = rows[-1][: last - 1]
    rows[0] = rows[0][column - 1 :]
    return "".join(row.partition("#")[0] for row in rows).split() == ["("]


def _insert(file: SourceFile, at: tuple[int, int], text: str) -> Edit:
    return Edit(path=file.path, start=at, end=at, text=text)


def _into_empty(file: SourceFile, call: ast.Call, text: str) -> list[Edit] | None:
    line, column = edits.end_of(file, call)
    start = edits.end_of(file, call.func)
    if start[0] != line or file.lines[line - 1][start[1] - 1 : column - 1].replace(" ", "") != "()":
        return None
    return [_insert(file, (line, column - 1), text)]


def at(statement: ast.stmt, unit: Unit) -> Event:
    """A statement that is no event of its own, as one: rules speak of places by events."""
    return Event(statement, statement, statement, Context(), unit, 0)


def decorators(file: SourceFile) -> Iterator[tuple[ast.expr, Event]]:
    """Decorators of one of the names, calls or not, each with its function as an event."""
    for unit in file.units[1:]:
        if not isinstance(unit.node, ast.Module):
            for one in unit.node.decorator_list:
                if names_deprecated(file, one):
                    yield one, at(unit.node, unit.parent or unit)


def calls(file: SourceFile) -> list[tuple[ast.Call, Event]]:
    """Calls of the names, decorators that are calls included; methods' are no events of a unit."""
    aliases = {local for local, dotted in file.imports.names.items() if deprecated(dotted)}
    events = file.calls(*aliases.union(NAMES))
    found = {id(e.node): (e.call, e) for e in events if deprecated(file.dotted(e.call.func))}
    for one, event in decorators(file):
        if isinstance(one, ast.Call):
            found.setdefault(id(one), (one, event))
    return list(found.values())


def names_deprecated(file: SourceFile, node: ast.expr) -> bool:
    """Whether a name, or the function of a call, is a deprecated one."""
    return deprecated(file.dotted(node.func if isinstance(node, ast.Call) else node)) is not None


def uses(file: SourceFile, name: str) -> list[tuple[tuple[int, int], str]] | None:
    """Where an imported name stands as code, with the text of its line before it; None where that cannot be told."""
    found = []
    try:
        for token in tokenize.generate_tokens(io.StringIO(file.text).readline):
            if token.type == tokenize.NAME and token.string == name:
                line, column = token.start
                before = token.line.splitlines()[0][:column] if token.line else ""
                if not before.rstrip().endswith("."):
                    found.append(((line, column + 1), before))
    except (tokenize.TokenError, IndentationError, IndexError):
        return None
    return found


def only_names_a_type(before: str) -> bool:
    """Whether a name stands in an annotation or an `isinstance`, by the text before it."""
    return bool(_ANNOTATES.search(before)) and "lambda" not in before and "{" not in before


def guarded(event: Event) -> bool:
    """Whether a call stands in a branch that asks for torch's version."""
    for branch, _ in event.context.arms:
        test = getattr(branch, "test", None)
        if isinstance(branch, ast.Try) or (test is not None and _asks_version(ast.unparse(test))):
            return True
    return False


def _asks_version(text: str) -> bool:
    lowered = text.lower()
    return any(word in lowered for word in ("version", "hasattr", "is_torch", "_torch_", "greater"))

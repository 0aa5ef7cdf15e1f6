"""Uses of torch's deprecated AMP names in a file, and how they are written with the names of today."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from dataclasses import dataclass

from torchvet.rules.kit import Edit, SourceFile
from torchvet.source.model import Event, Unit, edits, names_in, root_of, terminal
from torchvet.source.walking import Context

NAMES = ("autocast", "GradScaler", "custom_fwd", "custom_bwd")
DEVICES = {"torch.cuda.amp": "cuda", "torch.cpu.amp": "cpu"}
_POSITIONAL = ("enabled", "dtype", "cache_enabled")
_ANNOTATES = re.compile(r"(\w\s*:|->|Optional\[|\||isinstance\([^()]*,)\s*(\w+\.)?$")
_VERSION = re.compile(r"version|hasattr|is_torch|_torch_|greater", re.IGNORECASE)


@dataclass(frozen=True)
class Use:
    """A call of a deprecated name, or a decorator that is none; `edits` give it its device, None where it is not plain
    enough."""

    function: ast.expr
    event: Event
    name: str
    device: str
    edits: list[Edit] | None

    @property
    def root(self) -> str:
        """The variable that the function's name begins with."""
        return root_of(self.function) or terminal(self.function)


def uses(file: SourceFile) -> list[Use]:
    """What uses a deprecated name: calls, and decorators, which are no events of a unit."""
    aliases = {local for local, dotted in file.imports.names.items() if _deprecated(dotted)}
    nodes: dict[int, tuple[ast.expr, Event]] = {id(e.node): (e.call, e) for e in file.calls(*aliases.union(NAMES))}
    functions = ((unit, unit.node) for unit in file.units[1:] if not isinstance(unit.node, ast.Module))
    for unit, node in functions:
        for one in node.decorator_list:
            nodes.setdefault(id(one), (one, at(node, unit.parent or unit)))
    return [use for node, event in nodes.values() if (use := _use(file, node, event)) is not None]


def _use(file: SourceFile, node: ast.expr, event: Event) -> Use | None:
    function = node.func if isinstance(node, ast.Call) else node
    known = _deprecated(file.dotted(function))
    if known is None:
        return None
    device, name = known
    bare = [edits.insert(file, edits.end_of(file, node), f'(device_type="{device}")')]
    return Use(function, event, name, device, _converted(file, node, *known) if isinstance(node, ast.Call) else bare)


def _deprecated(dotted: str) -> tuple[str, str] | None:
    """The device and the last name of a deprecated dotted name."""
    module, _, name = dotted.rpartition(".")
    return (DEVICES[module], name) if module in DEVICES and name in NAMES else None


def at(statement: ast.stmt, unit: Unit) -> Event:
    """A statement that is no event of its own, as one: rules speak of places by events."""
    return Event(statement, statement, statement, Context(), unit, 0)


def _converted(file: SourceFile, call: ast.Call, device: str, name: str) -> list[Edit] | None:
    """Edits that give a call its device as an argument; None where the call is not plain enough."""
    custom = name.startswith("custom_")
    if any(isinstance(a, ast.Starred) for a in call.args) or (custom and call.args):
        return None
    first = f'device_type="{device}"' if custom else f'"{device}"'
    given: list[ast.expr | ast.keyword] = sorted([*call.args, *call.keywords], key=lambda n: (n.lineno, n.col_offset))
    opened, (line, column) = edits.end_of(file, call.func), edits.end_of(file, call)
    # Only the call's own bracket may stand before its first argument: that may have brackets of its own.
    if _between(file, opened, edits.start_of(file, given[0]) if given else (line, column - 1)) != "(":
        return None
    if not given:
        return [edits.insert(file, (line, column - 1), first)] if opened[0] == line else None
    # `torch.autocast` takes a device where the deprecated name takes `enabled`.
    keywords = [f"{keyword}=" for keyword in _POSITIONAL[: len(call.args)]] if name == "autocast" else []
    texts = [f"{first}, {keywords[0] if keywords else ''}", *keywords[1:]]
    return [edits.insert(file, edits.start_of(file, one), text) for one, text in zip(given, texts, strict=False)]


def _between(file: SourceFile, start: tuple[int, int], stop: tuple[int, int]) -> str:
    """What stands between two places, without blanks and comments."""
    rows = edits.text_between(file, start, stop).splitlines()
    return "".join("".join(row.partition("#")[0].split()) for row in rows)


def places(file: SourceFile, name: str) -> list[tuple[tuple[int, int], str]] | None:
    """Where an imported name stands as code, with the text of its line before it; None where tokenizing fails."""
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
    """Whether torch's version decides that a call is reached: by a branch around it, or one left early before."""
    branches = [branch for branch, _ in (*event.context.arms, *event.context.guards)]
    tests = [test for branch in branches if (test := getattr(branch, "test", None)) is not None]
    return any(isinstance(b, ast.Try) for b in branches) or any(_asks_version(t, event) for t in tests)


def _asks_version(test: ast.expr, event: Event) -> bool:
    """Whether a test asks for the version itself, or for a flag that was made of it."""
    made = (value for name in names_in(test) for value, _ in event.unit.file.roles.values(ast.Name(name), event.unit))
    named = (e for name in names_in(test) for e in event.unit.bindings.get(name, ()))  # `major, minor = …`
    values = (getattr(e.node, "value", None) for e in named)
    return any(one is not None and _VERSION.search(ast.unparse(one)) for one in (test, *made, *values))

"""Statements that only report: they print, log or show something, and nobody uses what they give."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from pathlib import PurePath

_LEVELS = {
    "debug": 10,
    "info": 20,
    "warning": 30,
    "warn": 30,
    "error": 40,
    "exception": 40,
    "critical": 50,
    "fatal": 50,
}
"""Methods of loggers, and the level of what they are given."""
_SHOWING = frozenset(["log", "set_description", "set_description_str", "set_postfix_str", *_LEVELS])
"""Methods that only report, where a statement calls them with arguments and drops what they give."""
_NAMED = {"DEBUG": 10, "INFO": 20, "WARNING": 30, "WARN": 30, "ERROR": 40, "CRITICAL": 50, "FATAL": 50}
_ROOT = "logging"


def reports(node: ast.stmt | None, names: Mapping[str, str], kind: Callable[[str], str]) -> ast.Call | None:
    """The call of a statement that only reports; `names` are what imports stand for, `kind` what a function does."""
    call = node.value if isinstance(node, ast.Expr) else None
    if not isinstance(call, ast.Call) or not (call.args or call.keywords):
        return None
    name = dotted(call.func, names)
    shows = isinstance(call.func, ast.Attribute) and call.func.attr in _SHOWING
    return call if shows or kind(name) == "log" else None


def level_of(call: ast.Call) -> int | None:
    """The level at which a logger is called; None for what is no logger's method, or not known."""
    if not isinstance(call.func, ast.Attribute):
        return None
    if call.func.attr != "log":
        return _LEVELS.get(call.func.attr)
    first = call.args[0] if call.args else None
    if isinstance(first, ast.Constant) and isinstance(first.value, int):
        return first.value
    return _NAMED.get(first.attr) if isinstance(first, ast.Attribute) else None


def logger_of(call: ast.Call, tree: ast.Module, names: Mapping[str, str], path: str) -> str | None:
    """The name of the logger that a call is a method of, where the file makes it by `logging.getLogger`. Empty for the
    root, `*` where its name is not known; None where it is not known to be a logger of Python's."""
    if not isinstance(call.func, ast.Attribute):
        return None
    if dotted(call.func.value, names) == _ROOT:
        return ""
    made = _bound(tree, call.func.value)
    # Given several values, it is whatever came last.
    given = made[0] if len(made) == 1 else None
    if not isinstance(given, ast.Call) or dotted(given.func, names) != f"{_ROOT}.getLogger":
        return None
    first = given.args[0] if given.args else ast.Constant("")
    if isinstance(first, ast.Constant):
        return str(first.value or "")
    return f"*.{PurePath(path).stem}" if isinstance(first, ast.Name) and first.id == "__name__" else "*"


def _bound(tree: ast.Module, asked: ast.expr) -> list[ast.expr | None]:
    """All that a name, or an attribute, is bound to."""
    name, found = ast.dump(asked), list[ast.expr | None]()
    for node in ast.walk(tree):
        if isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found += [node.value for one in targets if ast.dump(one).replace("Store()", "Load()") == name]
    return found


def turned_off(level: int | None, logger: str | None, lowest: Mapping[str, int]) -> bool:
    """Whether a logger has let nothing of a level through; `lowest` are the levels of those that exist, by name."""
    if level is None or logger is None:
        return False
    if logger.startswith("*"):
        stem = logger[2:]
        # The module's name is known by its last part alone, and a program's own is `__main__`.
        alike = [name for name in lowest if stem and (name == "__main__" or name.rpartition(".")[2] == stem)]
        asked = alike or list(lowest)
    else:
        asked = [logger] if logger in lowest else []
    return bool(asked) and all(lowest[name] > level for name in asked)


def dotted(node: ast.expr, names: Mapping[str, str]) -> str:
    """A chain of names as imports have it: `np.save` is `numpy.save`; what is no name becomes `?`."""
    name = _chain(node)
    root, dot, rest = name.partition(".")
    # A local name stays, and is none that the tables know.
    return names.get(root, root) + dot + rest


def _chain(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        base = _chain(node.value)
        return f"{base}.{node.attr}" if base else f"?.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""

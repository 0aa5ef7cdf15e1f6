"""Every rule, found by walking this package: adding a file adds a rule."""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from types import ModuleType

from torchvet.rules.base import Rule

__all__ = ["Rule", "all_rules", "codes", "module_texts", "rule", "rules_in", "rules_with", "wanted"]

_CODE = re.compile(r"([a-z]{3}\d{3})_\w+")


@lru_cache(maxsize=1)
def all_rules() -> tuple[Rule, ...]:
    """One instance of every rule, in the order of their codes."""
    modules = (importlib.import_module(m.name) for m in pkgutil.walk_packages(__path__, __name__ + "."))
    return tuple(sorted((r for module in modules for r in rules_in(module)), key=lambda r: r.code))


def rules_in(module: ModuleType) -> list[Rule]:
    """One instance of every rule that a module has."""
    kinds = (v for v in vars(module).values() if isinstance(v, type) and issubclass(v, Rule) and "code" in vars(v))
    return [kind() for kind in kinds]


def codes() -> list[str]:
    """The codes of all rules, in order. A rule's file begins with its code: none is imported."""
    names = (module.name.rpartition(".")[2] for module in pkgutil.walk_packages(__path__, __name__ + "."))
    return sorted(found[1].upper() for found in map(_CODE.fullmatch, names) if found)


def wanted(code: str, select: Sequence[str], ignore: Sequence[str]) -> bool:
    """Whether a rule was asked for: `select` and `ignore` are beginnings of codes."""
    chosen = not select or any(code.startswith(p) for p in select)
    return chosen and not any(code.startswith(p) for p in ignore)


@lru_cache(maxsize=8)
def rules_with(matcher: str) -> tuple[Rule, ...]:
    """The rules that override a matcher, e.g. `in_trace`. Files that do not name it are not imported: to import all
    takes longer than to read a trace."""
    found: list[Rule] = []
    for name, text in module_texts():
        if text is None or matcher in text:
            rules = rules_in(importlib.import_module(name))
            found += [r for r in rules if getattr(type(r), matcher) is not getattr(Rule, matcher)]
    return tuple(sorted(found, key=lambda r: r.code))


def module_texts() -> Iterator[tuple[str, str | None]]:
    """The modules of this package that may hold rules, with their text; None where there is none to look at."""
    for module in pkgutil.walk_packages(__path__, __name__ + "."):
        name = module.name.rpartition(".")[2]
        if not module.ispkg and _CODE.fullmatch(name):
            folder = getattr(module.module_finder, "path", "")
            try:
                yield module.name, Path(folder, f"{name}.py").read_text("utf-8")
            except OSError:
                yield module.name, None


def rule(code: str) -> Rule:
    """The rule with a code, or with a name (`graph-retained`). Raises KeyError for neither."""
    wanted = code.strip().lower()
    for candidate in all_rules():
        if wanted in (candidate.code.lower(), candidate.name):
            return candidate
    raise KeyError(code)

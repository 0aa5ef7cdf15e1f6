"""Every rule, found by walking this package: adding a file adds a rule."""

from __future__ import annotations

import importlib
import pkgutil
import re
from functools import lru_cache
from pathlib import Path

from torchvet.rules.base import Rule

__all__ = ["Rule", "all_rules", "codes", "rule", "rules_with"]

_CODE = re.compile(r"([a-z]{3}\d{3})_\w+")


@lru_cache(maxsize=1)
def all_rules() -> tuple[Rule, ...]:
    """One instance of every rule, in the order of their codes."""
    found: list[Rule] = []
    for module in pkgutil.walk_packages(__path__, __name__ + "."):
        for value in vars(importlib.import_module(module.name)).values():
            if isinstance(value, type) and issubclass(value, Rule) and "code" in vars(value):
                found.append(value())
    return tuple(sorted(found, key=lambda r: r.code))


def codes() -> list[str]:
    """The codes of all rules, in order. A rule's file begins with its code: none is imported."""
    names = (module.name.rpartition(".")[2] for module in pkgutil.walk_packages(__path__, __name__ + "."))
    return sorted(found[1].upper() for found in map(_CODE.fullmatch, names) if found)


@lru_cache(maxsize=8)
def rules_with(matcher: str) -> tuple[Rule, ...]:
    """The rules that override a matcher, e.g. `in_trace`. Files that do not name it are not imported: to import all
    takes longer than to read a trace or to check a file."""
    found: list[Rule] = []
    for module in pkgutil.walk_packages(__path__, __name__ + "."):
        if not module.ispkg and _names(module, matcher):
            for value in vars(importlib.import_module(module.name)).values():
                if isinstance(value, type) and issubclass(value, Rule) and "code" in vars(value):
                    found += [value()] if getattr(value, matcher) is not getattr(Rule, matcher) else []
    return tuple(sorted(found, key=lambda r: r.code))


def _names(module: pkgutil.ModuleInfo, word: str) -> bool:
    """Whether a module's text holds a word; True where there is no text to look at."""
    folder = getattr(module.module_finder, "path", "")
    try:
        return word in Path(folder, module.name.rpartition(".")[2] + ".py").read_text("utf-8")
    except OSError:
        return True


def rule(code: str) -> Rule:
    """The rule with a code, or with a name (`graph-retained`). Raises KeyError for neither."""
    wanted = code.strip().lower()
    for candidate in all_rules():
        if wanted in (candidate.code.lower(), candidate.name):
            return candidate
    raise KeyError(code)

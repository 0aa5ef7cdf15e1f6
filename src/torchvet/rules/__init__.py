"""Every rule, found by walking this package: adding a file adds a rule."""

from __future__ import annotations

import importlib
import pkgutil
from functools import lru_cache

from torchvet.rules.base import Rule

__all__ = ["Rule", "all_rules", "rule"]


@lru_cache(maxsize=1)
def all_rules() -> tuple[Rule, ...]:
    """One instance of every rule, in the order of their codes."""
    found: list[Rule] = []
    for module in pkgutil.walk_packages(__path__, __name__ + "."):
        for value in vars(importlib.import_module(module.name)).values():
            if isinstance(value, type) and issubclass(value, Rule) and "code" in vars(value):
                found.append(value())
    return tuple(sorted(found, key=lambda r: r.code))


def rule(code: str) -> Rule:
    """The rule with a code, or with a name (`graph-retained`). Raises KeyError for neither."""
    wanted = code.strip().lower()
    for candidate in all_rules():
        if wanted in (candidate.code.lower(), candidate.name):
            return candidate
    raise KeyError(code)

"""Every rule. Each has a folder below its family's; `manifest.json` lists them, so that few are imported."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from torchvet.rules.core.base import Rule
from torchvet.rules.core.manifest import entries, loaded

__all__ = ["Rule", "all_rules", "codes", "rule", "rules_with", "wanted"]


@lru_cache(maxsize=1)
def all_rules() -> tuple[Rule, ...]:
    """One instance of every rule, in the order of their codes. Imports all of them."""
    return tuple(loaded(entry) for entry in entries())


def codes() -> list[str]:
    """The codes of all rules, in order. None is imported."""
    return [entry.code for entry in entries()]


def wanted(code: str, select: Sequence[str], ignore: Sequence[str]) -> bool:
    """Whether a rule was asked for: `select` and `ignore` are beginnings of codes."""
    chosen = not select or any(code.startswith(p) for p in select)
    return chosen and not any(code.startswith(p) for p in ignore)


@lru_cache(maxsize=8)
def rules_with(matcher: str) -> tuple[Rule, ...]:
    """The rules that override a matcher, e.g. `in_trace`. Only these are imported."""
    return tuple(loaded(entry) for entry in entries() if matcher in entry.inputs)


def rule(code: str) -> Rule:
    """The rule with a code, or with a name (`graph-retained`). Imports no other. Raises KeyError for neither."""
    sought = code.strip().lower()
    for entry in entries():
        if sought in (entry.code.lower(), entry.name):
            return loaded(entry)
    raise KeyError(code)

"""The manifest of the rules: what is known of each rule without importing it.

`manifest.json` is generated: `make docs` writes it, `python -m torchvet.docgen --check` compares it with the rules. To
import all rules takes longer than to check a hundred files, so a verb imports only the rules that it asks.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Sequence
from functools import cache, lru_cache
from pathlib import Path

import msgspec

from torchvet.finding import Severity
from torchvet.rules.core.base import Rule

PACKAGE = "torchvet.rules"
FILE = "manifest.json"


class Entry(msgspec.Struct, frozen=True):
    """What the manifest says of one rule. `module` is relative to the package `torchvet.rules`."""

    code: str
    name: str
    severity: Severity
    summary: str
    module: str
    inputs: tuple[str, ...]
    """What the rule reads: `Rule.inputs`."""
    words: tuple[str, ...] = ()


@lru_cache(maxsize=1)
def entries() -> tuple[Entry, ...]:
    """The rules that the manifest lists, in the order of their codes."""
    # Not a path beside this file: an installed package may lie in a zip archive.
    data = pkgutil.get_data(PACKAGE, FILE)
    # None before `make docs` has ever run: then there are no rules, and docgen can make the file.
    return msgspec.json.decode(data or b"[]", type=tuple[Entry, ...])


def loaded(entry: Entry) -> Rule:
    """The one instance of a listed rule; imports its module. Raises LookupError if the module has no such rule."""
    found = _instances(f"{PACKAGE}.{entry.module}")
    if entry.code not in found:
        raise LookupError(f"{entry.code}: not a rule of {PACKAGE}.{entry.module}; run `make docs`")
    return found[entry.code]


@cache
def _instances(module: str) -> dict[str, Rule]:
    contents = vars(importlib.import_module(module)).values()
    # `vars`: a base class that is imported there has no code of its own.
    kinds = (v for v in contents if isinstance(v, type) and issubclass(v, Rule) and "code" in vars(v))
    return {kind.code: kind() for kind in kinds}


def discovered() -> tuple[Rule, ...]:
    """Every rule that has a folder, listed or not, in the order of the codes. Imports all of them."""
    root = importlib.import_module(PACKAGE).__path__[0]
    folders = sorted(file.parent for file in Path(root).glob("*/*/rule.py"))
    modules = (f"{PACKAGE}.{folder.parent.name}.{folder.name}.rule" for folder in folders)
    return tuple(sorted((rule for module in modules for rule in _instances(module).values()), key=lambda r: r.code))


def text(rules: Sequence[Rule]) -> str:
    """The manifest of these rules: JSON with one rule a line."""
    # One a line, so that two branches that add rules merge.
    rows = (msgspec.json.encode(_entry(rule)).decode() for rule in rules)
    return "[\n" + ",\n".join(rows) + "\n]\n"


def _entry(rule: Rule) -> Entry:
    module = type(rule).__module__.removeprefix(f"{PACKAGE}.")
    return Entry(rule.code, rule.name, rule.severity, rule.summary, module, rule.inputs(), rule.words)

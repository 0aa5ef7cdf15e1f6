"""`torchvet explain`: what a rule knows, for someone who has just been shown its code."""

from __future__ import annotations

import difflib
import textwrap
from inspect import cleandoc
from typing import TYPE_CHECKING

import click

from torchvet.commands.completion import codes_and_names
from torchvet.commands.options import verb
from torchvet.errors import BadInput

if TYPE_CHECKING:
    from torchvet.rules import Rule

EPILOG = """\b
Examples:
  torchvet explain MEM101
  torchvet explain graph-retained
  torchvet explain
"""
WIDTH = 100


@verb("explain", "Explain a rule, or list the rules.", EPILOG)
@click.argument("code", required=False, shell_complete=codes_and_names)
def command(code: str | None) -> int:
    """Explain a rule by CODE or name: what, why, when it does not matter, the proof, the fix, an example.

    Without CODE, list the rules.
    """
    own = _own(code) if code is not None else None
    click.echo(own or (_listing() if code is None else _page(_find(code))))
    return 0


def _own(code: str) -> str | None:
    """The page of a code that is no rule's: a syntax error, an unused suppression."""
    from torchvet.checking.codes import OWN_CODES

    wanted = code.strip().lower()
    for own in OWN_CODES:
        if wanted in (own.code.lower(), own.name):
            head = f"{own.code} {own.name} ({own.severity})"
            return "\n\n".join(
                [head, _wrapped(own.summary), _section("What happens", own.what), _section("What to do", own.remedy)]
            )
    return None


def _find(code: str) -> Rule:
    from torchvet.rules import rule

    try:
        return rule(code)
    except KeyError:
        close = _nearest(code.strip().lower())
        hint = f"did you mean {', '.join(close)}?" if close else "`torchvet explain` lists the rules"
        raise BadInput(f"{code}: no such rule; {hint}") from None


def _nearest(code: str) -> list[str]:
    """Up to three codes that the user may have meant: those that start so, else those that look alike."""
    from torchvet.rules.core.manifest import entries

    names = {name: r.code for r in entries() for name in (r.code.lower(), r.name)}
    starting = [names[n] for n in names if code and n.startswith(code)]
    alike = [names[n] for n in difflib.get_close_matches(code, names, 3, 0.5)]
    return list(dict.fromkeys(starting or alike))[:3]


def _listing() -> str:
    from torchvet.rules.core.manifest import entries

    rules = entries()
    width = max((len(r.name) for r in rules), default=0)
    return "\n".join(f"{r.code}  {r.name:<{width}}  {r.severity:<7}  {r.summary}" for r in rules)


def _page(rule: Rule) -> str:
    from torchvet.rules.core.documents import SECTIONS

    parts = [
        f"{rule.code} {rule.name} ({rule.severity})",
        _wrapped(rule.summary),
        *(_section(title, getattr(rule, name)) for name, title in SECTIONS.items()),
        _example("Faulty", rule.BAD),
        _example("Fixed", rule.GOOD),
    ]
    return "\n\n".join(parts)


def _section(title: str, text: str) -> str:
    paragraphs = cleandoc(text).split("\n\n")
    return f"{title}\n" + "\n\n".join(_wrapped(p, "  ") for p in paragraphs)


def _wrapped(text: str, indent: str = "") -> str:
    """A paragraph at the house's width; one with lines of its own (a list, a table, code) is left as it is."""
    if any(line.startswith((" ", "-", "|", "*")) for line in text.splitlines()):
        return textwrap.indent(text, indent)
    return textwrap.fill(text, WIDTH, initial_indent=indent, subsequent_indent=indent, break_long_words=False)


def _example(title: str, program: str) -> str:
    return f"{title}\n" + textwrap.indent(program.strip("\n"), "  ")

"""Shell completion: rule codes from the manifest, recordings, files. Imports no rule."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


def codes(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Rule codes that begin with what is typed, also after a comma: `MEM101,AM`."""
    from click.shell_completion import CompletionItem

    from torchvet.rules.core.manifest import entries

    before, comma, begun = incomplete.rpartition(",")
    return [
        CompletionItem(f"{before}{comma}{entry.code}", help=entry.summary)
        for entry in entries()
        if entry.code.startswith(begun.upper())
    ]


def codes_and_names(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """As `codes`; once a lower-case letter is typed, the names of rules."""
    from click.shell_completion import CompletionItem

    from torchvet.rules.core.manifest import entries

    named = [CompletionItem(e.name, help=e.summary) for e in entries() if incomplete and e.name.startswith(incomplete)]
    return named or codes(context, parameter, incomplete)


def script_then_codes(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """A file as the first word, codes after it, or after `-m MODULE`."""
    if context.params.get("words") or context.params.get("module"):
        return codes(context, parameter, incomplete)
    return files(context, parameter, incomplete)


def files(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Whatever the shell completes for a path."""
    from click.shell_completion import CompletionItem

    return [CompletionItem(incomplete, type="file")]


def recordings(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The recordings (`NAME.vet`) that begin with what is typed; without one, whatever the shell completes."""
    from click.shell_completion import CompletionItem

    folder, slash, begun = incomplete.rpartition("/")
    folder += slash
    try:
        there = sorted(path.name for path in Path(folder or ".").iterdir() if path.suffix == ".vet")
    except OSError:
        there = []
    found = [CompletionItem(folder + name) for name in there if name.startswith(begun)]
    return found or files(context, parameter, incomplete)


def mend_shells() -> None:
    """Have click complete for fish and zsh what it does not by itself: values with commas, and `--option=value`."""
    from click import shell_completion as click_shells

    class Fish(click_shells.FishComplete):
        # click's script splits at every comma, so that codes after one are lost, and descriptions are cut.
        source_template = click_shells.FishComplete.source_template.replace(
            'string split "," ', 'string split --max 1 "," '
        )

        def get_completions(self, args: list[str], incomplete: str) -> list[CompletionItem]:
            return _with_option(super().get_completions(args, incomplete), incomplete)

    class Zsh(click_shells.ZshComplete):
        def get_completions(self, args: list[str], incomplete: str) -> list[CompletionItem]:
            return _with_option(super().get_completions(args, incomplete), incomplete)

    click_shells.add_completion_class(Fish)
    click_shells.add_completion_class(Zsh)


def _with_option(items: list[CompletionItem], incomplete: str) -> list[CompletionItem]:
    """Of `--option=value` click completes the value alone, and these shells replace the whole word."""
    from click.shell_completion import CompletionItem

    option, equals, _ = incomplete.partition("=")
    if not equals or not option.startswith("--"):
        return items
    return [i if i.type == "file" else CompletionItem(f"{option}={i.value}", i.type, i.help) for i in items]

"""The options that several verbs share, and what they mean."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from dataclasses import fields
from typing import Any, TypeVar

import click

from torchvet.commands.completion import codes
from torchvet.formatting import parse_size
from torchvet.workflows.report_output import Delivery

T = TypeVar("T")
Command = Callable[..., int]
Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

HELP = {"help_option_names": ["-h", "--help"]}


def parsed(parse: Callable[[str], T]) -> Callable[[click.Context, click.Parameter, str | None], T | None]:
    """A callback for an option whose text `parse` reads, with `ValueError` for what it cannot."""

    def callback(context: click.Context, parameter: click.Parameter, text: str | None) -> T | None:
        try:
            return None if text is None else parse(text)
        except ValueError as error:
            raise click.BadParameter(str(error)) from error

    return callback


def verb(
    name: str, short_help: str, epilog: str, cls: type[click.Command] = click.Command
) -> Callable[[Command], click.Command]:
    """What `click.command` is, with the settings of all verbs."""
    return click.command(name, cls=cls, short_help=short_help, epilog=epilog, context_settings=HELP)


def say_who_speaks(who: str) -> None:
    """On a terminal, say that a program is to speak there: nothing else would show that it waits."""
    if sys.stdin.isatty():
        click.echo(f"torchvet: waits for {who} on stdin; end it with Ctrl-C", err=True)


FAIL_ON = click.option(
    "--fail-on",
    type=click.Choice(["error", "warning", "info", "never"]),
    help="Exit with status 1 if a finding has at least this severity.  [default: warning]",
)
MODULE = click.option("-m", "module", metavar="MODULE", help="Run a module, as `python -m` does.")
SHOW_OUTPUT = click.option("--show-output", is_flag=True, help="Show the program's own output on stderr.")
EXPORT = click.option(
    "--export",
    "exports",
    metavar="FILE",
    multiple=True,
    type=click.Path(),
    help="Also write what was measured to FILE: *.speedscope.json (flame graph), *.perfetto.json (timeline), "
    "*.csv or *.jsonl (tables), *.txt (tree). Repeatable.",
)

GPUS = click.option(
    "--gpus", type=click.IntRange(1, 64), default=1, show_default=True, help="Number of GPUs to simulate."
)
_OUTPUT = (
    click.option(
        "-o",
        "--output",
        "outputs",
        metavar="FILE",
        multiple=True,
        type=click.Path(),
        help="Also write the report to FILE; its extension selects the format. Repeatable.",
    ),
    click.option(
        "--format",
        "format",
        metavar="FORMAT",
        help="What to print on stdout: text, json, sarif, github, markdown or html.  [default: text]",
    ),
    click.option("-q", "--quiet", is_flag=True, help="Show no progress, and print nothing unless --format is given."),
)
_REPORTING = (
    click.option(
        "--select",
        metavar="CODES",
        multiple=True,
        shell_complete=codes,
        help="Run only rules with these code prefixes: MEM,TRN101.",
    ),
    click.option(
        "--ignore",
        metavar="CODES",
        multiple=True,
        shell_complete=codes,
        help="Skip rules with these code prefixes.",
    ),
    click.option("--exit-zero", is_flag=True, help="Exit with status 0 even if there are findings."),
)
_RUNS = (
    click.option(
        "--memory-limit",
        metavar="SIZE",
        callback=parsed(parse_size),
        help="Forecast against this much memory: 24GiB, 512MB.  [default: the device's]",
    ),
    FAIL_ON,
)


def output(command: Command) -> Command:
    """Add the options that say where a report goes. The command gets all that it is given for it as a `delivery`."""
    names = {field.name for field in fields(Delivery)}

    @functools.wraps(command)
    def call(*args: Any, **given: Any) -> int:
        delivery = Delivery(**{name: given.pop(name) for name in names & given.keys()})
        return command(*args, delivery=delivery, **given)

    return _with(_OUTPUT, call)


def reporting(command: Command) -> Command:
    """Add the options that every verb with findings has."""
    return output(_with(_REPORTING, command))


def shared(command: Command) -> Command:
    """Add the options for reports on runs: the memory limit, which rules, where to, and the exit status."""
    return reporting(_with(_RUNS, command))


def _with(options: tuple[Decorator, ...], command: Command) -> Command:
    for option in reversed(options):
        command = option(command)
    return command

"""The options that several verbs share, and what they mean."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])

_UNITS = {"": 1, "b": 1}
_UNITS |= {f"{prefix}b": 1000**power for power, prefix in enumerate("kmgt", 1)}
_UNITS |= {f"{prefix}ib": 1024**power for power, prefix in enumerate("kmgt", 1)}
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]*)\s*", re.IGNORECASE)


def parse_size(text: str) -> int:
    """Bytes from `24GiB`, `512 MB`, `1.5GB` or `1048576`. Raises ValueError with what was expected."""
    match = _SIZE.fullmatch(text)
    if match is None or match[2].lower() not in _UNITS:
        raise ValueError(f"{text!r} is no size: give bytes, or a number with B, KB, KiB, MB, MiB, GB, GiB, TB or TiB")
    size = int(float(match[1]) * _UNITS[match[2].lower()])
    if size < 1:
        raise ValueError(f"{text!r} is no size: it must be at least 1 byte")
    return size


def _size(context: click.Context, parameter: click.Parameter, text: str | None) -> int | None:
    try:
        return None if text is None else parse_size(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


_OUTPUT = [
    click.option("-o", "--output", "outputs", metavar="FILE", multiple=True, type=click.Path(),
                 help="Write the report to FILE too; the extension picks the format. Repeatable."),
    click.option("--format", "format", metavar="FORMAT",
                 help="What to print on stdout: text, json, sarif, github or markdown.  [default: text]"),
    click.option("-q", "--quiet", is_flag=True, help="No progress; nothing on stdout unless --format is given."),
]  # fmt: skip
_REPORTING = [
    click.option("--select", metavar="CODES", multiple=True,
                 help="Only rules whose code starts so, comma-separated: MEM,TRN101."),
    click.option("--ignore", metavar="CODES", multiple=True, help="All rules but those."),
    click.option("--exit-zero", is_flag=True, help="Findings do not change the exit status."),
]  # fmt: skip
_RUNS = [
    click.option("--memory-limit", metavar="SIZE", callback=_size,
                 help="Forecast against this much memory: 24GiB, 512MB.  [default: the device's]"),
    click.option("--fail-on", type=click.Choice(["error", "warning", "info", "never"]),
                 help="The mildest finding that makes the exit status 1.  [default: warning]"),
]  # fmt: skip


def output(command: F) -> F:
    """Add the options that say where a report goes."""
    for option in reversed(_OUTPUT):
        command = option(command)
    return command


def reporting(command: F) -> F:
    """Add the options that every verb with findings has."""
    for option in reversed(_REPORTING):
        command = option(command)
    return output(command)


def shared(command: F) -> F:
    """Add the options that say what to report of a run, to whom, and what the exit status goes by."""
    for option in reversed(_RUNS):
        command = option(command)
    return reporting(command)

"""The options of `torchvet check`, and the configuration that they come to."""

from __future__ import annotations

from pathlib import Path

import click
from msgspec import Struct
from msgspec.structs import replace

from torchvet.configuration import Configuration, Layer, codes_in, read_configuration

STDIN = "-"


class Asked(Struct, frozen=True, kw_only=True):
    """The options, by their names."""

    paths: tuple[str, ...]
    outputs: tuple[str, ...]
    format: str | None
    select: tuple[str, ...]
    ignore: tuple[str, ...]
    extend_select: tuple[str, ...]
    extend_ignore: tuple[str, ...]
    fail_on: str | None
    exit_zero: bool
    quiet: bool
    fix: bool
    unsafe_fixes: bool
    diff: bool
    statistics: bool
    exclude: tuple[str, ...]
    baseline: str | None
    write_baseline: str | None
    stdin_filename: str | None
    jobs: int | None
    no_cache: bool
    cache_dir: str | None

    @property
    def stdin(self) -> bool:
        """Whether the text comes from stdin."""
        return STDIN in self.paths

    def refuse(self) -> None:
        """Raise a usage error for options that contradict one another."""
        if self.unsafe_fixes and not (self.fix or self.diff):
            raise click.UsageError("--unsafe-fixes goes with --fix or --diff")
        if self.stdin and len(self.paths) > 1:
            raise click.UsageError("`-` reads stdin, and goes with no other path")
        if self.stdin_filename is not None and not self.stdin:
            raise click.UsageError("--stdin-filename goes with the path `-`")
        if self.write_baseline and (self.fix or self.diff):
            raise click.UsageError("--write-baseline goes with neither --fix nor --diff")


def configured(asked: Asked) -> Configuration:
    """pyproject.toml, the environment, and the flags on top."""
    first = asked.stdin_filename or "." if asked.stdin else asked.paths[0]
    known = read_configuration(Path(first))
    named = (asked.select, asked.ignore, asked.extend_select, asked.extend_ignore)
    flags = Layer("the command line", *(codes_in(given) for given in named))
    if any((flags.select, flags.ignore, flags.extend_select, flags.extend_ignore)):
        known = known.with_layer(flags)
    return replace(
        known, exclude=(*known.exclude, *asked.exclude), fail_on=asked.fail_on or known.fail_on,
        baseline=Path(asked.baseline) if asked.baseline else known.baseline,
    )  # fmt: skip

"""The options of `torchvet check`, and the configuration that they come to."""

from __future__ import annotations

from pathlib import Path

import click
from msgspec import Struct
from msgspec.structs import replace

from torchvet.configuration import Configuration, Layer, codes_in, read_configuration
from torchvet.workflows.report_output import Delivery

STDIN = "-"


class Asked(Struct, frozen=True, kw_only=True):
    """The options, by their names."""

    paths: tuple[str, ...]
    delivery: Delivery
    extend_select: tuple[str, ...]
    extend_ignore: tuple[str, ...]
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
            raise click.UsageError("--unsafe-fixes needs --fix or --diff")
        if self.stdin and len(self.paths) > 1:
            raise click.UsageError("`-` reads stdin and cannot be combined with other paths")
        if self.stdin_filename is not None and not self.stdin:
            raise click.UsageError("--stdin-filename needs the path `-`")
        if self.write_baseline and (self.fix or self.diff):
            raise click.UsageError("--write-baseline cannot be combined with --fix or --diff")


def configured(asked: Asked) -> Configuration:
    """pyproject.toml, the environment, and the flags on top."""
    first = asked.stdin_filename or "." if asked.stdin else asked.paths[0]
    known = read_configuration(Path(first))
    named = (asked.delivery.select, asked.delivery.ignore, asked.extend_select, asked.extend_ignore)
    flags = Layer("the command line", *(codes_in(given) for given in named))
    if any((flags.select, flags.ignore, flags.extend_select, flags.extend_ignore)):
        known = known.with_layer(flags)
    exclude, fail_on = (*known.exclude, *asked.exclude), asked.delivery.fail_on or known.fail_on
    baseline = Path(asked.baseline) if asked.baseline else known.baseline
    return replace(known, exclude=exclude, fail_on=fail_on, baseline=baseline)

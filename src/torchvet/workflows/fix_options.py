"""What `torchvet fix` was asked for, and what both of its ways do at the end: report, and write files."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from msgspec import Struct

from torchvet.configuration import Configuration, Layer, codes_in
from torchvet.errors import BadInput
from torchvet.workflows.report_output import Delivery, print_text

if TYPE_CHECKING:
    from torchvet.finding import Report

_CODE = re.compile(r"[A-Z]{3}\d{0,3}(,[A-Z]{3}\d{0,3})*", re.IGNORECASE)


class Asked(Struct, frozen=True, kw_only=True):
    """The options, by their names. `script` is the file that a `module` was found in, where one was asked for."""

    script: str
    module: str | None
    codes: tuple[str, ...]
    arguments: tuple[str, ...]
    apply: bool
    keep_original: bool
    diff: bool
    unsafe_fixes: bool
    verify: bool
    steps: int
    tolerance: float
    show_output: bool
    simulate_gpu: str | None
    gpus: int
    outputs: tuple[str, ...]
    format: str | None
    quiet: bool
    select: tuple[str, ...]
    ignore: tuple[str, ...]
    exit_zero: bool
    memory_limit: int | None
    fail_on: str | None

    def refuse(self) -> None:
        """Raise a usage error for what contradicts itself, or is no code."""
        if self.apply and self.diff:
            raise click.UsageError("--apply writes and --diff does not: give one of them")
        if self.keep_original and not self.apply:
            raise click.UsageError("--keep-original goes with --apply")
        if not self.verify and (self.arguments or self.show_output or self.simulate_gpu):
            raise click.UsageError("the program is run only with --verify: its arguments mean nothing without it")
        for word in self.codes:
            if not _CODE.fullmatch(word):
                raise click.UsageError(f"{word!r} is no code of a rule (MEM101, AMP); the program's own arguments "
                                       "stand after `--`")  # fmt: skip

    def subject(self) -> dict[str, Any]:
        """What a report says it is about."""
        program = [self.script] if self.module is None else ["-m", self.module]
        return {"kind": "fix", "path": self.script, "module": self.module, "argv": [*program, *self.arguments]}

    def delivery(self) -> Delivery:
        """Where the report goes."""
        return Delivery(
            outputs=self.outputs, format=self.format, quiet=self.quiet, select=self.select, ignore=self.ignore,
            memory_limit=self.memory_limit, fail_on=self.fail_on, exit_zero=self.exit_zero, project=Path(self.script),
        )  # fmt: skip

    def chosen(self, configuration: Configuration) -> Configuration:
        """A configuration with the codes that are to be mended on top."""
        named = codes_in(self.codes)
        return configuration.with_layer(Layer("the command line", select=named)) if named else configuration


def deliver(report: Report, asked: Asked, delivery: Delivery) -> None:
    """Write the report's files; print it, or with --diff the diff alone."""
    if not asked.diff or asked.format is not None:
        delivery.deliver(report)
        return
    delivery.write(report)
    if asked.quiet:
        return
    if report.facts["fix"]["diff"]:
        print_text(report.facts["fix"]["diff"])
    elif not asked.verify:
        click.echo(
            "torchvet: nothing to mend by what the source alone shows; --verify runs the program first", err=True
        )


def write(contents: dict[str, tuple[bytes, bytes]], keep: bool) -> None:
    """Put new contents in files' places, each at once. `contents` has what a file was read as and what it is to be.

    Raises `BadInput` and writes nothing where a file has changed since, or its original is to be kept and cannot be;
    where a file cannot be written, those before it are, and that is said.
    """
    from torchvet.fixing.files import keep_originals, replace_file

    for path, (known, _) in contents.items():
        if read(path) != known:
            raise BadInput(f"{path}: has changed since it was read; nothing was written")
    if keep:
        keep_originals({path: known for path, (known, _) in contents.items()})
    written: list[str] = []
    for path, (_, content) in contents.items():
        try:
            replace_file(path, content)
        except BadInput as error:
            raise BadInput(f"{error}; written already: {', '.join(written) or 'nothing'}") from error
        written.append(path)


def read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise BadInput(f"{path}: cannot be read: {error.strerror}") from error

"""The options of `torchvet fix`, and what it does at the end with and without --verify: report, write files."""

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
    steps: int | None
    tolerance: float
    show_output: bool
    simulate_gpu: str | None
    gpus: int
    delivery: Delivery

    def refuse(self) -> None:
        """Raises a usage error for options that contradict each other, and for words that are not codes."""
        if self.apply and self.diff:
            raise click.UsageError("--apply and --diff cannot be combined")
        if self.keep_original and not self.apply:
            raise click.UsageError("--keep-original needs --apply")
        if not self.verify and (self.arguments or self.show_output or self.simulate_gpu):
            raise click.UsageError("the program runs only with --verify: its arguments need --verify")
        for word in self.codes:
            if not _CODE.fullmatch(word):
                raise click.UsageError(
                    f"{word!r} is not the code of a rule (MEM101, AMP); the program's own arguments go after `--`"
                )

    def subject(self) -> dict[str, Any]:
        """What a report says it is about."""
        program = [self.script] if self.module is None else ["-m", self.module]
        return {"kind": "fix", "path": self.script, "module": self.module, "argv": [*program, *self.arguments]}

    def again(self) -> list[str]:
        """The options without which another call would run or fix something else."""
        words = ["--simulate-gpu", self.simulate_gpu] if self.simulate_gpu else []
        words += ["--gpus", str(self.gpus)] if self.simulate_gpu and self.gpus != 1 else []
        return [*words, *(["--unsafe-fixes"] if self.unsafe_fixes else [])]

    def chosen(self, configuration: Configuration) -> Configuration:
        """The configuration with the codes that are to be fixed."""
        named = codes_in(self.codes)
        return configuration.with_layer(Layer("the command line", select=named)) if named else configuration


def deliver(report: Report, asked: Asked) -> None:
    """Write the report's files; print it, or with --diff only the diff."""
    if not asked.diff or asked.delivery.format is not None:
        asked.delivery.deliver(report)
        return
    asked.delivery.write(report)
    if asked.delivery.quiet:
        return
    if report.facts["fix"]["diff"]:
        print_text(report.facts["fix"]["diff"])
    elif not asked.verify:
        click.echo("torchvet: the source alone shows nothing to fix; --verify runs the program first", err=True)


def write(contents: dict[str, tuple[bytes, bytes]], keep: bool) -> None:
    """Replace files, each atomically. `contents` has by path what was read and what is to be written.

    Raises `BadInput` and writes nothing if a file has changed since, or if its original cannot be kept as asked. If a
    file cannot be written, the error names those that were.
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

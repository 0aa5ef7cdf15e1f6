"""Takes a report to those who asked for it: stdout, files, the exit status."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from torchvet.commands import drop_stdout
from torchvet.errors import BadInput

if TYPE_CHECKING:
    from torchvet.finding import Report
    from torchvet.recording import Recording

CLEAN, FINDINGS, UNDETERMINED = 0, 1, 3


@dataclass(frozen=True)
class Delivery:
    """What the user asked for, in the terms of the options of the same names."""

    outputs: tuple[str, ...]
    format: str | None
    quiet: bool
    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    memory_limit: int | None = None
    fail_on: str = "warning"
    exit_zero: bool = False

    def check(self) -> None:
        """Refuse what could not be delivered before anything is run. Raises `BadInput`."""
        from torchvet.renderers import renderer_for, renderer_for_path

        renderer_for(self.format or "text")
        for name in self.outputs:
            renderer_for_path(Path(name))
            _check_writable(Path(name))
        self.codes(self.select)
        self.codes(self.ignore)

    def codes(self, given: tuple[str, ...]) -> tuple[str, ...]:
        """The code prefixes of an option, taken apart at commas. Raises `BadInput` for one that no rule has."""
        prefixes = tuple(p.strip().upper() for text in given for p in text.split(",") if p.strip())
        if not prefixes:
            return ()
        from torchvet.rules import all_rules

        known = [r.code for r in all_rules()]
        for prefix in prefixes:
            if not any(code.startswith(prefix) for code in known):
                raise BadInput(f"{prefix}: no rule's code starts so; `torchvet explain` lists the rules")
        return prefixes

    def diagnose(self, recording: Recording) -> Report:
        """The report on a recording, by the rules that were asked for."""
        from torchvet.diagnosis import diagnose

        return diagnose(
            recording,
            select=self.codes(self.select),
            ignore=self.codes(self.ignore),
            memory_limit=self.memory_limit,
        )

    def deliver(self, report: Report) -> None:
        """Write the files, then stdout. Raises `BadInput` where a file cannot be written."""
        self.write(report)
        if self.format is not None or not self.quiet:
            from torchvet.renderers import renderer_for

            print_text(renderer_for(self.format or "text").render(report, color=color(), width=_width()))

    def write(self, report: Report) -> None:
        """Write the files. Raises `BadInput` where one cannot be written."""
        from torchvet.renderers import renderer_for_path

        for name in self.outputs:
            try:
                Path(name).write_text(renderer_for_path(Path(name)).render(report), encoding="utf-8")
            except OSError as error:
                raise BadInput(f"{name}: the report could not be written: {error.strerror}") from error

    def status(self, report: Report) -> int:
        """0 clean, 1 findings at or above `fail_on`, 3 could not judge."""
        from torchvet.finding import SEVERITIES

        if self.exit_zero:
            return CLEAN
        if report.verdict == "undetermined":
            return UNDETERMINED
        worst = report.worst()
        if worst is None or self.fail_on == "never":
            return CLEAN
        levels: tuple[str, ...] = SEVERITIES
        return FINDINGS if levels.index(worst) >= levels.index(self.fail_on) else CLEAN


def _check_writable(path: Path) -> None:
    folder = path.parent
    if not folder.is_dir():
        raise BadInput(f"{path}: the folder {folder} does not exist; make it first")
    if path.is_dir():
        raise BadInput(f"{path}: is a folder; give a file name for the report")
    if not os.access(path if path.exists() else folder, os.W_OK):
        raise BadInput(f"{path}: no permission to write there")


def print_text(text: str) -> None:
    """Print on stdout what any terminal can take; a reader that has gone away is no error."""
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        sys.stdout.write(text if text.endswith("\n") else text + "\n")
        sys.stdout.flush()
    except BrokenPipeError:  # `| head`: the verdict stands all the same
        drop_stdout()


def color() -> bool:
    """Whether stdout is a terminal that wants colours."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def _width() -> int:
    if not sys.stdout.isatty():
        return 100
    import shutil

    return shutil.get_terminal_size((100, 40)).columns

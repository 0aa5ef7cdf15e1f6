"""Where a report goes: stdout, files, the exit status."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

from torchvet.errors import BadInput
from torchvet.workflows.streams import drop_stdout

if TYPE_CHECKING:
    from torchvet.charts import Drawing
    from torchvet.checking.checker import Checker
    from torchvet.configuration import Configuration
    from torchvet.finding import Finding, Report
    from torchvet.recording import Recording

CLEAN, FINDINGS, UNDETERMINED = 0, 1, 3


@dataclass(frozen=True)
class Delivery:
    """The options of the same names, on top of [tool.torchvet] in the pyproject.toml that is nearest to `project`."""

    outputs: tuple[str, ...]
    format: str | None
    quiet: bool
    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    memory_limit: int | None = None
    fail_on: str | None = None
    exit_zero: bool = False
    project: Path = Path()

    def of(self, path: str | None) -> Delivery:
        """The same for the project in which a program's file lies."""
        return replace(self, project=Path(path or "."))

    def check(self) -> None:
        """Before anything is run: raises `BadInput` if the report could not be written later."""
        from torchvet.renderers import renderer_for, renderer_for_path

        renderer_for(self.format or "text")
        for name in self.outputs:
            renderer_for_path(Path(name))
            _check_writable(Path(name))
        if self.configuration.layers:
            _ = self._checker.scope  # knows all codes, and refuses others

    def spare(self, read: Iterable[Path]) -> None:
        """Raises `BadInput` if the report would replace a file that is to be read."""
        for name in self.outputs:
            place = os.path.realpath(name)
            if any(os.path.realpath(path) == place for path in read):
                raise BadInput(f"{name}: is one of the files to be read; give another name for the report")

    @cached_property
    def configuration(self) -> Configuration:
        """pyproject.toml, the environment, and the flags on top. Raises `BadInput` for what makes no sense there."""
        from torchvet.configuration import Layer, codes_in, read_configuration

        known = read_configuration(self.project)
        flags = Layer("the command line", codes_in(self.select), codes_in(self.ignore))
        return known.with_layer(flags) if flags.select or flags.ignore else known

    @cached_property
    def _checker(self) -> Checker:
        from torchvet.checking.checker import Checker

        return Checker(self.configuration, reads=False)

    @cached_property
    def unwanted(self) -> tuple[str, ...]:
        """The codes that were not selected, or that are to be ignored."""
        scope = self._checker.scope
        return tuple(sorted(scope.known - scope.wanted)) if self.configuration.layers else ()

    def diagnose(self, recording: Recording) -> Report:
        """The report on a recording, by the rules that were asked for."""
        from torchvet.diagnosis.diagnose import diagnose

        return self.kept(diagnose(recording, ignore=self.unwanted, memory_limit=self.memory_limit))

    def kept(self, report: Report) -> Report:
        """The report without the findings that the configuration ignores in their files."""
        import msgspec

        if not self.configuration.per_file_ignores:
            return report
        kept = [f for f in report.findings if not self._ignored(f)]
        verdict = report.verdict
        if report.findings and not kept:
            verdict = "clean" if report.earned else "undetermined"
        return msgspec.structs.replace(report, findings=kept, verdict=verdict)

    def _ignored(self, finding: Finding) -> bool:
        """Whether the configuration ignores a finding's code in the file that it stands in."""
        prefixes = self._checker.ignored_in(finding.location.path) if finding.location is not None else ()
        return bool(prefixes) and finding.code.startswith(prefixes)

    @cached_property
    def draws(self) -> bool:
        """Whether a format that was asked for has charts."""
        from torchvet.renderers import renderer_for, renderer_for_path

        asked = [renderer_for(self.format or "text"), *(renderer_for_path(Path(name)) for name in self.outputs)]
        return any(renderer.format == "html" for renderer in asked)

    def deliver(self, report: Report, draw: Callable[[Report], Drawing] | None = None) -> int:
        """Write the files, then stdout, on which the report comes also if a file cannot be written. Gives the exit
        status; raises `BadInput` then.

        `draw` makes the charts, where there is something to draw; it is asked only if a format has any.
        """
        from torchvet.charts import NOTHING, Drawing, guarded

        missing: list[str] = []
        drawing = NOTHING
        if draw is not None and self.draws:
            drawing = guarded("all charts", partial(draw, report), missing) or Drawing(missing=missing)
        try:
            self.write(report, drawing)
        finally:
            if self.format is not None or not self.quiet:
                from torchvet.renderers import renderer_for

                renderer = renderer_for(self.format or "text")
                print_text(renderer.render(report, color=color(), width=_width(), drawing=drawing))
        return self.status(report)

    def write(self, report: Report, drawing: Drawing | None = None) -> None:
        """Write the files. Raises `BadInput` where one cannot be written."""
        from torchvet.charts import NOTHING
        from torchvet.renderers import renderer_for_path
        from torchvet.renderers.files import write_whole

        for name in self.outputs:
            renderer = renderer_for_path(Path(name))
            try:
                text = renderer.render(report, width=0, drawing=drawing if drawing is not None else NOTHING)
                write_whole(Path(name), text)
            except OSError as error:
                raise BadInput(f"{name}: the report could not be written: {error.strerror}") from error

    def status(self, report: Report) -> int:
        """0 clean, 1 findings at or above `fail_on`, 3 undetermined.

        A run that is evidence of nothing is not clean, even if it has notes.
        """
        from torchvet.finding import SEVERITIES

        if self.exit_zero:
            return CLEAN
        if report.verdict == "undetermined":
            return UNDETERMINED
        worst, fail_on = report.worst(), self.fail_on or self.configuration.fail_on
        levels: tuple[str, ...] = SEVERITIES
        if worst is not None and fail_on != "never" and levels.index(worst) >= levels.index(fail_on):
            return FINDINGS
        return CLEAN if report.earned or worst not in (None, "info") else UNDETERMINED


def _check_writable(path: Path) -> None:
    folder = path.parent
    if not folder.is_dir():
        raise BadInput(f"{path}: the folder {folder} does not exist; make it first")
    if path.is_dir():
        raise BadInput(f"{path}: is a folder; give a file name for the report")
    if not os.access(path if path.exists() else folder, os.W_OK):
        raise BadInput(f"{path}: no permission to write there")


def print_text(text: str) -> None:
    """Print on stdout what any terminal can take; a reader that has gone away is no error. Raises `BadInput` where the
    disk behind it is full."""
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        sys.stdout.write(text if text.endswith("\n") else text + "\n")
        sys.stdout.flush()
    except BrokenPipeError:  # `| head`: the verdict stands all the same
        drop_stdout()
    except OSError as error:
        drop_stdout()
        raise BadInput(f"the report could not be printed: {error.strerror}") from error


def color() -> bool:
    """Whether stdout is a terminal that wants colors, or FORCE_COLOR says that it is one; NO_COLOR goes first."""
    forced = os.environ.get("FORCE_COLOR", "0") not in ("", "0")
    wanted = forced or (sys.stdout.isatty() and os.environ.get("TERM") != "dumb")
    return wanted and not os.environ.get("NO_COLOR")


def _width() -> int:
    """The terminal's columns, or COLUMNS; 0, with which nothing is cut, for a pipe or a file."""
    import shutil

    return shutil.get_terminal_size((100 if sys.stdout.isatty() else 0, 40)).columns

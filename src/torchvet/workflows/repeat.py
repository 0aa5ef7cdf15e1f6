"""Runs a program observed so that two runs can be compared: the same seed, arguments, folder and environment."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torchvet.scratch import Scratch
from torchvet.supervisor.recording_dir import Keep
from torchvet.supervisor.supervise import Observe, child_command
from torchvet.supervisor.trial_sandbox import Shown, Untouched

if TYPE_CHECKING:
    from torchvet.supervisor.preflight import Program
    from torchvet.supervisor.progress import Progress
    from torchvet.verifying.trial import Trial
    from torchvet.workflows.report_output import Delivery

SEED = 0
STEPS, LONGER, MUCH_LONGER = 100, 10.0, 100.0
"""Steps of a run where the user names none, and the seconds for which it goes on after them: a hundred steps of a
millisecond end long before an evaluation, a second epoch or what a program does at its end. And where that has shown
nothing to fix."""
_PATIENCE = 10
_LEAST_PATIENCE = 60.0
"""A fixed program may take this many times as long as the one before, and at least so many seconds."""
_PRINTED = 1_000_000
"""Characters of a stream that are kept for the comparison."""
STREAMS = ("stdout", "stderr")


@dataclass
class Bench:
    """Where trials of one program are run. `probes` are further options of the session."""

    target: Program
    delivery: Delivery
    steps: int | None
    """Of each run; None: as many as the first takes, `STEPS` and those of `longer` seconds."""
    show_output: bool = False
    probes: dict[str, Any] = field(default_factory=dict)
    outside: dict[str, None] = field(default_factory=dict)
    """What the trials did beyond their files, which is not undone."""
    runs: int = 0
    """How many trials have begun."""
    longer: float = 0.0
    _seconds: float | None = None

    def run(self, contents: Mapping[str, bytes], change: str) -> Trial:
        """Run the program to its end or to the last step asked for, with other contents in the place of some files.
        What it changes on the disk is undone. `change` says in a few words what is other than in the file.

        Raises KeyboardInterrupt where the user stopped it, `BadInput` where that could not be undone.
        """
        from torchvet.verifying.outputs import UNREAD
        from torchvet.verifying.trial import trial_of

        self.runs += 1
        with Keep(None) as keep, Scratch() as folder:
            first = self.steps is None
            probes = {"seed": SEED, "losses": True, "longer": self.longer if first else 0.0, **self.probes}
            overlay = write_overlay(folder, contents) if contents else None
            with Untouched(self.delivery.quiet, reads=True) as files:
                steps, limit = self.steps or STEPS, self.delivery.memory_limit
                observe = Observe(keep.directory, keep.rank, steps, limit, probes, overlay, files.folder)
                progress = self._shown.progress(keep.directory, f"run {self.runs}, {change}")
                status, seconds = self._process(child_command(self.target, observe), folder, files, progress)
                recording, outcome = keep.read(status, seconds)
                files.ended(outcome)
            if first:
                # One that ended by itself may do so: its last step is followed by what the program does at its end.
                taken = outcome.main_steps
                self.steps = taken if outcome.how == "steps-reached" else 2 * max(taken, STEPS)
            self.outside.update(dict.fromkeys(files.outside))
            streams = {name: (folder / name).read_text("utf-8", "replace") for name in STREAMS}
            printed = {name: _beginning(text) for name, text in streams.items()}
            cut: dict[str, str | bytes] = {
                f"the rest of {n}": UNREAD for n, text in streams.items() if text != printed[n]
            }
            self._show(printed)
            written = {_named(os.path.relpath(path)): content for path, content in files.written.items()}
            return trial_of(recording, self.delivery.diagnose(recording), outcome, {**printed, **written, **cut})

    def _process(self, command: list[str], folder: Path, files: Untouched, progress: Progress) -> tuple[int, float]:
        """The program's status and seconds. It has no terminal: two runs cannot be given the same keys."""
        limit = None if self._seconds is None else max(_LEAST_PATIENCE, _PATIENCE * self._seconds)
        with (folder / STREAMS[0]).open("wb") as output, (folder / STREAMS[1]).open("wb") as errors:
            # A hash seed, because the order of sets of strings may decide the order of arithmetic.
            environment = {"PYTHONHASHSEED": str(SEED), **os.environ}
            status, seconds = files.run(command, limit, progress, stdout=output, stderr=errors, env=environment)
        if self._seconds is None:
            self._seconds = seconds
        return status, seconds

    @property
    def _shown(self) -> Shown:
        return Shown(self.show_output, self.delivery.quiet)

    def _show(self, printed: Mapping[str, str]) -> None:
        if self.show_output:
            sys.stderr.write("".join(printed.values()))
            sys.stderr.flush()


def _beginning(text: str) -> str:
    """As much of a stream as is kept, in whole lines."""
    return text if len(text) <= _PRINTED else text[:_PRINTED].rpartition("\n")[0]


def _named(path: str) -> str:
    """A file's name beside those of streams."""
    return f"./{path}" if path in STREAMS else path


def write_overlay(folder: Path, contents: Mapping[str, bytes]) -> Path:
    """Write contents down, by the paths of the files that they stand in for, for `probes.overlay`."""
    from torchvet.probes.session.overlay import INDEX

    index = {}
    for number, (path, content) in enumerate(contents.items()):
        name = index[os.path.realpath(path)] = f"{number}.txt"
        (folder / name).write_bytes(content)
    (folder / INDEX).write_text(json.dumps(index), encoding="utf-8")
    return folder

"""Runs a program's text on a simulated GPU within this process: to be called in a child that may be left with one."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from torchvet.diagnosis.diagnose import diagnose
from torchvet.finding import Report
from torchvet.recording import RecordingWriter, read


def dry_report(program: str, folder: Path, card: str = "24GiB", dry: bool = True) -> Report:
    """The report on a program, on a `card` unless the process has a simulated GPU; with numbers if not `dry`."""
    import torch  # noqa: F401  the session starts with it

    from torchvet.probes.session.session import Options, Session

    path, recording = folder / "program.py", folder / "run.vet"
    path.write_text(program, encoding="utf-8")
    recording.mkdir()
    options = Options(
        directory=str(recording), path=str(path), argv=[str(path)], user_root=str(folder), simulated_gpu=card, dry=dry
    )  # fmt: skip
    session = Session(options, RecordingWriter(recording, 0))
    session.start()
    how, error = _run(program, path)
    session.finish(how, 0, error)
    return diagnose(read(recording))


def _run(program: str, path: Path) -> tuple[str, BaseException | None]:
    from torchvet.probes.session.step_log import StepsReached

    with contextlib.redirect_stdout(open(os.devnull, "w")):
        try:
            exec(compile(program, str(path), "exec"), {"__name__": "__main__"})
        except StepsReached:
            return "steps-reached", None
        except Exception as error:
            return "exception", error
    return "finished", None

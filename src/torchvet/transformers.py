"""`torchvet.transformers.VetCallback`: a callback of the Hugging Face `Trainer` that watches the training.

trainer = Trainer(..., callbacks=[torchvet.transformers.VetCallback()])
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from transformers import TrainerCallback

from torchvet.finding import Report
from torchvet.surfaces import logged
from torchvet.surfaces.callback import Vetting


class VetCallback(Vetting, TrainerCallback):
    """Watches `trainer.train()`; `report` is the last training's."""

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """The training begins."""
        self._training.begin()

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """It has come to its end. One that an error ends is reported when the program ends, or trains again."""
        report = self._training.end(leads=state.is_world_process_zero)
        if report is not None and state.is_world_process_zero:
            _log(report, args, state.global_step)


def _log(report: Report, args: Any, step: int) -> None:
    """To TensorBoard and W&B, where the trainer reports to them: it hands a callback none of its loggers."""
    if "tensorboard" in args.report_to:
        from torch.utils.tensorboard import SummaryWriter

        with SummaryWriter(log_dir=_folder_of_run(args)) as writer:
            for name, value in logged.scalars(report).items():
                writer.add_scalar(name, value, step)
            logged.write_text(writer, report, step)
    run = getattr(sys.modules.get("wandb"), "run", None)
    if "wandb" in args.report_to and run is not None:
        run.log(logged.scalars(report))
        logged.write_text(run, report, step)


def _folder_of_run(args: Any) -> str:
    """The folder that the trainer's own TensorBoard writer has made: the newest, where the environment names none."""
    named = os.environ.get("TENSORBOARD_LOGGING_DIR")
    if named:
        return os.path.expanduser(named)
    given = getattr(args, "logging_dir", None)  # transformers 4
    runs = sorted(Path(given or args.output_dir, "" if given else "runs").glob("**/events.out.*"), key=_written)
    return str(runs[-1].parent) if runs else str(Path(args.output_dir, "runs", "torchvet"))


def _written(file: Path) -> float:
    return file.stat().st_mtime

"""`torchvet.lightning.Vet`: a callback of Lightning that watches the training.

trainer = Trainer(callbacks=[torchvet.lightning.Vet()])
"""

from __future__ import annotations

import sys
from typing import Any

from torchvet.surfaces import logged
from torchvet.surfaces.callback import Vetting

if "pytorch_lightning" in sys.modules and "lightning" not in sys.modules:
    from pytorch_lightning import Callback
else:
    try:
        from lightning.pytorch import Callback
    except ImportError:
        from pytorch_lightning import Callback


class Vet(Vetting, Callback):
    """Watches `trainer.fit()`; `report` is the last fit's. Loggers get counts, and the text if they take texts."""

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """The fit begins."""
        if stage == "fit":
            self._training.begin()

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """The fit has come to its end; the model and the loggers are still as they were."""
        self._end(trainer, None)

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """The fit ended by an error."""
        self._end(trainer, exception)

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """A fit that never trained has no `on_train_end`."""
        self._end(trainer, None)

    def _end(self, trainer: Any, error: BaseException | None) -> None:
        report = self._training.end(error, leads=trainer.is_global_zero)
        if report is None or not trainer.is_global_zero:
            return
        for logger in trainer.loggers:
            logger.log_metrics(logged.scalars(report), step=trainer.global_step)
            logged.write_text(logger.experiment, report, trainer.global_step)
            logger.save()

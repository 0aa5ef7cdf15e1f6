"""What the tests of the autocast probes share: a session in this process around a short training loop."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from torchvet.probes.session.session import Options, Session
from torchvet.recording import RankRecording, RecordingWriter, read

BF16 = torch.bfloat16


class Run:
    """A run under observation; `rank` is there once it has ended."""

    rank: RankRecording


@contextmanager
def observed() -> Iterator[Run]:
    """Observe this process. An exception ends the observation and passes through."""
    run = Run()
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder) / "run.vet"
        options = Options(directory=str(directory), path="train.py", argv=["train.py"], user_root=folder)
        session = Session(options, RecordingWriter(directory))
        session.start()
        error: BaseException | None = None
        try:
            yield run
        except BaseException as raised:
            error = raised
            raise
        finally:
            session.finish("finished" if error is None else "exception", 0 if error is None else 1, error)
            session.writer.close()
            run.rank = read(directory).ranks[0]


class Training:
    """A small model, its optimizer and batches; the same each time."""

    def __init__(self, model: torch.nn.Module | None = None, lr: float = 0.05) -> None:
        torch.manual_seed(0)
        self.model = model or torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.Tanh(), torch.nn.Linear(32, 4))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=lr)

    def batches(self, steps: int = 16) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Inputs and class indices."""
        for _ in range(steps):
            x = torch.randn(32, 16)
            yield x, x[:, :4].argmax(1)

    def apply(self, loss: torch.Tensor) -> None:
        """Backward and step."""
        self.optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()

    def run(self, loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor], steps: int = 16) -> None:
        """Train on what `loss(x, y)` gives."""
        for x, y in self.batches(steps):
            self.apply(loss(x, y))

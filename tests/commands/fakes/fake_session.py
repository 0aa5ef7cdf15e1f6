"""A session without probes: it writes down how the program ended, and can be told to stop it."""

import time

import msgspec

from torchvet.probes.session.import_hook import when_imported
from torchvet.probes.session.step_log import StepsReached
from torchvet.recording.records.base import Program, Step
from torchvet.recording.records.training import Outcome


class Options(msgspec.Struct):
    directory: str
    path: str
    argv: list[str]
    user_root: str
    code: str | None = None
    steps: int | None = None
    memory_limit: int | None = None
    precision_forecast: bool = False
    amp_mode: str | None = None
    simulated_gpu: str | None = None
    simulated_gpus: int = 1
    batch_share: float | None = None
    dry: bool = False
    losses: bool = False
    seed: int | None = None
    snapshots: str | None = None


class Session:
    def __init__(self, options, writer):
        self.options, self.writer = options, writer
        self.done = self.trying = False
        self.ticks = 0

    def start(self):
        o = self.options
        self.writer.write(
            Program(
                argv=o.argv,
                path=o.path,
                cwd="",
                python="",
                torch="",
                device="",
                started=0.0,
                pid=0,
                memory_limit=o.memory_limit or 0,
                user_roots=[o.user_root],
            )
        )
        when_imported("torch", self.arm)

    def arm(self, torch):
        torch.step = self.step

    def step(self):
        self.ticks += 1
        self.writer.write(Step(n=self.ticks, kind="manual", t=time.monotonic()))
        if self.options.steps is not None and self.ticks >= self.options.steps:
            raise StepsReached(self.ticks)

    def finish(self, how, status, error):
        if self.done:
            return
        self.done = True
        names = []
        traceback = error.__traceback__ if error is not None else None
        while traceback is not None:
            names += sorted(n for n in traceback.tb_frame.f_locals if n.startswith("alive_"))
            traceback = traceback.tb_next
        text = None if error is None else f"{type(error).__name__} {' '.join(names)}"
        self.writer.write(Outcome(how=how, status=status, ticks=self.ticks, seconds=0.0, error=text))

"""What watchers are made of, to be imported in one line."""

from __future__ import annotations

from torch.optim.optimizer import Optimizer

from torchvet.probes.base import frames, graphs
from torchvet.probes.base._importlib_bootstrap_taps import After, Before, around, tap
from torchvet.probes.base.by_storage import ByStorage
from torchvet.probes.base.callers import called_by_user, of_program, outward, place_in, user_lines
from torchvet.probes.base.operators import bare_name, names, overloads, tensors_within
from torchvet.probes.base.sites import SiteWatcher
from torchvet.probes.base.watcher import EVERY_STEP, Host, Watcher
from torchvet.recording.records.base import Place, Record, StepKind
from torchvet.recording.records.training import Unchecked

__all__ = [
    "EVERY_STEP",
    "After",
    "Before",
    "ByStorage",
    "Host",
    "Optimizer",
    "Place",
    "Record",
    "SiteWatcher",
    "StepKind",
    "Unchecked",
    "Watcher",
    "around",
    "bare_name",
    "called_by_user",
    "frames",
    "graphs",
    "names",
    "of_program",
    "outward",
    "overloads",
    "place_in",
    "tap",
    "tensors_within",
    "user_lines",
]

"""Which watchers a session has. Each is loaded by itself: one that this torch cannot carry leaves the others alone."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator

from torchvet.probes.base.watcher import Watcher

WATCHERS: tuple[str, ...] = (
    "memory.host_samples.HostSampler",
    "numerics.nonfinite.NonFiniteWatcher",
    "training.loss_curve.LossCurve",
    "crash.thread_errors.ThreadErrors",
    "memory.line_memory.LineMemory",
    "training.reductions.Reductions",
    "training.detached_losses.LostLosses",
    "training.cut_outputs.CutOutputs",
    "numerics.half_optimizers.HalfOptimizers",
    "numerics.half_sums.HalfSums",
    "numerics.half_constants.VanishedConstants",
    "numerics.half_constants.RoundedPositions",
    "numerics.persistent_nonfinite.Poison",
    "precision.autocast.AutocastWatcher",
    "precision.scaling.ScalerWatcher",
    "precision.forecast.ForecastWatcher",
    "precision.amp.AmpWatcher",
    "devices.host_device_transfers.Crossings",
    "memory.cache_emptied.CacheWatcher",
    "memory.broadcast_losses.PairTables",
    "training.normalized_twice.NormalisedLosses",
    "memory.attention.Attention",
    "memory.out_of_memory.OutOfMemoryWatcher",
    "crash.device_errors.DeviceErrors",
    "crash.carried_graphs.CarriedGraphs",
    "training.unoptimized_parameters.Ownership",
    "training.smaller_batches.SmallerBatches",
    "devices.discarded_moves.DiscardedMoves",
    "devices.checkpoints.Checkpoints",
    "training.aliased_state_dicts.OwnWeightsLoaded",
    "training.scheduler_order.EarlySchedules",
    "training.train_mode.TrainModePasses",
    "training.eval_mode_training.StuckModes",
    "memory.updated_lines.UpdatedLines",
    "memory.micro_batches.MicroBatches",
)
"""In the order in which they hear of events. The first docstring line of a failing watcher says what is unchecked."""


def load(names: tuple[str, ...], failed: Callable[[str, Exception], object]) -> Iterator[type[Watcher]]:
    """The classes of these watchers; `failed` is told of those that cannot be loaded."""
    for name in names:
        module, _, cls = name.rpartition(".")
        try:
            yield getattr(importlib.import_module(f"torchvet.probes.{module}"), cls)
        except Exception as error:
            failed(f"what the probe {cls} looks for", error)

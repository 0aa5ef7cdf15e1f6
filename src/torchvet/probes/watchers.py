"""Which watchers a session has. Each is loaded by itself: one that this torch cannot carry leaves the others alone."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator

from torchvet.probes.watcher import Watcher

WATCHERS: tuple[str, ...] = (
    "host_samples.HostSampler",
    "nonfinite.NonFiniteWatcher",
    "loss_curve.LossCurve",
    "thread_errors.ThreadErrors",
    "line_memory.LineMemory",
    "reductions.Reductions",
    "lost_losses.LostLosses",
    "cut_outputs.CutOutputs",
    "half_optimizers.HalfOptimizers",
    "half_sums.HalfSums",
    "half_constants.VanishedConstants",
    "half_constants.RoundedPositions",
    "poison.Poison",
    "autocast.AutocastWatcher",
    "scaling.ScalerWatcher",
    "forecast.ForecastWatcher",
    "amp.AmpWatcher",
    "crossings.Crossings",
    "cache_emptied.CacheWatcher",
    "pair_tables.PairTables",
    "normalised_twice.NormalisedLosses",
    "attention.Attention",
    "out_of_memory.OutOfMemoryWatcher",
    "device_errors.DeviceErrors",
    "carried_graphs.CarriedGraphs",
    "ownership.Ownership",
    "smaller_batches.SmallerBatches",
    "discarded_moves.DiscardedMoves",
    "checkpoints.Checkpoints",
    "own_weights.OwnWeightsLoaded",
    "early_schedules.EarlySchedules",
    "train_mode.TrainModePasses",
    "stuck_mode.StuckModes",
    "updated_lines.UpdatedLines",
    "micro_batches.MicroBatches",
)
"""In the order in which they are told. A watcher's first docstring line names what is unchecked where it fails."""


def load(names: tuple[str, ...], failed: Callable[[str, Exception], object]) -> Iterator[type[Watcher]]:
    """The classes of these watchers; `failed` is told of those that cannot be loaded."""
    for name in names:
        module, _, cls = name.rpartition(".")
        try:
            yield getattr(importlib.import_module(f"torchvet.probes.{module}"), cls)
        except Exception as error:
            failed(f"what the probe {cls} looks for", error)

"""The probes of a session, and the bus that tells them of events: each is guarded, and accounted for."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from torchvet.probes.base.schedule import Pace
from torchvet.probes.base.watcher import EVERY_STEP, Host, Watcher
from torchvet.probes.internals.private import LacksName
from torchvet.recording.records.base import Record
from torchvet.recording.records.training import Unchecked, Unwatched

PROBES: tuple[str, ...] = (
    # What others go by, in the order of an event's meaning: which optimizers there are, whose graph is needed.
    "base.collector.CollectorProbe",
    "optimizers.use.OptimizerProbe",
    "base.backward.BackwardProbe",
    "training.evaluation.EvaluationProbe",
    "training.loaders.LoaderProbe",
    "ranks.membership.Membership",
    "ranks.standstill.StandstillProbe",
    "ranks.replicas.ReplicaWatcher",
    "ranks.buckets.BucketWatcher",
    "ranks.own_acts.OwnActs",
    "ranks.ddp.DistributedModules",
    "ranks.samplers.Samplers",
    "ranks.arrivals.ArrivalTimer",
    # One kind of fault each.
    "memory.host_samples.HostSampler",
    "numerics.nonfinite.NonFiniteWatcher",
    "training.loss_curve.LossCurve",
    "crash.thread_errors.ThreadErrors",
    "memory.line_memory.LineMemory",
    "training.reductions.Reductions",
    # Before the watcher of scalers, which is to be called by the program itself.
    "training.summing.summed_passes.SummedPassesProbe",
    "training.detached_losses.LostLosses",
    "training.cut_outputs.CutOutputs",
    "training.constant_softmax.ConstantSoftmaxes",
    "numerics.half_optimizers.HalfOptimizers",
    "numerics.half_sums.HalfSums",
    "numerics.half_constants.VanishedConstants",
    "numerics.half_constants.RoundedPositions",
    "numerics.lost_differences.LostDifferences",
    "numerics.persistent_nonfinite.Poison",
    "precision.autocast.AutocastWatcher",
    "precision.scaling.ScalerWatcher",
    "precision.forecast.ForecastWatcher",
    "precision.amp.AmpWatcher",
    "devices.host_device_transfers.Crossings",
    "memory.cache_emptied.CacheWatcher",
    "memory.device_peak.DevicePeaks",
    "memory.worker_memory.WorkerMemoryProbe",
    "memory.evaluation_peaks.EvaluationPeaks",
    "memory.broadcast_losses.PairTables",
    "training.normalized_twice.NormalisedLosses",
    "training.graphless_terms.GraphlessTerms",
    "numerics.softmax_axes.SoftmaxAxes",
    "numerics.normalized_batches.NormalizedBatches",
    "numerics.penalty_norms.PenaltyNorms",
    "numerics.latent_sums.LatentSums",
    "memory.attention.Attention",
    "memory.out_of_memory.OutOfMemoryWatcher",
    "crash.device_errors.DeviceErrors",
    "crash.carried_graphs.CarriedGraphs",
    "training.unoptimized_parameters.Ownership",
    "training.smaller_batches.SmallerBatches",
    "training.attempts.Attempts",
    "training.anomaly_mode.AnomalyModes",
    "devices.discarded_moves.DiscardedMoves",
    "devices.checkpoints.Checkpoints",
    "training.aliased_state_dicts.OwnWeightsLoaded",
    "training.scheduler_order.EarlySchedules",
    "training.train_mode.TrainModePasses",
    "training.train_mode.DroppedInEvalModeProbe",
    "training.eval_mode_training.StuckModes",
    "training.modes.left_by_library.PartsLeftInEvalMode",
    "training.randoms.set_back.SetBack",
    "training.columns.dropped.DroppedColumnsProbe",
    "training.labels.end_tokens.EndTokenProbe",
    "training.labels.shifted_twice.TargetsAheadProbe",
    "training.labels.out_of_reach.TargetsOutOfReach",
    "training.labels.one_class.OneClassProbe",
    "training.labels.no_logarithms.NoLogarithmsProbe",
    "training.labels.unfit.UnfitLabelsProbe",
    "training.labels.masked_for_causal.MaskedForCausalProbe",
    "training.layers.linear_networks.LinearNetworks",
    "training.layers.repeated_entries.RepeatedEntries",
    "training.layers.dead_activations.DeadActivations",
    "training.layers.alike_units.AlikeUnitsProbe",
    "training.layers.clamped_scores.ClampedScoresProbe",
    "numerics.position_tables.PositionTables",
    "training.first_statistics.FollowedAverages",
    "training.mixed_samples.MixedSamplesProbe",
    "training.sequences.batch_as_sequence.BatchAsSequenceProbe",
    "training.sequences.padded_reads.PaddedReads",
    "training.fast_statistics.JumpingStatistics",
    "training.modes.single_samples.SingleSamplesProbe",
    "training.unchanged_copies.UnchangedCopies",
    "training.changed_by_reading.ChangedDatasets",
    "memory.updated_lines.UpdatedLines",
    "memory.micro_batches.MicroBatches",
    "memory.piles.Piles",
    "time.line_operators.LineOperators",
    "time.sliding_windows.SlidingWindows",
    "training.samples.apart.MovedApartProbe",
    "training.samples.shuffled_apart.ShuffledApartProbe",
    "training.samples.drawn_again.DrawnAgainProbe",
    "training.samples.shared_parts.SharedPartsProbe",
    "time.loaders.worker_starts.WorkerStartsProbe",
    "time.loaders.read_again.ReadAgainProbe",
    "time.files.written_again.WrittenAgainProbe",
    "time.line_times.LineTimer",
    "time.repeated_passes.RepeatedPassesProbe",
    "time.passes.walked_again.WalkedAgainProbe",
    "time.ignored_rows.IgnoredRowsProbe",
    "time.padded_columns.PaddedColumnsProbe",
    "time.fused_attention.FusedAttention",
    "time.again.computed_again.ComputedAgainProbe",
    "time.dense_tables.DenseTables",
    "time.pairs.tables.PairDifferenceTables",
    "time.normals.diagonal.DiagonalCovariances",
    "time.prefixes.growing.GrowingPrefixes",
    "time.row_calls.calls.RowCallsProbe",
    "time.row_calls.alike.ModulesAlikeProbe",
    "time.rows_seen_again.RowsSeenAgainProbe",
    "time.thrown_away.ThrownAwayProbe",
    "time.step_samples.SampleCounter",
    "time.update_times.UpdateTimer",
    "time.denormal_updates.DenormalUpdates",
    "time.rows_one_by_one.RowsOneByOneTimer",
    "time.results.first_few.SortsForFew",
    "time.results.decompositions.UnreadFactorsProbe",
    "time.wide.operators.WideNumbersProbe",
    # What is found out last, by what the others have seen; its censuses are heard of by the two below it.
    "memory.growth.GrowthProbe",
    "objects.hook_tables.HookProbe",
    "session.sources.SourceKeeper",
)
"""In the order in which they hear of events. The first docstring line of a failing probe says what is unchecked."""

Told = tuple[Watcher, Callable[..., Any]]
"""A probe that hears of an event, and its method for it."""


def load(names: tuple[str, ...], failed: Callable[[str, Exception], object]) -> Iterator[type[Watcher]]:
    """The classes of these probes. `failed` gets those that this torch cannot carry: the others go on."""
    for name in names:
        module, _, cls = name.rpartition(".")
        try:
            yield getattr(importlib.import_module(f"torchvet.probes.{module}"), cls)
        except Exception as error:
            failed(f"what the probe {cls} looks for", error)


class Counted(dict[str, list[Callable[..., Any]]]):
    """By event of every step: the methods that are called in a steady step that is only counted."""

    def __init__(self, who: Callable[[str], list[Told]]) -> None:
        self._who = who
        self.steps_passed: list[Callable[[int, int], None]] = []
        """Of probes that do not hear of an optimizer's steps: what is to be told later how many there were."""

    def __missing__(self, event: str) -> list[Callable[..., Any]]:
        who = self._who(event)
        # Made at the first question and kept: a steady step then calls a list and nothing else.
        self[event] = found = [method for one, method in who if event not in one.passes_over]
        if event == "optimizer_ended":
            passing = [one for one, _ in who if event in one.passes_over]
            self.steps_passed = [o.steps_passed for o in passing if type(o).steps_passed is not Watcher.steps_passed]
        return found


class Bus:
    """All probes of a session, told in turn."""

    def __init__(self, host: Host, kinds: Iterable[type[Watcher]], pace: Pace | None = None) -> None:
        self._host = host
        self._pace = pace or Pace()
        # One that is not wanted is not even made.
        self._all = [kind(host) for kind in kinds if kind.wanted(host.options)]
        self._listening: dict[str, list[Told]] = {}
        self.counted = Counted(self._who)
        self._sampled = True
        for one in self._all:
            one.heeding = self._forget

    def install(self) -> None:
        """Install each; one that cannot be is switched off."""
        for one in list(self._all):
            with self._host.looking(_name(one)):
                try:
                    one.install()
                except Exception:
                    self.switch_off(one)
                    raise

    def switch_off(self, one: Watcher) -> None:
        """It hears nothing any more."""
        self._all.remove(one)
        self._forget()
        one.remove()

    def switch_off_kind(self, name: str) -> None:
        """The same, for probes of a class."""
        for one in [one for one in self._all if type(one).__name__ == name]:
            self.switch_off(one)

    def remove(self) -> None:
        """Leave torch as it was, the last to come first."""
        # Taps on taps come off in the other order.
        for one in reversed(self._all):
            one.remove()

    def tell(self, event: str, *details: Any) -> None:
        """Pass an event on to those that override its method. Accounted for once, not for each, and not in every steady
        step: that would cost more than most of them take."""
        listening = self._listening.get(event)
        # An empty list: nobody hears it, and no look is begun.
        if listening or (listening is None and self._who(event)):
            # Guarded all the same, by `Sheltered`.
            if self._pace.untimed:
                return self.told(event, *details)
            with self._host.looking(event):
                self.told(event, *details)

    def told(self, event: str, *details: Any) -> None:
        """The same, within a look that the host has begun."""
        # The list is made anew, and not changed, when a probe is switched off meanwhile.
        for one, method in self._listening.get(event) or self._who(event):
            try:
                method(*details)
            except Exception as error:
                # Only a failure gets a guard of its own: one around each call costs more than most calls.
                with self._host.looking(_name(one)):
                    if isinstance(error, LacksName) and one in self._all:
                        self.switch_off(one)
                    raise error

    def any(self, question: str) -> bool:
        """Whether one of them says yes."""
        return any(ask() for _, ask in self._listening.get(question) or self._who(question))

    def totals(self, tick: int) -> Iterator[Record]:
        """Everybody's running totals."""
        for one, totals in self._who("totals"):
            with self._host.looking(_name(one), "windows"):
                yield from totals(tick)

    def unchecked(self) -> Iterator[Unchecked | Unwatched]:
        """Everybody's gaps."""
        for one, gaps in self._who("unchecked"):
            with self._host.looking(_name(one)):
                yield from gaps()

    def sampled(self, on: bool) -> None:
        """The steps that come are sampled ones, or not."""
        if on is not self._sampled:
            self._sampled = on
            self._forget()

    @property
    def hears_samples(self) -> bool:
        """Whether those hear of events, too, to whom they mean something in sampled steps only."""
        return self._sampled

    def _forget(self) -> None:
        """Make the lists of who hears an event anew: a probe begins to hear what it ignored."""
        self._listening.clear()
        self.counted.clear()

    def _who(self, event: str) -> list[Told]:
        """Those that override an event's method, with theirs."""
        found = self._listening.get(event)
        if found is None:
            # What is not overridden would be an empty call.
            own = [one for one in self._all if getattr(type(one), event) is not getattr(Watcher, event)]
            if event in EVERY_STEP:
                own = [o for o in own if event not in (o.ignored if self._sampled else o.ignored | o.only_sampled)]
            found = self._listening[event] = [(one, getattr(one, event)) for one in own]
        return found


def _name(probe: Watcher) -> str:
    return (type(probe).__doc__ or type(probe).__name__).splitlines()[0].rstrip(".").lower()

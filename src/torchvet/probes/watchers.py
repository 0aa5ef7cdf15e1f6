"""Which watchers a session has."""

from __future__ import annotations

from torchvet.probes.amp import AmpWatcher
from torchvet.probes.attention import Attention
from torchvet.probes.autocast import AutocastWatcher
from torchvet.probes.cache_emptied import CacheWatcher
from torchvet.probes.carried_graphs import CarriedGraphs
from torchvet.probes.checkpoints import Checkpoints
from torchvet.probes.crossings import Crossings
from torchvet.probes.cut_outputs import CutOutputs
from torchvet.probes.device_errors import DeviceErrors
from torchvet.probes.discarded_moves import DiscardedMoves
from torchvet.probes.early_schedules import EarlySchedules
from torchvet.probes.forecast import ForecastWatcher
from torchvet.probes.half_constants import RoundedPositions, VanishedConstants
from torchvet.probes.half_optimizers import HalfOptimizers
from torchvet.probes.half_sums import HalfSums
from torchvet.probes.host_samples import HostSampler
from torchvet.probes.line_memory import LineMemory
from torchvet.probes.loss_curve import LossCurve
from torchvet.probes.lost_losses import LostLosses
from torchvet.probes.micro_batches import MicroBatches
from torchvet.probes.nonfinite import NonFiniteWatcher
from torchvet.probes.normalised_twice import NormalisedLosses
from torchvet.probes.out_of_memory import OutOfMemoryWatcher
from torchvet.probes.own_weights import OwnWeightsLoaded
from torchvet.probes.ownership import Ownership
from torchvet.probes.pair_tables import PairTables
from torchvet.probes.poison import Poison
from torchvet.probes.reductions import Reductions
from torchvet.probes.scaling import ScalerWatcher
from torchvet.probes.smaller_batches import SmallerBatches
from torchvet.probes.stuck_mode import StuckModes
from torchvet.probes.thread_errors import ThreadErrors
from torchvet.probes.train_mode import TrainModePasses
from torchvet.probes.updated_lines import UpdatedLines
from torchvet.probes.watcher import Watcher

WATCHERS: tuple[type[Watcher], ...] = (
    HostSampler,
    NonFiniteWatcher,
    LossCurve,
    ThreadErrors,
    LineMemory,
    Reductions,
    LostLosses,
    CutOutputs,
    HalfOptimizers,
    HalfSums,
    VanishedConstants,
    RoundedPositions,
    Poison,
    AutocastWatcher,
    ScalerWatcher,
    ForecastWatcher,
    AmpWatcher,
    Crossings,
    CacheWatcher,
    PairTables,
    NormalisedLosses,
    Attention,
    OutOfMemoryWatcher,
    DeviceErrors,
    CarriedGraphs,
    Ownership,
    SmallerBatches,
    DiscardedMoves,
    Checkpoints,
    OwnWeightsLoaded,
    EarlySchedules,
    TrainModePasses,
    StuckModes,
    UpdatedLines,
    MicroBatches,
)
"""In the order in which they are told. A watcher's first docstring line names what is unchecked where it fails."""

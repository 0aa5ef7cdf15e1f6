"""What a dry run does not judge."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from torchvet.recording.records.training import Unchecked
from torchvet.simulate.dry import bounds, files, paths, values

if TYPE_CHECKING:
    from torchvet.probes.dry.sizing import Sizing

_WHY = "the run was dry (--dry): numbers on the device were not worked out"
_MADE_UP = (
    "those read from the device were made up: 1 for floating-point numbers, 0 for integers, and all finite; "
    "what it printed or logged of them means nothing"
)
_WROTE_NOTHING = "it wrote nothing: what it was given is gone with the run"
_HELD_BACK = "it was held back: the files are as before"
_FORGOTTEN = "the history of the allocator holds so many events; {:,} older ones were forgotten"
_NOT_TO_ITS_END = "the program did not come to the end of such a step"
_WENT_ON = "the run went on as if the card had room, so that all of the step could be sized"


def _calls(name: str, calls: int) -> str:
    return f"{name}, called {calls} times" if calls > 1 else name


def waited(sizing: Sizing) -> Iterator[Unchecked]:
    """Why nothing was sized, or why the run was ended."""
    place, reads = sizing.waiting.ended, sizing.waiting.reads
    if sizing.size is None and place is None:
        yield Unchecked(
            check="the size of a step",
            reason="the program put nothing on the simulated GPU: is there an option of its own that makes it use one?",
        )
    if place is not None:
        yield Unchecked(
            check="what comes after the program waits for a number",
            reason=f"{place.path}:{place.line} read numbers {reads:,} times with no training in between; what is read "
            "in a dry run is made up and always the same, so the run was ended",
        )


def gaps(sizing: Sizing) -> Iterator[Unchecked]:
    """In the order of what matters."""
    size, taken = sizing.size, ", ".join(sorted(bounds.taken))
    for holds, check, reason in (
        (True, "all that goes by numbers: NaN, losses, scalers, device-side asserts", _WHY),
        (True, "leaks, evaluation, transfers and times", "a dry run sizes a few steps and measures nothing else"),
        (values.read, "what the program does by numbers that it reads", _MADE_UP),
        (taken, f"sizes that numbers decide ({taken})", "each was taken as large as it can be: an upper bound"),
        *((n, _calls(name, n), _WROTE_NOTHING) for name, n in files.skipped.items()),
        *((n, f"{_calls(name, n)}, of checkpoints", _HELD_BACK) for name, n in paths.kept_back.items()),
        (
            sizing.lost,
            "all of the peak by module and by line",
            _FORGOTTEN.format(sizing.lost),
        ),
        *((what, f"a step with {what}", _NOT_TO_ITS_END) for what in sizing.failed),
        (sizing.late, "steps with more things changed", f"{sizing.seconds:.0f} s of trying were over"),
        (size and size.ran_out, "what the program does when memory has run out", _WENT_ON),
        (size and size.kind != "training", "other batch sizes and checkpointing", "no optimizer step was seen"),
    ):
        if holds:
            yield Unchecked(check=check, reason=reason)

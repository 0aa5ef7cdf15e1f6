"""What a dry run does not judge."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from torchvet.recording.records.training import Unchecked
from torchvet.simulate.dry import bounds, files, paths, values

if TYPE_CHECKING:
    from torchvet.probes.dry.sizing import Sizing

_WHY = "the run was dry (--dry): numbers on the device were not worked out"


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
    yield Unchecked(check="all that goes by numbers: NaN, losses, scalers, device-side asserts", reason=_WHY)
    yield Unchecked(
        check="leaks, evaluation, transfers and times", reason="a dry run sizes a few steps and measures nothing else"
    )
    if values.read:
        yield Unchecked(
            check="what the program does by numbers that it reads",
            reason="those read from the device were made up: 1 for floating-point numbers, 0 for integers, and all "
            "finite; what it printed or logged of them means nothing",
        )
    if bounds.taken:
        named = ", ".join(sorted(bounds.taken))
        yield Unchecked(
            check=f"sizes that numbers decide ({named})", reason="each was taken as large as it can be: an upper bound"
        )
    for name, calls in files.skipped.items():
        yield Unchecked(check=_calls(name, calls), reason="it wrote nothing: what it was given is gone with the run")
    for name, calls in paths.kept_back.items():
        yield Unchecked(
            check=f"{_calls(name, calls)}, of checkpoints", reason="it was held back: the files are as before"
        )
    if sizing.lost:
        yield Unchecked(
            check="all of the peak by module and by line",
            reason=f"the history of the allocator holds so many events; {sizing.lost:,} older ones were forgotten",
        )
    for what in sizing.failed:
        yield Unchecked(check=f"a step with {what}", reason="the program did not come to the end of such a step")
    if sizing.late:
        yield Unchecked(check="steps with more things changed", reason=f"{sizing.seconds:.0f} s of trying were over")
    if sizing.size is not None and sizing.size.ran_out:
        yield Unchecked(
            check="what the program does when memory has run out",
            reason="the run went on as if the card had room, so that all of the step could be sized",
        )
    if sizing.size is not None and sizing.size.kind != "training":
        yield Unchecked(check="other batch sizes and checkpointing", reason="no optimizer step was seen")

"""Whether a trace can be believed, looked at before anything is made of it."""

from __future__ import annotations

from torchvet.formatting import binary
from torchvet.readers.blocks import MOST
from torchvet.readers.kineto import TraceFile
from torchvet.readers.trace_facts import Note
from torchvet.traces.timeline import Timeline
from torchvet.traces.window import EARLY, FAR, Window

_TRUSTED = 0.01


def launched_backwards(timeline: Timeline) -> tuple[int, int]:
    """How many pieces of work begin before they were launched, of how many whose launch is known."""
    early = known = 0
    for work in timeline.work:
        call = timeline.launches.get(work.correlation)
        if call is not None:
            known += 1
            early += work.start < call.start - EARLY
    return early, known


def check(file: TraceFile, timeline: Timeline, window: Window | None) -> tuple[bool, list[Note]]:
    """Whether host and device times can be set against each other, and what is to be said of the file."""
    # All reasons for idle time set host times against device times: with clocks that disagree each would be wrong.
    notes = _of_file(file)
    early, known = launched_backwards(timeline)
    partly = file.cut or file.stopped
    trusted = early <= _TRUSTED * known and not (partly and timeline.work)
    if partly and timeline.work:  # the host's events often come first: the steps are there, their kernels are not
        notes.append(
            Note("why the device was idle", "the file was not read to its end: work of the device may be missing")
        )
    if early:
        doubt = "so why the device was idle is not judged" if not trusted else "these are few and were kept"
        notes.append(
            Note("the clocks of host and device", f"{early:,} of {known:,} kernels begin before their launch: {doubt}")
        )
    if timeline.work and not known:
        trusted = False
        notes.append(
            Note("why the device was idle", "no kernel has a launch with its correlation (was the host not recorded?)")
        )
    if timeline.odd:
        notes.append(Note("some durations", f"{timeline.odd:,} events have impossible times; they count as nothing"))
    off = _off_the_steps(timeline, window)
    if off > FAR:
        trusted = False
        notes.append(Note("the device's time", f"its work lies {off / 1e6:,.0f} s off the steps: another clock"))
    return trusted, notes


def _off_the_steps(timeline: Timeline, window: Window | None) -> float:
    """Microseconds between the steps and the device's work, where these do not overlap."""
    if window is None or not timeline.work:
        return 0.0
    return max(window.start - max(w.end for w in timeline.work), min(w.start for w in timeline.work) - window.end)


def _of_file(file: TraceFile) -> list[Note]:
    notes = []
    if file.stopped:
        most = f"the file unpacks to more than {binary(MOST)} and was read to there"
        notes.append(Note("the rest of the trace", f"{most}; record fewer steps, or unpack the file first"))
    elif file.cut:
        notes.append(Note("the end of the trace", "the file ends in the middle; what was there was looked at"))
    if file.lost:
        notes.append(Note("some events", f"{file.lost:,} of {file.lost + file.events:,} events could not be read"))
    if file.repaired and not file.cut:
        notes.append(Note("the file as it is", "it is no valid JSON (nan, inf, stray bytes); it was read all the same"))
    if file.parts > 1:
        notes.append(Note("each part by itself", f"the file holds {file.parts} traces in a row; read as one"))
    return notes

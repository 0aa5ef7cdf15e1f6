"""Loops whose batches are read row by row from tensors in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchvet.recording.records.timing import RowsOneByOne
from torchvet.rules.kit import Place, RankRecording

if TYPE_CHECKING:
    from torchvet.analysis.host_work import Work


def rows_read_at(rank: RankRecording, site: Place) -> RowsOneByOne | None:
    """What reading rows one by one was measured to take, where the loop on this line does and one index is faster."""
    timed = (r for r in rank.all(RowsOneByOne) if (r.place.path, r.place.line) == (site.path, site.line))
    return next((r for r in timed if r.at_once < r.each), None)


def collected_for(work: Work, works: list[Work]) -> list[Work]:
    """The automatic collections on the line of a loop: in such a loop they run for the objects of single rows."""
    from torchvet.analysis.host_work import AUTOMATIC

    at = work.site.path, work.site.line
    return [one for one in works if one.kind == AUTOMATIC and (one.site.path, one.site.line) == at]

"""Rows as CSV and as JSON Lines.

CSV holds one table: the blocks of a snapshot, the costs of a trace, the lines of a run. A row is one line, what is not
known an empty cell.
Text is written as it is: a cell that begins with `=` is a formula to a spreadsheet, and none to DuckDB or pandas. JSON
Lines hold all tables; `table` names each row's.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, TextIO

from torchvet.exporting.plain import plain, to_json

if TYPE_CHECKING:
    from torchvet.finding import Report
    from torchvet.readers.trace_facts import RankTrace
    from torchvet.recording import Recording
    from torchvet.snapshots.memory import SnapshotMemory


class Csv:
    """One table with a line of column names."""

    def __init__(self, stream: TextIO) -> None:
        self._writer = csv.writer(stream, lineterminator="\n")
        self._begun = False

    def snapshot(self, rank: int, memory: SnapshotMemory) -> None:
        """The blocks in use at each device's peak."""
        from torchvet.exporting.block_rows import BLOCKS, block_rows

        self._add(BLOCKS, block_rows(rank, memory))

    def trace(self, rank: RankTrace) -> None:
        """The costs."""
        from torchvet.exporting.cost_rows import COSTS, cost_rows

        self._add(COSTS, cost_rows(rank))

    def recording(self, recording: Recording) -> None:
        """The lines that the steps' time went to."""
        from torchvet.exporting.line_rows import LINES, line_rows

        self._add(LINES, line_rows(recording))

    def finish(self, report: Report) -> None:
        """Nothing comes last."""

    def _add(self, columns: tuple[str, ...], rows: Iterable[dict[str, Any]]) -> None:
        if not self._begun:
            self._writer.writerow(columns)
            self._begun = True
        for row in rows:
            self._writer.writerow([_cell(row[name]) for name in columns])


class JsonLines:
    """An object a line."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def snapshot(self, rank: int, memory: SnapshotMemory) -> None:
        """The tables `blocks` and `growth`."""
        from torchvet.exporting.block_rows import block_rows, growth_rows

        for row in block_rows(rank, memory):
            self._add("blocks", row)
        for row in growth_rows(rank, memory):
            self._add("growth", row)

    def trace(self, rank: RankTrace) -> None:
        """The tables `costs`, `steps`, `phases` and `activities`."""
        from torchvet.exporting.cost_rows import cost_rows, other_rows

        for row in cost_rows(rank):
            self._add("costs", row)
        for table, row in other_rows(rank):
            self._add(table, row)

    def recording(self, recording: Recording) -> None:
        """The tables `lines` and `run_steps`."""
        from torchvet.exporting.line_rows import line_rows, run_step_rows

        for row in line_rows(recording):
            self._add("lines", row)
        for row in run_step_rows(recording):
            self._add("run_steps", row)

    def finish(self, report: Report) -> None:
        """Nothing comes last."""

    def _add(self, table: str, row: dict[str, Any]) -> None:
        values = {name: plain(value) if isinstance(value, str) else value for name, value in row.items()}
        self._stream.write(to_json({"table": table, **values}) + "\n")


def _cell(value: Any) -> Any:
    if isinstance(value, bool):
        return "true" if value else "false"
    return plain(value) if isinstance(value, str) else value

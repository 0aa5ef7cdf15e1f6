"""docs/exports.md says what the tables hold: every table, its columns in order, their types, what may be empty."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from exporting_by_hand import REAL, memory_of, real, rows, run
from making_snapshots import BACKWARD, MB, Recorder, Training
from trace_building import Program, step

from torchvet.exporting.block_rows import BLOCKS
from torchvet.exporting.cost_rows import COSTS
from torchvet.exporting.line_rows import LINES
from torchvet.readers.trace_facts import IDLE, PHASES, RankTrace
from torchvet.snapshots.memory import SnapshotMemory
from torchvet.traces.digest import digest

PAGE = Path(__file__).resolve().parents[2] / "docs" / "exports.md"
TYPES: dict[str, tuple[type, ...]] = {"integer": (int,), "number": (int, float), "text": (str,), "boolean": (bool,)}


class Column(NamedTuple):
    """A line of a table of the page."""

    name: str
    types: tuple[type, ...]
    empty: bool
    meaning: str


def documented() -> dict[str, list[Column]]:
    """The page's tables."""
    found: dict[str, list[Column]] = {}
    for section in PAGE.read_text("utf-8").split("\n## ")[1:]:
        lines = re.findall(r"^\| `(\w+)` \| (\w+) \| (yes|no) \| (.+) \|$", section, re.MULTILINE)
        found[section.split("\n")[0]] = [
            Column(name, TYPES[kind], empty == "yes", said) for name, kind, empty, said in lines
        ]
    return found


def snapshot() -> SnapshotMemory:
    """A leak; blocks of a backward pass at the peak."""
    training = Training(Recorder())
    for _ in range(12):
        training.step(leak=1000)
    training.recorder.alloc(900 * MB, BACKWARD)
    return memory_of(training.recorder)


def waiting(program: Program) -> None:
    program.load(30_000)
    step(program)
    with program.function("train.py(12): log_loss"):
        program.item()
        program.copy("HtoD", 6_000, 100_000_000)


@pytest.fixture
def trace(tmp_path: Path) -> RankTrace:
    return digest(Program().train(4, waiting).write(tmp_path / "trace.json"))


def test_every_table_and_its_columns_in_order(trace: RankTrace) -> None:
    written: dict[str, tuple[str, ...]] = {}
    for row in [*rows(".jsonl", snapshot()), *rows(".jsonl", trace), *rows(".jsonl", run())]:
        names = tuple(name for name in row if name != "table")
        assert written.setdefault(row["table"], names) == names
    page = {table: tuple(c.name for c in columns) for table, columns in documented().items()}
    assert page == written
    assert page["blocks"] == BLOCKS and page["costs"] == COSTS and page["lines"] == LINES


def test_types_and_what_may_be_empty(trace: RankTrace) -> None:
    page = documented()
    emptied: set[tuple[str, str]] = set()
    given = [
        *rows(".jsonl", snapshot()),
        *rows(".jsonl", trace),
        *rows(".jsonl", run()),
        *(r for path in REAL for r in rows(".jsonl", real(path))),
    ]
    for row in given:
        for column in page[row["table"]]:
            value: Any = row[column.name]
            if value is None:
                assert column.empty, (row["table"], column.name)
                emptied.add((row["table"], column.name))
            else:
                assert type(value) in column.types, (row["table"], column)
    assert {("blocks", "step"), ("blocks", "event"), ("blocks", "bytes"), ("blocks", "line")} <= emptied


def test_words_that_are_listed_are_all_there_are(trace: RankTrace) -> None:
    page = {(table, c.name): c.meaning for table, columns in documented().items() for c in columns}
    for path in REAL:
        for row in rows(".csv", real(path)):
            assert row["category"].removesuffix(" (older)") in page["blocks", "category"]
            assert row["phase"] in page["blocks", "phase"]
    for row in rows(".csv", trace):
        assert row["kind"] in page["costs", "kind"]
    assert all(phase in page["phases", "phase"] for phase in PHASES)
    activities = {r["activity"] for r in rows(".jsonl", trace) if r["table"] == "activities"}
    assert activities <= {"compute", "communication", "copies", *(f"idle: {reason}" for reason in IDLE)}

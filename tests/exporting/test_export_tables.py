"""Tables: a row a block, sums that agree with the report, and no text that breaks a row."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest
from exporting_by_hand import DATA, REAL, chrome, export, memory_of, real, rows, speedscope
from hypothesis import given, settings
from hypothesis import strategies as st
from making_snapshots import MB, Recorder, Training, frame

from torchvet.exporting.block_rows import BLOCKS
from torchvet.exporting.cost_rows import COSTS
from torchvet.exporting.plain import plain
from torchvet.readers.trace_facts import Cost, RankTrace, Steps, Where
from torchvet.snapshots.memory import SnapshotMemory
from torchvet.traces.digest import digest


@pytest.mark.parametrize("path", REAL, ids=lambda p: p.stem)
def test_a_row_a_block_adds_up_to_the_peak(path: Path) -> None:
    memory = real(path)
    peak = memory.devices[0].peak
    found = rows(".csv", memory)
    assert tuple(found[0]) == BLOCKS and len(found) == len(peak.blocks) + len(peak.older)
    assert sum(int(r["requested_bytes"]) for r in found) == peak.bytes
    by_category: dict[str, int] = {}
    for row in found:
        by_category[row["category"]] = by_category.get(row["category"], 0) + int(row["requested_bytes"])
    assert by_category == peak.by_category
    assert all(int(r["bytes"]) >= int(r["requested_bytes"]) for r in found if r["bytes"])


@pytest.mark.parametrize("path", REAL, ids=lambda p: p.stem)
def test_both_forms_say_the_same(path: Path) -> None:
    memory = real(path)
    lines = [r for r in rows(".jsonl", memory) if r["table"] == "blocks"]
    table = rows(".csv", memory)
    written = {True: "true", False: "false", None: ""}
    for line, row in zip(lines, table, strict=True):
        assert set(line) == {"table", *BLOCKS}
        assert {k: written.get(line[k], str(line[k])) if not isinstance(line[k], int) or isinstance(line[k], bool)
                else str(line[k]) for k in BLOCKS} == row  # fmt: skip


def test_lines_stacks_and_ages() -> None:
    recorder = Recorder()
    training = Training(recorder)
    for _ in range(10):
        training.step(leak=MB)
    memory = memory_of(recorder)
    found = rows(".jsonl", memory)
    kept = [r for r in found if r["table"] == "blocks" and r["function"] == "log_outputs"]
    assert {(r["file"], r["line"]) for r in kept} == {("train.py", 61)}
    assert {r["stack"] for r in kept} == {"main (train.py:90);train_step (train.py:84);log_outputs (train.py:61)"}
    peak_step = memory.devices[0].phases.step(memory.devices[0].peak.at)
    assert [(r["step"], r["age_steps"]) for r in kept] == [(n, peak_step - n) for n in range(peak_step + 1)]
    (grown,) = [r for r in found if r["table"] == "growth"]
    assert grown["bytes_per_step"] == MB and grown["line"] == 61


def test_ranks_are_a_column() -> None:
    found = rows(".csv", real(REAL[1]), real(REAL[1]))
    assert {r["rank"] for r in found} == {"0", "1"} and len(found) % 2 == 0


def test_what_is_older_has_no_step() -> None:
    older = [r for r in rows(".jsonl", real(REAL[0])) if r["table"] == "blocks" and r["event"] is None]
    assert older and {(r["step"], r["age_steps"], r["file"]) for r in older} == {(None, None, None)}


def test_a_trace_is_a_row_a_cost() -> None:
    rank = digest(DATA / "traces" / "cpu_collector.json.gz")
    (row,) = rows(".csv", rank)
    assert tuple(row) == COSTS and (row["kind"], row["function"], row["exact"]) == (
        "collector",
        "collect_garbage",
        "false",
    )
    assert rank.collector is not None and float(row["seconds_per_step"]) == rank.collector.seconds
    tables = {r["table"] for r in rows(".jsonl", rank)}
    assert tables == {"costs", "steps", "phases"}


def test_a_trace_without_costs_is_a_table_all_the_same() -> None:
    rank = digest(DATA / "traces" / "gloo_rank0.json.gz")
    assert export(".csv", rank) == ",".join(COSTS) + "\n"


def test_numbers_that_are_none_become_nothing() -> None:
    rank = RankTrace(path="a", rank=0, steps=Steps(1, 1.0, "x", [float("inf")], [0]), phases={"data": float("nan")})
    rank.syncs = [Cost("wait", seconds=float("-inf"))]
    assert {r.get("seconds_per_step", r.get("seconds")) for r in rows(".jsonl", rank)} == {0.0}


ODD = "\x00\n\r\t\x1b\",;=\\'\u2028\u2029\x85\ufeff\ud800\U0010ffff"
HOSTILE = st.text(st.characters() | st.sampled_from(ODD), max_size=12)


def hostile(name: str, path: str) -> SnapshotMemory:
    recorder = Recorder()
    recorder.alloc(3 * MB, [frame(path, 4, name), frame("b.py", 5, "main")])
    recorder.alloc(MB, [frame(path + ".py", 4, name), frame("b.py", 5, "main")])
    return memory_of(recorder)


@settings(max_examples=150, deadline=None)
@given(HOSTILE, HOSTILE)
def test_no_name_of_a_snapshot_breaks_a_form(name: str, path: str) -> None:
    memory = hostile(name, path)
    for ending in (".csv", ".jsonl"):
        found = rows(ending, memory)
        assert sum(int(r["requested_bytes"]) for r in found) == 4 * MB
        assert all(r["stack"].count(";") <= 1 for r in found)
    assert speedscope(memory)["profiles"][0]["endValue"] == 4 * MB
    chrome(memory)


@settings(max_examples=100, deadline=None)
@given(HOSTILE, HOSTILE, st.floats() | st.floats(0, 1))
def test_no_name_of_a_trace_breaks_a_form(name: str, path: str, seconds: float) -> None:
    rank = RankTrace(path=path, phases={name: seconds})
    rank.syncs = [Cost(name, seconds=seconds, phase=path, where=Where(name, path, 3))]
    (row,) = rows(".csv", rank)
    assert row["function"] == plain(name) and row["path"] == plain(path)
    assert {r["table"] for r in rows(".jsonl", rank)} == {"costs", "phases"}
    speedscope(rank)


@settings(max_examples=200, deadline=None)
@given(HOSTILE)
def test_plain_text_is_one_line_of_utf8(text: str) -> None:
    cleaned = plain(text)
    assert len(f"{cleaned}|".splitlines()) == 1 and "\x00" not in cleaned
    cleaned.encode("utf-8")
    assert plain("naïve λ = 'x', \"y\"; C:\\dir") == "naïve λ = 'x', \"y\"; C:\\dir"


def test_a_cell_that_looks_like_a_formula_is_text_as_it_was() -> None:
    text = export(".csv", hostile("=1+1", "=cmd|' /C calc'!A0"))
    found = list(csv.DictReader(io.StringIO(text, newline="")))
    assert found[1]["function"] == "=1+1"

"""Traces of every kind are read, damaged ones as far as they go, and what is none is refused with a reason."""

from __future__ import annotations

import gzip
import json
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from torchvet.errors import BadInput
from torchvet.readers import blocks
from torchvet.readers.kineto import TraceFile, looks_like

EVENT = {"ph": "X", "cat": "cpu_op", "name": "aten::add", "pid": 1, "tid": 1, "ts": 10.5, "dur": 2.0,
         "args": {"External id": 7, "Input Dims": [[2, 3], []]}}  # fmt: skip


def trace(number: int = 3, **around: Any) -> str:
    return json.dumps({"schemaVersion": 1, **around, "traceEvents": [{**EVENT, "ts": float(n)} for n in range(number)]})


def read(path: Path, data: str | bytes) -> TraceFile:
    """The file, read through; `events` counts what was found."""
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    file = TraceFile(path)
    assert sum(len(b) for b in file.batches()) == file.events
    return file


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "trace.json"


def test_a_trace_and_its_header_are_read(path: Path) -> None:
    file = read(path, trace(3, with_stack=1, distributedInfo={"backend": "nccl", "rank": 2, "world_size": 4}))
    assert (file.events, file.parts, file.lost, file.cut, file.repaired) == (3, 1, 0, False, False)
    assert file.header.with_stack == 1
    assert file.header.distributed is not None and file.header.distributed.rank == 2


def test_what_stands_after_the_events_counts_too(path: Path) -> None:
    text = trace()[:-1] + ', "profile_memory": 1, "traceName": "x"}'
    assert read(path, text).header.profile_memory == 1


@pytest.mark.parametrize("indent", [None, 0, 2])
def test_white_space_does_not_matter(path: Path, indent: int | None) -> None:
    assert read(path, json.dumps(json.loads(trace(5)), indent=indent)).events == 5


def test_a_bare_array_is_a_trace_closed_or_not(path: Path) -> None:
    text = json.dumps([EVENT] * 4)
    assert read(path, text).events == 4
    file = read(path, text[:-1])
    assert file.events == 4 and file.cut


def test_gzip_in_one_piece_or_several(path: Path) -> None:
    data = trace(100).encode()
    assert read(path, gzip.compress(data)).events == 100
    assert read(path, gzip.compress(data[:300]) + gzip.compress(data[300:])).events == 100


def test_traces_one_after_the_other(path: Path) -> None:
    file = read(path, trace(3) + "\n" + trace(4) + trace(5))
    assert (file.events, file.parts) == (12, 3)


def test_blocks_fall_anywhere(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Boundaries within strings and deeper objects are none, whatever the block's size."""
    nasty = {**EVENT, "name": 'a}, {"ph": b', "args": {"x": [{"y": 1}, {"y": 2}], "z": "}]"}}
    text = json.dumps({"traceEvents": [EVENT, nasty] * 20, "more": [{"a": 1}, {"b": 2}]})
    for size in (7, 64, 257, 1000, 10_000):
        monkeypatch.setattr(blocks, "BLOCK", size)
        file = read(path, text)
        assert (file.events, file.lost, file.cut) == (40, 0, False), size


def test_a_file_that_is_cut_off_is_read_as_far_as_it_goes(path: Path) -> None:
    text = trace(50)
    ends = [n for n in range(len(text)) if text[: n + 1].endswith("}}")]
    for cut in range(text.index("[") + 2, len(text) - 2, 37):
        file = read(path, text[:cut])
        assert file.cut
        assert file.events == sum(end < cut for end in ends)


def test_compressed_data_that_is_cut_off(path: Path) -> None:
    packed = gzip.compress(trace(2000).encode())
    file = read(path, packed[: len(packed) // 2])
    assert file.cut and 100 < file.events < 2000


@pytest.mark.parametrize("value", ["nan", "NaN", "-nan", "inf", "Infinity", "-Infinity", "nan(ind)"])
def test_numbers_that_are_none(path: Path, value: str) -> None:
    text = trace(3).replace('"External id": 7', f'"memory bandwidth (GB/s)": {value}, "External id": 7')
    file = read(path, text)
    assert (file.events, file.lost, file.repaired) == (3, 0, True)


def test_stray_bytes_and_backslashes(path: Path) -> None:
    data = trace(3).encode().replace(b"aten::add", b"C:\\Users\\\xff\xfe\x01.py")
    file = read(path, data)
    assert (file.events, file.lost, file.repaired) == (3, 0, True)


def test_an_event_that_is_none_is_counted_and_left_out(path: Path) -> None:
    text = trace(5).replace('"ts": 2.0', '"ts": [2.0]').replace('"ts": 3.0', '"ts": {"a": }')
    file = read(path, text)
    assert (file.events, file.lost) == (3, 2)


def test_deep_nesting_costs_one_event(path: Path) -> None:
    deep = "[" * 100_000 + "]" * 100_000
    file = read(path, trace(3).replace("[[2, 3], []]", deep, 1))
    assert (file.events, file.lost) == (2, 1)


@pytest.mark.parametrize(
    "text", ["", "{}", "[]", "null", "[1, 2]", '{"lr": 0.1}', "not json", "\x00\x01", '{"a": [{"b": 1}]}']
)
def test_what_is_no_trace_is_refused(path: Path, text: str) -> None:
    with pytest.raises(BadInput, match="no profiler trace"):
        read(path, text)
    assert not looks_like(text.encode())


def test_what_cannot_be_opened_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path / "none.json", tmp_path):
        with pytest.raises(BadInput, match="cannot be read"):
            list(TraceFile(path).batches())


def test_a_trace_without_events_is_one(path: Path) -> None:
    assert read(path, '{"schemaVersion": 1, "traceEvents": []}').events == 0
    assert read(path, '{"traceEvents": [\n  ],\n "a": 1}').events == 0


@pytest.mark.parametrize("filling", [b" ", b'{"ph": "' + b" " * 1000 + b'"},'])
def test_a_bomb_is_refused_in_bounded_memory(path: Path, filling: bytes) -> None:
    head = trace(1)[:-2].encode() + b","
    path.write_bytes(gzip.compress(head + filling * ((100 << 20) // len(filling)), 9))
    tracemalloc.start()
    with pytest.raises(BadInput, match=r"unpack to more than|no event ends within"):
        for _ in TraceFile(path).batches():
            pass
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100 << 20


def test_a_string_without_end_is_refused_in_bounded_memory(path: Path) -> None:
    path.write_bytes(trace(1)[:-2].encode() + b', {"ph": "' + b"x" * (20 << 20))
    with pytest.raises(BadInput, match="no event ends"):
        list(TraceFile(path).batches())


def test_what_looks_like_a_trace() -> None:
    assert looks_like(trace().encode())
    assert looks_like(gzip.compress(trace().encode()))
    assert looks_like(b'\xef\xbb\xbf {"deviceProperties": [')
    assert looks_like(json.dumps([EVENT]).encode())
    assert not looks_like(b"\x80\x04\x95")
    assert not looks_like(gzip.compress(b"\x80\x04\x95"))
    assert not looks_like(b'{"schema": "torchvet.report/1"}')
    assert not looks_like(b"\x1f\x8bnonsense")

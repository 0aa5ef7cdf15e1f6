"""Hostile pickles: refused with a reason, in bounded memory and time, and nothing of theirs runs."""

from __future__ import annotations

import io
import os
import pickle
import struct
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from torchvet.errors import BadInput
from torchvet.readers.conversion import snapshot_of
from torchvet.readers.isolated import read_snapshot
from torchvet.readers.pickles import load_plain

DATA = Path(__file__).resolve().parents[1] / "data"
REAL = (DATA / "silmont.pickle").read_bytes()
HEAD = b"\x80\x04"


class Runs:
    """Unpickling this makes a file, where it is allowed to."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.path),)


def refused(data: bytes, path: Path, seconds: float = 30) -> str:
    """The reason for which a file is refused."""
    path.write_bytes(data)
    started = time.monotonic()
    with pytest.raises(BadInput) as said:
        read_snapshot(path)
    assert time.monotonic() - started < seconds
    assert str(said.value).startswith(str(path))
    return str(said.value)


def test_no_code_runs(tmp_path: Path) -> None:
    planted = tmp_path / "planted"
    assert "could run code" in refused(pickle.dumps(Runs(planted)), tmp_path / "a")
    assert not planted.exists()
    pickle.loads(pickle.dumps(Runs(planted)))
    assert planted.exists(), "this test can fail"


@pytest.mark.parametrize(
    "name", [b"cbuiltins\neval\n.", b"\x8c\x08builtins\x8c\x04eval\x93.", b"\x82\x01.", b"Pabc\n."]
)
def test_no_global_is_found(name: bytes, tmp_path: Path) -> None:
    refused(HEAD + name, tmp_path / "a")


def test_a_reference_outside_the_file_is_refused(tmp_path: Path) -> None:
    assert "refers to objects outside" in refused(HEAD + b"K\x01Q.", tmp_path / "a")


HARMFUL = {
    "memo of 32 GiB": HEAD + b"}r" + struct.pack("<I", 0xFFFFFFFF) + b".",
    "memo of 4 GiB": HEAD + b"}r" + struct.pack("<I", 1 << 28) + b".",
    "bytes of 10 GB": HEAD + b"\x8e" + struct.pack("<Q", 10**10) + b"abc",
    "bytearray of 2**62": HEAD + b"\x96" + struct.pack("<Q", 1 << 62) + b"abc",
    "text of 10 GB": HEAD + b"\x8d" + struct.pack("<Q", 10**10) + b"abc",
    "frame of 10 GB": HEAD + b"\x95" + struct.pack("<Q", 10**10) + b"}.",
    "lists in lists": HEAD + b"]" * 1_000_000 + b"a" * 999_999 + b".",
    "hash of nested tuples": HEAD + b"}(" + b")" + b"\x85" * 1_000_000 + b"Nu.",
    "many empty sets": HEAD + b"](" + b"\x8f" * 3_000_000 + b"e.",
    "a long number": HEAD + b"I" + b"9" * 300_000 + b"\n.",
    "nothing": HEAD + b".",
    "an unknown opcode": HEAD + b"\xff.",
    "a set": pickle.dumps({1, 2}),
    "None": pickle.dumps(None),
}


@pytest.mark.parametrize("kind", HARMFUL)
def test_harm_by_size_is_bounded(kind: str, tmp_path: Path) -> None:
    refused(HARMFUL[kind], tmp_path / "a")


def test_few_objects_told_as_billions(tmp_path: Path) -> None:
    event = {"action": "alloc", "addr": 1, "size": 1, "stream": 0, "frames": []}
    trace = [event] * 100_000
    told = {"segments": [], "device_traces": [trace] * 4000}
    assert "rows" in refused(pickle.dumps(told), tmp_path / "a")


def test_colliding_keys_end_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from torchvet.readers import isolated

    monkeypatch.setattr(isolated, "_SECONDS", 2)
    modulus = (1 << 61) - 1
    body = b"".join(b"\x8a\x0a" + (n * modulus).to_bytes(10, "little", signed=True) + b"N" for n in range(1, 60_000))
    refused(HEAD + b"}(" + body + b"u.", tmp_path / "a", seconds=60)


@pytest.mark.parametrize("share", [0.001, 0.3, 0.9, 0.999])
def test_a_file_that_was_cut_off(share: float, tmp_path: Path) -> None:
    reason = refused(REAL[: int(len(REAL) * share)], tmp_path / "a").removeprefix(str(tmp_path))
    assert "ends in the middle" in reason


@pytest.mark.parametrize("data", [b"", b"{}", b"PK\x03\x04rest", b"\x80"])
def test_files_that_are_something_else(data: bytes, tmp_path: Path) -> None:
    refused(data, tmp_path / "a")


def test_paths_that_are_no_file(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none"):
        with pytest.raises(BadInput, match=path.name):
            read_snapshot(path)


def parse(data: bytes) -> None:
    """Read in this process: for data that is bounded by its own size."""
    snapshot_of(load_plain(io.BytesIO(data)), "a", len(data))


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.binary(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=9), inner, max_size=4),
    max_leaves=12,
)
keys = st.sampled_from(
    ["segments", "device_traces", "blocks", "frames", "address", "size", "total_size", "action", "addr", "state",
     "history", "filename", "line", "name", "stream", "external_annotations", "stage", "time_us", "allocator_settings"]
)  # fmt: skip
shaped = st.recursive(plain, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=6))


@given(shaped)
@settings(max_examples=100)
def test_any_plain_object_is_read_or_refused(value: Any) -> None:
    for told in (value, {"segments": value}, {"segments": [], "device_traces": value}, {"segments": [value]}):
        try:
            parse(pickle.dumps(told))
        except BadInput:
            continue


@given(st.integers(0, len(REAL) - 1), st.binary(min_size=1, max_size=4))
@settings(max_examples=100)
def test_a_real_file_with_changed_bytes_is_read_or_refused(at: int, change: bytes) -> None:
    if b"r" in change or b"j" in change or change[0] in b"\x8d\x8e\x96":
        return  # may claim memory by the gigabyte: such files are read in a process of their own, above
    try:
        parse(REAL[:at] + change + REAL[at + len(change) :])
    except BadInput:
        pass

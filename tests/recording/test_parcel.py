"""The records of another host: what is sent comes back as it was, and nothing else is ever written."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from torchvet.errors import BadInput
from torchvet.recording import parcel
from torchvet.recording.parcel import pack, unpack

NAMES = {
    "rank2.jsonl": b'{"k":"step"}\n' * 5000,
    "rank2.child1.jsonl": b"{}\n",
    "rank3.jsonl": bytes(range(256)),
    "rank3.last": b"17 2\n",
    "rank3.fault": b"Fatal Python error\n",
}


@pytest.fixture
def sent(tmp_path: Path) -> Path:
    """A host's folder."""
    folder = tmp_path / "sent"
    folder.mkdir()
    for name, content in NAMES.items():
        (folder / name).write_bytes(content)
    (folder / "rank2.fault").touch()
    for other in ("manifest.json", "rank1.jsonl", "host.local0.lock", "rank2.pickle"):
        (folder / other).write_bytes(b"other")
    return folder


@pytest.fixture
def here(tmp_path: Path) -> Path:
    folder = tmp_path / "here"
    folder.mkdir()
    return folder


def made(*files: tuple[Any, bytes]) -> bytes:
    """A parcel by hand: heads as they are given, each with its bytes."""
    return gzip.compress(b"".join(json.dumps(head).encode() + b"\n" + content for head, content in files))


def test_files_come_as_they_were_and_no_others(sent: Path, here: Path) -> None:
    parcel = pack(sent, {2, 3})
    assert len(parcel) < 1000, "compressed"
    assert unpack(parcel, here, {0, 2, 3}) == [2, 3]
    assert {file.name: file.read_bytes() for file in here.iterdir()} == NAMES


STRANGE = ["../rank2.jsonl", "/tmp/rank2.jsonl", "rank2.jsonl/../x", "rank02.jsonl", "rank2.py", "rank2.jsonl\n", ""]


@pytest.mark.parametrize("name", [*STRANGE, "rank1.jsonl"])
def test_a_file_that_is_not_expected_is_refused_with_all_that_came(here: Path, name: str) -> None:
    bad = made(({"name": "rank2.jsonl", "size": 2}, b"{}"), ({"name": name, "size": 1}, b"x"))
    with pytest.raises(BadInput, match="not expected"):
        unpack(bad, here, {2, 3})
    assert [*here.iterdir()] == [] and not (here.parent / "rank2.jsonl").exists()


def test_no_file_is_replaced_and_no_link_followed(sent: Path, here: Path, tmp_path: Path) -> None:
    (here / "rank3.jsonl").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(BadInput, match="damaged"):
        unpack(pack(sent, {2, 3}), here, {2, 3})
    assert not (tmp_path / "elsewhere").exists() and [f.name for f in here.iterdir()] == ["rank3.jsonl"]


BROKEN = {
    "no parcel": b"cos\nsystem\n(S'x'\ntR.",
    "no head": gzip.compress(b"rank2.jsonl 4\nabcd"),
    "a number as name": made(({"name": 2, "size": 1}, b"x")),
    "a field more": made(({"name": "rank2.jsonl", "size": 1, "mode": 7}, b"x")),
    "below zero": made(({"name": "rank2.jsonl", "size": -1}, b"x")),
    "too few bytes": made(({"name": "rank2.jsonl", "size": 10}, b"x")),
    "a long head": gzip.compress(b'{"name":"rank2.jsonl","size":' + b" " * 1000 + b"1}\nx"),
    "not UTF-8": gzip.compress(b'{"name":"rank2\xff.jsonl","size":1}\nx'),
}


@pytest.mark.parametrize("how", BROKEN)
def test_what_nobody_packed_is_refused(here: Path, how: str) -> None:
    with pytest.raises(BadInput):
        unpack(BROKEN[how], here, {2, 3})
    assert [*here.iterdir()] == []


def test_every_part_of_a_parcel_is_refused(sent: Path, here: Path) -> None:
    whole = pack(sent, {2, 3})
    for end in range(1, len(whole) - 8, 7):
        with pytest.raises(BadInput):
            unpack(whole[:end], here, {2, 3})
        assert [*here.iterdir()] == []


def test_sizes_have_limits(sent: Path, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = pack(sent, {2, 3})
    monkeypatch.setattr(parcel, "MOST_UNPACKED", 1000)
    with pytest.raises(BadInput, match="too large"):
        pack(sent, {2, 3})
    with pytest.raises(BadInput, match="are too large"):
        unpack(whole, here, {2, 3})
    monkeypatch.undo()
    with pytest.raises(BadInput, match="are too large"):
        unpack(whole, here, {2, 3}, most=65_000)
    monkeypatch.setattr(parcel, "MOST_PACKED", 100)
    with pytest.raises(BadInput, match="more than"):
        unpack(whole, here, {2, 3})
    assert [*here.iterdir()] == []

"""Recordings as a stranger, or a broken disk, might hand them over: each made from a good one that lies in a folder."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

SECRET = "the reader's own secret"
"""What stands in files outside the recordings, and may be in no report."""
BIDI = "a\u202eb\x1b[31mc\x07\nd\u2066e"
HOSTILE: dict[str, Callable[[Path], None]] = {}
VALUES: list[Any] = [
    None, True, -1, 0, 1, 2**31, 2**62, 2**63, 2**70, 10**400, 0.0, 0.5, -1.5, 1e18, 1e308, "", "x", BIDI, "\ud800",
    [], {}, [[]], {"a": 1}, [1], "é" * 300,
]  # fmt: skip


def _hostile(make: Callable[[Path], None]) -> Callable[[Path], None]:
    HOSTILE[make.__name__] = make
    return make


def lines(folder: Path) -> list[dict[str, Any]]:
    """The records of the first rank, as JSON has them."""
    return [json.loads(line) for line in (folder / "rank0.jsonl").read_text("utf-8").splitlines()]


def put(folder: Path, records: list[dict[str, Any]]) -> None:
    """Write them down again."""
    (folder / "rank0.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records), "utf-8")


def secret(folder: Path) -> Path:
    """A file of the reader's, beside the recording."""
    path = folder.parent / "secret.py"
    path.write_text(f"# {SECRET}\n" * 60, "utf-8")
    return path


def mutated(folder: Path, dice: random.Random) -> None:
    """Change some values of some records to others."""
    records = lines(folder)
    for _ in range(dice.randint(1, 6)):
        _change(dice.choice(records), dice)
    put(folder, records)


def _change(node: Any, dice: random.Random) -> None:
    keys: list[Any] = list(node) if isinstance(node, dict) else list(range(len(node)))
    keys = [key for key in keys if key != "k"]
    if not keys:
        return
    key = dice.choice(keys)
    if isinstance(node[key], (dict, list)) and node[key] and dice.random() < 0.7:
        _change(node[key], dice)
    elif isinstance(node[key], (int, float)) and dice.random() < 0.7:
        node[key] = dice.choice([value for value in VALUES if isinstance(value, (int, float))])
    else:
        node[key] = dice.choice(VALUES)


def _every(folder: Path, change: Callable[[str, Any], Any]) -> None:
    """Change every value that is no list and no object."""

    def of(key: str, value: Any) -> Any:
        if isinstance(value, dict):
            return {k: of(k, v) for k, v in value.items()}
        if isinstance(value, list):
            return [of(key, v) for v in value]
        return value if key == "k" else change(key, value)

    put(folder, [of("", record) for record in lines(folder)])


@_hostile
def cut_in_the_middle(folder: Path) -> None:
    file = folder / "rank0.jsonl"
    os.truncate(file, file.stat().st_size * 2 // 3)


@_hostile
def binary(folder: Path) -> None:
    (folder / "rank0.jsonl").write_bytes(random.Random(0).randbytes(100_000))


@_hostile
def every_third_line_is_damaged(folder: Path) -> None:
    raw = (folder / "rank0.jsonl").read_bytes().splitlines(keepends=True)
    (folder / "rank0.jsonl").write_bytes(b"".join(b"\xff" + x if i % 3 == 2 else x for i, x in enumerate(raw)))


@_hostile
def huge_numbers(folder: Path) -> None:
    _every(folder, lambda _, value: 10**400 if type(value) is int else value)


@_hostile
def large_floats(folder: Path) -> None:
    _every(folder, lambda _, value: 1e308 if isinstance(value, float) else value)


@_hostile
def large_numbers(folder: Path) -> None:
    _every(folder, lambda _, value: 2**62 if type(value) is int else 1e300 if isinstance(value, float) else value)


@_hostile
def negative_numbers(folder: Path) -> None:
    _every(folder, lambda _, value: -value - 1 if type(value) in (int, float) else value)


@_hostile
def zeros(folder: Path) -> None:
    _every(folder, lambda _, value: 0 if type(value) in (int, float) else value)


@_hostile
def numbers_that_are_none(folder: Path) -> None:
    text = (folder / "rank0.jsonl").read_text("utf-8")
    (folder / "rank0.jsonl").write_text(
        text.replace('"t":', '"t":NaN,"u":').replace('"bytes":', '"bytes":Infinity,"c":')
    )


@_hostile
def deep_nesting(folder: Path) -> None:
    with (folder / "rank0.jsonl").open("a") as stream:
        stream.write('{"k":"unchecked","check":"x","reason":"y","more":' + "[" * 200_000 + "]" * 200_000 + "}\n")


@_hostile
def one_gigantic_line(folder: Path) -> None:
    with (folder / "rank0.jsonl").open("a") as stream:
        stream.write('{"k":"unchecked","check":"' + "x" * (80 << 20) + '","reason":"y"}\n')


@_hostile
def a_device_behind_a_link(folder: Path) -> None:
    (folder / "rank0.jsonl").unlink()
    (folder / "rank0.jsonl").symlink_to("/dev/zero")


@_hostile
def a_manifest_that_is_a_device(folder: Path) -> None:
    (folder / "manifest.json").unlink()
    (folder / "manifest.json").symlink_to("/dev/zero")


@_hostile
def a_link_to_a_file_outside(folder: Path) -> None:
    (folder / "rank1.jsonl").symlink_to(secret(folder))


@_hostile
def faults_behind_a_link(folder: Path) -> None:
    (folder / "rank0.fault").symlink_to("/dev/zero")
    put(folder, [r for r in lines(folder) if r["k"] != "outcome"])


@_hostile
def places_in_files_outside(folder: Path) -> None:
    path = str(secret(folder))
    _every(folder, lambda key, value: path if key == "path" else value)
    put(folder, [r for r in lines(folder) if r["k"] != "source"])


@_hostile
def a_snapshot_outside(folder: Path) -> None:
    path = str(secret(folder))
    failure = {"k": "memoryfailure", "tick": 3, "device": 0, "asked": 1, "total": 2, "free": 0, "number": 1}
    put(folder, [*lines(folder), {**failure, "snapshot": path}, {"k": "memoryhistory", "snapshot": "/dev/zero"}])
    (folder / "secret.py").symlink_to(path)
    (folder / "zero").symlink_to("/dev/zero")


@_hostile
def a_pipe(folder: Path) -> None:
    os.mkfifo(folder / "rank1.jsonl")


@_hostile
def a_folder_for_a_file(folder: Path) -> None:
    (folder / "rank1.jsonl").mkdir()


@_hostile
def a_manifest_of_another_kind(folder: Path) -> None:
    (folder / "manifest.json").write_text('{"name": "an app", "icons": [], "start_url": "/"}')


@_hostile
def a_manifest_that_is_a_list(folder: Path) -> None:
    (folder / "manifest.json").write_text("[1, 2, 3]")


@_hostile
def a_manifest_of_the_future(folder: Path) -> None:
    (folder / "manifest.json").write_text('{"format": "torchvet.recording/9"}')


@_hostile
def an_empty_manifest(folder: Path) -> None:
    (folder / "manifest.json").write_bytes(b"")


@_hostile
def ranks_that_are_there_twice(folder: Path) -> None:
    for name in ("rank00.jsonl", "rank000.jsonl", "rank0.child1.jsonl", "rank0.child01.jsonl"):
        (folder / name).write_bytes((folder / "rank0.jsonl").read_bytes())


@_hostile
def ranks_of_strange_numbers(folder: Path) -> None:
    for name in (f"rank{'9' * 200}.jsonl", "rank²³.jsonl", "rank-1.jsonl", "rank.jsonl", "rank999999999.jsonl"):
        (folder / name).write_bytes((folder / "rank0.jsonl").read_bytes())


@_hostile
def ranks_that_are_missing(folder: Path) -> None:
    member = {"k": "member", "rank": 5, "world_size": 1_000_000, "host": "h"}
    put(folder, [member, *lines(folder)])
    (folder / "rank7.jsonl").write_bytes((folder / "rank0.jsonl").read_bytes().replace(b'"rank": 5', b'"rank": 7'))


@_hostile
def no_ranks(folder: Path) -> None:
    (folder / "rank0.jsonl").unlink()


@_hostile
def wrong_types(folder: Path) -> None:
    _every(folder, lambda _, value: str(value) if type(value) in (int, float) else 7)


@_hostile
def names_that_color_and_reorder(folder: Path) -> None:
    _every(folder, lambda key, value: BIDI + str(value) if isinstance(value, str) and key != "text" else value)


@_hostile
def lines_in_another_order(folder: Path) -> None:
    records = lines(folder)
    random.Random(1).shuffle(records)
    put(folder, records)


@_hostile
def every_line_many_times(folder: Path) -> None:
    put(folder, lines(folder) * 20)


@_hostile
def a_source_without_end(folder: Path) -> None:
    _every(folder, lambda key, value: "x = [1]\n" * 2_000_000 if key == "text" else value)


@_hostile
def sources_that_are_no_python(folder: Path) -> None:
    deep = "x = " + "(" * 5000 + ")" * 5000 + "\n" + "if x:\n" + "\0"
    _every(folder, lambda key, value: deep if key == "text" else value)

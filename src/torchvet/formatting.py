"""How amounts are written for people, in messages and in reports alike.

Measured sizes are decimal, as `ls -l` counts: 1 kB = 1,000 bytes, 1 MB = 1,000 kB; one decimal from 1 kB up. Memory
limits have both units (25.8 GB = 24.0 GiB), since devices are sold in binary ones. Counts have thousands separators.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import Any

_DECIMAL = ("bytes", "kB", "MB", "GB", "TB", "PB")
_BINARY = ("bytes", "KiB", "MiB", "GiB", "TiB", "PiB")

_UNITS = {"": 1, "b": 1}
_UNITS |= {f"{prefix}b": 1000**power for power, prefix in enumerate("kmgt", 1)}
_UNITS |= {f"{prefix}ib": 1024**power for power, prefix in enumerate("kmgt", 1)}
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]*)\s*", re.IGNORECASE)

IDLE_WORDS: dict[str, str] = {
    "input": "waiting for the loader",
    "synchronisation": "after the host synchronized",
    "launch": "waiting for launches",
    "host": "for other work of the host",
    "collector": "for the garbage collector",
    "compile": "for torch.compile",
    "allocator": "allocating memory",
    "device": "between queued work",
    "profiler": "for the profiler itself",
}
"""Why a device is idle, in words that follow `idle`."""
FILE_KINDS = {"snapshot": "snapshot", "trace": "trace", "run": "recording"}
"""The kinds of files that are read, as a report's subject has them, in words."""


def size(amount: float) -> str:
    """A measured number of bytes: `4 bytes`, `1.7 kB`, `4.2 MB`."""
    return _scaled(amount, 1000.0, _DECIMAL)


def parse_size(text: str) -> int:
    """Bytes from `24GiB`, `512 MB`, `1.5GB` or `1048576`. Raises ValueError with what was expected."""
    match = _SIZE.fullmatch(text)
    if match is None or match[2].lower() not in _UNITS:
        raise ValueError(f"{text!r} is not a size: give bytes, or a number and B, KB, KiB, MB, MiB, GB, GiB, TB or TiB")
    size = int(float(match[1]) * _UNITS[match[2].lower()])
    if size < 1:
        raise ValueError(f"{text!r} is not a size: it must be at least 1 byte")
    return size


def limit(amount: float) -> str:
    """A memory limit in bytes, as sizes are written and as devices are sold: `25.8 GB = 24.0 GiB`."""
    decimal, as_sold = size(amount), binary(amount)
    return decimal if decimal == as_sold else f"{decimal} = {as_sold}"


def binary(amount: float) -> str:
    """The same where no size stands beside it: `24.0 GiB`."""
    return _scaled(amount, 1024.0, _BINARY)


def _scaled(amount: float, base: float, units: tuple[str, ...]) -> str:
    if not math.isfinite(amount):
        return "an unknown amount"
    power = 0
    # Judged after rounding, so that 999,960 bytes are 1.0 MB and not 1000.0 kB.
    while power < len(units) - 1 and abs(round(amount, 1 if power else 0)) >= base:
        amount, power = amount / base, power + 1
    if power == 0:
        digits = 0 if amount == round(amount) else 1
        return f"{amount:,.{digits}f} {'byte' if amount == 1 else 'bytes'}"
    return f"{amount:,.1f} {units[power]}"


def count(amount: float, noun: str = "", plural: str = "") -> str:
    """A number with thousands separators, at most one decimal, and its noun: `1 step`, `5,700 steps`."""
    number = f"{amount:,.0f}" if amount == round(amount) or abs(amount) >= 100 else f"{amount:,.1f}"
    if not noun:
        return number
    return f"{number} {noun if number == '1' else plural or noun + 's'}"


def percent(share: float) -> str:
    """A share from 0 to 1 as a whole percentage; what is not nothing is never `0 %`."""
    return "< 1 %" if 0 < share < 0.005 else f"{share * 100:.0f} %"


def ms(seconds: float) -> str:
    """A duration within a step: `12.3 ms`, `450 us`, `1.24 s`."""
    if seconds >= 0.9995:
        return f"{seconds:.2f} s"
    return f"{seconds * 1e3:.1f} ms" if seconds >= 0.0009995 else f"{seconds * 1e6:.0f} us"


def rank_names(ranks: Iterable[int]) -> str:
    """`rank 3`, `ranks 0, 2`, `ranks 1, 8-15`: three and more in a row by the first and the last."""
    rows: list[list[int]] = []
    for rank in sorted(ranks):
        if rows and rank == rows[-1][-1] + 1:
            rows[-1].append(rank)
        else:
            rows.append([rank])
    parts = [f"{row[0]}-{row[-1]}" if len(row) > 2 else ", ".join(map(str, row)) for row in rows]
    return f"rank{'' if [len(row) for row in rows] == [1] else 's'} {', '.join(parts)}"


def picked(thing: Any, *names: str) -> dict[str, Any]:
    """Some attributes of a thing by name, for facts in JSON; all None if there is no thing."""
    return {name: getattr(thing, name, None) for name in names}

"""Score `torchvet check` on the planted faults: ``python -m casebook.source [-k SUBSTRING] [--json FILE]``.

``planted/CODE_shape_bad.py`` must be found by its code; its twin ``CODE_shape_good.py``, which is the fixed program or
a healthy look-alike, must give no finding at warning or above from any rule. Where one program has had several faults
planted, ``planted/twins.toml`` says whose twin it shares. Every rule's own BAD and GOOD count too. The programs are
read and never run.
"""

from __future__ import annotations

import argparse
import json
import re
import zlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import msgspec

from casebook.twins import PLANTED, built
from torchvet.finding import Finding
from torchvet.rules import Rule, all_rules
from torchvet.source.model import SourceFile

NAMED = re.compile(r"([a-z]{3}\d{3})_(\w+)_bad")


@dataclass(frozen=True)
class Pair:
    """A faulty program and its healthy twin, as texts."""

    code: str
    shape: str
    bad: str
    good: str


@dataclass(frozen=True)
class Score:
    """What was said of a pair. `alarms` are findings at warning or above on the healthy twin."""

    code: str
    shape: str
    found: bool
    alarms: tuple[str, ...]
    healthy: int
    """Which healthy program it was: pairs that share a twin have the same number."""


def rules() -> list[Rule]:
    """The rules that read source."""
    return [r for r in all_rules() if "in_source" in r.inputs()]


def pairs(folder: Path = PLANTED) -> Iterator[Pair]:
    """All planted pairs, those of the rules' own examples first. Raises FileNotFoundError where a twin is missing."""
    for rule in rules():
        yield Pair(rule.code, "example", rule.BAD, rule.GOOD)
    shared = msgspec.toml.decode((folder / "twins.toml").read_bytes(), type=dict[str, str])
    for path in sorted(built(folder).glob("*_bad.py")):
        named = NAMED.fullmatch(path.stem)
        if named is None:
            raise FileNotFoundError(f"{path}: expected a name like amp101_trainer_bad.py")
        own = path.stem.removesuffix("_bad")
        twin = path.with_name(f"{shared.get(own, own)}_good.py")
        yield Pair(named[1].upper(), named[2], path.read_text("utf-8"), twin.read_text("utf-8"))


def findings(text: str) -> list[Finding]:
    """Everything that the rules say of a text."""
    file = SourceFile("train.py", text)
    return [found for rule in rules() for found in rule.in_source(file)]


def score(pair: Pair) -> Score:
    """Check both programs of a pair."""
    found = any(f.code == pair.code for f in findings(pair.bad))
    alarms = tuple(
        f"{f.code} line {f.location.line if f.location else '?'}: {f.message}"
        for f in findings(pair.good)
        if f.severity != "info" or f.code == pair.code
    )
    return Score(pair.code, pair.shape, found, alarms, zlib.crc32(pair.good.encode()))


def main() -> None:
    """Print a row for every rule, then what was missed and every false alarm."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-k", metavar="SUBSTRING", default="", help="only pairs whose code and shape contain this")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the scores here too")
    options = parser.parse_args()
    scores = [score(p) for p in pairs() if options.k.lower() in f"{p.code}_{p.shape}".lower()]
    print(f"{'code':8}{'shapes':>8}{'found':>8}{'alarms':>8}")
    for code in sorted({s.code for s in scores}):
        mine = [s for s in scores if s.code == code]
        print(f"{code:8}{len(mine):8}{sum(s.found for s in mine):8}{sum(bool(s.alarms) for s in mine):8}")
    for one in scores:
        if not one.found:
            print(f"missed {one.code} {one.shape}")
        for alarm in one.alarms:
            print(f"false alarm on the twin of {one.code} {one.shape}: {alarm}")
    found, share = sum(s.found for s in scores), sum(s.found for s in scores) / max(1, len(scores))
    healthy, loud = {s.healthy for s in scores}, {s.healthy for s in scores if s.alarms}
    told = f"{len(loud)} of {len(healthy)} different healthy programs with a false alarm"
    print(f"\n{found} of {len(scores)} found ({share:.1%}), {told}")
    if options.json:
        options.json.write_text(json.dumps([asdict(s) for s in scores], indent=1))


if __name__ == "__main__":
    main()

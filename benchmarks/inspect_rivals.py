"""What other tools make of the same snapshots and traces, and what it takes them.

    python benchmarks/inspect_rivals.py --python PYTHON [--mosaic DIR] [--rounds 3] [--limit 600] FILE...

PYTHON is an interpreter that has HolisticTraceAnalysis, pt-snap-cli and what mosaic needs (altair, click, mcp,
omegaconf, pandas, tabulate); DIR is a checkout of facebookresearch/mosaic. None of them is a dependency, and none of
their code is here. Snapshots (*.pickle) go to torchvet, mosaic (its profile by category) and pt-snap-cli (an import
and the report of the peak); traces (*.json, *.json.gz) to torchvet and to HTA (loading and five of its analyses). Each
is a process of its own, and they take turns.

For snapshots the table has the bytes at the peak that a tool speaks of and the share of them that it gives no category.
pt-snap-cli knows no categories; its share is of bytes whose stack shows no line of Python. Of torchvet's, blocks older
than the recording of which behaviour shows nothing stand apart. For traces it has the share of time that the device is
busy: HTA counts from the first kernel to the last, torchvet over whole steps.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from measuring import Run, run

HTA = """
import sys
from hta.trace_analysis import TraceAnalysis
asked = TraceAnalysis(trace_files={0: sys.argv[1]})
busy = 100 - asked.get_temporal_breakdown(visualize=False)["idle_time_pctg"][0]
asked.get_idle_time_breakdown(visualize=False)
asked.get_gpu_kernel_breakdown(visualize=False)
asked.get_comm_comp_overlap(visualize=False)
asked.get_memory_bw_summary()
print("busy", busy)
"""
SNAP = """
snap() { "$1" -c 'from pt_snap_cli.cli import _safe_call; _safe_call()' "${@:2}"; }
snap "$1" import --no-focus -o "$3" "$2" >&2 && snap "$1" report peak-memory "$3"/*.db --json -d 0 -n 1000000
"""
UNITS = {"B": 1, "KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


@dataclass(frozen=True)
class Tool:
    """A tool: its command for a file, given an empty folder, and what it says, of its output."""

    name: str
    command: Callable[[Path, Path], list[str]]
    read: Callable[[str], str]


def of_torchvet(out: str) -> str:
    """The first device, or the first rank."""
    facts = json.loads(out)["facts"]
    if "snapshots" not in facts:
        return f"busy {facts['gpu']['busy_share']:.1%}" if facts.get("gpu") else "no device"
    peak = facts["snapshots"][0]["peak"]
    unknown, older = (peak["categories"].get(name, 0) for name in ("unknown", "older than the recording"))
    return f"{peak['bytes']:,} | {unknown / peak['bytes']:.1%}; older {older / peak['bytes']:.1%}"


def of_mosaic(out: str) -> str:
    """The amounts that it prints are rounded."""
    whole, unknown = re.search(r"Total Allocated: (\S+)", out), re.search(r"AllocationType.UNKNOWN: (\S+)", out)
    if whole is None:
        return "nothing"
    total = amount(whole[1])
    return f"{total:,.0f} | {min(1.0, amount(unknown[1]) / total) if unknown and total else 0:.1%}"


def amount(text: str) -> float:
    """`4.86GiB` in bytes."""
    number, unit = re.fullmatch(r"([\d.]+)(\w+)", text).groups()  # type: ignore[union-attr]
    return float(number) * UNITS[unit]


def of_snap(out: str) -> str:
    """Bytes of stacks with a line of Python are known."""
    groups = json.loads(out)["callstack_groups"]
    total = sum(g["requested_bytes"] for g in groups)
    known = sum(g["requested_bytes"] for g in groups if ".py:" in g["callstack"])
    return f"{total:,} | {(total - known) / total:.1%} without a line"


def of_hta(out: str) -> str:
    """The last line."""
    return f"busy {float(out.split()[-1]):.1f}%"


def tools(python: str, mosaic: Path | None) -> dict[str, list[Tool]]:
    """Those for snapshots and those for traces."""
    inspect = Tool("torchvet", lambda at, _: [sys.executable, "-m", "torchvet", "inspect", "--exit-zero", "--format",
                                              "json", str(at)], of_torchvet)  # fmt: skip
    path = f"import sys; sys.path.insert(0, {str(mosaic)!r}); "
    profile = f"{path}from mosaic.cmd.get_memory_profile import main; main()"
    others = [Tool("pt-snap-cli", lambda at, folder: ["bash", "-c", SNAP, "-", python, str(at), str(folder)], of_snap)]
    if mosaic is not None:
        others.append(Tool("mosaic", lambda at, folder: [python, "-c", profile, "--snapshot", str(at), "--out-path",
                                                         str(folder / "profile.html")], of_mosaic))  # fmt: skip
    return {
        "snapshot": [inspect, *others],
        "trace": [inspect, Tool("HTA", lambda at, _: [python, "-c", HTA, str(at)], of_hta)],
    }


def ask(tool: Tool, path: Path, limit: float) -> Run:
    """One run of a tool on a file."""
    with tempfile.TemporaryDirectory() as folder:
        return run(tool.command(path, Path(folder)), limit, Path(folder))


def compare(path: Path, asked: list[Tool], rounds: int, limit: float) -> None:
    """A line of the table for each tool; one that breaks or takes too long is asked once."""
    taken: dict[str, list[Run]] = {tool.name: [] for tool in asked}
    for _ in range(rounds):
        for tool in asked:
            if not taken[tool.name] or taken[tool.name][-1].status == 0:
                taken[tool.name].append(ask(tool, path, limit))
    for tool in asked:
        runs = taken[tool.name]
        seconds, last = [r.seconds for r in runs], runs[-1]
        said = tool.read(last.out) if last.status == 0 else f"status {last.status}: {_ending(last.said)}"
        most = max(r.megabytes for r in runs)
        size = path.stat().st_size / 1e6
        print(
            f"| {path.name} | {size:.1f} | {tool.name} | {said} | {statistics.median(seconds):.2f} | {most:.0f} |",
            flush=True,
        )


def _ending(said: str) -> str:
    return said.strip().splitlines()[-1][:80] if said.strip() else ""


def main() -> None:
    """Two tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE")
    parser.add_argument("--python", required=True, help="the interpreter of the other tools")
    parser.add_argument("--mosaic", type=Path, metavar="DIR", help="a checkout of mosaic")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--limit", type=float, default=600, metavar="SECONDS", help="for one run of a tool [600]")
    options = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    by_kind = tools(options.python, options.mosaic.resolve() if options.mosaic else None)
    for kind, heading in (("snapshot", "bytes at the peak | without a category"), ("trace", "says")):
        files = [p.resolve() for p in options.files if (p.suffix == ".pickle") == (kind == "snapshot")]
        if files:
            print(f"\n| {kind} | MB | tool | {heading} | median seconds | peak MB |")
            print("|---" * (6 + heading.count("|")) + "|")
        for path in files:
            compare(path, by_kind[kind], options.rounds, options.limit)


if __name__ == "__main__":
    main()

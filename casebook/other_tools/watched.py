"""Runs a program under another tool and writes down what it said: run by the interpreter that has that tool.

``python watched.py memray|gpuprof|traceml OUT faulty.py --steps 60``, or ``... OUT -m faulty --steps 60``. Remarks are
written to OUT as JSON: [path, line, kind, severity, message]; the program's own failure is none.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from casebook.program import become

Remarks = list[tuple[str, int, str, str, str]]

TOP = 3
"""Lines that count."""


def finish(argv: list[str]) -> None:
    """Run the program to its end or failure."""
    with contextlib.suppress(Exception, SystemExit):
        become(argv)


def under_memray(argv: list[str]) -> Remarks:
    """The lines that most memory passed through, of what is left over at the end and of what there is at the peak."""
    import memray

    with tempfile.TemporaryDirectory() as kept:
        out = Path(kept, "allocations")
        with memray.Tracker(out):
            finish(argv)
        reader = memray.FileReader(out)
        left = _largest(reader.get_leaked_allocation_records(merge_threads=True), "alive-at-end")
        return left + _largest(reader.get_high_watermark_allocation_records(merge_threads=True), "at-peak")


def _largest(records: Iterable[Any], kind: str) -> Remarks:
    folder = os.getcwd()
    sizes: Counter[tuple[tuple[str, int], ...]] = Counter()
    for record in records:
        stack = record.stack_trace()
        own = tuple((path, line) for _, path, line in stack if _within(path, folder))
        if own and not any("importlib" in path for _, path, _ in stack):
            sizes[own] += record.size
    return [
        (path, line, kind, "warning", f"{size} bytes") for stack, size in sizes.most_common(TOP) for path, line in stack
    ]


def _within(path: str, folder: str) -> bool:
    return Path(folder, path).resolve().is_relative_to(Path(folder).resolve()) and not path.startswith("<")


def under_gpuprof(argv: list[str]) -> Remarks:
    """The insights of its report."""
    import gpuprof
    from gpuprof.insights import analyze

    graver = {"high": "error", "medium": "warning", "med": "warning"}
    with tempfile.TemporaryDirectory() as kept:
        base = str(Path(kept, "gpuprof.db"))
        with gpuprof.profile("casebook", db_path=base):
            finish(argv)
        found: list[dict[str, Any]] = analyze(base, 1)["insights"]
    return [("", 0, one["title"], graver.get(str(one["severity"]).lower(), "note"), one["title"]) for one in found]


def under_traceml(argv: list[str]) -> Remarks:
    """Within ``traceml run``: mark the steps. What it says is in its own summary."""
    import traceml_ai
    from torch.nn.modules.module import register_module_forward_pre_hook
    from torch.optim.optimizer import register_optimizer_step_post_hook

    traceml_ai.init(mode="auto")
    models: list[Any] = []
    steps: list[Any] = []

    def enter(module: Any, *_: Any) -> None:
        if not steps:
            models.append(module)
            steps.append(traceml_ai.trace_step(models[0]))
            steps[0].__enter__()

    def turn(*_: Any) -> None:
        if steps:
            steps.pop().__exit__(None, None, None)
            enter(models[0])

    register_module_forward_pre_hook(enter)
    register_optimizer_step_post_hook(turn)
    finish(argv)
    if steps:
        steps.pop().__exit__(GeneratorExit, GeneratorExit(), None)  # not a whole step
    return []


UNDER: dict[str, Callable[[list[str]], Remarks]] = {
    "memray": under_memray,
    "gpuprof": under_gpuprof,
    "traceml": under_traceml,
}


@contextlib.contextmanager
def silenced() -> Iterator[None]:
    """Nothing of what is printed meanwhile is of interest."""
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
        yield


def main() -> None:
    """Run the program under the tool that the first argument names."""
    _, tool, out, *argv = sys.argv
    with silenced():
        remarks = UNDER[tool](argv)
    Path(out).write_text(json.dumps(remarks))


if __name__ == "__main__":
    main()

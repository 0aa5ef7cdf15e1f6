"""`%%vet`: watches a cell of a notebook, and shows the report with cells by their execution count."""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from torchvet.finding import Report


def load(shell: Any) -> None:
    """Give an IPython shell the magic, and have it show every report with its cells' names."""

    def vet(line: str, cell: str) -> None:
        """%%vet [--every-step]: run the cell, watched, and show what is wrong with its training steps."""
        run_cell(shell, line, cell)

    shell.register_magic_function(vet, "cell", "vet")
    formatter = shell.display_formatter.formatters["text/html"]
    formatter.for_type(Report, lambda report: by_cells(report, _cell_names(shell))._repr_html_())


def run_cell(shell: Any, line: str, cell: str) -> None:
    """Run a cell's code in the shell, watched, and display its report."""
    from torchvet.api.watch import Watch

    unknown = set(line.split()) - {"--every-step"}
    if unknown:
        print(f"%%vet: {' '.join(sorted(unknown))}: the one option is --every-step; nothing was run", file=sys.stderr)
        return
    watch = Watch(program="notebook", every_step="--every-step" in line)
    watch.start()
    try:
        with _silent(shell), _numbered(shell):
            # A line for the magic's own: lines count as they are seen. Another magic must come first.
            result = shell.run_cell(cell if cell.startswith("%%") else f"# %%vet\n{cell}")
        error = result.error_in_exec or result.error_before_exec
    except BaseException as ended:
        error = ended
    report = watch.stop(error)
    shell.display_pub.publish(data=_forms(by_cells(report, _cell_names(shell))))
    if error is not None:
        raise error


@contextlib.contextmanager
def _silent(shell: Any) -> Iterator[None]:
    """The shell shows no error: the one that the cell raises is raised again, and shown then."""
    names = ("showtraceback", "showsyntaxerror", "showindentationerror")
    vars(shell).update(dict.fromkeys(names, lambda *args, **kwargs: None))
    try:
        yield
    finally:
        for name in names:
            del vars(shell)[name]


@contextlib.contextmanager
def _numbered(shell: Any) -> Iterator[None]:
    """What is compiled within is known by the number of the cell that runs: since IPython 9 the shell counts on before
    it runs a cell."""
    known, number = _numbers(shell), len(shell.user_ns.get("In", ())) - 1
    before = dict(known)
    try:
        yield
    finally:
        known.update({name: number for name in known if number > 0 and before.get(name) != known[name]})


def _numbers(shell: Any) -> dict[str, int]:
    """IPython's own table of execution counts, by the names that cells are compiled under."""
    known: dict[str, int] = getattr(shell.compile, "_filename_map", {})
    return known


def _forms(report: Report) -> dict[str, str]:
    """The report as front ends show it: HTML, and text for those that have none."""
    from torchvet.renderers import renderer_for

    return {"text/html": report._repr_html_(), "text/plain": renderer_for("text").render(report)}


def _cell_names(shell: Any) -> Callable[[str], str | None]:
    """What a compiled cell's file is called: `cell [3]`; None of what is no cell."""
    known = _numbers(shell)

    def name(path: str) -> str | None:
        number = known.get(path)
        return f"cell [{number}]" if number is not None else None

    return name


def by_cells(report: Report, name: Callable[[str], str | None]) -> Report:
    """The report with the temporary files of cells by the cells' names; their edits fit no file, and are left out."""

    def text(value: str) -> str:
        found = name(value)
        if found is not None:
            return found
        return _FILE.sub(lambda m: f"{name(m[1])}, line {m[2]}" if name(m[1]) else m[0], value)

    def rewritten(value: Any) -> Any:
        if isinstance(value, str):
            return text(value)
        if isinstance(value, dict):
            return {text(k): [] if k == "edits" else rewritten(v) for k, v in value.items()}
        return [rewritten(item) for item in value] if isinstance(value, list) else value

    return msgspec.convert(rewritten(msgspec.to_builtins(report)), Report)


_FILE = re.compile(r"((?:/|[A-Za-z]:\\|<)[^:\s]+):(\d+)")
"""A place in a message."""

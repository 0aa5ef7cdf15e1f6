"""MEM114: the loop around the data loader keeps every batch of the first epoch."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from torchvet.recording import records
from torchvet.rules import kit
from torchvet.rules.core import grading
from torchvet.rules.memory.fixes.restarted_loaders import begun_again
from torchvet.rules.shared import growth_rule, training_loops
from torchvet.source.model import Event, Unit, edits, terminal


class LoaderRemembersBatches(growth_rule.GrowthRule):
    """The loop around the data loader keeps every batch of the first epoch."""

    severity = "warning"
    words = ("itertools", "list(")

    specificity = 4

    def fixes(self, finding: kit.Finding, file: kit.SourceFile) -> kit.Edits:
        """A generator that begins the loader again."""
        return begun_again(file, finding)

    def recognises(self, growth: kit.Growth, recording: kit.Recording) -> bool:
        """An iterator of itertools keeps the batches of a loader."""
        return "iterator" in growth.holding.via

    def grade(self, growth: kit.Growth, recording: kit.Recording) -> kit.Severity:
        """`cycle` stops growing after one epoch: by what an epoch's batches take, of the peak."""
        # A run shorter than an epoch sees only growth, though its end is known: the length of the loader.
        whole = _epoch(recording) if _iterator(growth) != "tee" else None
        if whole is None:
            return super().grade(growth, recording)
        peak = max([w.peak for r in recording.ranks for w in r.all(records.base.Window)], default=0)
        limit = recording.ranks[0].program.memory_limit if recording.ranks[0].program else 0
        # The epoch's batches come on top of what a step takes.
        return "error" if limit and whole + peak > limit else grading.of_share(whole / (whole + peak))

    def cause(self, growth: kit.Growth, store: kit.Store | None) -> str:
        """cycle keeps what it has seen, tee what one side has not read yet."""
        name = growth.holding.name
        if _iterator(growth) == "tee":
            return (
                f"{name} has not read what the other iterator of the same itertools.tee has: tee keeps each item until "
                "both have"
            )
        return (
            f"{name} keeps every batch of the first epoch so as to repeat them; the loader is never asked again, so "
            "the order is never shuffled anew either"
        )

    def advice(self, growth: kit.Growth, store: kit.Store | None) -> str:
        """Loop over the loader again; read both sides in step."""
        if _iterator(growth) == "tee":
            return (
                "read both iterators in step, or take one item ahead in a generator of your own: it keeps one item and "
                "not all between the two"
            )
        return "write a generator that starts the loader anew: `def endless(loader): while True: yield from loader`"

    def location(self, growth: kit.Growth, store: kit.Store | None, recording: kit.Recording) -> kit.Location | None:
        """The call of itertools' function where the program has but one, however far from the loop it stands."""
        called = _iterator(growth)
        files = [recording.model(path) for path, text in recording.sources.items() if f"{called}(" in text]
        found = [place for file in files if file is not None for place in _calls_of(called, file)]
        return found[0] if len(found) == 1 else super().location(growth, store, recording)

    def in_file(self, file: kit.SourceFile) -> kit.Findings:
        """`itertools.cycle` or `tee` of a loader, and `len(list(loader))`; a list that is kept may be meant."""
        remembering = file.calls("cycle", "tee") if file.mentions("itertools") else iter(())
        for event in (*remembering, *_lists(file)):
            dotted = file.dotted(event.call.func)
            loader = loader_in(file, event.call.args[0], event.unit) if event.call.args else None
            if loader is None:
                continue
            if dotted in ("itertools.cycle", "itertools.tee"):
                yield self._remembered(file, event, loader, dotted)
            elif dotted == "list" and file.imports.names.get("list") is None:
                yield self._listed(file, event, loader)

    def _remembered(self, file: kit.SourceFile, event: Event, loader: ast.expr, dotted: str) -> kit.Finding:
        name = file.segment(loader)
        cycles = dotted == "itertools.cycle"
        return self.suspect(
            file, event, f"{dotted}({name}) keeps every batch of an epoch"
            + (" and gives the same ones again, never shuffled anew" if cycles else ""),
            cause=f"{dotted} remembers what it has handed out, and never asks {name} again" if cycles
            else f"{dotted} keeps what one side has read and the other has not",
            advice="write a generator that starts the loader anew: "
            f"`def endless(loader): while True: yield from loader`, and take `endless({name})`" if cycles
            else f"iterate over {name} twice, or read both sides in step",
            edits=_anew(file, event, loader) if cycles else (),
        )  # fmt: skip

    def _listed(self, file: kit.SourceFile, event: Event, loader: ast.expr) -> kit.Finding:
        name = file.segment(loader)
        counted = isinstance(event.parent, ast.Call) and file.dotted(event.parent.func) == "len"
        return self.suspect(
            file, event, f"len(list({name})) loads the whole data set to count its batches" if counted
            else f"list({name}) holds every batch of the data set at once",
            severity=None if counted and not training_loops.is_test(file) else "info",
            cause="the list keeps a reference to every collated batch",
            advice=f"`len({name})` counts them without loading any" if counted
            else f"iterate over {name}, unless the data set is small and meant to be held",
            # `len(list(enumerate(loader)))` would become `len(loader)`, whose text is not that argument.
            edits=[edits.replace(file, event.call, name)] if counted and event.call.args[0] is loader else (),
        )  # fmt: skip


def _iterator(growth: kit.Growth) -> str:
    """Which of itertools' functions made the iterator that keeps them: `cycle`, as a rule."""
    found = _ITERATOR.findall(growth.holding.name)
    return found[-1] if found else "cycle"


_ITERATOR = re.compile(r" \(itertools\.(\w+)\)")


def _calls_of(called: str, file: kit.SourceFile) -> list[kit.Location]:
    calls = [e for e in file.calls(called) if file.dotted(e.call.func) == f"itertools.{called}"]
    return [file.place(e.node, e) for e in calls]


def _epoch(recording: kit.Recording) -> int | None:
    """Bytes of all batches of the loader whose batches the name keeps: the largest of those known."""
    loaders = [m for r in recording.ranks for m in r.all(records.training.LoaderMemory) if m.length is not None]
    # Only loaders of which more batches are alive than they prefetch.
    sizes = [m.batch_bytes * m.length for m in loaders if m.length is not None and m.alive > m.capacity]
    return max(sizes, default=None)


_LISTED = re.compile(r"list\((?:iter\(|enumerate\()?[\w.]*(?:loader|Loader|_dl|_iter)\b")


def _lists(file: kit.SourceFile) -> Iterator[Event]:
    """Calls of `list` on lines that name a loader."""
    lines = [file.line_of(m.start()) for m in _LISTED.finditer(file.text)]
    units = file.units_at(lines)
    return (e for unit in units for e in unit.calls.get("list", ()) if e.line in lines)


def loader_in(file: kit.SourceFile, node: ast.expr, unit: Unit) -> ast.expr | None:
    """The data loader that an expression hands on (`iter(loader)`, `enumerate(loader)`); None where it is none."""
    while isinstance(node, ast.Call) and node.args and terminal(node) in ("enumerate", "iter", "tqdm"):
        node = node.args[0]
    roles = file.roles.of(node, unit)
    if "loader" in roles:
        return node
    # By its name alone: `loaders` are several of them, and a call of a `loader` gives anything.
    name = terminal(node)
    single = isinstance(node, (ast.Name, ast.Attribute)) and not name.lower().endswith("s")
    hinted = not roles and single and file.roles.hinted("loader", node)
    return node if hinted and file.imports.uses("torch") else None


def _anew(file: kit.SourceFile, event: Event, loader: ast.expr) -> list[kit.Edit]:
    """A generator in the place of `itertools.cycle`, where `itertools` is there under its own name."""
    if not isinstance(loader, (ast.Name, ast.Attribute)) or event.call.args[0] is not loader:
        return []
    if file.imports.names.get("itertools") != "itertools":
        return []
    text = f"(batch for _ in itertools.count() for batch in {file.segment(loader)})"
    return [edits.replace(file, event.call, text)]

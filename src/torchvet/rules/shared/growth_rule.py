"""The common part of rules about growing memory: from a growing name to a finding.

A subclass recognises its mechanism and words cause and remedy; where several recognise one growth, the diagnosis keeps
the most specific.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from typing import ClassVar, get_args

import msgspec

from torchvet.analysis import growth_by_rank, growth_of
from torchvet.finding import SEVERITIES
from torchvet.recording import records
from torchvet.rules import kit
from torchvet.rules.core import grading
from torchvet.rules.shared import bounds, exhaustion, peaks
from torchvet.rules.shared.number_format import count, per_step, size
from torchvet.source.model import terminal
from torchvet.source.syntax import expression

# Kinds that a recording of a later version may have are "unknown" here.
_KINDS = frozenset(get_args(kit.HolderKind))
_NEVER = 10**9
"""Steps that no run makes."""
_NUMBER = 8
"""Bytes of the largest number that is one tensor."""


class GrowthRule(kit.Rule):
    """A rule about names whose bytes grow from step to step."""

    specificity: ClassVar[int] = 0
    """Among rules that recognise one growth the highest is kept."""

    absence_needs = ("flat memory", "names", "graphs")

    def recognises(self, growth: kit.Growth, recording: kit.Recording) -> bool:
        """Whether this growth comes about in the way that the rule is about."""
        raise NotImplementedError

    def cause(self, growth: kit.Growth, store: kit.Store | None) -> str:
        """Why it grows, in the user's names."""
        raise NotImplementedError

    def advice(self, growth: kit.Growth, store: kit.Store | None) -> str:
        """What to change, in the user's names."""
        raise NotImplementedError

    def about(self, growth: kit.Growth, store: kit.Store | None) -> kit.About:
        """What the rule's own fixes need to know of the finding."""
        return kit.NOTHING_MORE

    def in_rank(self, rank: kit.RankRecording, recording: kit.Recording) -> kit.Findings:
        """One finding for every growing name that this rule recognises."""
        for growth in growth_of(rank).growths:
            if self.recognises(growth, recording):
                yield self.finding(growth, rank, recording)

    def finding(self, growth: kit.Growth, rank: kit.RankRecording, recording: kit.Recording) -> kit.Finding:
        """Put together what was measured, where it is stored and what to do."""
        store = self.store(growth, recording)
        return self.observed(
            rank,
            severity=self.grade(growth, recording),
            message=self.message(growth, recording),
            place=self.location(growth, store, recording),
            cause=self.cause(growth, store),
            advice=self.advice(growth, store),
            related=self.related(growth, recording),
            holder=holder_of(growth),
            measured=measured_of(growth, recording),
            about=self.about(growth, store),
        )

    def store(self, growth: kit.Growth, recording: kit.Recording) -> kit.Store | None:
        """The line that stores into the growing name, by joining the name with the source."""
        stores = recording.index.stores(*growth.holding.where)
        # They come ranked: the first is the one that a person would change.
        return stores[0] if stores else None

    bounded_matters: ClassVar[bool] = False
    """Whether growth that stays within a known limit is graded by its share of the peak, or is just information:
    tensors are collected on purpose, autograd graphs are not."""

    def matters_bounded(self, growth: kit.Growth, recording: kit.Recording) -> bool:
        """The same, of one growth."""
        return self.bounded_matters

    def grade(self, growth: kit.Growth, recording: kit.Recording) -> kit.Severity:
        """By forecast where nothing bounds it, else by whether the bound fits into memory."""
        bound = bounds.bound_of(growth, recording)
        if bound is None:
            return _by_forecast(growth, recording)
        if bound.bytes is None:
            # A limit whose number nobody knows may come too late.
            late = not bound.sure and _by_forecast(growth, recording) == "error"
            return "warning" if late else "info"
        more = bound.bytes - growth.bytes
        if growth.memory_left is not None and more > growth.memory_left:
            return "error"
        # Within its bound it does no more than make the peak higher, so its share of the peak is what counts.
        peak = max(map(peaks.peak_of, recording.ranks), default=0)
        if self.matters_bounded(growth, recording):
            # The peak was measured before it is full, so the bound comes on top.
            return grading.of_share(bound.bytes / (bound.bytes + peak))
        return grading.of_what_is_left(more, growth.memory_left)

    def message(self, growth: kit.Growth, recording: kit.Recording) -> str:
        """The headline: name, bytes per step, total, and when memory runs out or what bounds it."""
        per = per_step(growth.kind)
        least = "at least " if growth.partial else ""
        text = (
            f"{keeping(growth)} {least}{size(growth.bytes_per_step)} more alive every {per} "
            f"({size(growth.bytes)} at step {growth.last_step:,})"
        )
        bound = bounds.bound_of(growth, recording)
        limits = f"; {bound.text}" if bound is not None else ""
        return text + limits + _ending(growth, bound, recording)

    def location(self, growth: kit.Growth, store: kit.Store | None, recording: kit.Recording) -> kit.Location | None:
        """The store line, or the call that handed in what a container's method stores; else where it was allocated."""
        if store is not None:
            # `self.rows.append(item)` is every caller's line; the caller's own is the one to change.
            store = next(iter(recording.index.passed_by(store)), store)
            return kit.Location(
                path=store.path, line=store.line, column=store.column, end_line=store.end_line, function=store.function
            )
        # Many threads: where they stay tells more than where one of their tensors was made.
        waits = growth.holding.place if growth.holding.kind == "thread" else None
        return location_of(waits or calls_keeper(growth) or first_place(growth.holding.sites))

    def related(self, growth: kit.Growth, recording: kit.Recording) -> list[kit.Related]:
        """Where it is stored, if that is another line, and where the held storages were allocated."""
        store = self.store(growth, recording)
        found = [allocated(s) for s in growth.holding.sites[:3]]
        if store is not None and recording.index.passed_by(store):
            # First: rules take the line that stores from there.
            found.insert(0, kit.Related(role="stored", message=store.text, path=store.path, line=store.line))
        return found


def keeping(growth: kit.Growth) -> str:
    """`trainer.losses keeps`, with how many more names of the same fault do."""
    others = [f"`{part.holding.name}`" for part in growth.parts[1:]]
    if not others:
        return f"{growth.holding.name} keeps"
    more = ", …" if len(others) > _NAMED else ""
    number = count(len(others), "more name", "more names")
    return f"{growth.holding.name} and {number} ({', '.join(others[:_NAMED])}{more}) keep"


_NAMED = 3
"""Names of one fault that a message says beside the first."""


def calls_keeper(growth: kit.Growth) -> kit.Place | None:
    """The program's line that calls into a library, where that keeps what grows in a private attribute of its own, or
    under a variable of its function."""
    holding = growth.holding
    root = holding.name.partition(".")[0]
    # A `self` may be the program's object, and so may be what a variable leads to.
    own = root not in ("self", "cls") and not holding.files
    private = holding.name.rpartition(".")[2].startswith("_")
    return holding.called_from if bounds.of_a_library(holding) and (private or own) else None


def nodes_outweigh(growth: kit.Growth) -> bool:
    """Whether the nodes of graphs take more memory, of the host, than the tensors that they and the name hold."""
    return growth.direct_per_step + growth.graph_per_step < records.base.NODE_BYTES * growth.nodes_per_step


def of_numbers(growth: kit.Growth) -> bool:
    """Whether the tensors are single numbers, as losses are: what went through backward started from one."""
    return growth.holding.direct <= _NUMBER * max(1, growth.holding.tensors)


def is_tensor_class(name: str | None) -> bool:
    """Whether items of a type by this name are tensors, as far as it is known."""
    return name is None or name.endswith(("Tensor", "Parameter", "Buffer"))


def no_tensor(growth: kit.Growth, store: kit.Store | None) -> str:
    """The type of what a line puts into a container as an item, where it is written down to be a container itself or
    the run has seen that it is no tensor; else empty: tensors' methods are no advice on tuples or log records."""
    if store is None:
        return ""
    made = expression(store.value)
    if isinstance(made, (ast.Tuple, ast.List, ast.Dict)):
        return type(made).__name__.lower()
    if isinstance(made, (ast.ListComp, ast.DictComp)):
        return type(made).__name__.removesuffix("Comp").lower()
    if isinstance(made, ast.Call) and _is_class(made) and not is_tensor_class(terminal(made)):
        return terminal(made)
    kind = item_type(growth.holding, store.text)
    # `x[k] = v` puts `v` in as it is, where items of items were not seen.
    whole = store.kind == "item" and not growth.holding.inner_types
    puts = whole or _PUTS.search(store.text) is not None
    return kind if puts and kind is not None and not is_tensor_class(kind) else ""


def _is_class(call: ast.Call) -> bool:
    """Whether a call makes an object of a class that is written as one: `Transition(…)`, not `F.relu(…)`."""
    name = terminal(call).lstrip("_")
    # `F(...)` and constants in capitals are no classes.
    return name[:1].isupper() and not name.isupper()


def detached_as(value: str, container: str) -> str:
    """An expression for what a value is without its graph, by the type that it has: a tuple has no `.detach()`. Empty
    where the type is one of the program's own."""
    if container in ("tuple", "list"):
        return f"{container}(t.detach() for t in {value})"
    if container in ("dict", "OrderedDict", "defaultdict"):
        return f"{{k: t.detach() for k, t in {closed(value)}.items()}}"
    # Without a type it is taken for a tensor.
    return f"{closed(value)}.detach()" if is_tensor_class(container or None) else ""


def closed(value: str) -> str:
    """An expression's text as a method can be called on it: in brackets where they are needed."""
    made = expression(value)
    plain = made is None or isinstance(made, (ast.Name, ast.Attribute, ast.Call, ast.Subscript))
    return value if plain else f"({value})"


def item_type(holding: records.base.Holding, line: str) -> str | None:
    """The type of what a line puts in as an item: of `rows["loss"].append(x)` an item of the list in the dict."""
    into = _PUTS.search(line)
    # How many levels the line goes deeper than the name that is reported.
    keys = len(_KEY.findall(line[: into.start()])) - len(_KEY.findall(holding.name)) if into is not None else 0
    types = [holding.item_type, *holding.inner_types]
    # Deeper than was seen: the innermost type that was.
    return types[min(max(keys, 0), len(types) - 1)]


_PUTS = re.compile(r"\.(append|appendleft|add|insert|put)\(")
_KEY = re.compile(r"\]|\.setdefault\(")
"""What is put in goes into what stands under a key."""


def exhausted_by_nodes(growth: kit.Growth, recording: kit.Recording) -> int | None:
    """The step at which nodes and tensors have taken the memory that is left, where that is the host's; else None."""
    on_host = all(r.program is None or r.program.device == "cpu" for r in recording.ranks)
    rate = growth.bytes_per_step + records.base.NODE_BYTES * growth.nodes_per_step
    if not on_host or growth.memory_left is None or rate <= 0:
        return None
    return int(growth.last_step + growth.memory_left / rate)


def holder_of(growth: kit.Growth) -> kit.Holder:
    """The growing name as a finding's holder."""
    holding = growth.holding
    kind = holding.kind if holding.kind in _KINDS else "unknown"
    return kit.Holder(name=holding.name, kind=kind, path=holding.path)  # type: ignore[arg-type]


def growths_of(finding: kit.Finding, recording: kit.Recording) -> list[kit.Growth]:
    """The growing names, one in each rank that has it, that a finding's holder is."""
    name = finding.holder.name if finding.holder is not None else None
    return [g for _, summary in growth_by_rank(recording) for g in summary.growths if g.holding.name == name]


def measured_of(growth: kit.Growth, recording: kit.Recording) -> kit.Measured:
    """The growth's figures; the end of memory is that of the run's one forecast."""
    return kit.Measured(
        bytes_per_step=growth.bytes_per_step,
        tensors_per_step=growth.tensors_per_step,
        bytes=growth.bytes,
        steps=growth.steps,
        exhausted_at_step=_end(growth, bounds.bound_of(growth, recording), recording),
    )


def _end(growth: kit.Growth, bound: bounds.Bound | None, recording: kit.Recording) -> int | None:
    """The step at which memory ends, where this growth has a part in that."""
    # What fits into memory does not end it.
    if bound is not None and (bound.bytes is None or bound.bytes - growth.bytes <= (growth.memory_left or 0)):
        return None
    end = exhaustion.end_for(growth, exhaustion.rank_of(growth, recording), recording)
    return end if end is None or end < _NEVER else None


def _ending(growth: kit.Growth, bound: bounds.Bound | None, recording: kit.Recording) -> str:
    """The end of memory in words, alone or with all else that grows."""
    end = _end(growth, bound, recording)
    if end is None:
        return ""
    rank = exhaustion.rank_of(growth, recording)
    forecast = exhaustion.exhaustion_of(rank, recording)
    if forecast.ran_out:
        return f"; memory ran out at step {end:,}"
    before = " before that," if bound is not None else ""
    others = " with all else that grows," if forecast.share(exhaustion.part_of(growth, rank)) < _ALONE else ""
    latest = " at the latest" if growth.partial else ""
    return f";{before}{others} memory is exhausted at step {end:,}{latest}"


_ALONE = 0.9
"""Share of all growth from which on the rest is not spoken of."""


def _by_forecast(growth: kit.Growth, recording: kit.Recording) -> kit.Severity:
    """By the run's forecast where this growth is a good part of what ends memory, by its own rate alone where it is a
    smaller one, and nothing to speak of where it is a thousandth."""
    rank = exhaustion.rank_of(growth, recording)
    forecast = exhaustion.exhaustion_of(rank, recording)
    share = forecast.share(growth.bytes_per_step)
    if share < _NOTHING:
        return "info"
    alone = grading.of_growth(growth.last_step, growth.exhausted_at)
    if share < _GOOD_PART or growth.kind != forecast.kind:
        return alone
    # Two leaks that each alone would last may end memory together.
    return max(alone, grading.of_growth(forecast.now, forecast.step), key=SEVERITIES.index)


_NOTHING = 0.001
_GOOD_PART = 0.05


def allocated(row: records.base.SiteBytes) -> kit.Related:
    """A site as a related place: `aten.addmm, (128, 256) float32`."""
    site = row.site
    shape = f"({', '.join(map(str, site.shape))}{',' if len(site.shape) == 1 else ''})"
    where = f" in {site.module}" if site.module else ""
    message = f"{site.op}, {shape} {site.dtype}{where}: {size(row.bytes)} in {row.storages} of the sampled storages"
    return kit.Rule.beside("allocated", message, site.place or site.inner)


def summed(rows: Iterable[records.base.SiteBytes]) -> list[records.base.SiteBytes]:
    """One row for each site, the most bytes first."""
    found: dict[records.base.Site, records.base.SiteBytes] = {}
    for row in rows:
        known = found.get(row.site)
        more, storages = (known.bytes, known.storages) if known is not None else (0, 0)
        found[row.site] = msgspec.structs.replace(row, bytes=row.bytes + more, storages=row.storages + storages)
    return sorted(found.values(), key=lambda row: -row.bytes)


def first_place(sites: list[records.base.SiteBytes]) -> kit.Place | None:
    """The line of the largest site that has one."""
    return next((s.site.place or s.site.inner for s in sites if s.site.place or s.site.inner), None)


def location_of(place: kit.Place | kit.Store | None) -> kit.Location | None:
    """A recorded place, or the line of a store, as a finding's location."""
    return None if place is None else kit.Location(path=place.path, line=place.line, function=place.function)

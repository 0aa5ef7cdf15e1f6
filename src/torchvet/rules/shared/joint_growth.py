"""One fault that makes several names grow is one finding.

Names belong together where one line stores into them, or where one function stores into attributes or items of one
owner, within one loop: they take in what they keep together, and one change stops them all.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace

import msgspec

from torchvet.analysis import growth_of
from torchvet.finding import ALSO_GROWS
from torchvet.rules.kit import Edit, Finding, Growth, RankRecording, Recording, Related, Remedy, Rule, Store, records
from torchvet.rules.shared import bounds, growth_rule
from torchvet.rules.shared.number_format import per_step, size

_AS_LARGE = 0.9
"""Share of the largest name's rate from which on a name is as large: the first in the source is the one to say, in
this run and in the next."""


@dataclass(frozen=True)
class _Part:
    """A finding about one name, the growth that it is about, and what it has in common with others of its fault."""

    finding: Finding
    growth: Growth
    marks: frozenset[Hashable]


def together(
    recording: Recording, findings: Sequence[Finding], rules: Sequence[Rule]
) -> tuple[list[Finding], dict[str, str]]:
    """The findings, one for each fault; and under which name each growing name is reported."""
    by_code = {rule.code: rule for rule in rules if isinstance(rule, growth_rule.GrowthRule)}
    found: list[Finding] = []
    groups: list[list[_Part]] = []
    for finding in findings:
        rule = by_code.get(finding.code)
        part = _part(rule, finding, recording) if rule is not None else None
        if part is None:
            found.append(finding)
            continue
        # One by one: a name may join two groups that were apart until then.
        groups = _grouped(part, groups)
    reported: dict[str, str] = {}
    for group in groups:
        one = _one(by_code[group[0].finding.code], group, recording) if len(group) > 1 else group[0].finding
        found.append(one)
        reported.update((p.growth.holding.name, one.holder.name) for p in group if one.holder is not None)
    return found, reported


def _grouped(part: _Part, groups: list[list[_Part]]) -> list[list[_Part]]:
    """The groups with one more name: if it shares a mark with several groups, they become one."""
    mine = [g for g in groups if any(part.marks & other.marks for other in g)]
    return [*(g for g in groups if g not in mine), [*(p for g in mine for p in g), part]]


def _part(rule: growth_rule.GrowthRule, finding: Finding, recording: Recording) -> _Part | None:
    if finding.holder is None or finding.evidence != "observed":
        return None
    about = finding.holder.path, finding.measured.bytes_per_step, finding.rank
    for rank in recording.ranks:
        for growth in growth_of(rank).growths:
            # A finding has no reference to its growth: these three tell it.
            if (growth.holding.path, growth.bytes_per_step, growth.rank) == about:
                return _Part(finding, growth, frozenset(_marks(rule, growth, rank, recording)))
    return None


def _marks(
    rule: growth_rule.GrowthRule, growth: Growth, rank: RankRecording, recording: Recording
) -> Iterator[Hashable]:
    """What two names of one fault share: the line that stores, or owner, function and loop. What is bounded and what is
    not are kept apart: they end differently."""
    store, bound = rule.store(growth, recording), bounds.bound_of(growth, recording)
    # Not the bound itself: two names of one fault fill up at different sizes.
    ends = None if bound is None else (bound.sure, bound.bytes is None)
    kind = (rule.code, id(rank), growth.kind, ends)
    line = _line(rule, growth, store, recording)
    if line is not None:
        yield kind, line
    path = growth.holding.path
    if store is not None and len(path) > 1 and path[-1].startswith((".", "[")):
        # Two loops of one function store at different times.
        loop = recording.index.enclosing_loop(store.path, store.line)
        yield kind, tuple(path[:-1]), store.path, store.function, loop


def _line(rule: growth_rule.GrowthRule, growth: Growth, store: Store | None, recording: Recording) -> Hashable | None:
    """The statement that stores; None where it is not known, or where several functions hand in what it stores."""
    # Without its sites: where storages were made is not where they are stored.
    at = rule.location(replace(growth, holding=msgspec.structs.replace(growth.holding, sites=[])), store, recording)
    if at is None:
        return None
    callers = recording.index.passed_by(store) if store is not None else []
    # The finding stands at a caller: then the store itself is what they share.
    if store is not None and callers and (at.path, at.line) == (callers[0].path, callers[0].line):
        one = len({(c.path, c.function) for c in callers}) == 1
        # One `push()` may store for several parts of a program, each with a fault of its own.
        return (store.path, store.line, store.column) if one else None
    if "hook" in growth.holding.via and _registered_twice(growth, recording):
        # Which of the registrations a module's hooks come from is not known: by where what they keep was made.
        return at.path, at.line, growth_rule.first_place(growth.holding.sites)
    return at.path, at.line, at.column


def _registered_twice(growth: Growth, recording: Recording) -> bool:
    stores = recording.index.stores(*growth.holding.where)
    return len({(s.path, s.line) for s in stores if s.in_loop}) > 1


def _one(rule: growth_rule.GrowthRule, group: list[_Part], recording: Recording) -> Finding:
    """The finding on all names of one fault, with the one that keeps most as the holder."""
    most = max(_size(p.growth) for p in group)
    # Equal ones differ by chance from run to run, and the finding must not.
    alike = [p for p in group if _size(p.growth) >= _AS_LARGE * most]
    lead = min(alike, key=_place)
    # Rounded, so that a fraction of a byte does not decide the order.
    rest = sorted((p for p in group if p is not lead), key=lambda p: (-round(_size(p.growth)), _place(p)))
    growth = _sum([lead.growth, *(p.growth for p in rest)])
    said, holder = lead.finding, lead.finding.holder
    message = rule.message(growth, recording)
    if holder is not None:  # a rule may have a better word for the name
        message = message.replace(lead.growth.holding.name, holder.name)
    # Those of all names are told together, below.
    own = [r for r in said.related if r.role != "allocated"]
    made = [growth_rule.allocated(site) for site in growth.holding.sites[:3]]
    return msgspec.structs.replace(
        said, message=message, severity=rule.grade(growth, recording),
        measured=growth_rule.measured_of(growth, recording), remedy=_remedy(lead, rest),
        related=list(dict.fromkeys([*own, *map(_beside, rest), *made])),
    )  # fmt: skip


def _size(growth: Growth) -> float:
    return growth.bytes_per_step + records.base.NODE_BYTES * growth.nodes_per_step


def _place(part: _Part) -> tuple[str, int, str]:
    at = part.finding.location
    return at.path if at else "", at.line if at else 0, part.growth.holding.name


def _beside(part: _Part) -> Related:
    growth = part.growth
    amount = f"{size(growth.bytes_per_step)} per {per_step(growth.kind)}"
    return Rule.beside(ALSO_GROWS, f"{growth.holding.name}: {amount}", part.finding.location)


def _sum(parts: list[Growth]) -> Growth:
    """Names that grow together as one growth, by the name of the first."""
    first = parts[0]
    total = {name: sum(getattr(p, name) for p in parts) for name in _RATES}
    held = {name: sum(getattr(p.holding, name) for p in parts) for name in _SIZES}
    holding = msgspec.structs.replace(
        first.holding, sites=growth_rule.summed(s for p in parts for s in p.holding.sites), **held
    )
    rate, left = total["bytes_per_step"], first.memory_left
    return replace(
        first, holding=holding, parts=tuple(parts), **total,
        exhausted_at=int(first.last_step + left / rate) if left is not None and rate > 0 else None,
        first_tick=min(p.first_tick for p in parts), last_tick=max(p.last_tick for p in parts),
        steps=max(p.steps for p in parts), partial=any(p.partial for p in parts),
    )  # fmt: skip


_RATES = tuple(
    f"{what}_per_step" for what in ("bytes", "direct", "idle", "graph", "ctx", "visible", "tensors", "nodes")
)
_SIZES = ("tensors", "direct", "idle", "visible", "graph", "ctx", "nodes")


def _remedy(lead: _Part, rest: list[_Part]) -> Remedy:
    """What to do about the first name, with the edits of all: a fault that feeds two names is fixed for both."""
    summary, edits = lead.finding.remedy.summary, [*lead.finding.remedy.edits]
    if any(_place(p)[:2] != _place(lead)[:2] for p in rest):
        summary += "; likewise where the other names are stored"
    for part in rest:
        new = [e for e in part.finding.remedy.edits if e not in edits]
        # Two edits of the same text cannot both be made: the first name's goes.
        if not any(_touch(one, other) for one in new for other in edits):
            edits += new
    safe = all(p.finding.remedy.safe for p in (lead, *rest) if p.finding.remedy.edits)
    return Remedy(summary=summary, safe=safe and bool(edits), edits=edits)


def _touch(one: Edit, other: Edit) -> bool:
    """Whether two edits change the same text; two that put lines in at one place do not."""
    if one.path != other.path or one.start == one.end == other.start == other.end:
        return False
    # An insertion at the beginning of a replacement has no order with it.
    return (one.start < other.end and other.start < one.end) or one.start == other.start

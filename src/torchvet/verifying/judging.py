"""Whether a fault is gone: its measure in the run before, held against the run after."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from torchvet.amounts import count, size
from torchvet.finding import SEVERITIES, Finding
from torchvet.recording.costs import cost_lines, cost_of, worded
from torchvet.recording.reader import ENOUGH
from torchvet.recording.records import NODE_BYTES
from torchvet.verifying.lines import became, lines_after
from torchvet.verifying.trial import Trial

NOISE = 0.01
"""Share of a growth that may be left: a running sum that was detached is still a number of a few bytes."""
COMPARED = 2
"""Stretches of steps in which storages were noted that it takes to see that none lives on: where none does, names are
not looked at."""
LEFT = 0.5
"""Share of what a line cost in a step that may be left after a mend: one wait in the place of one for each layer."""
_OF_GRAPHS = ("MEM101",)
"""Findings that are about what graphs saved: what the name itself stores may be wanted, and is another's affair."""
_OF_VIEWS = ("MEM113",)
"""Findings that are about storages of which the tensors kept show a small part: what these show may be wanted."""
_AS_MUCH = 1.1
"""Times what a leak kept of each step that another finding may come to and be about the same memory."""
MOST_NOISE = 0.05
"""However much grows in a run without a name, more than this share of a growth is not noise."""


@dataclass(frozen=True)
class Judgement:
    """Whether a finding is gone, with its measures in words; `why` says why not."""

    gone: bool
    before: str
    after: str
    why: str = ""


def judge(finding: Finding, before: Trial, after: Trial, cost: str = "") -> Judgement:
    """Hold one observed finding of the run before against the run after, by a kind of `cost` where it is given."""
    same = [f for f in after.findings if is_same(finding, f, before, after)] or _as_many(finding, before, after)
    if cost_of(finding, cost, before.costs) > 0:
        return _costing(finding, cost, before, after, same)
    rate = finding.measured.bytes_per_step
    if rate is not None and rate > 0 and _held(finding) in before.rates:
        return _growth(finding, rate, before, after)
    left = [f for f in same if f.evidence != "suspected" or _grave(f)]
    told = measure(finding)
    if left:
        now = measure(left[0])
        return Judgement(False, told, now, f"it is still there: {now}")
    return Judgement(True, told, "gone")


def _costing(finding: Finding, kind: str, before: Trial, after: Trial, same: list[Finding]) -> Judgement:
    """A fault of speed, by what its line and those that it became cost: milder findings of its kind may remain."""
    was, now = cost_of(finding, kind, before.costs), _cost_after(finding, kind, before, after)
    told, left = worded(kind, was), worded(kind, now)
    if now > LEFT * was:
        return Judgement(False, told, left, f"its line still costs {left} (before: {told})")
    if any(f.evidence != "suspected" and _rank(f) >= _rank(finding) for f in same):
        return Judgement(False, told, left, f"it is still there: {left} (before: {told})")
    return Judgement(True, told, left)


def _cost_after(finding: Finding, kind: str, before: Trial, after: Trial) -> float:
    """What the lines cost in the run after that a finding's lines became."""
    found: set[tuple[str, int]] = set()
    for path, line in cost_lines(finding):
        was, now = before.sources.get(path), after.sources.get(path)
        found.update((path, n) for n in ({line} if was is None or now is None else became(was, now, line)))
    return sum(after.costs.get(kind, {}).get(key, 0.0) for key in found)


def _as_many(finding: Finding, before: Trial, after: Trial) -> list[Finding]:
    """The findings of one code in one function, where they are as many as before: a fault may move a line."""
    key = _function(finding)
    if key[1] is None or _held(finding):
        return []
    earlier, later = ([f for f in t.findings if _function(f) == key and not _held(f)] for t in (before, after))
    return later if len(later) >= len(earlier) else []


def _function(finding: Finding) -> tuple[str, str | None, str | None, int | None]:
    at = finding.location
    return finding.code, at.path if at else None, at.function if at else None, finding.rank


def _in_one_function(one: Finding, other: Finding) -> bool:
    """Whether two findings of one code are about one function: the graver had hidden what is left of it."""
    return _function(one) == _function(other) and _function(one)[2] is not None


def remains(finding: Finding, after: Trial) -> bool:
    """Whether something of a fault is left in its function, be it in other words: nobody has mended that."""
    return any(_grave(f) and _in_one_function(finding, f) for f in after.findings)


def _growth(finding: Finding, rate: float, before: Trial, after: Trial) -> Judgement:
    name = _held(finding)
    told = f"{size(rate)} per step"
    if after.steps < ENOUGH:
        return Judgement(False, told, "", f"{after.steps} steps are too few to tell that nothing grows")
    if after.windows < COMPARED:
        return Judgement(False, told, "", "storages were not looked at often enough in the mended run")
    names = _names(finding, before)
    nodes = _sum(before.nodes, names)
    if NODE_BYTES * nodes > rate:
        return _nodes(name, nodes, _sum(after.nodes, names))
    noise = noise_of(rate, before, after)
    now, graphs, pinned = (_sum(amounts, names) for amounts in (after.rates, after.graphs, after.pinned))
    was, were_graphs, was_pinned = (_sum(amounts, names) for amounts in (before.rates, before.graphs, before.pinned))
    left = f"{size(now)} per step"
    of_graphs = finding.code in _OF_GRAPHS and now > noise and were_graphs > 0
    if of_graphs and now - graphs <= was - were_graphs + noise and graphs <= noise:
        return Judgement(True, told, f"{left}, none of it saved by graphs: what is stored itself, as before")
    of_views = finding.code in _OF_VIEWS and now > noise and was_pinned > 0
    if of_views and pinned <= noise and now <= was - was_pinned + noise:
        return Judgement(True, told, f"{left}, all of it what is stored itself, as before")
    if now > noise:
        why = f"{name} still grows by {left} (before: {told}; noise: {size(noise)})"
        return Judgement(False, told, left, why)
    return Judgement(True, told, left)


def _names(finding: Finding, trial: Trial) -> list[str]:
    """The names that a finding of a run speaks of: one fault may make several grow."""
    name = _held(finding)
    return trial.names.get(name) or [name]


def _sum(amounts: Mapping[str, float], names: Iterable[str]) -> float:
    return sum(amounts.get(name, 0.0) for name in names)


def _nodes(name: str, rate: float, now: float) -> Judgement:
    """Growth of which the graph's nodes in host memory are the greater part, not tensors."""
    told, left = (f"{count(amount, 'autograd node')} per step" for amount in (rate, now))
    gone = now <= NOISE * rate
    return Judgement(gone, told, left, "" if gone else f"{name} still grows by {left} (before: {told})")


def noise_of(rate: float, before: Trial, after: Trial) -> float:
    """Bytes per step that a growth may have left: what grew in these two runs without a name, within limits."""
    return min(MOST_NOISE * rate, max(NOISE * rate, before.unexplained, after.unexplained))


def measure(finding: Finding) -> str:
    """The measure that a finding goes by, in words."""
    amounts = finding.measured
    if amounts.bytes_per_step:
        return f"{size(amounts.bytes_per_step)} per step"
    if amounts.seconds_per_step is not None:
        return f"{amounts.seconds_per_step * 1e3:.3g} ms per step"
    if amounts.bytes:
        return size(amounts.bytes)
    return finding.message


def new_findings(before: Trial, after: Trial) -> Iterator[Finding]:
    """What the run after shows at warning and above that the run before did not."""
    for finding in after.findings:
        if not _grave(finding):
            continue
        earlier = [f for f in before.findings if is_same(f, finding, before, after)]
        earlier += [f for f in before.findings if f.code == finding.code and _rank(f) >= _rank(finding)
                    and (_one_holder(f, finding, before, after) if _held(f) and _held(finding)
                         else _in_one_function(f, finding))
        ]  # fmt: skip
        earlier += [
            f for f in before.findings
            if _is_rest_of(f, finding, before, after) or _had_kept(f, finding, before, after)
        ]  # fmt: skip
        if not any(_rank(f) >= _rank(finding) or f.evidence == "observed" for f in earlier):
            yield finding


def _is_rest_of(earlier: Finding, later: Finding, before: Trial, after: Trial) -> bool:
    """Whether a growth is what a mend has left of an earlier one, under another rule: of rows that pinned whole batches
    the rows themselves are left, of outputs whose graphs are gone all their bytes. What is left of it judges the mend,
    and is no fault that the mend has made."""
    was, now = earlier.measured.bytes_per_step, later.measured.bytes_per_step
    same = bool(_held(earlier)) and _one_holder(earlier, later, before, after) and earlier.rank == later.rank
    return same and was is not None and now is not None and now <= was * (1 + NOISE)


def _had_kept(leak: Finding, later: Finding, before: Trial, after: Trial) -> bool:
    """Whether what a later finding is about is the memory of a step that a leak had kept: an evaluation whose graphs
    are let go of still builds them."""
    kept, size_now, at = leak.measured.bytes_per_step, later.measured.bytes, later.location
    if not kept or not size_now or later.measured.bytes_per_step or size_now > kept * _AS_MUCH or at is None:
        return False
    if size_now * _AS_MUCH >= kept:
        return True  # as much, to a few bytes, of other lines: those of a model that the later finding's line calls
    texts = before.sources.get(at.path, ""), after.sources.get(at.path, "")
    allocated = [r.line for r in leak.related if r.role == "allocated" and r.path == at.path and r.line is not None]
    return any(at.line in lines_after(*texts, line) for line in allocated)


def is_same(earlier: Finding, later: Finding, before: Trial, after: Trial) -> bool:
    """Whether a finding of the run before and one of the run after are about one fault: one code, and one holder, or
    one line as far as edits have moved it."""
    if earlier.code != later.code or earlier.rank != later.rank:
        return False
    if _held(earlier) and _held(later):
        return _one_holder(earlier, later, before, after)
    was, now = earlier.location, later.location
    if was is None or now is None:
        return was is now
    if was.path != now.path:
        return False
    texts = before.sources.get(was.path), after.sources.get(was.path)
    if texts[0] is None or texts[1] is None:
        return was.line == now.line
    return now.line in lines_after(texts[0], texts[1], was.line)


def _one_holder(earlier: Finding, later: Finding, before: Trial, after: Trial) -> bool:
    """Whether two findings speak of one name: of several that one fault makes grow, a fix may leave some."""
    return not set(_names(earlier, before)).isdisjoint(_names(later, after))


def _held(finding: Finding) -> str:
    return finding.holder.name if finding.holder is not None else ""


def _rank(finding: Finding) -> int:
    return SEVERITIES.index(finding.severity)


def _grave(finding: Finding) -> bool:
    return finding.severity != "info"

"""Whether a fault is gone: compares its measure in the unchanged program and in the fixed one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from torchvet.analysis.costs import cost_lines, cost_of, worded
from torchvet.finding import SEVERITIES, Finding
from torchvet.formatting import count, ms, size
from torchvet.recording.reader import ENOUGH
from torchvet.recording.records.base import NODE_BYTES
from torchvet.verifying.lines import became, lines_after
from torchvet.verifying.trial import Trial

NOISE = 0.01
"""The share of a growth that may remain: a detached running sum still takes a few bytes."""
COMPARED = 2
"""The windows of steps that must have recorded storages before growth can be called gone."""
LEFT = 0.5
"""The share of a line's cost in a step that may remain after a fix: one wait instead of one for each layer."""
# MEM101: a stored tensor keeps its step's graph.
_OF_GRAPHS = ("MEM101",)
"""Findings about what graphs saved. What the name itself stores may be wanted; other rules judge it."""
# MEM113: a stored view keeps its whole storage.
_OF_VIEWS = ("MEM113",)
"""Findings about storages of which the stored tensors show a small part. What the tensors show may be wanted."""
_OF_TIME = ("OPS204", "OPS205", "OPS206", "OPS301", "OPS302", "OPS304", "OPS313", "OPS315")
"""Findings about a share of a step's time, as the clock of lines saw it."""
_AS_MUCH = 1.1
"""The factor by which another finding about the same memory may exceed what a leak kept of each step."""
MOST_NOISE = 0.05
"""The largest share of a growth that counts as noise, however much grows without a name."""


@dataclass(frozen=True)
class Judgement:
    """Whether a finding is gone, with its measures in words; `why` says why not."""

    gone: bool
    before: str
    after: str
    why: str = ""
    bytes_per_step: tuple[float, float] | None = None
    """Of a growth: how much grew before, and how much after."""
    by_time: bool = False
    """Whether nothing but the time of a step speaks against the fix. Other programs take time as well."""


def judge(finding: Finding, before: Trial, after: Trial, cost: str = "") -> Judgement:
    """Judge one observed finding of the run before by the run after, by a kind of `cost` if one is given."""
    # An edit above moves a finding to another line, which does not make it a new one.
    same = [f for f in after.findings if is_same(finding, f, before, after)] or _as_many(finding, before, after)
    # The measured cost first: it says by how much, the finding only whether.
    if cost_of(finding, cost, before.costs) > 0:
        return _costing(finding, cost, before, after, same)
    rate = finding.measured.bytes_per_step
    # Growth of a name is compared by that name; a cycle has none and goes by its finding.
    if rate is not None and rate > 0 and _held(finding) in before.rates:
        left = _sum(after.rates, _names(finding, before))
        return replace(_growth(finding, rate, before, after), bytes_per_step=(rate, left))
    if _is_timed(finding):
        return _slow(finding, before, after, same)
    # A note about the text may well stay.
    remaining = [f for f in same if f.evidence != "suspected" or _grave(f)]
    was = measure(finding)
    if remaining:
        now = measure(remaining[0])
        return Judgement(False, was, now, f"it is still there: {now}")
    return Judgement(True, was, "gone")


def _is_timed(finding: Finding) -> bool:
    """Whether a finding is about a share of a step's time and nothing else. Others say what their line takes, too."""
    return finding.code in _OF_TIME and finding.measured.seconds_per_step is not None


def _slow(finding: Finding, before: Trial, after: Trial, same: list[Finding]) -> Judgement:
    """A fault of speed, by what a whole step takes before and after: what a line no longer takes, another may."""
    was, now = after.seconds_before or before.seconds_per_step, after.seconds_per_step
    saved = finding.measured.seconds_per_step
    if was is None or now is None or saved is None:
        return Judgement(False, measure(finding), "", "too few steps were timed")
    measured, left = f"a step takes {ms(was)}", ms(now)
    remains = any(f.evidence != "suspected" and _rank(f) >= _rank(finding) for f in same)
    # A finding's estimate is rough: half of it must be won.
    if now > was - LEFT * saved:
        why = f"a step takes {left} (before: {ms(was)}), and {ms(saved)} were to be saved"
        return Judgement(False, measured, left, why, by_time=not remains)
    if remains:
        return Judgement(False, measured, left, f"it is still there: {measure(same[0])}")
    return Judgement(True, measured, left)


def _costing(finding: Finding, kind: str, before: Trial, after: Trial, same: list[Finding]) -> Judgement:
    """A fault of speed, by what its lines cost before and after: milder findings of its kind may remain."""
    was, now = cost_of(finding, kind, before.costs), _cost_after(finding, kind, before, after)
    measured, left = worded(kind, was), worded(kind, now)
    if now > LEFT * was:
        return Judgement(False, measured, left, f"its line still costs {left} (before: {measured})")
    if any(f.evidence != "suspected" and _rank(f) >= _rank(finding) for f in same):
        return Judgement(False, measured, left, f"it is still there: {left} (before: {measured})")
    return Judgement(True, measured, left)


def _cost_after(finding: Finding, kind: str, before: Trial, after: Trial) -> float:
    """What a finding's lines, or those that replace them, cost in the run after."""
    found: set[tuple[str, int]] = set()
    for path, line in cost_lines(finding):
        was, now = before.sources.get(path), after.sources.get(path)
        # The edit moves lines: the cost is looked for where the line's work is done now.
        found.update((path, n) for n in ({line} if was is None or now is None else became(was, now, line)))
    return sum(after.costs.get(kind, {}).get(key, 0.0) for key in found)


def _as_many(finding: Finding, before: Trial, after: Trial) -> list[Finding]:
    """The findings of one code in one function if there are as many as before: a fault may move to another line."""
    key = _function(finding)
    if key[1] is None or _held(finding):
        return []
    earlier, later = ([f for f in t.findings if _function(f) == key and not _held(f)] for t in (before, after))
    # Fewer: one of them is gone, and which one nobody can say by the line.
    return later if len(later) >= len(earlier) else []


def _function(finding: Finding) -> tuple[str, str | None, str | None, int | None]:
    at = finding.location
    return finding.code, at.path if at else None, at.function if at else None, finding.rank


def _in_one_function(one: Finding, other: Finding) -> bool:
    """Whether two findings of one code are in one function: the worse one may have hidden the other."""
    return _function(one) == _function(other) and _function(one)[2] is not None


def remains(finding: Finding, after: Trial) -> bool:
    """Whether a finding of the same code remains in the fault's function, even with another message."""
    return any(_grave(f) and _in_one_function(finding, f) for f in after.findings)


def _growth(finding: Finding, rate: float, before: Trial, after: Trial) -> Judgement:
    name = _held(finding)
    measured = f"{size(rate)} per step"
    # A run that ends early or is hardly sampled looks like one without growth.
    if after.steps < ENOUGH:
        return Judgement(False, measured, "", f"{after.steps} steps are too few to show that nothing grows")
    # One window may be the warm-up.
    if after.windows < COMPARED:
        return Judgement(False, measured, "", "storages were not sampled often enough in the run with the fix")
    names = _names(finding, before)
    nodes = _sum(before.nodes, names)
    # A graph of scalars: its tensors are a few bytes, its nodes are what grows.
    if NODE_BYTES * nodes > rate:
        return _nodes(name, nodes, _sum(after.nodes, names))
    noise = noise_of(rate, before, after)
    now = _sum(after.rates, names)
    left = f"{size(now)} per step"
    if now <= noise:
        return Judgement(True, measured, left)
    wanted = _wanted(finding, names, noise, before, after)
    if wanted:
        return Judgement(True, measured, f"{left}, {wanted}")
    return Judgement(False, measured, left, f"{name} still grows by {left} (before: {measured}; noise: {size(noise)})")


def _wanted(finding: Finding, names: Sequence[str], noise: float, before: Trial, after: Trial) -> str:
    """What the rest of a growth is, if a finding of its code is not about that; empty where it is."""
    was, now = _sum(before.rates, names), _sum(after.rates, names)
    saved, left = _sum(before.graphs, names), _sum(after.graphs, names)
    # What is stored besides must not have grown instead.
    if finding.code in _OF_GRAPHS and saved > 0 and left <= noise and now - left <= was - saved + noise:
        return "none of it saved by graphs; the stored values remain, as before"
    pinned, left = _sum(before.pinned, names), _sum(after.pinned, names)
    if finding.code in _OF_VIEWS and pinned > 0 and left <= noise and now <= was - pinned + noise:
        return "all of it in the stored values, as before"
    return ""


def _names(finding: Finding, trial: Trial) -> list[str]:
    """The names that a finding is about: one fault may make several grow."""
    name = _held(finding)
    return trial.names.get(name) or [name]


def _sum(amounts: Mapping[str, float], names: Iterable[str]) -> float:
    return sum(amounts.get(name, 0.0) for name in names)


def _nodes(name: str, rate: float, now: float) -> Judgement:
    """Judges a growth that consists mostly of autograd nodes in host memory, not of tensors."""
    measured, left = (f"{count(amount, 'autograd node')} per step" for amount in (rate, now))
    gone = now <= NOISE * rate
    return Judgement(gone, measured, left, "" if gone else f"{name} still grows by {left} (before: {measured})")


def noise_of(rate: float, before: Trial, after: Trial) -> float:
    """Bytes per step that may remain of a growth: what grew without a name in either run, within limits."""
    # Growth without a name may belong to this one, but not more than a twentieth of it.
    return min(MOST_NOISE * rate, max(NOISE * rate, before.unexplained, after.unexplained))


def measure(finding: Finding) -> str:
    """What a finding measured, in words; its message if it measured nothing."""
    amounts = finding.measured
    if amounts.bytes_per_step:
        return f"{size(amounts.bytes_per_step)} per step"
    if amounts.seconds_per_step is not None:
        return f"{amounts.seconds_per_step * 1e3:.3g} ms per step"
    if amounts.bytes:
        return size(amounts.bytes)
    return finding.message


def new_findings(before: Trial, after: Trial) -> Iterator[Finding]:
    """The errors and warnings of the run after that are new."""
    for finding in after.findings:
        # A quicker step has other lines that take a large share of it.
        if not _grave(finding) or _is_timed(finding):
            continue
        earlier = [f for f in before.findings if _accounts_for(f, finding, before, after)]
        # A suspicion that a run now confirms was there before.
        if not any(_rank(f) >= _rank(finding) or f.evidence == "observed" for f in earlier):
            yield finding


def _accounts_for(earlier: Finding, later: Finding, before: Trial, after: Trial) -> bool:
    """Whether an earlier finding is about the same fault as a later one, or had hidden it."""
    same = is_same(earlier, later, before, after) or _hid(earlier, later, before, after)
    return same or _is_rest_of(earlier, later, before, after) or _had_kept(earlier, later, before, after)


def _hid(earlier: Finding, later: Finding, before: Trial, after: Trial) -> bool:
    """Whether an earlier finding of the same code, at least as severe, has the later one's holder or function."""
    if earlier.code != later.code or _rank(earlier) < _rank(later):
        return False
    if _held(earlier) and _held(later):
        return _one_holder(earlier, later, before, after)
    return _in_one_function(earlier, later)


def _is_rest_of(earlier: Finding, later: Finding, before: Trial, after: Trial) -> bool:
    """Whether a growth is what a fix left of an earlier one, now reported by another rule.

    Of rows that pinned whole batches, the rows remain; of outputs that kept graphs, the outputs. How much remains
    decides about the fix, but it is not a new fault.
    """
    was, now = earlier.measured.bytes_per_step, later.measured.bytes_per_step
    # Whatever the code: two rules speak of one name.
    same = bool(_held(earlier)) and _one_holder(earlier, later, before, after) and earlier.rank == later.rank
    return same and was is not None and now is not None and now <= was * (1 + NOISE)


def _had_kept(leak: Finding, later: Finding, before: Trial, after: Trial) -> bool:
    """Whether a later finding is about memory of a step that a leak kept: a loop that now frees its graphs still
    builds them."""
    kept, size_now, at = leak.measured.bytes_per_step, later.measured.bytes, later.location
    if not kept or not size_now or later.measured.bytes_per_step or size_now > kept * _AS_MUCH or at is None:
        return False
    if size_now * _AS_MUCH >= kept:
        return True  # the same amount, but of lines of a model that the later finding's line calls
    texts = before.sources.get(at.path, ""), after.sources.get(at.path, "")
    allocated = [r.line for r in leak.related if r.role == "allocated" and r.path == at.path and r.line is not None]
    return any(at.line in lines_after(*texts, line) for line in allocated)


def is_same(earlier: Finding, later: Finding, before: Trial, after: Trial) -> bool:
    """Whether two findings are about one fault: the same code and holder, or the same line, wherever edits moved it."""
    # Another rank may have the same fault for another reason.
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
    # Of a library's file no text is kept, and no edit moved its lines.
    if texts[0] is None or texts[1] is None:
        return was.line == now.line
    return now.line in lines_after(texts[0], texts[1], was.line)


def _one_holder(earlier: Finding, later: Finding, before: Trial, after: Trial) -> bool:
    """Whether two findings share a name: of several that one fault makes grow, a fix may leave some growing."""
    return not set(_names(earlier, before)).isdisjoint(_names(later, after))


def _held(finding: Finding) -> str:
    return finding.holder.name if finding.holder is not None else ""


def _rank(finding: Finding) -> int:
    return SEVERITIES.index(finding.severity)


def _grave(finding: Finding) -> bool:
    return finding.severity != "info"

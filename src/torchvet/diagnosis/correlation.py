"""Joins what source suggests with what a run measured: one finding for one fault, graded by the measurement.

Suspicions count in files of which a line was seen running. One that the run saw at work is the run's finding, with the
fix that source knows; one whose line ran and that the run could have shown, and did not, is lowered and says so. So is
one whose line was not seen to run: it is no fault of this run, whatever its rule. `check` grades what is only text.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from torchvet.analysis.costs import cost_of, costs, worded
from torchvet.checking.engine import Scope, check_text, source_rules
from torchvet.finding import Finding, Location, Measured, Related, Remedy, about
from torchvet.recording import Recording
from torchvet.recording.records.base import Census, Place
from torchvet.recording.records.training import Outcome, Ran, Unchecked
from torchvet.rules import Rule
from torchvet.rules.core.base import Need
from torchvet.rules.memory.mem118_growth_unattributed.rule import GrowthUnattributed
from torchvet.rules.shared.growth_rule import GrowthRule
from torchvet.rules.shared.witnesses import nothing_rises
from torchvet.source.running import Running, reached


def joined(recording: Recording, observed: Sequence[Finding], rules: Sequence[Rule]) -> list[Finding]:
    """The observed findings with what source adds to them, and the suspicions at `warning` and above that remain.

    `rules` are the ones that are wanted; each is asked about the text as it was when the program ran.
    """
    by_code = {rule.code: rule for rule in rules}
    lines = lines_seen(recording)
    found, claimed, others = _claimed(observed, _all_suspicions(recording, observed, lines, rules), by_code)
    alone: list[Finding] = []
    for suspicion in others:
        if suspicion.location is None or suspicion.location.path not in lines:
            continue
        # Only of what no finding covers: a finding of the run is told with its own measure.
        rule = by_code[suspicion.code]
        seen = _costly(suspicion, rule, recording)
        if seen is not None:
            found.append(seen)
        elif _is_worth_saying(suspicion, rule, recording):
            alone.append(suspicion)
    # A leak that no suspicion accounts for may be any of them, stored in a way that source does not see.
    leaking = any(_grows(f) for i, f in enumerate(observed) if i not in claimed)
    may_grow = [leaking or _in_evaluation(observed, f.location) for f in alone]
    found += _unconfirmed(alone, may_grow, by_code, recording, lines)
    # Last: what a suspicion has given an edit is not asked for another.
    return [_with_fix(f, by_code.get(f.code), recording) for f in found]


def _claimed(
    observed: Sequence[Finding], suspicions: Iterable[Finding], rules: Mapping[str, Rule]
) -> tuple[list[Finding], set[int], list[Finding]]:
    """The observed findings with the suspicions that are about their faults, the places of those that have one, and
    the suspicions that are about none."""
    found = list(observed)
    claimed: set[int] = set()
    others: list[Finding] = []
    for suspicion in suspicions:
        twins = _twins(suspicion, observed, found, rules[suspicion.code])
        for index in twins:
            # It says only that something grows: the suspicion that stands on its line takes its place.
            nameless = found[index].code == GrowthUnattributed.code
            found[index] = (_named_by if nameless else _with_source)(found[index], suspicion)
        # By position, as `found` may already hold another finding there.
        claimed.update(twins)
        others += [] if twins else [suspicion]
    return found, claimed, others


def _is_worth_saying(suspicion: Finding, rule: Rule, recording: Recording) -> bool:
    """Whether a suspicion is more than a note, or foretells the error that the program ended in."""
    return suspicion.severity != "info" or any(_ended_in(rule.bad_raises, recording))


def _all_suspicions(
    recording: Recording, observed: Sequence[Finding], lines: Mapping[str, set[int]], rules: Sequence[Rule]
) -> Iterator[Finding]:
    """What source alone suspects in the files that ran."""
    # A file that a finding names counts even if no line of it was sampled.
    named = {f.location.path for f in observed if f.location is not None}
    for path in sorted((lines.keys() | named) & recording.sources.keys()):
        yield from _suspicions(path, recording.sources[path], rules)


def _twins(suspicion: Finding, observed: Sequence[Finding], now: Sequence[Finding], rule: Rule) -> list[int]:
    """The places of the observed findings that are about the suspicion's fault."""
    twins = [i for i, f in enumerate(observed) if same_fault(f, suspicion) and not _taken(now[i], f, rule)]
    # Two names may be stored into on one line: each has the fix that its own suspicion knows.
    twins = [i for i in twins if _named_in(observed[i], suspicion)] or twins
    # Two faults of one code in one function each have their own line's.
    return [i for i in twins if _on_its_line(observed[i], suspicion)] or twins


def _unconfirmed(
    alone: Sequence[Finding],
    may_grow: Sequence[bool],
    rules: Mapping[str, Rule],
    recording: Recording,
    lines: Mapping[str, set[int]],
) -> Iterator[Finding]:
    """Suspicions that the run has not shown: harmless where it would have shown them, else lowered or as they are."""
    met = needs_met(recording)
    # Once a file and not once a suspicion.
    trees = {path: ast.parse(recording.sources[path]) for path in {f.location.path for f in alone if f.location}}
    running = Running(recording.sources, places_seen(recording, lines))
    for suspicion, grows in zip(alone, may_grow, strict=True):
        rule, at = rules[suspicion.code], suspicion.location
        assert at is not None
        if rule.disproves(recording, suspicion):
            continue
        came = _came_true(suspicion, rule, alone, recording)
        if suspicion.severity == "info":  # of notes only what the program ended by is said
            yield from [came] if came is not suspicion else []
            continue
        judged = met.issuperset(rule.absence_needs) and rule.could_be_measured(recording)
        # With memory growing that nobody has named, "measured harmless" could be wrong.
        judged = judged and not (isinstance(rule, GrowthRule) and grows)
        # The line may stand in a branch that this run did not take.
        judged = judged and reached(trees[at.path], lines[at.path], at.line)
        if judged or rule.cannot_apply(recording):
            yield _harmless(suspicion, recording)
        else:
            # What came true is no suspicion any more and stays as it is.
            yield _not_seen(came, running)


def needs_met(recording: Recording) -> frozenset[Need]:
    """What a run has measured to the end; nothing where a probe could not look."""
    gaps = [u for rank in recording.ranks for u in rank.all(Unchecked)]
    searches = [rank.all(Census) for rank in recording.ranks]
    met: dict[Need, bool] = {
        "flat memory": nothing_rises(recording),
        # Without any search there was nothing to search for.
        "names": all(not looks or any(c.complete for c in looks) for looks in searches),
        "graphs": not any(u.graphs for u in gaps),
    }
    return frozenset(need for need, so in met.items() if so and not any(u.voids for u in gaps))


def _came_true(suspicion: Finding, rule: Rule, others: Sequence[Finding], recording: Recording) -> Finding:
    """A suspicion as an observed finding where the program ended in the error that it foretells: on its line, or with
    no other of its kind to be the cause."""
    # A rule that reads recordings has said itself what it saw of the error.
    if not rule.bad_raises or "in_recording" in rule.inputs():
        return suspicion
    rivals = [o for o in others if o.code == suspicion.code]
    for ended in _ended_in(rule.bad_raises, recording):
        there = {(p.path, p.line) for p in (ended.place, *ended.stack) if p is not None}
        hit = [o for o in rivals if o.location is not None and (o.location.path, o.location.line) in there]
        if suspicion in hit or (not hit and len(rivals) == 1):
            # The error ended the step that was under way, which is not among the ticks.
            measured = Measured(steps=ended.ticks + 1)
            return msgspec.structs.replace(suspicion, evidence="observed", severity="error", measured=measured)
    return suspicion


def _ended_in(error: str, recording: Recording) -> Iterator[Outcome]:
    """How those ranks ended that ended in an exception of this text."""
    for ended in (rank.last(Outcome) for rank in recording.ranks if error):
        if ended is not None and ended.how == "exception" and error in (ended.error or ""):
            yield ended


def _costly(suspicion: Finding, rule: Rule, recording: Recording) -> Finding | None:
    """A suspicion with what its line costs in a step, where that was counted and it has an edit that can be tried."""
    # Without an edit nothing could be tried: a cost alone is no fault.
    asked = rule.cost and suspicion.remedy.edits and "in_recording" not in rule.inputs()
    for rank in recording.ranks if asked else ():
        amount = cost_of(suspicion, rule.cost, costs(rank))
        if amount > 0:
            message = f"{suspicion.message} ({worded(rule.cost, amount)})"
            seen = Measured(steps=rank.ticks)
            return msgspec.structs.replace(suspicion, evidence="observed", message=message, measured=seen)
    return None


def _with_fix(finding: Finding, rule: Rule | None, recording: Recording) -> Finding:
    """An observed finding with the edits that its rule has for the line that the run has named."""
    at, sources = finding.location, recording.sources
    asked = rule is not None and type(rule).fixes is not Rule.fixes and not finding.remedy.edits
    if not asked or rule is None or at is None or at.path not in sources or finding.evidence == "suspected":
        return finding
    # Here, as most reports parse no text.
    from torchvet.source.model import SourceFile

    try:
        edits = list(rule.fixes_seen(finding, SourceFile(at.path, sources[at.path]), recording))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return finding
    return msgspec.structs.replace(finding, remedy=Remedy(summary=finding.remedy.summary, edits=edits))


def _named_in(observed: Finding, suspicion: Finding) -> bool:
    """Whether the suspicion is about the name that a run's finding holds."""
    # The last part counts: source says `self.losses`, a run `trainer.losses`.
    held = re.findall(r"\w+", observed.holder.name.partition(" ")[0]) if observed.holder is not None else []
    return bool(held) and any(held[-1:] == re.findall(r"\w+", name)[-1:] for name in about(suspicion).operands)


def _on_its_line(observed: Finding, suspicion: Finding) -> bool:
    """Whether a run's finding of the suspicion's code stands on its very line."""
    one, other = observed.location, suspicion.location
    same = one is not None and other is not None and (one.path, one.line) == (other.path, other.line)
    return same and observed.code == suspicion.code


def _grows(finding: Finding) -> bool:
    return (finding.measured.bytes_per_step or 0) > 0


def _in_evaluation(observed: Sequence[Finding], at: Location | None) -> bool:
    """Whether the function of a line was seen to build graphs that matter and that no backward uses: what it stores may
    keep them until the evaluation ends, between two censuses."""
    # MEM104: graphs of an evaluation.
    graphs = (f for f in observed if f.code == "MEM104" and f.severity != "info" and f.location is not None)
    there = {(f.location.path, f.location.function) for f in graphs if f.location is not None}
    return at is not None and (at.path, at.function) in there


def lines_seen(recording: Recording) -> dict[str, set[int]]:
    """The lines of each file that any rank saw running, those that its program ended in an error on among them: there
    may be no others."""
    found: dict[str, set[int]] = {}
    for rank in recording.ranks:
        for record in rank.all(Ran):
            found.setdefault(record.path, set()).update(record.lines)
        ended = rank.last(Outcome)
        for place in (ended.place, *ended.stack) if ended is not None else ():
            if place is not None:
                found.setdefault(place.path, set()).add(place.line)
    return found


def places_seen(recording: Recording, lines: Mapping[str, set[int]]) -> dict[str, set[int]]:
    """Those lines, and every other that a record of the run names: what runs once is rarely in a sampled step."""
    found = {path: set(numbers) for path, numbers in lines.items()}
    for rank in recording.ranks:
        # Every record that has a place tells of a line that ran, whatever the record is about.
        for record in rank.lines:
            for place in (getattr(record, name) for name in record.__struct_fields__):
                if isinstance(place, Place):
                    found.setdefault(place.path, set()).add(place.line)
    return found


def _suspicions(path: str, text: str, rules: Sequence[Rule]) -> Iterator[Finding]:
    asked = source_rules(rules)
    codes = frozenset(rule.code for rule in asked)
    # All three parts of the scope: no `# torchvet: ignore` tells of codes that were not asked for.
    return iter(check_text(path, text, asked, Scope(codes, codes, codes)).findings)


def same_fault(observed: Finding, suspicion: Finding) -> bool:
    """Whether a run's finding and a suspicion are about one fault: one code and a line, a calling line or a function in
    common, or two ways to keep memory and one line that stores."""
    at, suspected = observed.location, suspicion.location
    if at is None or suspected is None:
        return False
    same_code = observed.code == suspicion.code
    touched = {r.role for r in observed.related if _covers(suspected, r)}
    if _covers(suspected, at) or "stored" in touched:
        # Source may take one way to keep memory for another (MEM101 for MEM105): the line that stores
        # decides.
        return same_code or observed.code[:4] == suspicion.code[:4] == "MEM1"
    same_function = at.function is not None and (at.path, at.function) == (suspected.path, suspected.function)
    return same_code and (same_function or "called-from" in touched)


def _covers(location: Location, place: Location | Related) -> bool:
    lines = range(location.line, (location.end_line or location.line) + 1)
    return place.path == location.path and place.line in lines


def _taken(now: Finding, observed: Finding, rule: Rule) -> bool:
    """Whether growth without a name is not a suspicion's to name: another has, or its rule is not one of growth."""
    return observed.code == GrowthUnattributed.code and (now.code != observed.code or not isinstance(rule, GrowthRule))


def _named_by(observed: Finding, suspicion: Finding) -> Finding:
    """Growth without a name whose storages are made on the very line that source suspects of keeping them."""
    return msgspec.structs.replace(
        suspicion,
        evidence="observed",
        severity=observed.severity,
        measured=observed.measured,
        related=[*suspicion.related, *observed.related],
        rank=observed.rank,
        device=observed.device,
    )


def _with_source(observed: Finding, suspicion: Finding) -> Finding:
    """A run's finding with the edits that source has for it, and its line where that is another."""
    remedy, related = observed.remedy, list(observed.related)
    # Another code's edit would fix another fault.
    if observed.code == suspicion.code and suspicion.remedy.edits and not remedy.edits:
        remedy = Remedy(summary=remedy.summary, safe=suspicion.remedy.safe, edits=suspicion.remedy.edits)
        # What a fix changes may cost on other lines: those that its cost is counted on.
        related += [r for r in suspicion.related if r.role == "runs"]
    at, suspected = observed.location, suspicion.location
    if at is not None and suspected is not None and at.line != suspected.line:
        related.append(Related(role="in-source", message=suspicion.message, path=suspected.path, line=suspected.line))
    return msgspec.structs.replace(observed, remedy=remedy, related=related)


def _harmless(suspicion: Finding, recording: Recording) -> Finding:
    """A suspicion that the run has not confirmed, for what it is: worth knowing."""
    steps = max((rank.ticks for rank in recording.ranks), default=0)
    return msgspec.structs.replace(
        suspicion,
        severity="info",
        measured=Measured(steps=steps),
        message=f"measured harmless over {steps:,} steps: {suspicion.message}",
    )


def _not_seen(finding: Finding, running: Running) -> Finding:
    """What is only suspected about a line that nothing shows to have run, as a note; all else as it is."""
    at = finding.location
    if finding.evidence != "suspected" or at is None or running.ran(at.path, at.line):
        return finding
    return msgspec.structs.replace(finding, severity="info", message=f"not seen running: {finding.message}")

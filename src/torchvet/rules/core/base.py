"""What a rule is: one class that carries its code and its matchers, beside the files of its texts and examples."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, ClassVar, Literal

from torchvet.finding import (
    NOTHING_MORE,
    About,
    DetailedFinding,
    Edit,
    Finding,
    Holder,
    Location,
    Measured,
    Related,
    Remedy,
    Severity,
)
from torchvet.rules.core import documents
from torchvet.rules.core.at_work import AtWork, was_at_work
from torchvet.rules.core.documents import Document

if TYPE_CHECKING:
    import ast

    from torchvet.readers.trace_facts import Trace
    from torchvet.recording import RankRecording, Recording
    from torchvet.recording.records.base import Place
    from torchvet.snapshots.memory import SnapshotMemory
    from torchvet.snapshots.ranks import RankPeak
    from torchvet.source.model import Event, SourceFile
    from torchvet.source.stores import Store


INPUTS = ("in_source", "in_recording", "in_snapshot", "in_ranks", "in_trace")
"""The methods of `Rule` that yield findings, each named for what it reads."""
Findings = Iterator[Finding]
"""What a rule yields."""
Edits = Sequence[Edit]
"""What a rule offers to change."""
Need = Literal["flat memory", "names", "graphs"]
"""What else a run must have measured to the end, so that a fault's absence is one: no witness of growth saw any and
each saw enough; a search for names came to its end; autograd graphs were followed to theirs."""


class Rule:
    """One fault that torchvet knows. Subclasses fill in the knowledge and override the matchers that apply.

    `BAD` and `GOOD` are whole programs: they run as tests, stand in the documentation and feed `explain`. They and the
    texts from `what` to `remedy` are read from the rule's folder when they are first asked for: see `documents`.
    """

    code: ClassVar[str]
    name: ClassVar[str]
    """These two are the folder's: `mem101_graph_retained` holds MEM101, `graph-retained`."""
    summary: ClassVar[str]
    """One line, present tense, no full stop: the class's docstring, unless the class states another."""
    severity: ClassVar[Severity]
    """The usual severity; a finding from a run is graded by what was measured."""
    words: ClassVar[tuple[str, ...]] = ()
    """`in_file` is asked about files that hold one of these, also in a comment; about all files if this is empty."""
    once_a_place: ClassVar[bool] = True
    """Whether `in_source` drops a finding at the place of an earlier one."""

    what = Document(documents.section)
    """What happens, mechanically."""
    why = Document(documents.section)
    """Why it costs memory, time or correctness."""
    when_not = Document(documents.section)
    """When it does not matter: the look-alikes that stay silent."""
    proof = Document(documents.section)
    """The measurement behind the claim, with its figures and the torch version."""
    remedy = Document(documents.section)
    """What to change, in general terms; a finding says it in the user's own names."""

    BAD = Document(documents.faulty_program)
    GOOD = Document(documents.good_program)
    specialises: ClassVar[str] = ""
    """The code of a more general rule whose findings on the same failed step (equal `measured.steps` and rank) this
    rule's replace, unless they are graver: of a NaN its mechanism is said, not both."""
    runs_on: ClassVar[Literal["cpu", "cuda"]] = "cpu"
    """What the examples need to be run."""
    found_with: ClassVar[tuple[str, ...]] = ("run",)
    """The verb, with its options, that finds what `in_recording` says."""
    bad_raises: ClassVar[str] = ""
    """A part of the traceback where the faulty example ends in one."""
    fix_changes_results: ClassVar[bool] = False
    """Whether the fault is in the mathematics, so that the fixed example prints other losses."""

    fix_may_change_losses: ClassVar[bool] = False
    """Whether its fix changes on purpose what is learnt, as a cut gradient or a cleared one does, even if the
    example's losses stay the same."""

    fix_keeps_finite: ClassVar[bool] = False
    """Whether its fix leaves what is computed in steps that are finite as it was, but for rounding."""

    silence_clears: ClassVar[bool] = True
    """Whether a run that was sampled long enough and did not show this fault clears a suspicion whose line ran."""
    needs_at_work: ClassVar[AtWork | None] = None
    """What must have been at work in a run before its silence clears a suspicion."""
    absence_needs: ClassVar[tuple[Need, ...]] = ()
    """What a run must have measured to the end before its silence clears a suspicion."""

    cost: ClassVar[str] = ""
    """Of a fault of speed: what its line costs, by the kinds of `recording.costs`. A run that has counted it there has
    seen the fault at work, and a fix is proven by less of it."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        package, _, module = cls.__module__.rpartition(".")
        # Only a rule's own module: base classes in other modules have no code.
        if module == "rule":
            code, _, name = package.rpartition(".")[2].partition("_")
            cls.code, cls.name = code.upper(), name.replace("_", "-")
            # Its own, and not one that it inherits.
            if "summary" not in vars(cls):
                cls.summary = " ".join((cls.__doc__ or cls.name).split()).removesuffix(".")

    def fixes(self, finding: Finding, file: SourceFile) -> Edits:
        """Edits for what a run found on a line of a file, where source alone suspected nothing. They are never safe:
        `torchvet fix --verify` proves them."""
        return ()

    def fixes_seen(self, finding: Finding, file: SourceFile, recording: Recording) -> Edits:
        """`fixes`, where what else the run has seen does not speak against them."""
        return self.fixes(finding, file)

    @classmethod
    def inputs(cls) -> tuple[str, ...]:
        """Those of `INPUTS` that the rule overrides, in whole or in part, itself or through a base class."""
        # Who overrides the part is asked through the whole.
        parts = {"in_source": "in_file", "in_recording": "in_rank"}
        # By what is overridden and not by a list: such a list would be forgotten.
        overridden = {name for name in (*INPUTS, *parts.values()) if getattr(cls, name) is not getattr(Rule, name)}
        return tuple(name for name in INPUTS if name in overridden or parts.get(name) in overridden)

    def in_recording(self, recording: Recording) -> Findings:
        """Yield what a recorded run shows: of each rank by itself, unless a rule overrides this."""
        for rank in recording.ranks:
            yield from self.in_rank(rank, recording)

    def in_rank(self, rank: RankRecording, recording: Recording) -> Findings:
        """Yield what one rank of a recorded run shows."""
        return iter(())

    def could_be_measured(self, recording: Recording) -> bool:
        """Whether a run was sampled long enough to show this fault, so that its silence clears a suspicion whose line
        ran. A rule that needs more than its class attributes can say extends this."""
        if not self.silence_clears or "in_recording" not in self.inputs():
            return False
        # One rank that was not sampled may be the one with the fault.
        if not recording.ranks or not all(rank.sampled for rank in recording.ranks):
            return False
        return self.needs_at_work is None or was_at_work(self.needs_at_work, recording)

    def cannot_apply(self, recording: Recording) -> bool:
        """Whether a run has shown that what its source is suspected of can do nothing in it, whether or not the
        suspected line ran."""
        return False

    def disproves(self, recording: Recording, suspicion: Finding) -> bool:
        """Whether a run has shown that what the text was suspected of is not so: then nothing is said of it, as it is
        not harmless but untrue."""
        return False

    def in_source(self, file: SourceFile) -> Findings:
        """Yield what a file's text shows, if it has one of the rule's `words`. What cannot be decided from the text
        stays silent, or is `info`."""
        if self.words and not file.mentions(*self.words):
            return
        found: set[Location | None] = set()
        for finding in self.in_file(file):
            # A helper's call is laid out in every step that reaches it, so one event can be met several times.
            if not self.once_a_place or finding.location not in found:
                found.add(finding.location)
                yield finding

    def in_file(self, file: SourceFile) -> Findings:
        """Yield what a file's text shows. The file has one of `words`; of findings at one place the first counts."""
        return iter(())

    def in_snapshot(self, snapshot: SnapshotMemory) -> Findings:
        """Yield what a CUDA memory snapshot shows."""
        return iter(())

    def in_ranks(self, ranks: Sequence[RankPeak]) -> Findings:
        """Yield what the peaks of several ranks' snapshots show, held against each other."""
        return iter(())

    def in_trace(self, trace: Trace) -> Findings:
        """Yield what a profiler trace shows, or the traces of several ranks: what costs less than 1 % of a step is
        no finding."""
        return iter(())

    def suspect(
        self, file: SourceFile, at: Event, message: str, *, cause: str, advice: str, severity: Severity | None = None,
        node: ast.AST | None = None, edits: Edits = (), safe: bool = False, related: Sequence[Related] = (),
        about: About = NOTHING_MORE,
    ) -> Finding:  # fmt: skip
        """A finding at an event, or at a `node` of its unit: suspected, since nothing was measured. Edits of a rule
        whose fix changes losses are not safe, whatever is asked for."""
        where = file.place(node if node is not None else at.node, at)
        # A fix that changes losses must be chosen, however sure the edit itself is.
        safe = safe and not (self.fix_changes_results or self.fix_may_change_losses)
        return DetailedFinding(
            code=self.code, name=self.name, severity=severity or self.severity, evidence="suspected", message=message,
            location=where, cause=cause, remedy=Remedy(summary=advice, safe=safe, edits=list(edits)),
            related=list(related), about=about,
        )  # fmt: skip

    def observed(
        self,
        rank: RankRecording,
        place: Place | Store | Location | None,
        message: str,
        *,
        cause: str,
        advice: str,
        severity: Severity | None = None,
        measured: Measured | None = None,
        holder: Holder | None = None,
        related: Sequence[Related] = (),
        about: About = NOTHING_MORE,
        device: str | None = None,
    ) -> Finding:
        """A finding of a run, with what all of them have in common filled in. The device is the run's own unless one
        is given."""
        if place is not None and not isinstance(place, Location):
            place = Location(path=place.path, line=place.line, function=place.function)
        program = rank.program
        return DetailedFinding(
            code=self.code,
            name=self.name,
            severity=severity or self.severity,
            evidence="observed",
            message=message,
            location=place,
            cause=cause,
            remedy=Remedy(summary=advice),
            related=list(related),
            holder=holder,
            measured=measured or Measured(),
            # The group's word first: a launcher's RANK is set before there is one.
            rank=rank.member.rank if rank.member else program.rank if program else None,
            device=device or (program.device if program else None),
            about=about,
        )

    @staticmethod
    def beside(role: str, message: str, at: Place | Location | None) -> Related:
        """What belongs to a finding of a run, with its line where that is known."""
        return Related(role=role, message=message, path=at.path if at else None, line=at.line if at else None)

    @staticmethod
    def also(file: SourceFile, role: str, at: Event, message: str = "") -> Related:
        """Another line that belongs to a finding; without a message with its code."""
        return Related(role=role, message=message or file.segment(at.node), path=file.path, line=at.line)

"""Finds out which of several fixes help, with a bounded number of runs.

All fixes are tried together. If that fails, they are tried with the fixes for what they uncover, then each alone. What
an accepted run still shows is fixed in another round.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from torchvet.finding import Edit, Finding
from torchvet.formatting import count
from torchvet.verifying.curves import TOLERANCE, Agreement, compare, compare_sums
from torchvet.verifying.hiding import hidden
from torchvet.verifying.outputs import Output, compare_output, same_output
from torchvet.verifying.trial import Trial
from torchvet.verifying.verdicts import Judgement, judge, new_findings

ALONE = 6
"""How many fixes are tried one by one if all together fail: each takes a run."""

ROUNDS = 4
"""How often fixes are tried for what the run before has uncovered."""

_MANY = 1.5
"""Times the steps of the unchanged program, which ended by itself, from which on a fixed one does not end."""

_FIRST = 3
"""The first steps whose gradients must agree where several passes became one. Another loss would show in them at once,
while rounding grows from step to step. Chosen, not measured."""

MOST_NOISE = 0.05
"""If the losses of two unchanged runs differ by a larger share, nothing can be concluded from losses."""

Runner = Callable[[Sequence[Finding]], Trial]
"""Runs the program with the edits of these findings; unchanged if there are none."""


@dataclass(frozen=True)
class Fix:
    """A finding with edits."""

    finding: Finding
    changes: bool = False
    """Whether the fault is in the mathematics, so that the fix changes the losses."""
    cost: str = ""
    """The kind of cost that measures it, if it is a fault of speed."""
    seen: Trial | None = field(default=None, compare=False)
    """The run that uncovered the finding; None for the run of the unchanged program."""
    keeps_finite: bool = False
    """Whether it leaves steps that were finite as they were."""
    as_seen: Finding | None = field(default=None, compare=False)
    """The finding with that run's line numbers."""


Uncover = Callable[[Trial, Sequence[Finding]], list[Fix]]
"""Gives the fixes for what a run with some findings' edits shows, as edits of the unchanged program."""


@dataclass(frozen=True)
class Proof:
    """What a run with a fix showed: of the fault, and of the losses. Pairs are before and after."""

    judgement: Judgement
    agreement: Agreement
    steps: tuple[int, int]
    seconds_per_step: tuple[float | None, float | None]
    output: Output
    noise: float | None = None
    """The relative difference of two unchanged runs, if it was needed."""


@dataclass
class Verified:
    """The outcome of a search."""

    proven: list[tuple[Fix, Proof]] = field(default_factory=list)
    refused: list[tuple[Fix, str]] = field(default_factory=list)
    """Each with the reason."""
    final: Trial | None = None
    """The run with all proven fixes."""
    runs: int = 0


class Search:
    """The search over one program.

    `before` is the run of the unchanged program, `tolerance` the largest relative difference of losses that counts as
    equal; `uncover` finds fixes for what a changed program shows. With `unsafe`, a fix that leaves the losses may
    change what else the program prints and writes.
    """

    def __init__(
        self,
        before: Trial,
        runner: Runner,
        tolerance: float = TOLERANCE,
        uncover: Uncover | None = None,
        unsafe: bool = False,
    ) -> None:
        self.before, self.tolerance = before, tolerance
        self._runner, self._uncover, self._unsafe = runner, uncover, unsafe
        self._unchanged_again: Trial | None = None
        self._tried: set[tuple[Edit, ...]] = set()
        self.result = Verified(runs=1)

    def run(self, fixes: Sequence[Fix]) -> Verified:
        """Try fixes in rounds; the next round takes the fixes for what the last accepted run still shows.

        Fixes that must not change the losses come first, so that their losses can be compared; those that change them
        on purpose follow on top.
        """
        for _ in range(ROUNDS):
            # A group that changes losses would hide that one that must not does.
            for group in ([m for m in fixes if not m.changes], [m for m in fixes if m.changes]):
                if group:
                    self._together(group)
            fixes = self._further(self.result.final, []) if self.result.final is not None else []
            if not fixes:
                break
        return self.result

    def _further(self, after: Trial, group: Sequence[Fix]) -> list[Fix]:
        """Untried fixes for what a run with a group of fixes shows."""
        if self._uncover is None:
            return []
        made = [m.finding for m, _ in self.result.proven] + [m.finding for m in group]
        # By the edits: after a fix the same fault may come back with another message.
        return [m for m in self._uncover(after, made) if tuple(m.finding.remedy.edits) not in self._tried]

    def _together(self, group: Sequence[Fix]) -> None:
        after = self._try(group)
        # Before the group is judged, as its fixes may help only with others.
        if self._jointly(group, after):
            return
        whole = self._whole(group, after)
        if whole:
            self._one_by_one(group, whole)
            return
        # The run as a whole is sound, so each fix is judged by its own fault.
        good = [m for m in group if self._judge(m, after).gone]
        if len(good) == len(group):
            self._accept(group, after)
            return
        for fix in group:
            if fix not in good:
                self._refuse(fix, self._judge(fix, after).why)
        if good:
            self._again(good)

    def _jointly(self, group: Sequence[Fix], after: Trial) -> bool:
        """Whether fixes that do not help by themselves help together with fixes for what they uncover.

        One fault may feed two names, of which the first hides the second; two lines may feed one name.
        """
        for _ in range(ROUNDS - 1):
            # Nothing to add to what already helps, nor to what breaks the program.
            if self._unsound(group, after) or self._helps(group, after):
                return False
            more = [m for m in self._further(after, group) if m.changes == group[0].changes]
            if not more:
                return False
            first, group = group, [*group, *more]
            after = self._try(group)
            if self._helps(group, after):
                self._accept(*self._least(group, after, first))
                return True
        return False

    def _least(self, group: Sequence[Fix], after: Trial, first: Sequence[Fix]) -> tuple[Sequence[Fix], Trial]:
        """A joint set without those of its first fixes that it does not need, and its run."""
        # Each costs a run, so no more are tried than of fixes alone.
        for fix in first[:ALONE]:
            fewer = [m for m in group if m is not fix]
            without = self._try(fewer)
            # Dropped only if its own fault is gone without it.
            if self._helps(fewer, without) and self._judge(fix, without).gone:
                group, after = fewer, without
        return group, after

    def _helps(self, group: Sequence[Fix], after: Trial) -> bool:
        """Whether a run is sound and all symptoms of a group are gone."""
        return not self._whole(group, after) and all(self._judge(m, after).gone for m in group)

    def _one_by_one(self, group: Sequence[Fix], whole: str) -> None:
        if len(group) == 1:
            self._refuse(group[0], whole)
            return
        good = []
        for fix in group[:ALONE]:
            after = self._try([fix])
            why = self._whole([fix], after) or self._judge(fix, after).why
            if why:
                self._refuse(fix, why)
            else:
                good.append((fix, after))
        for fix in group[ALONE:]:
            self._refuse(fix, f"not tried alone: {ALONE} others were ({whole})")
        if len(good) == 1:
            self._accept([good[0][0]], good[0][1])
        elif good:
            # Two that help alone need not help together.
            self._again([fix for fix, _ in good])

    def _again(self, good: Sequence[Fix]) -> None:
        """Run the fixes that helped without the others: that is what would be written."""
        after = self._try(good)
        why = self._whole(good, after)
        left = [m for m in good if not self._judge(m, after).gone]
        if not why and not left:
            self._accept(good, after)
            return
        for fix in good:
            self._refuse(fix, why or "it helps only together with a fix that was refused")

    def _judge(self, fix: Fix, after: Trial) -> Judgement:
        return judge(fix.as_seen or fix.finding, fix.seen or self.before, after, fix.cost)

    def _try(self, fixes: Sequence[Fix]) -> Trial:
        # Before the run: a fix that breaks the program must not be tried for ever.
        self._tried.update(tuple(m.finding.remedy.edits) for m in fixes)
        after = self._run(fixes)
        # Other programs take time as well: where nothing but time speaks against a fix, both run once more, in turns.
        if any(self._judge(m, after).by_time for m in fixes) and not self._unsound(fixes, after, losses=False):
            self.result.runs += 1
            beside, again = self._runner([]), self._run(fixes)
            before = _least(self.before.seconds_per_step, beside.seconds_per_step)
            return replace(
                after, seconds_per_step=_least(after.seconds_per_step, again.seconds_per_step), seconds_before=before
            )
        return after

    def _run(self, fixes: Sequence[Fix]) -> Trial:
        self.result.runs += 1
        return self._runner([m.finding for m, _ in self.result.proven] + [m.finding for m in fixes])

    def _accept(self, group: Sequence[Fix], after: Trial) -> None:
        agreement = self._agreement(after)
        for fix in group:
            proof = Proof(
                judgement=self._judge(fix, after),
                agreement=agreement,
                steps=(self.before.steps, after.steps),
                seconds_per_step=(after.seconds_before or self.before.seconds_per_step, after.seconds_per_step),
                output=self._output(after) if agreement.within(self.tolerance) else Output(),
                # Only if that run was made anyway.
                noise=self._noise() if self._unchanged_again else None,
            )
            self.result.proven.append((fix, proof))
        self.result.final = after

    def _refuse(self, fix: Fix, why: str) -> None:
        self.result.refused.append((fix, why))

    def _agreement(self, after: Trial) -> Agreement:
        # A program that failed is expected to go on with the fix.
        found = compare(self.before.curve, after.curve, shorter=bool(self.before.failure))
        if found.lengths[0] == found.lengths[1] or len(self.before.by_step) != len(after.by_step):
            return found
        # As many steps with other numbers of passes: several may have become one, or one several.
        summed = compare_sums(self.before.by_step, after.by_step, self.tolerance)
        # Losses of the same sum may be worth other gradients. Later ones may differ by rounding that has grown.
        same = compare(self.before.gradients[:_FIRST], after.gradients[:_FIRST])
        return summed if same.lengths == (0, 0) or same.within(self.tolerance) else found

    def _whole(self, group: Sequence[Fix], after: Trial) -> str:
        """What is wrong with a run as a whole; empty if nothing is."""
        # Losses come last: if they differ, the unchanged program has to run a second time.
        if why := self._unsound(group, after, losses=False):
            return why
        for finding in new_findings(self.before, after):
            return f"the fixed program has a new finding: {finding.code} {finding.message}"
        for fix, _ in self.result.proven:
            if why := self._judge(fix, after).why:
                return f"it undoes another fix: {fix.finding.code}: {why}"
        return self._unsound(group, after) or self._unsafely(group, after)

    def _unsafely(self, group: Sequence[Fix], after: Trial) -> str:
        """What a run with fixes that leave the losses changes besides; empty if nothing, or if it may."""
        if self._unsafe or any(fix.changes for fix in group):
            return ""
        output = self._output(after)
        if output.same:
            return ""
        return f"the losses stay as they were, but {output.differ[0]} (--unsafe-fixes allows that)"

    def _output(self, after: Trial) -> Output:
        """How what a run prints and writes agrees with that of the run before its fixes."""
        # A program that failed is expected to go on with the fix.
        if self.before.failure:
            return Output()
        before, binary = (self.result.final or self.before).outputs, self._agreement(after).equal
        found = compare_output(before, after.outputs, None, binary, self.tolerance)
        if found.same:
            return found
        return compare_output(before, after.outputs, self._second_unchanged_run().outputs, binary, self.tolerance)

    def _unsound(self, group: Sequence[Fix], after: Trial, losses: bool = True) -> str:
        """How a run fails or differs, whatever its findings; empty if it does not."""
        # A failure says nothing of a fix where the unchanged program fails the second time as well.
        if after.failure:
            return self._not_repeatable() or f"the fixed program failed: {after.failure}"
        if self._is_short(after):
            ended = f"the fixed program ended after {after.steps} steps, not {self.before.steps}"
            return self._not_repeatable() or ended
        if self._is_endless(after):
            return (
                f"the fixed program had not ended after {after.steps} steps; the unchanged one took {self.before.steps}"
            )
        for kind in after.threads.keys() - self.before.threads.keys():
            return f"a thread of the fixed program failed: {kind}: {after.threads[kind]}"
        if not losses:
            return ""
        if any(fix.changes for fix in group):
            return _newly_not_finite(self.before, after) or hidden(
                self.before, after, all(fix.keeps_finite for fix in group)
            )
        return self._losses(after)

    def _losses(self, after: Trial) -> str:
        """How the losses differ by more than the tolerance, or than two unchanged runs do; empty if they do not."""
        agreement = self._agreement(after)
        if not agreement.compared:
            if not self.before.curve and not after.curve and same_output(self.before.printed, after.printed):
                return ""
            # Then the output so far is all that can be compared.
            if self.before.failure and not self.before.curve and after.printed.startswith(self.before.printed):
                return ""  # the unchanged program failed before its first loss
            return "there is no loss to compare (no backward pass in both runs), and the output differs"
        # Of a sum that was rounded in another order no more than that can be asked, where results may change.
        grown = self._unsafe and agreement.joined != (0, 0) and agreement.alike >= _FIRST
        if grown or agreement.within(self.tolerance):
            return ""
        unlike = self._not_repeatable()
        # Twice, as one pair of runs shows only a part of what they may differ by.
        if unlike or (agreement.lengths[0] == agreement.lengths[1] and agreement.largest <= 2 * self._noise()):
            return unlike
        return _difference(agreement, self.tolerance, self._noise())

    def _second_unchanged_run(self) -> Trial:
        """A second run of the unchanged program, made when it is first needed."""
        if self._unchanged_again is None:
            self.result.runs += 1
            self._unchanged_again = self._runner([])
        return self._unchanged_again

    def _is_short(self, run: Trial) -> bool:
        return run.steps < self.before.steps * 0.9 and not self.before.failure

    def _is_endless(self, run: Trial) -> bool:
        ended = not self.before.stopped and not self.before.failure
        return ended and run.stopped and run.steps > _MANY * self.before.steps

    def _noise(self) -> float:
        """The largest relative difference of the losses of two unchanged runs."""
        largest = compare(self.before.curve, self._second_unchanged_run().curve).largest
        return largest if largest != float("inf") else 0.0

    def _not_repeatable(self) -> str:
        """Why runs say nothing about a fix: two unchanged runs differ too much. Empty if they do not."""
        again = self._second_unchanged_run()
        # First: of a run that failed nothing else can be said.
        if again.failure and not self.before.failure:
            return f"cannot judge: the unchanged program failed when run again: {again.failure}"
        if self._is_short(again):
            return (
                f"cannot judge: the unchanged program took {self.before.steps} steps, and {again.steps} when run "
                "again. Does it resume from files that it left? Some changes on disk cannot be undone between runs "
                "(docs/fix.md); move those files away"
            )
        if self._noise() > MOST_NOISE:
            return (
                f"cannot judge by the losses: two unchanged runs differ by {self._noise():.2g} of their size; seed "
                "what is random, or start from the same state"
            )
        return ""


def _least(*seconds: float | None) -> float | None:
    return min((t for t in seconds if t is not None), default=None)


def _difference(agreement: Agreement, tolerance: float, noise: float) -> str:
    before, after = agreement.lengths
    if before != after:
        return f"{before} backward passes became {after}"
    by = f"by up to {agreement.largest:.2g} of their size" if agreement.largest != float("inf") else "in being finite"
    if agreement.joined != (0, 0):
        passes = f"{agreement.joined[0]} backward passes became {agreement.joined[1]}"
        return f"{passes}, and the sums of each step's losses differ {by}; {_alike(agreement)}"
    own = f"; two unchanged runs differ by {noise:.2g}" if noise else "; two unchanged runs do not"
    return f"the losses differ {by} from pass {agreement.first} on (allowed by --tolerance: {tolerance:g}{own})"


def _alike(agreement: Agreement) -> str:
    steps = f"those of the first {count(agreement.alike, 'step')} agree"
    grown = f"{steps}, so that it may be rounding that has grown (--unsafe-fixes allows that)"
    return grown if agreement.alike >= _FIRST else steps


def _newly_not_finite(before: Trial, after: Trial) -> str:
    """A fix that changes the losses on purpose must not make more of them NaN or infinite."""
    fresh = [v for v in after.curve if v is None]
    if len(fresh) > len([v for v in before.curve if v is None]):
        return f"{len(fresh)} losses of the fixed program are not finite"
    return ""

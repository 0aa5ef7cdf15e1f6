"""Which of several fixes help: all are tried together, then, where that fails, with the fixes of what they uncover,
then each alone. What an accepted run still shows goes on in another round. The number of runs is bounded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from torchvet.finding import Edit, Finding
from torchvet.verifying.curves import TOLERANCE, Agreement, compare, same_output
from torchvet.verifying.judging import Judgement, judge, new_findings
from torchvet.verifying.trial import Trial

ALONE = 6
"""Mends that are tried one by one where several together fail: each takes a run."""

ROUNDS = 4
"""Times that fixes are tried for what the run before has uncovered."""

MOST_NOISE = 0.05
"""Where two runs of the program as it is differ by more of their losses' size, nothing can be told by them."""

Runner = Callable[[Sequence[Finding]], Trial]
"""Runs the program with these findings' edits made; with none as it is."""


@dataclass(frozen=True)
class Mend:
    """A finding with edits. `changes` says that its fault is in the mathematics: losses will not be the same; `cost` is
    the kind of cost that it is measured by, where it is one of speed. `seen` is the run that has uncovered the finding,
    and `as_seen` the finding in that run's lines; of findings of the run as it is both are None."""

    finding: Finding
    changes: bool = False
    cost: str = ""
    seen: Trial | None = field(default=None, compare=False)
    as_seen: Finding | None = field(default=None, compare=False)


Uncover = Callable[[Trial, Sequence[Finding]], list[Mend]]
"""Gives the fixes for what a run shows in which some findings' edits were made, as edits of the program as it is."""


@dataclass(frozen=True)
class Proof:
    """What a run with a mend showed of it, and of the losses. `noise` is by how much two runs as it is differed, where
    that had to be asked."""

    judgement: Judgement
    agreement: Agreement
    steps: tuple[int, int]
    seconds_per_step: tuple[float | None, float | None]
    noise: float | None = None


@dataclass
class Verified:
    """Mends that were proven, each with its proof, and those that were not, each with the reason. `final` is the run
    with all proven ones made."""

    proven: list[tuple[Mend, Proof]] = field(default_factory=list)
    refused: list[tuple[Mend, str]] = field(default_factory=list)
    final: Trial | None = None
    runs: int = 0


class Search:
    """The search over one program. `before` is the run as it is; `tolerance` the largest relative difference of losses
    that counts as equal; `uncover` finds fixes for what a changed program shows."""

    def __init__(
        self, before: Trial, runner: Runner, tolerance: float = TOLERANCE, uncover: Uncover | None = None
    ) -> None:
        self.before, self.tolerance = before, tolerance
        self._runner, self._uncover = runner, uncover
        self._own: Trial | None = None
        self._tried: set[tuple[Edit, ...]] = set()
        self.result = Verified(runs=1)

    def run(self, mends: Sequence[Mend]) -> Verified:
        """In each round first what is to leave the losses alone, held to that; then, on top of it, what changes them on
        purpose. The next round has the fixes for what the last accepted run still shows."""
        for _ in range(ROUNDS):
            for group in ([m for m in mends if not m.changes], [m for m in mends if m.changes]):
                if group:
                    self._together(group)
            mends = self._further(self.result.final, []) if self.result.final is not None else []
            if not mends:
                break
        return self.result

    def _further(self, after: Trial, group: Sequence[Mend]) -> list[Mend]:
        """Fixes not tried yet for what a run shows in which those of a group were made."""
        if self._uncover is None:
            return []
        made = [m.finding for m, _ in self.result.proven] + [m.finding for m in group]
        return [m for m in self._uncover(after, made) if tuple(m.finding.remedy.edits) not in self._tried]

    def _together(self, group: Sequence[Mend]) -> None:
        after = self._try(group)
        if self._jointly(group, after):
            return
        whole = self._whole(group, after)
        if whole:
            self._one_by_one(group, whole)
            return
        good = [m for m in group if self._judge(m, after).gone]
        if len(good) == len(group):
            self._accept(group, after)
            return
        for mend in group:
            if mend not in good:
                self._refuse(mend, self._judge(mend, after).why)
        if good:
            self._again(good)

    def _jointly(self, group: Sequence[Mend], after: Trial) -> bool:
        """Whether fixes that do not help by themselves do so with those of what they uncover: one fault may feed two
        names, of which only the first was seen to hold it, and one name may be fed by two lines."""
        for _ in range(ROUNDS - 1):
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

    def _least(self, group: Sequence[Mend], after: Trial, first: Sequence[Mend]) -> tuple[Sequence[Mend], Trial]:
        """A joint set without the fixes of its first part that it does not take, and its run."""
        for mend in first[:ALONE]:
            fewer = [m for m in group if m is not mend]
            without = self._try(fewer)
            if self._helps(fewer, without) and self._judge(mend, without).gone:
                group, after = fewer, without
        return group, after

    def _helps(self, group: Sequence[Mend], after: Trial) -> bool:
        """Whether all symptoms of a group are gone in a run that is as whole as the one before."""
        return not self._whole(group, after) and all(self._judge(m, after).gone for m in group)

    def _one_by_one(self, group: Sequence[Mend], whole: str) -> None:
        if len(group) == 1:
            self._refuse(group[0], whole)
            return
        good = []
        for mend in group[:ALONE]:
            after = self._try([mend])
            why = self._whole([mend], after) or self._judge(mend, after).why
            if why:
                self._refuse(mend, why)
            else:
                good.append((mend, after))
        for mend in group[ALONE:]:
            self._refuse(mend, f"not tried alone: {ALONE} others were ({whole})")
        if len(good) == 1:
            self._accept([good[0][0]], good[0][1])
        elif good:
            self._again([mend for mend, _ in good])

    def _again(self, good: Sequence[Mend]) -> None:
        """The ones that helped, made without the others: that is what would be written."""
        after = self._try(good)
        why = self._whole(good, after)
        left = [m for m in good if not self._judge(m, after).gone]
        if not why and not left:
            self._accept(good, after)
            return
        for mend in good:
            self._refuse(mend, why or "it helps only together with a mend that was refused")

    def _judge(self, mend: Mend, after: Trial) -> Judgement:
        return judge(mend.as_seen or mend.finding, mend.seen or self.before, after, mend.cost)

    def _try(self, mends: Sequence[Mend]) -> Trial:
        self.result.runs += 1
        self._tried.update(tuple(m.finding.remedy.edits) for m in mends)
        return self._runner([m.finding for m, _ in self.result.proven] + [m.finding for m in mends])

    def _accept(self, group: Sequence[Mend], after: Trial) -> None:
        agreement = self._agreement(after)
        for mend in group:
            proof = Proof(
                self._judge(mend, after), agreement, (self.before.steps, after.steps),
                (self.before.seconds_per_step, after.seconds_per_step), self._noise() if self._own else None,
            )  # fmt: skip
            self.result.proven.append((mend, proof))
        self.result.final = after

    def _refuse(self, mend: Mend, why: str) -> None:
        self.result.refused.append((mend, why))

    def _agreement(self, after: Trial) -> Agreement:
        return compare(self.before.curve, after.curve, shorter=bool(self.before.failure))

    def _whole(self, group: Sequence[Mend], after: Trial) -> str:
        """What is wrong with a mended run as a whole; empty where nothing is."""
        if why := self._unsound(group, after, losses=False):
            return why
        for finding in new_findings(self.before, after):
            return f"the mended program shows what it did not before: {finding.code} {finding.message}"
        for mend, _ in self.result.proven:
            if why := self._judge(mend, after).why:
                return f"with it another fix no longer holds: {mend.finding.code}: {why}"
        return self._unsound(group, after)

    def _unsound(self, group: Sequence[Mend], after: Trial, losses: bool = True) -> str:
        """How a mended run fails or differs, whatever it shows of faults; empty where it does not."""
        if after.failure:
            return self._unlike_itself() or f"the mended program failed: {after.failure}"
        if self._is_short(after):
            told = f"the mended program ended after {after.steps} steps, not {self.before.steps}"
            return self._unlike_itself() or told
        for kind in after.threads.keys() - self.before.threads.keys():
            return f"a thread of the mended program failed: {kind}: {after.threads[kind]}"
        if not losses:
            return ""
        if any(mend.changes for mend in group):
            return _spoilt(self.before, after)
        return self._losses(after)

    def _losses(self, after: Trial) -> str:
        """Whether the losses agree, by the tolerance or by what two runs of the program as it is differ by."""
        agreement = self._agreement(after)
        if not agreement.compared:
            if not self.before.curve and not after.curve and same_output(self.before.printed, after.printed):
                return ""
            if self.before.failure and not self.before.curve and after.printed.startswith(self.before.printed):
                return ""  # it ended before it had a loss
            return "there is no loss to compare (no backward was heard in both runs), and the output differs"
        if agreement.within(self.tolerance):
            return ""
        unlike = self._unlike_itself()
        if unlike or (agreement.lengths[0] == agreement.lengths[1] and agreement.largest <= 2 * self._noise()):
            return unlike
        return _difference(agreement, self.tolerance, self._noise())

    def _again_as_it_is(self) -> Trial:
        """The program as it is, run once more: found out when it is first asked."""
        if self._own is None:
            self.result.runs += 1
            self._own = self._runner([])
        return self._own

    def _is_short(self, run: Trial) -> bool:
        return run.steps < self.before.steps * 0.9 and not self.before.failure

    def _noise(self) -> float:
        """By how much two runs of the program as it is differ, relatively."""
        largest = compare(self.before.curve, self._again_as_it_is().curve).largest
        return largest if largest != float("inf") else 0.0

    def _unlike_itself(self) -> str:
        """Why runs tell nothing of a mend: two of the program as it is are not alike. Empty where they are."""
        again = self._again_as_it_is()
        if again.failure and not self.before.failure:
            return f"nothing can be told: the program as it is, run once more, failed: {again.failure}"
        if self._is_short(again):
            return (
                f"nothing can be told: the program as it is took {self.before.steps} steps, run once more "
                f"{again.steps}: does it go on from something that it left? What it changes on the disk was put back "
                "as far as it can be heard (docs/fix.md); move that away"
            )
        if self._noise() > MOST_NOISE:
            return (
                f"nothing can be told by the losses: two runs of the program as it is differ by {self._noise():.2g} of "
                "their size; seed what is random in it, or let it begin from the same state"
            )
        return ""


def _difference(agreement: Agreement, tolerance: float, noise: float) -> str:
    before, after = agreement.lengths
    if before != after:
        return f"{before} backward passes became {after}"
    told = f"by up to {agreement.largest:.2g} of their size" if agreement.largest != float("inf") else "in being finite"
    own = f"; two runs as it is differ by {noise:.2g}" if noise else "; two runs as it is do not"
    return f"the losses differ {told} from pass {agreement.first} on (allowed: {tolerance:g}{own})"


def _spoilt(before: Trial, after: Trial) -> str:
    """A mend that changes the losses on purpose must not make them lose their numbers."""
    fresh = [v for v in after.curve if v is None]
    if len(fresh) > len([v for v in before.curve if v is None]):
        return f"{len(fresh)} losses of the mended program are not finite"
    return ""

"""MEM105: tensors hang in reference cycles that only the cyclic collector frees."""

from __future__ import annotations

from torchvet.analysis.memory_series import heap_sizes, longest_climb
from torchvet.formatting import count, size
from torchvet.recording import records
from torchvet.rules import kit
from torchvet.rules.core import grading
from torchvet.rules.memory._packed import detached_when_packed, is_packed, packed_as_they_are
from torchvet.rules.memory.fixes.back_references import held_weakly
from torchvet.rules.memory.fixes.kept_exceptions import without_traceback
from torchvet.rules.memory.fixes.weak_owners import own_self_weak
from torchvet.rules.shared import growth_rule, peaks, unreachable_storages


class ReferenceCycle(kit.Rule):
    """Tensors hang in reference cycles that only the cyclic collector frees."""

    severity = "warning"

    def fixes(self, finding: kit.Finding, file: kit.SourceFile) -> kit.Edits:
        """The way back to what holds an object, held weakly; an exception kept without its traceback; or what a hook
        packs, without its graph."""
        if is_packed(finding):
            return detached_when_packed(file, finding)
        return held_weakly(file, finding) or own_self_weak(file, finding) or without_traceback(file, finding)

    def in_recording(self, recording: kit.Recording) -> kit.Findings:
        """Garbage that was alive when the names were searched, or that the collector was seen to free."""
        found = list(unreachable_storages.stranger_findings(self, recording, "cycle", _CAUSE, _ADVICE))
        yield from found
        yield from packed_as_they_are(self, recording)
        for rank in recording.ranks:
            use = rank.last(records.training.CollectorUse)
            # Once is an accident (an exception while importing keeps a frame); a step's habit shows in most steps.
            # What the search has found is told better: by name.
            if use is None or found or _on_ctx(rank) or use.steps < max(3, use.sampled // 2):
                continue
            # Nothing freed: what is garbage has not been seen.
            if use.freed:
                finding = self._collected(recording, rank, use)
                if (finding.measured.share or 0.0) >= _WORTH_SAYING:
                    yield finding

    def _collected(
        self, recording: kit.Recording, rank: kit.RankRecording, use: records.training.CollectorUse
    ) -> kit.Finding:
        rate = use.freed / use.sampled
        # Steps that are looked at make garbage of their own, so that the collector comes sooner: the heap of the others
        # shows how late it comes without.
        climb, ticks = longest_climb(heap_sizes(rank), rate)
        # The larger of two estimates, with its own number of steps.
        held, late = max((climb, ticks), (rate * max(1, use.longest), use.longest))
        share = held / (held + peaks.peak_of(rank))
        who = [s for c in rank.all(records.base.Census) for s in c.strangers if s.kind == "cycle"]
        return self.observed(
            rank, severity=grading.of_share(share),
            place=unreachable_storages.stranger_location(who, recording) or use.place,
            message=f"{size(rate)} a step is freed by the cyclic collector only, up to {count(late, 'step')} late "
            f"({size(held)} held in between)",
            cause="tensors allocated here end up in a reference cycle, which reference counting cannot free",
            advice=_ADVICE, related=[growth_rule.allocated(s) for s in use.sites[:3]],
            measured=kit.Measured(bytes_per_step=rate, bytes=int(held), share=share), holder=_holder(who),
        )  # fmt: skip


_WORTH_SAYING = 0.01
"""Share of the peak below which garbage is not worth a line: a caught exception's few bytes, say."""

_CAUSE = (
    "an object that refers back to itself keeps its tensors until Python's cyclic collector runs, and that counts "
    "objects, not bytes"
)
_ADVICE = (
    "break the cycle: hold the back reference weakly (`weakref.ref`), pass it as an argument instead of storing it, or "
    "set it to None when the step is done"
)


def _holder(who: list[records.base.Stranger]) -> kit.Holder | None:
    names = unreachable_storages.names_of(who)
    return kit.Holder(name=names[0], kind="cycle", path=names) if names else None


def _on_ctx(rank: kit.RankRecording) -> bool:
    """Whether the garbage was traced to a custom Function's ctx, which is MEM107's."""
    return any(s.kind == "ctx" for c in rank.all(records.base.Census) for s in c.strangers)

"""MEM109: retain_graph=True although no second backward uses the graph."""

from __future__ import annotations

import ast

from torchvet.recording import records
from torchvet.rules.kit import Finding, Findings, Measured, RankRecording, Recording, Rule, SourceFile, grading, size
from torchvet.rules.memory._lineage import Lineage, lineage
from torchvet.rules.shared.peaks import peak_of
from torchvet.source.model import Event, edits, given, is_call, is_set, receiver, terminal


class GraphKeptNeedlessly(Rule):
    """retain_graph=True although no second backward uses the graph."""

    severity = "warning"
    words = ("retain_graph",)
    absence_needs = ("flat memory", "graphs")

    def in_rank(self, rank: RankRecording, recording: Recording) -> Findings:
        """Calls with `retain_graph=True` none of whose graphs was gone through again."""
        for use in rank.latest(records.training.BackwardUse, "place", "flag"):
            # One graph that was used again, and the flag is needed.
            if use.flag == "retain_graph" and use.judged >= records.training.ENOUGH_JUDGED and not use.reused:
                yield self._finding(rank, use)

    def could_be_measured(self, recording: Recording) -> bool:
        """Also needed: of the graphs that were kept enough have been followed."""
        uses = [
            u for rank in recording.ranks for u in rank.all(records.training.BackwardUse) if u.flag == "retain_graph"
        ]
        # Records of one place repeat its sums.
        latest = {u.place: u for u in uses}.values()
        return super().could_be_measured(recording) and all(
            u.judged >= records.training.ENOUGH_JUDGED or u.reused for u in latest
        )

    def disproves(self, recording: Recording, suspicion: Finding) -> bool:
        """A later pass has gone through a graph that this line kept."""
        at = suspicion.location
        uses = (
            u
            for rank in recording.ranks
            for u in rank.all(records.training.BackwardUse)
            if u.flag == "retain_graph" and u.reused
        )
        return at is not None and any((u.place.path, u.place.line) == (at.path, at.line) for u in uses)

    def _finding(self, rank: RankRecording, use: records.training.BackwardUse) -> Finding:
        peak = max(peak_of(rank), use.held)
        share = use.held / peak if peak else 0.0
        return self.observed(
            rank,
            severity=grading.of_share(share),
            place=use.place,
            message=f"retain_graph=True keeps {size(use.held)} of saved tensors after backward, {share:.0%} of the "
            f"peak; none of {use.judged} such graphs was used again",
            cause="without `retain_graph=True` backward frees what the graph saved; here no second backward follows",
            advice="drop `retain_graph=True`; if the error about a second backward comes up, something carries its "
            "graph from step to step: detach that",
            measured=Measured(bytes=use.held, peak_bytes=peak, share=share),
        )

    def in_file(self, file: SourceFile) -> Findings:
        """A backward that retains a graph which nothing after it goes through, as far as its function shows."""
        for event in file.calls("backward", "manual_backward"):
            # With `create_graph` the graph is kept for a second derivative, and the flag says no more.
            if is_set(event.call, "retain_graph") and not is_set(event.call, "create_graph"):
                yield from self._judged(file, event)

    def _judged(self, file: SourceFile, event: Event) -> Findings:
        loss = root_of(event)
        mine = lineage(file, loss, event)
        # What is carried over needs the flag, and is a fault of its own (MEM103).
        if loss is None or mine.carried or mine.stateful or not (mine.graph or isinstance(loss, ast.Call)):
            return
        others = [e for e in _passes(file, event) if not e.excludes(event)]
        # Shared graphs are the usual reason for the flag: of five uses in real code none was needless.
        # Only what comes after can use what is kept.
        if any(_may_share(file, e, mine) for e in others if e.index > event.index):
            return
        if mine.loose or not self._ends_a_step(event, file):
            # The only one of the file: then at least a note.
            if not others and list(file.calls("backward", "manual_backward", "grad")) == [event]:
                yield self._suspected(file, event, loss, sure=False, safe=False)
            return
        # What a module of another file keeps of its pass may need the graph in the next.
        yield self._suspected(file, event, loss, sure=True, safe=not mine.foreign)

    @staticmethod
    def _ends_a_step(event: Event, file: SourceFile) -> bool:
        """Whether an optimizer moves the parameters after it, so that whoever comes later cannot use the graph."""
        effects = [x for step in file.steps for x in step.effects if x.event.unit is event.unit]
        return any(x.kind in ("step", "scaler_step") and x.event.index > event.index for x in effects)

    def _suspected(self, file: SourceFile, event: Event, loss: ast.AST, *, sure: bool, safe: bool) -> Finding:
        name = file.segment(loss)
        return self.suspect(
            file,
            event,
            f"retain_graph=True keeps what {name} saved for backward, and no later backward uses it",
            severity=None if sure else "info",
            cause=f"nothing after this backward is computed from the graph of {name}",
            advice="drop `retain_graph=True`; if an error then says that the graph was freed, "
            "something is carried over from the step before: detach that",
            # `sure`: an optimizer's step follows, after which nobody can use the graph.
            edits=edits.without_argument(file, event.call, "retain_graph") if sure else (),
            safe=safe,
        )


def root_of(event: Event) -> ast.expr | None:
    """The loss of a backward call: what it is called on, or its first argument where that is a framework's."""
    call, on = event.call, receiver(event.call)
    if call.args and (on is None or terminal(call) == "manual_backward" or _is_backward_of_others(event, on)):
        return call.args[0]
    if is_call(on, "scale") and on.args:
        return on.args[0]
    return on


def _is_backward_of_others(event: Event, on: ast.expr) -> bool:
    file = event.unit.file
    roles = file.roles.of(on, event.unit)
    return bool(roles & {"accelerator", "engine"}) or file.dotted(on) in ("torch.autograd", "accelerator", "fabric")


def _subject(event: Event) -> ast.AST | None:
    """What a later pass goes through; for a function of the file all that it is given."""
    if terminal(event.node) in ("backward", "manual_backward"):
        return root_of(event)
    # As one expression, so that `lineage` follows all of it.
    return ast.Tuple(elts=given(event.call), ctx=ast.Load())


def _passes(file: SourceFile, event: Event) -> list[Event]:
    """Other calls of the same function that go backward, themselves or in a function of the file that they call."""
    direct = [e for e in file.calls("backward", "manual_backward", "grad") if e.unit is event.unit and e is not event]
    steps = (x for step in file.steps for x in step.of("backward"))
    called = {id(x.at): x.at for x in steps if x.at.unit is event.unit and x.event.unit is not event.unit}
    return [*direct, *called.values()]


def _may_share(file: SourceFile, event: Event, mine: Lineage) -> bool:
    """Whether a later pass goes through a part of a graph, or through what cannot be followed."""
    found = lineage(file, _subject(event), event)
    return bool(found.stateful or found.carried) or found.shares(mine)

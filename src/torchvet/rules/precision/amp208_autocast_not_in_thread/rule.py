"""AMP208: a forward pass runs in another thread, which autocast does not reach."""

from __future__ import annotations

import ast
from itertools import islice

from torchvet.rules.kit import Edit, Finding, Iterator, RankRecording, Recording, Sequence, SourceFile, records
from torchvet.rules.precision._autocast_rule import AutocastRule
from torchvet.rules.precision.fixes.moves import line_of
from torchvet.rules.precision.fixes.regions import opened_in
from torchvet.rules.shared import autocast_regions as autocast
from torchvet.source.model import Event, Unit, keyword, name_set, receiver, terminal

_POOLS = name_set(
    "concurrent.futures.ThreadPoolExecutor multiprocessing.pool.ThreadPool "
    "concurrent.futures.thread.ThreadPoolExecutor multiprocessing.dummy.Pool"
)
_HANDED = ("submit", "map", "imap", "apply_async", "starmap", "apply")


class AutocastNotInThread(AutocastRule):
    """A forward pass runs in another thread, which the autocast region does not reach."""

    severity = "warning"
    cause = "autocast's state belongs to the thread that opened the region"
    silence_clears = False  # never: what threads compute without layers of their own is not seen
    fix_changes_results = True

    def fixes(self, finding: Finding, file: SourceFile) -> Sequence[Edit]:
        """The edits of the only thread or pool that is handed a forward pass within the region that a run has named."""
        line = line_of(file, finding)
        events = file.unit_at(line).events if line is not None else []
        opened = [e.node for e in events if isinstance(e.node, ast.With) and e.line == line]
        lines = {n for node in opened for n in range(node.lineno, (node.end_lineno or node.lineno) + 1)}
        found = [f for f in self.in_source(file) if f.location is not None and f.location.line in lines]
        return found[0].remedy.edits if len(found) == 1 else ()

    def in_rank(self, rank: RankRecording, recording: Recording) -> Iterator[Finding]:
        """Layers that ran in float32 in a thread that an active region waited for."""
        for seen in rank.latest(records.autocast.ThreadForward, "place", "region"):
            yield self.seen_at(
                rank,
                seen.region,
                f"the thread that this {seen.dtype} region waits for runs without autocast: its {seen.module} computes "
                "in float32",
                [("forward", f"{seen.module} runs with autocast off", seen.place)],
                advice="open the region inside the function that the thread runs",
            )

    def in_file(self, file: SourceFile) -> Iterator[Finding]:
        """A thread or pool that is given a forward pass within a region; a bfloat16 region around DataParallel."""
        for event in file.calls("Thread", *_HANDED) if file.mentions("Thread") else ():
            region, work = autocast.active(event), _work(file, event)
            if region is not None and work is not None and _runs_a_module(file, work, event.unit):
                yield self._handed(file, event, work, region)
        for region, at, _ in autocast.opened(file) if file.mentions("DataParallel") else ():
            if region.enabled != "no" and region.dtype == "bf16" and region.device != "cpu":
                calls = (e for e in autocast.module_calls(at.unit, region) if _runs_replicas(file, e))
                yield from (self._parallel(file, event) for event in islice(calls, 1))

    def _handed(self, file: SourceFile, event: Event, work: ast.expr, region: autocast.Region) -> Finding:
        name, found = file.segment(work), file.functions(terminal(work))
        return self.suspect_at(
            event,
            f"{name} runs in another thread, where autocast is off: it computes in float32",
            advice=f"open the region inside {name}",
            edits=opened_in(file, found[0], region) if len(found) == 1 else (),
            related={"region": (event, file.segment(region.node))},
        )

    def _parallel(self, file: SourceFile, event: Event) -> Finding:
        return self.suspect_at(
            event,
            f"{file.segment(event.call.func)} is DataParallel: its replicas run in the device's default dtype (float16 "
            "on CUDA), not in this region's bfloat16",
            cause="DataParallel hands its threads whether autocast is on, but not its dtype",
            advice="use DistributedDataParallel, or open the region inside the model's forward",
        )


def _work(file: SourceFile, event: Event) -> ast.expr | None:
    """The function that a thread or a pool is given."""
    call = event.call
    if file.dotted(call.func) == "threading.Thread":
        return keyword(call, "target")
    on = receiver(call)
    if terminal(call) not in _HANDED or on is None or not call.args:
        return None
    made = (file.dotted(v.func) for v, _ in file.roles.values(on, event.unit) if isinstance(v, ast.Call))
    return None if _POOLS.isdisjoint(made) else call.args[0]


def _runs_a_module(file: SourceFile, work: ast.expr, unit: Unit) -> bool:
    """Whether it is a module, or a function of this file that calls one and opens no region."""
    if "module" in file.roles.of(work, unit):
        return not _opens_its_own(file, work, unit)
    found = [f for f in file.functions(terminal(work)) if f.owner is None or isinstance(work, ast.Attribute)]
    if len(found) != 1 or "autocast" in file.text_of(found[0]):
        return False
    return any(autocast.is_module_call(e) for e in found[0].events)


def _opens_its_own(file: SourceFile, model: ast.expr, unit: Unit) -> bool:
    """Whether the `forward` of a module of this file mentions autocast."""
    known = file.roles.class_of(model, unit)
    forward = known.method("forward") if known is not None else None
    return forward is not None and "autocast" in file.text_of(forward)


def _runs_replicas(file: SourceFile, event: Event) -> bool:
    """Whether a call runs the replicas of DataParallel, whose module opens no region itself."""
    function = event.call.func
    values = (v for v, _ in file.roles.values(function, event.unit))
    return any(_is_data_parallel(file, v) for v in values) and not _opens_its_own(file, function, event.unit)


def _is_data_parallel(file: SourceFile, value: ast.expr | None) -> bool:
    while isinstance(value, ast.Call):
        if file.dotted(value.func).startswith("torch.nn.") and terminal(value) == "DataParallel":
            return True
        value = receiver(value)
    return False

"""AMP208: a forward pass runs in another thread, which autocast does not reach."""

from __future__ import annotations

import ast

from torchvet.recording.records.autocast import ThreadForward
from torchvet.rules.kit import Edit, Finding, Iterator, RankRecording, Recording, Rule, Sequence, SourceFile
from torchvet.rules.precision._observed import also, totals
from torchvet.rules.precision.fixes.regions import opened_in
from torchvet.rules.shared import autocast_regions
from torchvet.source.model import Event, Unit, keyword, receiver, terminal

_POOLS = ("concurrent.futures.ThreadPoolExecutor", "multiprocessing.pool.ThreadPool",
          "concurrent.futures.thread.ThreadPoolExecutor", "multiprocessing.dummy.Pool")  # fmt: skip
_HANDED = ("submit", "map", "imap", "apply_async", "starmap", "apply")


class AutocastNotInThread(Rule):
    """A forward pass runs in another thread, which autocast does not reach."""

    code = "AMP208"
    name = "autocast-not-in-thread"
    summary = "A forward pass runs in another thread, which the autocast region does not reach"
    severity = "warning"
    words = ("autocast",)

    fix_changes_results = True
    silence_clears = False  # never: what threads compute without layers of their own is not seen

    def fixes(self, finding: Finding, file: SourceFile) -> Sequence[Edit]:
        """The edits of the only thread or pool that is handed a forward pass within the region that a run has named."""
        at = finding.location
        if at is None or at.path != file.path:
            return ()
        opened = (e.node for e in file.unit_at(at.line).events if isinstance(e.node, ast.With) and e.line == at.line)
        lines = {n for node in opened for n in range(node.lineno, (node.end_lineno or node.lineno) + 1)}
        found = [f for f in self.in_source(file) if f.location is not None and f.location.line in lines]
        return found[0].remedy.edits if len(found) == 1 else ()

    def in_rank(self, rank: RankRecording, recording: Recording) -> Iterator[Finding]:
        """Layers that ran in float32 in a thread that an active region waited for."""
        for seen in totals(rank, ThreadForward, "place", "region"):
            yield self.observed(
                rank, severity="warning", place=seen.region,
                message=f"the thread that this {seen.dtype} region waits for runs without autocast: its "
                f"{seen.module} computes in float32",
                cause="autocast's state belongs to the thread that opened the region",
                advice="open the region inside the function that the thread runs",
                related=also("forward", f"{seen.module} runs with autocast off", seen.place),
            )  # fmt: skip

    def in_file(self, file: SourceFile) -> Iterator[Finding]:
        """A thread or pool that is given a forward pass within a region; a bfloat16 region around DataParallel."""
        if file.mentions("Thread"):
            for event in file.calls("Thread", *_HANDED):
                region = autocast_regions.active(event)
                if region is not None:
                    yield from self._handed(file, event, region)
        if file.mentions("DataParallel"):
            for region, at, _ in autocast_regions.opened(file):
                if region.enabled != "no" and region.dtype == "bf16" and region.device != "cpu":
                    yield from self._parallel(file, region, at)

    def _handed(self, file: SourceFile, event: Event, region: autocast_regions.Region) -> Iterator[Finding]:
        work = self._work(file, event)
        if work is None or not self._computes(file, work, event.unit):
            return
        name = file.segment(work)
        yield self.suspect(
            file, event, f"{name} runs in another thread, where autocast is off: it computes in float32",
            cause="autocast's state belongs to the thread that opened the region",
            advice=f"open the region inside {name}",
            edits=self._opened_inside(file, work, region),
            related=[self.also(file, "region", event, file.segment(region.node))],
        )  # fmt: skip

    @staticmethod
    def _work(file: SourceFile, event: Event) -> ast.expr | None:
        """The function that a thread or a pool is given."""
        call = event.call
        if file.dotted(call.func) == "threading.Thread":
            return keyword(call, "target")
        on = receiver(call)
        if terminal(call) not in _HANDED or on is None or not call.args:
            return None
        made = [file.dotted(v.func) for v, _ in file.roles.values(on, event.unit) if isinstance(v, ast.Call)]
        return call.args[0] if any(m in _POOLS for m in made) else None

    @staticmethod
    def _computes(file: SourceFile, work: ast.expr, unit: Unit) -> bool:
        """Whether it is a module, or a function of this file that calls one and opens no region."""
        if "module" in file.roles.of(work, unit):
            known = file.roles.class_of(work, unit)
            forward = known.method("forward") if known is not None else None
            return forward is None or not _mentions_autocast(file, forward)
        found = [f for f in file.functions(terminal(work)) if f.owner is None or isinstance(work, ast.Attribute)]
        if len(found) != 1 or _mentions_autocast(file, found[0]):
            return False
        return any(autocast_regions.is_module_call(e) for e in found[0].events)

    @staticmethod
    def _opened_inside(file: SourceFile, work: ast.expr, region: autocast_regions.Region) -> list[Edit]:
        """The region opened around the forward pass of the only function by that name; that outside stays."""
        found = file.functions(terminal(work))
        return opened_in(file, found[0], region) if len(found) == 1 else []

    def _parallel(self, file: SourceFile, region: autocast_regions.Region, at: Event) -> Iterator[Finding]:
        for event in autocast_regions.inside(at.unit, region):
            if not autocast_regions.is_module_call(event):
                continue
            values = file.roles.values(event.call.func, event.unit)
            wrapped = [v for v, _ in values if isinstance(v, ast.Call) and _is_data_parallel(file, v)]
            known = file.roles.class_of(event.call.func, event.unit)
            forward = known.method("forward") if known is not None else None
            if wrapped and not (forward is not None and _mentions_autocast(file, forward)):
                model = file.segment(event.call.func)
                yield self.suspect(
                    file, event, f"{model} is DataParallel: its replicas run in the device's default dtype (float16 on "
                    "CUDA), not in this region's bfloat16",
                    cause="DataParallel hands its threads whether autocast is on, but not its dtype",
                    advice="use DistributedDataParallel, or open the region inside the model's forward",
                )  # fmt: skip
                return


def _mentions_autocast(file: SourceFile, unit: Unit) -> bool:
    return any("autocast" in line for line in file.lines[unit.first - 1 : unit.last])


def _is_data_parallel(file: SourceFile, value: ast.Call) -> bool:
    inner: ast.expr | None = value
    while isinstance(inner, ast.Call):
        if file.dotted(inner.func).startswith("torch.nn.") and terminal(inner) == "DataParallel":
            return True
        inner = receiver(inner)
    return False

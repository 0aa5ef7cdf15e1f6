"""MEM104: evaluation, prediction or sampling runs with gradients on."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

from torchvet.formatting import size
from torchvet.recording import records
from torchvet.rules import kit
from torchvet.rules.core import grading
from torchvet.rules.memory import _lasting
from torchvet.rules.memory._discarded_graphs import Discarded, discarded
from torchvet.rules.shared import growth_rule, peaks
from torchvet.rules.shared.step_code import few_turns
from torchvet.source.model import Event, Unit, blocks, destinations, edits, is_call, origins, targets_of
from torchvet.source.syntax import given, receiver, terminal
from torchvet.source.walking import walk


class EvaluationBuildsGraph(kit.Rule):
    """Evaluation, prediction or sampling runs with gradients on."""

    severity = "warning"
    words = (".eval()", "val", "test", ".detach", ".numpy", ".tolist", ".item", ".data", "argmax")
    absence_needs = ("graphs",)

    def fixes(self, finding: kit.Finding, file: kit.SourceFile) -> kit.Edits:
        """Decorate the function that the passes run in; where it trains too, switch gradients off for the pass."""
        at = finding.location
        # A finding about what keeps the graphs stands at the store: the pass itself is beside.
        forward = next((r.line for r in finding.related if r.role == "forward" and r.path == file.path), None)
        line = forward or (at.line if at is not None else None)
        if line is None:
            return ()
        return _decorated(file, file.unit_at(line)) or _wrapped(file, line)

    def in_file(self, file: kit.SourceFile) -> kit.Findings:
        """A model that runs in an evaluation loop with gradients on, and whose result goes into no backward; then any
        run whose result is used only without its graph."""
        seen: set[int] = set()
        for run in _evaluating_runs(file):
            # One finding a function, as one decorator fixes all of its passes.
            if id(run.unit) in seen or file.gradients.carries(run.node, run) != "yes":
                continue
            flow = _followed(file, run)
            if flow is not None and _lasting.surely_recording(file, run):
                seen.add(id(run.unit))
                yield self._suspected(file, run, not flow.loose)
        for one in discarded(file):
            if id(one.run.unit) not in seen:
                yield self._thrown_away(file, one)

    def _thrown_away(self, file: kit.SourceFile, one: Discarded) -> kit.Finding:
        model, cut = file.segment(one.run.call.func), file.segment(one.cut)
        at = one.run.unit.call_of(one.cut)
        trusted = ", as far as functions of other files keep nothing of it" if one.trusting else ""
        return self.suspect(
            file,
            one.run,
            f"{model} builds an autograd graph that nothing goes back through: its result is used only without it",
            severity="info",
            cause=f"every use of the result of {model} ends without its graph, as `{cut}` does{trusted}; what the pass "
            f"saves for backward is for nobody, unless another file freezes {model} or switches gradients off",
            advice=f"run {model} under `torch.no_grad()`",
            related=[self.also(file, "cut", at, cut)] if at is not None and at.line != one.run.line else [],
            edits=_around(file, one.run),
        )

    def _suspected(self, file: kit.SourceFile, run: Event, sure: bool) -> kit.Finding:
        model, unit = file.segment(run.call.func), run.unit
        where_to = f"decorate {unit.name}() with `@torch.no_grad()`" if not unit.is_module else "put the loop under it"
        return self.suspect(
            file,
            run,
            f"{model} evaluates with gradients on: every pass builds an autograd graph that no backward uses",
            cause=f"neither {unit.name or 'the loop'} nor what calls it switches gradients off; `.eval()` switches "
            "layers, not autograd",
            severity="info" if _runs_a_few_times(run) else None,
            advice=f"run it under `torch.no_grad()`: {where_to}",
            safe=sure,
            edits=_decorated(file, unit) if sure else (),
        )

    def in_rank(self, rank: kit.RankRecording, recording: kit.Recording) -> kit.Findings:
        """Passes outside training whose graph nobody went back through."""
        from torchvet.analysis.growth import growth_by_pass

        latest = rank.latest(records.training.EvaluationForward, "place", "training_mode")
        first: dict[tuple[str, str], records.training.EvaluationForward] = {}
        # The model's pass and its loss are one graph: one finding a function, at its first line.
        for use in sorted(_unused(rank, latest), key=lambda u: u.place.line):
            first.setdefault((use.place.path, use.place.function), use)
        # What grows from pass to pass is told with the largest, which is likely to feed it.
        largest = max(first.values(), key=lambda u: u.graph, default=None)
        kept = next(iter(growth_by_pass(rank)), None)
        for use in first.values():
            if use is largest and kept is not None and kept.graph_per_step > 0:
                yield self._accumulating(recording, rank, use, kept)
            else:
                yield self._finding(rank, use)
        for use in latest:
            # Twice: a single pass may be one of another kind.
            if use.entered >= 2 and use.left > _LARGE * max(peaks.peak_of(rank), use.peak):
                yield self._in_part(rank, use)

    def _in_part(self, rank: kit.RankRecording, use: records.training.EvaluationForward) -> kit.Finding:
        """Backward starts from outputs of inner layers, and what the pass adds to them is for nobody."""
        peak = max(peaks.peak_of(rank), use.peak, use.left)
        share = use.left / peak
        return self.observed(
            rank,
            severity=grading.of_waste(use.left, share),
            place=use.place,
            message=f"backward uses a part of the graph that {use.module} builds: {size(use.left)} a pass, "
            f"{share:.0%} of the peak, are saved for nothing ({use.entered} sampled passes)",
            cause=f"gradients come from within {use.module}; what it computes after that, or beside it, builds a graph "
            "as well",
            advice="end the pass at the last layer whose output is used, or run what follows under `torch.no_grad()`",
            measured=kit.Measured(bytes=use.left, peak_bytes=peak, share=share),
        )

    def _finding(self, rank: kit.RankRecording, use: records.training.EvaluationForward) -> kit.Finding:
        # A graph larger than every sampled peak was not in a sampled step.
        peak = max(peaks.peak_of(rank), use.peak, use.graph)
        share = use.graph / peak if peak else 0.0
        return self.observed(
            rank, severity=grading.of_share(share), place=use.place,
            message=f"evaluation builds an autograd graph that no backward uses: {size(use.graph)} a pass, "
            f"{share:.0%} of the peak ({use.module}, {use.calls} sampled passes)",
            cause=_cause(use), advice=_advice(use),
            measured=kit.Measured(bytes=use.graph, peak_bytes=peak, share=share),
        )  # fmt: skip

    def _accumulating(
        self,
        recording: kit.Recording,
        rank: kit.RankRecording,
        use: records.training.EvaluationForward,
        kept: kit.Growth,
    ) -> kit.Finding:
        """The graphs of all passes live until the evaluation is over: what it takes grows with its length."""
        from torchvet.analysis.growth import outlives_evaluation

        peak = max(peaks.peak_of(rank), use.peak, kept.bytes)
        share = kept.bytes / peak
        name = kept.holding.name
        until = ", also after the evaluation" if outlives_evaluation(rank, kept) else " until the evaluation ends"
        stores = recording.index.stores(*kept.holding.where)
        return self.observed(
            rank,
            severity=grading.of_share(share),
            place=stores[0] if stores else use.place,
            message=f"{name} keeps the autograd graph of every evaluation pass: {size(kept.bytes_per_step)} more each "
            f"pass{until} ({size(kept.bytes)} after {kept.last_step} of them), and no backward uses it",
            cause=f"{_cause(use)}; what goes into {name} brings its graph along",
            advice=f"{_advice(use)}, and let {name} take numbers (`.item()`) or detached tensors",
            related=[
                self.beside("forward", use.module, use.place),
                *map(growth_rule.allocated, kept.holding.sites[:3]),
            ],
            holder=growth_rule.holder_of(kept),
            measured=kit.Measured(bytes_per_step=kept.bytes_per_step, bytes=kept.bytes, peak_bytes=peak, share=share),
        )


def _runs_a_few_times(run: Event) -> bool:
    """Whether a pass is repeated over short constant ranges alone, as a test or a warm-up is."""
    loop = run.loop
    while loop is not None:
        over = loop.node.iter if isinstance(loop.node, ast.For) else None
        if not is_call(over, "range") or not few_turns(over, _FEW):
            return False
        loop = loop.parent
    return run.loop is not None


def _unused(
    rank: kit.RankRecording, uses: Sequence[records.training.EvaluationForward]
) -> list[records.training.EvaluationForward]:
    """Passes that no backward went through, and that are no training batches which the program leaves out for NaN."""
    numbers = rank.last(records.nonfinite.NonFiniteTotals)
    skips = numbers is not None and numbers.left_out > 0
    # Once may be a warm-up or a summary of the model.
    found = [use for use in uses if use.calls >= 2 and not use.backwarded and not use.entered]
    return [use for use in found if not (skips and use.training_mode)]


def _cause(use: records.training.EvaluationForward) -> str:
    return f"{use.module} runs here with gradients enabled; `.eval()` switches layers, not autograd"


def _advice(use: records.training.EvaluationForward) -> str:
    where_to = f"around the pass, or `@torch.no_grad()` on {use.place.function}() where it trains nothing"
    return f"run it under `torch.no_grad()`: {where_to}"


_FEW = 16
"""Passes up to which a loop is a test or a warm-up. Chosen, not measured."""
_LARGE = 0.1
"""Share of the peak from which on the unused part of a graph is worth a line."""
_HELD_OUT = re.compile(r"(^|_)(val|valid|validation|test|eval|dev|holdout)(_|\d|$|loader|dl$|data|set|iter|batches)")


def _evaluating_runs(file: kit.SourceFile) -> Iterator[Event]:
    """Runs of a model in a loop after its `.eval()`, or in a loop over a loader that is named for evaluation."""
    for event in file.calls("eval"):
        on = _put_into_evaluation(event)
        if not isinstance(on, (ast.Name, ast.Attribute)):
            continue
        for run in event.unit.calls.get(terminal(on), ()):
            # By structure: `self.model` is written anew in each place.
            if _is_evaluated_after(event, run) and ast.dump(run.call.func) == ast.dump(on):
                yield run
        yield from _runs_in_helpers(file, event, on)
    if not file.steps:
        yield from _runs_of_inference(file)
        return
    lines = (file.line_of(match.start()) for match in _LOOP.finditer(file.text))
    for unit in file.units_at(lines):
        yield from _runs_on_held_out(file, unit)


def _put_into_evaluation(event: Event) -> ast.expr | None:
    """`model` of `model.eval()`; None for an `eval` that is given something."""
    return receiver(event.call) if not event.call.args else None


def _runs_of_inference(file: kit.SourceFile) -> Iterator[Event]:
    """Repeated runs of what is put into evaluation mode somewhere in a file that trains nothing."""
    # Any of these may need the gradients of a model in evaluation mode.
    if file.mentions(".train(", "backward", "autograd", "requires_grad", "attack"):
        return
    for event in file.calls("eval"):
        on = _put_into_evaluation(event)
        if on is None or file.dotted(on) == "torch":
            continue
        mine = origins.identity(on, event.unit)
        while isinstance(on, ast.Call) and (inner := receiver(on)) is not None:
            on = inner
        # `model = Net().eval()` binds what `.eval()` gives back.
        words = {terminal(on), *(terminal(t) for t in targets_of(event.statement))} - {""}
        for run in file.calls(*words):
            counts = _is_taken_again(file, run) and not _hands_on(file, run.unit)
            if counts and origins.identity(run.call.func, run.unit) & mine:
                yield run


def _is_taken_again(file: kit.SourceFile, run: Event) -> bool:
    """Whether a run is repeated, and its result taken: one that nobody takes warms the model up, and its graph is freed
    at once."""
    again = _in_loop(run) or (run.loop is None and _lasting.is_repeated(file, run.unit))
    return again and not isinstance(run.parent, ast.Expr)


def _runs_in_helpers(file: kit.SourceFile, event: Event, model: ast.expr) -> Iterator[Event]:
    """Runs in a function of the file that a loop after `.eval()` gives the model to; saliency hands it on."""
    wanted = ast.dump(model)
    for call in event.unit.events:
        if call.node.__class__ is not ast.Call or not _is_evaluated_after(event, call):
            continue
        helper = file.callee(call) if any(ast.dump(a) == wanted for a in call.call.args) else None
        # A method may keep the model and train it later.
        if helper is None or helper.owner is not None or _hands_on(file, helper):
            continue
        for name in helper.parameters:
            if any(ast.dump(one) == wanted for one in file.passed(call, helper, name)):
                yield from helper.calls.get(name, ())


_LOOP = re.compile(r"for [^\n]*?(?:val|test|dev|holdout)")


def _runs_on_held_out(file: kit.SourceFile, unit: Unit) -> Iterator[Event]:
    for event in unit.events:
        inside = event.loop is not None and _is_held_out(event.loop.node)
        if inside and event.node.__class__ is ast.Call and file.gradients.forwards.runs_module(event.call, unit):
            yield event


def _is_held_out(loop: ast.AST) -> bool:
    if not isinstance(loop, (ast.For, ast.AsyncFor)):
        return False
    read = [terminal(n) for n in walk(loop.iter) if isinstance(n, (ast.Name, ast.Attribute))]
    # `zip(train_loader, val_loader)` trains.
    return any(_HELD_OUT.search(name) for name in read) and not any("train" in name for name in read)


def _in_loop(event: Event) -> bool:
    """Whether an event stands in a loop statement, with no comprehension around."""
    return event.loop is not None and not event.loop.comprehension


def _trains_again(event: Event, run: Event) -> bool:
    """Whether the model is put back into training mode before it runs."""
    back = event.unit.calls.get("train", ())
    return any(event.index < e.index < run.index and not e.call.args for e in back)


def _is_evaluated_after(event: Event, run: Event) -> bool:
    """Whether a call in a loop comes after an `.eval()`, and the model is not put back into training mode between."""
    after = run.index > event.index and not run.excludes(event)
    return after and _in_loop(run) and not _trains_again(event, run)


def _followed(file: kit.SourceFile, run: Event) -> destinations.Destinations | None:
    """Where the result goes; None where a backward may follow, or gradients of the input are wanted."""
    unit = run.unit
    inner = [e for e in file.effects(unit) if e.kind == "backward" and not e.at.excludes(run)]
    # A backward in the same loop: the pass may be a part of training.
    if any(run.loop is not None and e.at.loop is not None and e.at.loop.within(run.loop) for e in inner):
        return None
    # A module's last line is beyond all: `min` keeps within the file.
    own = "\n".join(file.lines[unit.first - 1 : min(unit.last, len(file.lines))])
    if any(word in own for word in ("requires_grad", "autograd.grad", "enable_grad", "attack", "jacobian", "hessian")):
        return None
    flow = destinations.Destinations(file)
    flow.made_by(run)
    flow.follow()
    # What leaves the function may go into a backward that this file does not show.
    return None if flow.backward or flow.escaped else flow


def _hands_on(file: kit.SourceFile, unit: Unit) -> bool:
    """Whether a function gives a module or an optimizer to code that is not seen here, which may train it."""
    for event in unit.events:
        if not isinstance(event.node, ast.Call) or file.callee(event) is not None:
            continue
        if any(file.roles.is_a(role, one, unit) for one in given(event.node) for role in ("module", "optimizer")):
            return True
    return False


def _decorated(file: kit.SourceFile, unit: Unit) -> list[kit.Edit]:
    """The decorator, where the function does nothing that needs gradients."""
    # A decorator that is there may call the function in its own way.
    if isinstance(unit.node, ast.Module) or file.imports.names.get("torch") != "torch" or unit.decorators:
        return []
    # A decorator covers the whole function: one that trains as well would lose its gradients.
    if file.effects(unit) or any(u.parent is unit for u in file.units) or _hands_on(file, unit):
        return []
    return edits.before(file, unit.node, "@torch.no_grad()")


def _around(file: kit.SourceFile, run: Event) -> list[kit.Edit]:
    """`with torch.no_grad():` around the statement that does nothing but run a model."""
    statement = run.statement
    alone = isinstance(statement, ast.Assign) and statement.value is run.node
    if not alone or file.imports.names.get("torch") != "torch" or not edits.on_one_line(statement):
        return []
    return blocks.under_with(file, [statement], "torch.no_grad()")


def _wrapped(file: kit.SourceFile, line: int) -> list[kit.Edit]:
    """`with torch.no_grad():` around the one statement that runs a model after its `.eval()`, where the function goes
    backward before that and not after."""
    unit = file.unit_at(line)
    runs = [e for e in unit.events if e.line == line and isinstance(e.node, ast.Call) and _is_evaluated(e)]
    if not runs or file.imports.names.get("torch") != "torch":
        return []
    statement = runs[0].statement
    later = any(e.kind == "backward" and e.at.index > runs[0].index for e in file.effects(unit))
    if not edits.on_one_line(statement) or later or not isinstance(statement, (ast.Assign, ast.Expr)):
        return []
    return blocks.under_with(file, [statement], "torch.no_grad()")


def _is_evaluated(run: Event) -> bool:
    """Whether `.eval()` of what is called has come before it for sure, and no `.train()` since."""
    before = (e for e in run.unit.calls.get("eval", ()) if e.index < run.index and run.sure_after(e))
    models = (receiver(e.call) for e in before if not _trains_again(e, run))
    called = ast.dump(run.call.func)
    # A chain of calls before `.eval()` is another object each time.
    return any(isinstance(on, (ast.Name, ast.Attribute)) and ast.dump(on) == called for on in models)

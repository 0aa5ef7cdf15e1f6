"""TRN107: gradients of several passes are summed and the loss is not divided by their number."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable

from torchvet.formatting import count
from torchvet.recording import records
from torchvet.rules import kit
from torchvet.rules.shared import training_loops as loops
from torchvet.rules.shared.seen_suspicions import suspected_in
from torchvet.rules.training.fixes.trainer_losses import divided_by_the_trainer, divided_by_their_number
from torchvet.source.model import Event, edits, is_call, origins, receiver, terminal, walk
from torchvet.source.model.torch_names import ADAPTIVE

_BY_HAND = re.compile(r"\.grad\b")
"""Gradients are read or written: they may be averaged there."""
_ENOUGH = 2
"""Sampled steps before nothing has averaged the passes as a habit."""
_ACCUMULATES = re.compile(r"accum|micro", re.I)
_SCALE_FREE = (*ADAPTIVE, "Lion", "Muon", "Rprop")
"""Optimizers whose steps are as large whatever all gradients are multiplied by."""


class AccumulationNotAveraged(loops.LoopRule):
    """Gradients of several passes are summed and the loss is not divided by their number."""

    severity = "warning"
    words = ("backward",)
    fix_changes_results = True

    silence_clears = False  # passes whose losses have no mean in them, or come from no loader, are not judged

    def fixes(self, finding: kit.Finding, file: kit.SourceFile) -> kit.Edits:
        """A Trainer that divides the loss itself; else the loss divided where it goes backward."""
        return divided_by_the_trainer(file, finding) or divided_by_their_number(file, finding)

    def in_rank(self, rank: kit.RankRecording, recording: kit.Recording) -> kit.Findings:
        """Places whose passes are micro-batches by what they were given or what they are called, and are summed."""
        found: dict[kit.Place, records.passes.SummedPasses] = {}
        for record in rank.latest(records.passes.SummedPasses, "id"):
            often = record.summed >= _ENOUGH and record.summed > record.unclear and not record.averaged
            # Terms of a loss, tasks and agents go backward one by one as well, and are to be summed.
            if often and (2 * record.batches > record.summed or _says_so(self, recording, record)):
                found.setdefault(record.place, record)
        for record in found.values():
            yield self._observed(rank, record)

    def _observed(self, rank: kit.RankRecording, record: records.passes.SummedPasses) -> kit.Finding:
        passes, at = record.passes, _loss_line(record)
        factors = " and ".join(f"{factor:g}" for factor in record.factors)
        average = " and ".join(f"{factor / passes:.3g}" for factor in record.factors)
        return self.observed(
            rank,
            at,
            f"gradients of {passes} passes are summed, and nothing divides the loss: in each pass its "
            f"{'mean' if len(record.factors) == 1 else 'means'} got a gradient of {factors} ({average} would average "
            f"them), in {record.summed} of {count(record.summed + record.unclear, 'sampled step')}",
            cause=_cause(record),
            advice=_ADVICE[record.loss_from].format(passes=passes),
            severity=_severity(record),
            measured=kit.Measured(steps=record.summed),
            about=kit.NOTHING_MORE if record.trainer else kit.About(operands=(str(passes),)),
            related=[self.beside("passes", f"{record.trainer} trains here", record.place)]
            if at != record.place
            else [],
        )

    def in_file(self, file: kit.SourceFile) -> kit.Findings:
        """Accumulation windows whose loss is known not to be divided."""
        for window in loops.windows(file):
            backward = window.backward
            node = backward.event.node
            if not isinstance(node, ast.Call) or node.args or (backward.through and not backward.scaled):
                continue
            loss = loops.loss_of(backward)
            if loss is None or _scaling(loss, backward.event, 0) != "no":
                continue
            if not any(_BY_HAND.search(loops.unit_text(u)) for u in loops.units_of(window.step)):
                yield self._finding(file, window)

    def _finding(self, file: kit.SourceFile, window: loops.Window) -> kit.Finding:
        period, loss = window.passes, window.backward.subject or "the loss"
        made = loops.constructors(loops.subject_of(window.stepped), window.stepped.event.unit)
        adaptive = made is not None and all(file.dotted(c.func).rpartition(".")[2] in ADAPTIVE for c, _ in made)
        return self.suspect(
            file,
            window.backward.event,
            f"gradients of {period} passes are summed, and {loss} is not divided",
            cause=f"each backward adds the gradient of a mean over one micro-batch, so that the step is {period} times "
            "as large as that of one large batch",
            advice=f"divide before backward: `({loss} / {period}).backward()`",
            # An adaptive optimizer divides by the gradients' own size, unless they are clipped before.
            severity="info" if adaptive and not window.step.of("clip") else None,
            edits=self._edits(file, window),
            related=[self.also(file, "stepped", window.stepped.event)],
        )

    @staticmethod
    def _edits(file: kit.SourceFile, window: loops.Window) -> kit.Edits:
        loss = loops.loss_of(window.backward)
        here = window.backward.event.unit is window.step.unit
        if loss is None or not here or not isinstance(window.period, (ast.Name, ast.Attribute, ast.Constant)):
            return []
        text = f"{file.segment(loss)} / {file.segment(window.period)}"
        return [edits.replace(file, loss, text if window.backward.scaled else f"({text})")]


_ADVICE = {
    "": "divide the loss by the number of passes before it goes backward: `loss / {passes}`",
    "method": "set `self.model_accepts_loss_kwargs = False` in `__init__`, after `super().__init__(...)`: the Trainer "
    "then divides by the number of passes; or sum the loss over its items and divide it by `num_items_in_batch`",
    "function": "sum the loss over its items and divide it by `num_items_in_batch`, which the Trainer gives the "
    "function",
    "model": "set `accepts_loss_kwargs = False` on the model's class: the Trainer then divides by the number of "
    "passes; or let the model sum its loss over the items and divide it by `num_items_in_batch`",
}
"""By what gives a Trainer of transformers its loss; without a Trainer by nothing."""


def _cause(record: records.passes.SummedPasses) -> str:
    passes, felt = record.passes, record.clipped - record.clipped_anyway
    said = (
        f"each backward adds the gradient of a mean over one micro-batch, so that gradients are {passes} times those "
    )
    said += "of one large batch"
    if record.trainer:
        takes = {"function": "the loss function", "model": "the model"}.get(record.loss_from, "`compute_loss`")
        said += f"; the Trainer does not divide, because it takes {takes} to have divided by `num_items_in_batch`: the "
        said += f"loss and the gradient norm that it logs are {passes} times too large as well"
    if felt:
        said += f"; clipping acted in {record.clipped} of those steps, and on the average it would have in "
        said += f"{record.clipped_anyway}" if record.clipped_anyway else "none"
    elif _is_scale_free(record):
        said += f"; {record.optimizer} divides their size out again, so that its steps hardly change"
    elif record.clipped == record.summed:
        said += "; clipping brings them to the same norm as it would the average"
    return said


def _severity(record: records.passes.SummedPasses) -> kit.Severity:
    felt = record.clipped > record.clipped_anyway
    return "info" if not felt and (_is_scale_free(record) or record.clipped == record.summed) else "warning"


def _is_scale_free(record: records.passes.SummedPasses) -> bool:
    return any(name in record.optimizer for name in _SCALE_FREE)


def _loss_line(record: records.passes.SummedPasses) -> kit.Place:
    """The line that the user can change: backward's own, or the one that gives a Trainer its loss."""
    if not record.trainer:
        return record.place
    # What the Trainer has computed itself is on the line that started it.
    inner = record.made is not None and record.made not in (record.place, *record.around)
    return record.made if inner and record.made is not None else record.loss_at or record.place


def _says_so(rule: AccumulationNotAveraged, recording: kit.Recording, record: records.passes.SummedPasses) -> bool:
    """Whether the program's text calls the passes micro-batches: a loop around them, or source alone suspects it."""
    found = suspected_in(rule, recording, record.place.path)
    if any(one.location is not None and one.location.line == record.place.line for one in found):
        return True
    return any(_in_accumulation(recording.model(at.path), at.line) for at in (record.place, *record.around))


def _in_accumulation(file: kit.SourceFile | None, line: int) -> bool:
    loops_around = [
        node
        for node in (walk(file.tree) if file is not None else ())
        if isinstance(node, (ast.For, ast.While)) and node.lineno <= line <= (node.end_lineno or 0)
    ]
    heads = [ast.unparse(n.iter) + ast.unparse(n.target) for n in loops_around if isinstance(n, ast.For)]
    tests = [ast.unparse(n.test) for loop in loops_around for n in walk(loop) if isinstance(n, (ast.If, ast.While))]
    return any(_ACCUMULATES.search(text) for text in (*heads, *tests))


def _scaling(node: ast.AST | None, event: Event, depth: int) -> str:
    """Whether a loss is divided or multiplied on its way to an event: `yes`, `no`, `unknown`."""
    if depth > 6:
        return "unknown"
    if isinstance(node, ast.BinOp):
        if isinstance(node.op, (ast.Div, ast.Mult)):
            return "yes"
        return _worst(_scaling(node.left, event, depth + 1), _scaling(node.right, event, depth + 1))
    if isinstance(node, ast.Name):
        return _of_name(node.id, event, depth)
    if isinstance(node, (ast.Attribute, ast.Subscript)):
        return _scaling(node.value, event, depth + 1)
    return _of_call(node, event, depth) if isinstance(node, ast.Call) else "unknown"


def _of_call(node: ast.Call, event: Event, depth: int) -> str:
    on, roles = receiver(node), event.unit.file.roles
    if terminal(node) == "mean" and on is not None:
        return _scaling(on, event, depth + 1)
    if terminal(node) == "sum" and on is None and node.args:
        return _of_values(node.args[0], event, depth)
    called = roles.of(node.func, event.unit)
    if "criterion" in called:
        return _unless_summed(value for value, _ in origins.made_by(node.func, event.unit))
    own = event.unit.call_of(node)
    if "loss" in roles.of(node, event.unit) and (own is None or event.unit.file.callee(own) is None):
        return _unless_summed([node])
    foreign = "module" in called or (not called and roles.hinted("module", node.func))
    return "no" if foreign and roles.class_of(node.func, event.unit) is None else "unknown"


def _unless_summed(makers: Iterable[ast.expr]) -> str:
    """`no` for a loss that is a mean, as most are by default; `unknown` where its text says that it may be a sum."""
    return "unknown" if any("sum" in ast.unparse(one) for one in makers) else "no"


def _of_name(name: str, event: Event, depth: int) -> str:
    before = event.bindings_before(name)
    if event.unit.home(name) is not event.unit:
        return "unknown"
    answers = []
    for binding in before:
        node = binding.node
        if isinstance(node, ast.AugAssign):
            scaled = isinstance(node.op, (ast.Div, ast.Mult))
            answers.append("yes" if scaled else _scaling(node.value, binding, depth + 1))
            continue
        value, parts = loops.bound_value(binding, name)
        answers += [_scaling(one, at, depth + 2) for one, at in parts]
        if value is None and not parts and isinstance(node, ast.Assign):
            value = node.value  # one of several results of a call
        starts = isinstance(value, ast.Constant) and value.value in (0, 0.0, None)
        if not parts and not starts:
            answers.append(_scaling(value, binding, depth + 1))
    return _worst(*answers)


def _of_values(node: ast.expr, event: Event, depth: int) -> str:
    """`losses.values()`, also where a generator goes over it and takes each as it is."""
    if isinstance(node, (ast.GeneratorExp, ast.ListComp)) and len(node.generators) == 1:
        if terminal(node.elt) != terminal(node.generators[0].target) or not isinstance(node.elt, ast.Name):
            return "unknown"
        node = node.generators[0].iter
    on = receiver(node) if is_call(node, "values") else None
    return _scaling(on, event, depth + 1)


def _worst(*answers: str) -> str:
    return "yes" if "yes" in answers else "unknown" if "unknown" in answers or not answers else "no"

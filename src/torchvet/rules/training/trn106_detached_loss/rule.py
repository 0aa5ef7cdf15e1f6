"""TRN106: the path from the parameters to the loss is cut before backward."""

from __future__ import annotations

import ast

from torchvet.recording.records.numeric import ConstantTerm, CutOutput, LostLoss
from torchvet.recording.records.training import OptimizerUse, Outcome
from torchvet.rules.kit import Edit, Finding, Iterator, Measured, RankRecording, Recording, Rule, Sequence, SourceFile
from torchvet.rules.shared import training_loops as loops
from torchvet.rules.training.fixes.kept_graphs import kept_in_graph
from torchvet.source.model import Event, edits, keyword, receiver, terminal, walk

_RAISED = "does not require grad and does not have a grad_fn"


class DetachedLoss(Rule):
    """The path from the parameters to the loss is cut before backward."""

    code = "TRN106"
    name = "detached-loss"
    summary = "The path from the parameters to the loss is cut before backward"
    severity = "error"
    words = ("backward",)

    fix_changes_results = True

    def fixes(self, finding: Finding, file: SourceFile) -> Sequence[Edit]:
        """The tensor in the place of the number, or of the copy, that was taken out of the graph."""
        return kept_in_graph(file, finding)

    def in_rank(self, rank: RankRecording, recording: Recording) -> Iterator[Finding]:
        """Backward passes whose graph reaches no parameter, the one that raised, and terms that were numbers."""
        outcome = rank.last(Outcome)
        lost = {r.place: r for r in rank.all(LostLoss)}
        for record in lost.values():
            if record.root == "no graph":
                if outcome is not None and _RAISED in (outcome.error or ""):
                    yield self._raised(rank, record)
            elif record.is_habit:
                yield self._reaches_nothing(rank, record)
        told = {place for r in lost.values() if r.is_habit for place in (r.place, r.made)}
        for term in rank.latest(ConstantTerm):
            if term.place not in told:
                yield self._constant_term(rank, term)
        without = sum(u.without_gradient_count for u in rank.latest(OptimizerUse, "id"))
        for cut in rank.latest(CutOutput):
            if cut.is_habit and cut.missed <= without and cut.place not in told:
                yield self._cut(rank, cut)

    def _raised(self, rank: RankRecording, record: LostLoss) -> Finding:
        if not record.grad_enabled:
            cause, advice = "gradients are switched off here (no_grad, set_grad_enabled)", "switch them on again"
        elif not record.parameters:
            cause, advice = "no parameter requires a gradient", "call `requires_grad_()` on what is to be trained"
        else:
            cause = (
                "everything that went into it was detached (`detach`, `data`, `item`, numpy, argmax or no_grad), "
                f"while {record.parameters} parameters require a gradient"
            )
            advice = "let the model's output reach the loss without detaching it; detach what is only logged"
        return self.observed(
            rank, severity="error", place=record.place, cause=cause, advice=advice,
            message=f"the program ended here: backward was called on a {record.dtype} tensor of shape "
            f"{record.shape} that has no graph",
        )  # fmt: skip

    def _reaches_nothing(self, rank: RankRecording, record: LostLoss) -> Finding:
        made = "a new tensor without a graph" if record.root == "leaf" else "made of new tensors without a graph"
        return self.observed(
            rank, severity="error", place=record.made or record.place,
            message=f"the loss that backward starts from is {made}: in {record.lost} of {record.judged} checked steps "
            f"of {record.optimizer} no gradient reached any of {record.parameters} parameters",
            cause="requires_grad on a detached loss silences the error, and the gradient ends in the loss itself",
            advice="call backward on the loss that the model's output went into, without detaching it",
            measured=Measured(steps=record.lost),
        )  # fmt: skip

    def _constant_term(self, rank: RankRecording, record: ConstantTerm) -> Finding:
        share = record.term / record.loss if record.loss else None
        return self.observed(
            rank, severity="warning", place=record.place,
            message=f"a number that item() took out of the graph is added to the loss here ({record.term:.3g} of "
            f"{record.loss:.3g}): it adds no gradient",
            cause="item() leaves the graph behind, so that no gradient comes from this term",
            advice="add the tensor itself; use item() only for what is logged",
            measured=Measured(steps=record.calls, share=share),
        )  # fmt: skip

    def _cut(self, rank: RankRecording, record: CutOutput) -> Finding:
        return self.observed(
            rank, severity="warning", place=record.place,
            message=f"what {record.above} parameters lead to leaves the graph here, and {record.missed} of them never "
            f"had a gradient: the loss reaches the others past it, in all {record.lost} steps looked at",
            cause="the loss is computed from a detached copy (`detach`, `item`, numpy); what is left of its gradient "
            "comes from terms that use a parameter directly, such as a penalty",
            advice="compute the loss from the tensor itself, without numpy; detach what is only logged",
            measured=Measured(steps=record.lost),
        )  # fmt: skip

    def in_file(self, file: SourceFile) -> Iterator[Finding]:
        """Backwards of a loss whose path from the parameters is cut."""
        for event in file.calls("backward"):
            loss = loops.loss_in(file, event)
            if loss is None or any("raises" in ast.unparse(w) for w in event.context.withs):
                continue
            cut = _pretended(file, loss, event)
            if cut is not None:
                yield self._pretends(file, event, loss, cut)
            elif "requires_grad" not in loops.unit_text(event.unit) and _is_cut(file, loss, event):
                yield self._raises(file, event, loss)
            else:
                yield from self._parts(file, event, loss)

    def _pretends(self, file: SourceFile, event: Event, loss: ast.expr, cut: Event) -> Finding:
        return self.suspect(
            file, cut, f"{file.segment(loss)} is a new tensor without a graph: its backward trains nothing",
            cause="requires_grad on a detached loss silences the error, and the gradient ends in the loss itself",
            advice="call backward on the loss that the model's output went into, without detaching it",
            severity="info" if loops.is_test(file) else None,
            related=[self.also(file, "backward", event, file.segment(event.node))],
        )  # fmt: skip

    def _raises(self, file: SourceFile, event: Event, loss: ast.expr) -> Finding:
        return self.suspect(
            file, event, f"{file.segment(loss)} has no graph here: backward raises that it does not require grad",
            cause="everything that goes into it is detached (`detach`, `data`, `item`, numpy, argmax or no_grad)",
            advice="let the model's output reach the loss without detaching it; detach what is only logged",
            severity="info" if loops.is_test(file) else None,
        )  # fmt: skip

    def _parts(self, file: SourceFile, event: Event, loss: ast.expr) -> Iterator[Finding]:
        """`loss = a + b.item()`: a term that is a mere number."""
        if not isinstance(loss, ast.Name):
            return
        bound = [e for e in event.unit.bindings.get(loss.id, ()) if e.index < event.index and not e.excludes(event)]
        for binding in bound[-3:]:
            value = getattr(binding.node, "value", None)
            for term in _terms(value):
                source = receiver(term) if isinstance(term, ast.Call) and terminal(term) == "item" else None
                lost = source is not None and file.roles.is_a("loss", source, event.unit)
                if source is None or not lost or file.gradients.carries(source, binding) != "yes":
                    continue
                yield self.suspect(
                    file, binding, f"{file.segment(term)} is a number: it adds no gradient to {loss.id}", node=term,
                    cause="item() leaves the graph behind, so that no gradient comes from this term",
                    advice=f"add `{file.segment(source)}` itself; use item() only for what is logged",
                    severity="warning" if not loops.is_test(file) else "info",
                    edits=[edits.replace(file, term, file.segment(source))],
                    related=[self.also(file, "backward", event, file.segment(event.node))],
                )  # fmt: skip


def _is_cut(file: SourceFile, loss: ast.expr, event: Event) -> bool:
    """Whether the loss surely refers to no graph."""
    if isinstance(loss, ast.Name):
        bound = [e for e in event.unit.bindings.get(loss.id, ()) if e.index < event.index and not e.excludes(event)]
        if any(isinstance(e.node, ast.AugAssign) for e in bound):
            if event.unit.home(loss.id) is not event.unit:
                return False
            return all(file.gradients.carries(getattr(e.node, "value", None), e) == "no" for e in bound)
        if event.unit.home(loss.id) is event.unit and bound and event.sure_after(bound[-1]):
            value = getattr(bound[-1].node, "value", None)
            if isinstance(value, ast.Call) and _cut_criterion(file, value, bound[-1]):
                return True
    if isinstance(loss, ast.Call) and _cut_criterion(file, loss, event):
        return True
    return file.gradients.carries(loss, event) == "no"


def _cut_criterion(file: SourceFile, call: ast.Call, event: Event) -> bool:
    """A loss function of torch that is given a detached output and a batch's own data."""
    made = loops.constructors(call.func, event.unit) or []
    criterion = [one for one, _ in made if file.dotted(one.func).startswith("torch.nn.")]
    functional = file.dotted(call.func).startswith("torch.nn.functional.")
    if "loss" not in file.roles.of(call, event.unit) or not (functional or (criterion and len(criterion) == len(made))):
        return False
    given = [*call.args, *(k.value for k in call.keywords)]
    cut = [one for one in given if file.gradients.carries(one, event) == "no" and not isinstance(one, ast.Constant)]
    return bool(cut) and all(one in cut or isinstance(one, ast.Constant) or _is_data(one, event) for one in given)


def _is_data(node: ast.expr, event: Event) -> bool:
    """A name that a loop over batches binds, moved to a device at most."""
    if not isinstance(node, ast.Name) or event.unit.home(node.id) is not event.unit:
        return False
    bound = event.unit.bindings.get(node.id, [])
    return any(isinstance(e.node, ast.For) for e in bound) and all(
        isinstance(e.node, ast.For) or _moves(getattr(e.node, "value", None)) for e in bound
    )


def _moves(value: ast.expr | None) -> bool:
    parts = value.elts if isinstance(value, ast.Tuple) else [value]
    return all(isinstance(p, ast.Call) and terminal(p) in ("to", "cuda", "long", "float") for p in parts)


def _pretended(file: SourceFile, loss: ast.expr, event: Event) -> Event | None:
    """Where a detached loss is made to require a gradient: `torch.tensor(loss.item(), requires_grad=True)`."""
    unit = event.unit
    if not isinstance(loss, ast.Name) or "requires_grad" not in loops.unit_text(unit):
        return None
    bound = [e for e in unit.bindings.get(loss.id, ()) if e.index < event.index and not e.excludes(event)]
    if unit.home(loss.id) is not unit or not bound or not event.sure_after(bound[-1]):
        return None
    last = bound[-1]
    value = getattr(last.node, "value", None)
    if (added := _numbers_on_leaf(file, loss.id, bound)) is not None:
        return added
    if isinstance(value, ast.Call) and _makes_leaf(file, value):
        return last if _of_something(file, value.args[0] if value.args else None, last) else None
    if isinstance(value, ast.Call) and terminal(value) == "requires_grad_":
        on = receiver(value)
        return last if on is not None and _of_something(file, on, last) and _detached(file, on, last) else None
    for later in unit.events[last.index : event.index]:
        if (
            _sets_flag(later, loss.id)
            and value is not None
            and (_detached(file, value, last) or (isinstance(value, ast.Call) and _cut_criterion(file, value, last)))
        ):
            return later if _of_something(file, value, last) else None
    return None


def _numbers_on_leaf(file: SourceFile, name: str, bound: list[Event]) -> Event | None:
    """`total = torch.zeros(1, requires_grad=True)`, then `total = total + weight * loss.item()` and nothing else: the
    first such sum."""
    first, *sums = bound
    made = getattr(first.node, "value", None)
    if not sums or not isinstance(made, ast.Call) or not _makes_leaf(file, made, "zeros", "ones", "full"):
        return None
    for event in sums:
        value = getattr(event.node, "value", None)
        terms = [*_terms(value, anything=True)]
        own = [t for t in terms if isinstance(t, ast.Name) and t.id == name]
        added = isinstance(event.node, ast.AugAssign) or len(own) == 1
        others = [t for t in terms if t not in own]
        if not added or not others or not all(terminal(t) in _TAKEN_OUT and isinstance(t, ast.Call) for t in others):
            return None
    return sums[0]


_TAKEN_OUT = ("item", "detach", "tolist", "numpy")
"""What leaves the graph behind."""


def _makes_leaf(file: SourceFile, call: ast.Call, *factories: str) -> bool:
    wants = keyword(call, "requires_grad")
    dotted = file.dotted(call.func)
    known = dotted in ("torch.tensor", "torch.autograd.Variable", "torch.as_tensor", *(f"torch.{f}" for f in factories))
    return known and isinstance(wants, ast.Constant) and wants.value is True


def _sets_flag(event: Event, name: str) -> bool:
    """`loss.requires_grad = True`, `loss.requires_grad_(True)`."""
    node = event.node
    if isinstance(node, ast.Assign):
        return any(terminal(t) == "requires_grad" and ast.unparse(t) == f"{name}.requires_grad" for t in node.targets)
    return terminal(node) == "requires_grad_" and ast.unparse(getattr(node, "func", node)) == f"{name}.requires_grad_"


def _detached(file: SourceFile, node: ast.expr, event: Event) -> bool:
    return file.gradients.carries(node, event) == "no"


def _of_something(file: SourceFile, node: ast.expr | None, event: Event) -> bool:
    """Whether it is made of a loss or a model's output, not of constants: a leaf of one's own is meant."""
    if node is None:
        return False
    for one in walk(node):
        if isinstance(one, ast.Name) and one.id in event.unit.bindings:
            roles = file.roles.of(one, event.unit)
            if roles & {"loss", "output"} or (not roles and file.roles.hinted("loss", one)):
                return True
        taken = isinstance(one, ast.Call) and terminal(one) in _TAKEN_OUT and receiver(one) is not None
        if taken or (isinstance(one, ast.Call) and file.roles.of(one, event.unit) & {"loss", "output"}):
            return True
    return False


def _terms(node: ast.AST | None, anything: bool = False) -> Iterator[ast.expr]:
    """The summands of a sum that are calls, weights left out; with `anything` all of them."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        yield from _terms(node.left, anything)
        yield from _terms(node.right, anything)
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        # A weight that is a constant; `loss * other.item()` may well be meant.
        sides = (node.left, node.right)
        calls = [s for s in sides if isinstance(s, ast.Call)]
        if any(isinstance(s, (ast.Constant, ast.Name, ast.Subscript, ast.Attribute)) for s in sides):
            yield from calls if calls or not anything else sides
        elif anything:
            yield node
    elif isinstance(node, ast.Call) or (anything and isinstance(node, ast.expr)):
        yield node

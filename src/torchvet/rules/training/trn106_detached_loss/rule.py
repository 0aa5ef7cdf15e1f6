"""TRN106: the path from the parameters to the loss is cut before backward."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from torchvet.recording import records
from torchvet.rules.kit import Edits, Finding, Findings, Location, Measured, RankRecording, Recording, SourceFile
from torchvet.rules.shared import training_loops as loops
from torchvet.rules.shared.empty_steps import refused_empty
from torchvet.rules.training.fixes.kept_graphs import kept_in_graph
from torchvet.source.model import Event, edits, given, is_call, is_name, is_set, names_in, receiver, terminal, walk

_RAISED = "does not require grad and does not have a grad_fn"
_LET_REACH = "let the model's output reach the loss without detaching it; detach what is only logged"
_PRETENDED = "requires_grad on a detached loss silences the error, and the gradient ends in the loss itself"
_CALL_ON_LOSS = "call backward on the loss that the model's output went into, without detaching it"
_NUMBER = "item() leaves the graph behind, so that no gradient comes from this term"
_MADE_NEW, _MADE_OF_NEW = "a new tensor without a graph", "made of new tensors without a graph"
_TAKEN_OUT = ("item", "detach", "tolist", "numpy")
"""What leaves the graph behind."""


class DetachedLoss(loops.LoopRule):
    """The path from the parameters to the loss is cut before backward."""

    severity = "error"
    words = ("backward",)
    fix_changes_results = True

    def fixes(self, finding: Finding, file: SourceFile) -> Edits:
        """The tensor in the place of the number, or of the copy, that was taken out of the graph."""
        return kept_in_graph(file, finding)

    def in_rank(self, rank: RankRecording, recording: Recording) -> Findings:
        """Backward passes whose graph reaches no parameter, the one that raised, and terms that were numbers."""
        lost = rank.latest(records.numeric.LostLoss)
        yield from self._lost(rank, recording, lost)
        known = {place for r in lost if r.is_habit for place in (r.place, r.made)}
        for term in rank.latest(records.numeric.ConstantTerm):
            if term.place not in known:
                yield self._constant_term(rank, term)
        without = sum(u.without_gradient_count for u in rank.latest(records.optimizers.OptimizerUse, "id"))
        for cut in rank.latest(records.numeric.CutOutput):
            # With fewer parameters without gradients, some that missed theirs here had one in other steps.
            if cut.is_habit and cut.missed <= without and cut.place not in known:
                yield self._cut(rank, cut)
            elif cut.trains_nothing and cut.place not in known:
                yield self._idle_term(rank, cut)

    def _lost(self, rank: RankRecording, recording: Recording, lost: list[records.numeric.LostLoss]) -> Findings:
        outcome, ended = rank.last(records.training.Outcome), refused_empty(rank)
        raised = outcome is not None and _RAISED in (outcome.error or "")
        for record in lost:
            if ended is not None and record.left_empty(ended):
                yield self._refused(rank, recording, record, ended)
            elif record.is_habit:
                yield self._reaches_nothing(rank, recording, record)
            elif record.root == "no graph" and raised:
                yield self._raised(rank, record)

    def _raised(self, rank: RankRecording, record: records.numeric.LostLoss) -> Finding:
        if not record.grad_enabled:
            cause, advice = "gradients are switched off here (no_grad, set_grad_enabled)", "switch them on again"
        elif not record.parameters:
            cause, advice = "no parameter requires a gradient", "call `requires_grad_()` on what is to be trained"
        else:
            cause = (
                "everything that went into it was detached (`detach`, `data`, `item`, numpy, argmax or no_grad), "
                f"while {record.parameters} parameters require a gradient"
            )
            advice = _LET_REACH
        message = (
            f"the program ended here: backward was called on a {record.dtype} tensor of shape {record.shape} that has "
            "no graph"
        )
        return self.observed(rank, record.place, message, cause=cause, advice=advice)

    def _refused(
        self,
        rank: RankRecording,
        recording: Recording,
        record: records.numeric.LostLoss,
        ended: records.scaling.EmptyStep,
    ) -> Finding:
        """A scaler refused the step, since such a loss had left the optimizer without any gradient."""
        made = _MADE_NEW if record.root == "leaf" else _MADE_OF_NEW
        return self.observed(
            rank,
            record.made or _made_in_source(recording) or record.place,
            f"the program ended in scaler.step(), since none of {record.parameters} parameters had a gradient: the "
            f"loss that backward starts from is {made}",
            cause=_PRETENDED,
            advice=_CALL_ON_LOSS,
            related=[
                self.beside("backward", record.place.function, record.place),
                self.beside("stepped", ended.place.function, ended.place),
            ],
        )

    def _reaches_nothing(self, rank: RankRecording, recording: Recording, record: records.numeric.LostLoss) -> Finding:
        made = _MADE_NEW if record.root == "leaf" else _MADE_OF_NEW
        message = (
            f"the loss that backward starts from is {made}: in {record.lost} of {record.judged} checked steps of "
            f"{record.optimizer} no gradient reached any of {record.parameters} parameters"
        )
        place = record.made or _made_in_source(recording) or record.place
        measured = Measured(steps=record.lost)
        return self.observed(rank, place, message, cause=_PRETENDED, advice=_CALL_ON_LOSS, measured=measured)

    def _constant_term(self, rank: RankRecording, record: records.numeric.ConstantTerm) -> Finding:
        share = record.term / record.loss if record.loss else None
        message = (
            f"a number that item() took out of the graph is added to the loss here ({record.term:.3g} of "
            f"{record.loss:.3g}): it adds no gradient"
        )
        advice = "add the tensor itself; use item() only for what is logged"
        measured = Measured(steps=record.calls, share=share)
        return self.observed(
            rank, record.place, message, cause=_NUMBER, advice=advice, severity="warning", measured=measured
        )

    def _cut(self, rank: RankRecording, record: records.numeric.CutOutput) -> Finding:
        missed, others = f"{record.missed} of them never had a gradient", "the others"
        if record.missed == record.above:
            missed, others = "none of them ever had a gradient", "other parameters alone"
        return self.observed(
            rank,
            record.place,
            f"what {record.above} parameters lead to leaves the graph here, and {missed}: the loss reaches {others} "
            f"past it, in all {record.lost} sampled steps",
            cause="the loss is computed from a detached copy (`detach`, `item`, numpy); what is left of its gradient "
            "comes from terms that use a parameter directly, such as a penalty",
            advice="compute the loss from the tensor itself, without numpy; detach what is only logged",
            severity="warning",
            measured=Measured(steps=record.lost),
        )

    def _idle_term(self, rank: RankRecording, cut: records.numeric.CutOutput) -> Finding:
        return self.observed(
            rank,
            cut.place,
            f"what is to be trained leaves the graph here, and a term of its loss reaches none of its parameters: only "
            f"{cut.reached} of another optimizer, whose gradients were cleared before any step ({cut.idle} sampled "
            "steps)",
            cause="through a detached copy no gradient comes back to what made it; the term trains nothing",
            advice="give this term the tensor itself; detach it only where the other model is trained",
            severity="warning",
            measured=Measured(steps=cut.idle),
        )

    def in_file(self, file: SourceFile) -> Findings:
        """Backwards of a loss whose path from the parameters is cut."""
        for event in file.calls("backward"):
            loss = loops.loss_in(file, event)
            # `with pytest.raises(…)`: the error is what the test asks for.
            if loss is None or any("raises" in ast.unparse(w) for w in event.context.withs):
                continue
            cut = _pretended(file, loss, event)
            if cut is not None:
                yield self._pretends(file, event, loss, cut)
            # Where a function sets `requires_grad`, the loss may be a leaf, and backward does not raise.
            elif "requires_grad" not in loops.unit_text(event.unit) and _is_cut(file, loss, event):
                yield self._raises(file, event, loss)
            else:
                yield from self._parts(file, event, loss)

    def _pretends(self, file: SourceFile, event: Event, loss: ast.expr, cut: Event) -> Finding:
        message = f"{file.segment(loss)} is a new tensor without a graph: its backward trains nothing"
        related = [self.also(file, "backward", event)]
        return self.suspect(file, cut, message, cause=_PRETENDED, advice=_CALL_ON_LOSS, related=related)

    def _raises(self, file: SourceFile, event: Event, loss: ast.expr) -> Finding:
        message = f"{file.segment(loss)} has no graph here: backward raises that it does not require grad"
        cause = "everything that goes into it is detached (`detach`, `data`, `item`, numpy, argmax or no_grad)"
        return self.suspect(file, event, message, cause=cause, advice=_LET_REACH)

    def _parts(self, file: SourceFile, event: Event, loss: ast.expr) -> Findings:
        """`loss = a + b.item()`: a term that is a mere number."""
        for binding in event.bindings_before(loss.id)[-3:] if isinstance(loss, ast.Name) else ():
            for term in _terms(getattr(binding.node, "value", None)):
                source = receiver(term) if is_call(term, "item") else None
                lost = source is not None and file.roles.is_a("loss", source, event.unit)
                if source is None or not lost or file.gradients.carries(source, binding) != "yes":
                    continue
                finding = self.suspect(
                    file,
                    binding,
                    f"{file.segment(term)} is a number: it adds no gradient to {terminal(loss)}",
                    node=term,
                    cause=_NUMBER,
                    advice=f"add `{file.segment(source)}` itself; use item() only for what is logged",
                    severity="warning",
                    edits=[edits.replace(file, term, file.segment(source))],
                    related=[self.also(file, "backward", event)],
                )
                yield finding


def _made_in_source(recording: Recording) -> Location | None:
    """The only call in the program's text that makes a tensor with gradients of what some name stands for."""
    found = []
    for path in recording.sources:
        file = recording.model(path)
        if file is None:
            continue
        for event in file.calls("tensor", "as_tensor", "Variable"):
            if _makes_leaf(file, event.call) and event.call.args and names_in(event.call.args[0]):
                found.append(Location(path=path, line=event.line, function=event.unit.name))
    return found[0] if len(found) == 1 else None


def _is_cut(file: SourceFile, loss: ast.expr, event: Event) -> bool:
    """Whether the loss surely refers to no graph."""
    if isinstance(loss, ast.Name):
        bound = event.bindings_before(loss.id)
        own = event.unit.home(loss.id) is event.unit
        if any(isinstance(e.node, ast.AugAssign) for e in bound):
            return own and all(_detached(file, getattr(e.node, "value", None), e) for e in bound)
        last = event.binding_of(loss.id) if own else None
        if last is not None and _cut_criterion(file, getattr(last.node, "value", None), last):
            return True
    return _cut_criterion(file, loss, event) or _detached(file, loss, event)


def _cut_criterion(file: SourceFile, call: ast.expr | None, event: Event) -> bool:
    """A call of torch's loss function that is given a detached output and a batch's own data."""
    if not isinstance(call, ast.Call) or "loss" not in file.roles.of(call, event.unit):
        return False
    if not _is_of_torch(file, call, event):
        return False
    tensors = [one for one in given(call) if not isinstance(one, ast.Constant)]
    cut = [one for one in tensors if _detached(file, one, event)]
    return bool(cut) and all(one in cut or _is_data(one, event) for one in tensors)


def _is_of_torch(file: SourceFile, loss: ast.Call, event: Event) -> bool:
    """Whether a loss is one of `torch.nn.functional`, or made of a class of torch.nn."""
    made = loops.constructors(loss.func, event.unit) or []
    criterion = bool(made) and all(file.dotted(one.func).startswith("torch.nn.") for one, _ in made)
    return criterion or file.dotted(loss.func).startswith("torch.nn.functional.")


def _is_data(node: ast.expr, event: Event) -> bool:
    """A name that a loop over batches binds, moved to a device at most."""
    if not event.is_own(node):
        return False
    bound = event.unit.bindings.get(node.id, [])
    return any(isinstance(e.node, ast.For) for e in bound) and all(
        isinstance(e.node, ast.For) or _moves(getattr(e.node, "value", None)) for e in bound
    )


def _moves(value: ast.expr | None) -> bool:
    parts = value.elts if isinstance(value, ast.Tuple) else [value]
    return all(is_call(p, "to", "cuda", "long", "float") for p in parts)


def _pretended(file: SourceFile, loss: ast.expr, event: Event) -> Event | None:
    """Where a detached loss is made to require a gradient: `torch.tensor(loss.item(), requires_grad=True)`."""
    unit = event.unit
    if not isinstance(loss, ast.Name) or "requires_grad" not in loops.unit_text(unit):
        return None
    last = event.binding_of(loss.id) if unit.home(loss.id) is unit else None
    if last is None:
        return None
    added = _numbers_on_leaf(file, loss.id, event.bindings_before(loss.id))
    if added is not None:
        return added
    value = source = getattr(last.node, "value", None)
    pretends: Event | None = last
    if isinstance(value, ast.Call) and _makes_leaf(file, value):
        source, cut = next(iter(value.args), None), True
    elif is_call(value, "requires_grad_"):
        source = receiver(value)
        cut = _detached(file, source, last)
    else:
        cut = _detached(file, value, last) or _cut_criterion(file, value, last)
        pretends = next((e for e in unit.events[last.index : event.index] if _sets_flag(e, loss.id)), None)
    return pretends if cut and _of_something(file, source, last) else None


def _numbers_on_leaf(file: SourceFile, name: str, bound: list[Event]) -> Event | None:
    """`total = torch.zeros(1, requires_grad=True)`, then `total = total + weight * loss.item()` and nothing else: the
    first such sum."""
    first, *sums = bound
    # The leaf gets the gradient of the sum: backward raises nothing and trains nothing.
    made = getattr(first.node, "value", None)
    leaf = isinstance(made, ast.Call) and _makes_leaf(file, made, "zeros", "ones", "full")
    return sums[0] if leaf and sums and all(_adds_numbers(event, name) for event in sums) else None


def _adds_numbers(event: Event, name: str) -> bool:
    """Whether a binding adds nothing to a variable but numbers that were taken out of graphs."""
    terms = [*_terms(getattr(event.node, "value", None), anything=True)]
    others = [t for t in terms if not is_name(t, name)]
    adds = isinstance(event.node, ast.AugAssign) or len(terms) == len(others) + 1
    return adds and bool(others) and all(is_call(t, *_TAKEN_OUT) for t in others)


def _makes_leaf(file: SourceFile, call: ast.Call, *factories: str) -> bool:
    known = ("torch.tensor", "torch.autograd.Variable", "torch.as_tensor", *(f"torch.{f}" for f in factories))
    return file.dotted(call.func) in known and is_set(call, "requires_grad")


def _sets_flag(event: Event, name: str) -> bool:
    """`loss.requires_grad = True`, `loss.requires_grad_(True)`."""
    node = event.node
    if isinstance(node, ast.Assign):
        return any(terminal(t) == "requires_grad" and ast.unparse(t) == f"{name}.requires_grad" for t in node.targets)
    return terminal(node) == "requires_grad_" and ast.unparse(getattr(node, "func", node)) == f"{name}.requires_grad_"


def _detached(file: SourceFile, node: ast.expr | None, event: Event) -> bool:
    return node is not None and file.gradients.carries(node, event) == "no"


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
    """The summands of a sum that are calls, without weights; with `anything` all of them."""
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

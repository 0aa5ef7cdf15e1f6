"""TRN108: probabilities are given to a loss that normalises its input itself."""

from __future__ import annotations

import ast

from torchvet.recording.records.training import NormalisedTwice
from torchvet.rules.kit import (
    Edit,
    Finding,
    Iterator,
    Measured,
    RankRecording,
    Recording,
    Related,
    Rule,
    Sequence,
    SourceFile,
)
from torchvet.rules.shared import training_loops as loops
from torchvet.rules.training.fixes.softmax import not_normalised
from torchvet.source.model import Event, Unit, edits, keyword, receiver, targets_of, terminal, value_bound
from torchvet.source.model.origins import made_by

_BINARY = {"binary_cross_entropy_with_logits", "BCEWithLogitsLoss"}
_FUNCTIONS = {"softmax", "log_softmax", "sigmoid"}
_MODULES = {"torch.nn.Softmax": "softmax", "torch.nn.LogSoftmax": "log_softmax", "torch.nn.Sigmoid": "sigmoid"}
_SHAPES = {"view", "reshape", "squeeze", "unsqueeze", "flatten", "float", "to", "contiguous", "double"}


class SoftmaxBeforeCrossEntropy(Rule):
    """Probabilities are given to a loss that normalises its input itself."""

    code = "TRN108"
    name = "softmax-before-cross-entropy"
    summary = "Probabilities are given to a loss that normalises its input itself"
    severity = "warning"
    words = ("softmax", "Softmax", "sigmoid", "Sigmoid")

    fix_changes_results = True
    silence_clears = False  # the loss may have been computed in other steps than those that were sampled

    def in_rank(self, rank: RankRecording, recording: Recording) -> Iterator[Finding]:
        """Losses that were given what a softmax, or a sigmoid, had made."""
        for record in rank.latest(NormalisedTwice):
            made = record.made
            at = f" (line {made.line})" if made is not None and made.path == record.place.path else ""
            yield self.observed(
                rank, severity="warning", place=record.place,
                message=f"the loss is given the result of {record.how}{at} and applies {record.how} again "
                f"({record.calls} sampled calls)",
                cause="it expects raw scores; probabilities between 0 and 1 are squeezed once more, so that the "
                "loss cannot come near zero and the gradients stay small",
                advice=f"give it the scores before {record.how}; apply {record.how} only where probabilities are "
                "read", measured=Measured(steps=record.calls),
                related=[] if made is None else [
                    Related(role="normalised", message=record.how, path=made.path, line=made.line)
                ],
            )  # fmt: skip

    def fixes(self, finding: Finding, file: SourceFile) -> Sequence[Edit]:
        """What is normalised, as it is before: where one call does it."""
        at = next((r.line for r in finding.related if r.role == "normalised" and r.path == file.path), None)
        return not_normalised(file, at) if at is not None else ()

    def in_file(self, file: SourceFile) -> Iterator[Finding]:
        """Losses that normalise their input, given what is normalised already."""
        if not file.mentions("cross_entropy(", "CrossEntropyLoss(", "_with_logits(", "WithLogitsLoss("):
            return
        for event, call, loss in _losses(file):
            given = call.args[0] if call.args else keyword(call, "input")
            found = _normalised(given, event, 0)
            if found is None or (found[0] == "sigmoid") != (loss in _BINARY):
                continue
            yield self._finding(file, event, call, loss, found)

    def _finding(
        self, file: SourceFile, event: Event, call: ast.Call, loss: str, found: tuple[str, ast.AST, Unit]
    ) -> Finding:
        done, node, _ = found
        inner = "sigmoid" if loss in _BINARY else "softmax"
        again = "log_softmax again: it changes nothing" if done == "log_softmax" else f"{inner} again"
        line = getattr(node, "lineno", event.line)
        fix = call.args and node is call.args[0] and isinstance(node, ast.Call) and done == inner
        raw = _argument(file, node) if fix and isinstance(node, ast.Call) else None
        return self.suspect(
            file, event, f"{loss} is given the result of {done} (line {line}) and applies {again}", node=call,
            cause=f"{loss} expects raw scores; probabilities between 0 and 1 are squeezed once more, so that the loss "
            "cannot come near zero and the gradients stay small",
            advice=f"give it the scores before {done}; apply {done} only where probabilities are read",
            severity="info" if done == "log_softmax" or loops.is_test(file) else None,
            edits=[edits.replace(file, call.args[0], file.segment(raw))] if raw is not None else (),
            related=[Related(role="normalised", message=file.segment(node), path=file.path, line=line)],
        )  # fmt: skip


def _losses(file: SourceFile) -> Iterator[tuple[Event, ast.Call, str]]:
    """Calls of losses that normalise: functions, and criteria made of the classes."""
    for event in file.calls("cross_entropy", "binary_cross_entropy_with_logits"):
        if file.dotted(event.call.func).startswith("torch.nn.functional."):
            yield event, event.call, terminal(event.node)
    names: dict[str, list[ast.AST]] = {}
    for made in file.calls("CrossEntropyLoss", "BCEWithLogitsLoss"):
        if isinstance(made.parent, ast.Call) and made.parent.func is made.node:
            yield made, made.parent, terminal(made.node)
        for target in targets_of(made.statement):
            names.setdefault(terminal(target), []).append(made.node)
    for name, nodes in names.items():
        for event in file.calls(name) if name else ():
            values = [v for v, _ in made_by(event.call.func, event.unit) if isinstance(v, ast.Call)]
            if values and all(any(v is n for n in nodes) for v in values):
                yield event, event.call, terminal(values[0])


def _normalised(node: ast.AST | None, event: Event, depth: int) -> tuple[str, ast.AST, Unit] | None:
    """What has normalised an expression for certain: its name, where, and the unit; None where nothing or unsure."""
    if depth > 6 or node is None:
        return None
    if isinstance(node, ast.Name):
        return _of_name(node.id, event, depth)
    if isinstance(node, ast.Call):
        return _of_call(node, event, depth)
    return None


def _of_name(name: str, event: Event, depth: int) -> tuple[str, ast.AST, Unit] | None:
    unit = event.unit
    before = [e for e in unit.bindings.get(name, ()) if e.index < event.index and not e.excludes(event)]
    if unit.home(name) is unit and not unit.bindings.get(name) and depth < 4:
        return _of_parameter(name, unit, depth)
    if unit.home(name) is not unit or not before or not event.sure_after(before[-1]):
        return None
    last = before[-1]
    value = value_bound(last.node, name)
    if value is None and isinstance(last.node, ast.Assign):
        parts = [_normalised(one, at, depth + 2) for one, at in loops.returned_part(last.node, name, last)]
        return parts[0] if parts and all(parts) else None
    # `x = softmax(x)`: what is asked is the state before the binding.
    return _normalised(value, last, depth + 1)


def _of_parameter(name: str, unit: Unit, depth: int) -> tuple[str, ast.AST, Unit] | None:
    """What every caller of this file gives, where that is normalised."""
    calls = unit.file.callers(unit)
    given = [(value, call) for call in calls for value in unit.file.passed(call, unit, name)]
    answers = [_normalised(value, call, depth + 2) for value, call in given]
    return answers[0] if answers and all(answers) and len(answers) == len(calls) else None


def _of_call(node: ast.Call, event: Event, depth: int) -> tuple[str, ast.AST, Unit] | None:
    unit, name, on = event.unit, terminal(node), receiver(node)
    file = unit.file
    if name in _FUNCTIONS:
        torch = file.dotted(node.func).startswith("torch.")
        # A method of a tensor; `self.softmax` is a module or something of the user's.
        method = on is not None and not torch and not file.roles.values(node.func, unit) and file.callee(event) is None
        if torch or (method and not (isinstance(on, ast.Name) and on.id in (unit.self_name(), *file.imports.names))):
            return name, node, unit
    if name in _SHAPES and on is not None:
        return _normalised(on, event, depth + 1)
    made = [(v, w) for v, w in made_by(node.func, unit) if isinstance(v, ast.Call)]
    answers = [_of_module(v, w, depth) for v, w in made]
    if answers and all(answers):
        found = answers[0]
        return (found[0], found[1] or node, unit) if found else None
    own = next((e for e in unit.calls.get(name, ()) if e.node is node), None)
    called = file.callee(own) if own is not None else None
    return _of_returns(called, depth) if called is not None else None


def _of_module(made: ast.Call, unit: Unit, depth: int) -> tuple[str, ast.AST, Unit] | None:
    """What calling a module of this constructor gives."""
    file = unit.file
    dotted = file.dotted(made.func)
    if dotted in _MODULES:
        return _MODULES[dotted], made, unit
    if dotted == "torch.nn.Sequential" and made.args:
        last = made.args[-1]
        if isinstance(last, ast.Call) and not isinstance(last, ast.Starred):
            return _of_module(last, unit, depth + 1)
    known = file.roles.class_named(made.func, unit)
    forward = known.method("forward") if known is not None else None
    return _of_returns(forward, depth) if forward is not None and depth < 4 else None


def _of_returns(function: Unit, depth: int) -> tuple[str, ast.AST, Unit] | None:
    returned = [e for e in function.events if isinstance(e.node, ast.Return)]
    answers = [_normalised(e.node.value, _event_of(e), depth + 2) for e in returned]  # type: ignore[attr-defined]
    return answers[0] if answers and all(answers) else None


def _event_of(returned: Event) -> Event:
    """The call that is returned, else the return itself: a callee is known by its call's event."""
    value = returned.node.value  # type: ignore[attr-defined]
    return next((e for e in returned.unit.calls.get(terminal(value), ()) if e.node is value), returned)


def _argument(file: SourceFile, call: ast.Call) -> ast.expr | None:
    """What a function or method of torch normalises."""
    if file.dotted(call.func).startswith("torch."):
        return call.args[0] if call.args else None
    return receiver(call)

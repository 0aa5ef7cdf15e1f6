"""TRN108: probabilities are given to a loss that normalises its input itself."""

from __future__ import annotations

import ast

from torchvet.finding import Related
from torchvet.recording.records.training import NormalisedTwice
from torchvet.rules.kit import Edits, Finding, Findings, Iterator, Measured, RankRecording, Recording, SourceFile
from torchvet.rules.shared import training_loops as loops
from torchvet.rules.training.fixes.softmax import not_normalised
from torchvet.source.model import Event, Unit, argument, edits, operand, receiver, targets_of, terminal
from torchvet.source.model.origins import made_by

_BINARY = {"binary_cross_entropy_with_logits", "BCEWithLogitsLoss"}
_FUNCTIONS = {"softmax", "log_softmax", "sigmoid"}
_MODULES = {"torch.nn.Softmax": "softmax", "torch.nn.LogSoftmax": "log_softmax", "torch.nn.Sigmoid": "sigmoid"}
_SHAPES = {"view", "reshape", "squeeze", "unsqueeze", "flatten", "float", "to", "contiguous", "double"}

_SQUEEZED = (
    "probabilities between 0 and 1 are squeezed once more, so that the loss cannot come near zero and the gradients "
    "stay small"
)

_Normalised = tuple[str, ast.AST]
"""The function that has normalised something, and the call or module that did it."""


class SoftmaxBeforeCrossEntropy(loops.LoopRule):
    """Probabilities are given to a loss that normalises its input itself."""

    severity = "warning"
    words = ("softmax", "Softmax", "sigmoid", "Sigmoid")
    fix_changes_results = True

    silence_clears = False  # the loss may have been computed in other steps than those that were sampled

    def in_rank(self, rank: RankRecording, recording: Recording) -> Findings:
        """Losses that were given what a softmax, or a sigmoid, had made."""
        for record in rank.latest(NormalisedTwice):
            yield self._seen(rank, record)

    def _seen(self, rank: RankRecording, record: NormalisedTwice) -> Finding:
        how, made = record.how, record.made
        at = f" (line {made.line})" if made is not None and made.path == record.place.path else ""
        message = f"the loss is given the result of {how}{at} and applies {how} again ({record.calls} sampled calls)"
        cause = f"it expects raw scores; {_SQUEEZED}"
        advice = f"give it the scores before {how}; apply {how} only where probabilities are read"
        measured = Measured(steps=record.calls)
        related = [Related(role="normalised", message=how, path=made.path, line=made.line)] if made else []
        return self.observed(
            rank, record.place, message, cause=cause, advice=advice, measured=measured, related=related
        )

    def fixes(self, finding: Finding, file: SourceFile) -> Edits:
        """What is normalised, as it is before: where one call does it."""
        at = next((r.line for r in finding.related if r.role == "normalised" and r.path == file.path), None)
        return not_normalised(file, at) if at is not None else ()

    def in_file(self, file: SourceFile) -> Findings:
        """Losses that normalise their input, given what is normalised already."""
        if not file.mentions("cross_entropy(", "CrossEntropyLoss(", "_with_logits(", "WithLogitsLoss("):
            return
        for event, call, loss in _losses(file):
            found = _normalised(argument(call, "input", 0), event, 0)
            if found is not None and (found[0] == "sigmoid") == (loss in _BINARY):
                yield self._finding(file, event, call, loss, found)

    def _finding(self, file: SourceFile, event: Event, call: ast.Call, loss: str, found: _Normalised) -> Finding:
        done, node = found
        inner = "sigmoid" if loss in _BINARY else "softmax"
        again = "log_softmax again: it changes nothing" if done == "log_softmax" else f"{inner} again"
        line = getattr(node, "lineno", event.line)
        fix = call.args and node is call.args[0] and isinstance(node, ast.Call) and done == inner
        raw = operand(file, node) if fix and isinstance(node, ast.Call) else None
        return self.suspect(
            file,
            event,
            f"{loss} is given the result of {done} (line {line}) and applies {again}",
            node=call,
            cause=f"{loss} expects raw scores; {_SQUEEZED}",
            advice=f"give it the scores before {done}; apply {done} only where probabilities are read",
            severity="info" if done == "log_softmax" else None,
            edits=[edits.replace(file, call.args[0], file.segment(raw))] if raw is not None else (),
            related=[Related(role="normalised", message=file.segment(node), path=file.path, line=line)],
        )


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
    for event in file.calls(*(names.keys() - {""})):
        values = [v for v, _ in made_by(event.call.func, event.unit) if isinstance(v, ast.Call)]
        if values and all(v in names[terminal(event.node)] for v in values):
            yield event, event.call, terminal(values[0])


def _normalised(node: ast.AST | None, event: Event, depth: int) -> _Normalised | None:
    """What has normalised an expression for certain; None where nothing has, or that is unsure."""
    if depth > 6:
        return None
    if isinstance(node, ast.Name):
        return _of_name(node.id, event, depth)
    return _of_call(node, event, depth) if isinstance(node, ast.Call) else None


def _agreed(answers: list[_Normalised | None]) -> _Normalised | None:
    """The first answer, if none is missing."""
    return answers[0] if answers and all(answers) else None


def _of_name(name: str, event: Event, depth: int) -> _Normalised | None:
    unit = event.unit
    if unit.home(name) is not unit:
        return None
    if not unit.bindings.get(name):
        return _of_parameter(name, unit, depth) if depth < 4 else None
    binding = event.binding_of(name)
    if binding is None:
        return None
    value, parts = loops.bound_value(binding, name)
    if value is None:
        return _agreed([_normalised(one, at, depth + 2) for one, at in parts])
    # `x = softmax(x)`: what is asked is the state before the binding.
    return _normalised(value, binding, depth + 1)


def _of_parameter(name: str, unit: Unit, depth: int) -> _Normalised | None:
    """What every caller of this file gives, where that is normalised."""
    calls = unit.file.callers(unit)
    values = [(value, call) for call in calls for value in unit.file.passed(call, unit, name)]
    return _agreed([_normalised(v, call, depth + 2) for v, call in values]) if len(values) == len(calls) else None


def _of_call(node: ast.Call, event: Event, depth: int) -> _Normalised | None:
    unit, name, on = event.unit, terminal(node), receiver(node)
    if name in _FUNCTIONS and _is_torch(node, event):
        return name, node
    if name in _SHAPES and on is not None:
        return _normalised(on, event, depth + 1)
    found = _agreed([_of_module(v, w, depth) for v, w in made_by(node.func, unit) if isinstance(v, ast.Call)])
    if found is not None:
        return found
    own = unit.call_of(node)
    called = unit.file.callee(own) if own is not None else None
    return _of_returns(called, depth) if called is not None else None


def _is_torch(node: ast.Call, event: Event) -> bool:
    """Whether a call is of torch's function or of a tensor's method; `self.softmax` is a module, or the user's own."""
    unit, on = event.unit, receiver(node)
    if unit.file.dotted(node.func).startswith("torch."):
        return True
    if on is None or unit.file.roles.values(node.func, unit) or unit.file.callee(event) is not None:
        return False
    return not (isinstance(on, ast.Name) and on.id in (unit.self_name(), *unit.file.imports.names))


def _of_module(made: ast.Call, unit: Unit, depth: int) -> _Normalised | None:
    """What calling a module of this constructor gives."""
    file = unit.file
    dotted = file.dotted(made.func)
    if dotted in _MODULES:
        return _MODULES[dotted], made
    last = made.args[-1] if dotted == "torch.nn.Sequential" and made.args else None
    if isinstance(last, ast.Call):
        return _of_module(last, unit, depth + 1)
    known = file.roles.class_named(made.func, unit)
    forward = known.method("forward") if known is not None else None
    return _of_returns(forward, depth) if forward is not None and depth < 4 else None


def _of_returns(function: Unit, depth: int) -> _Normalised | None:
    # A callee is known by its call's event.
    values = ((e.node.value, e) for e in function.returns)  # type: ignore[attr-defined]
    return _agreed([_normalised(value, function.call_of(value) or e, depth + 2) for value, e in values])

"""Models that a program loads and runs without gradients, and never puts into eval mode."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from typing import Literal

from torchvet.rules.kit import Identity, Iterator, SourceFile
from torchvet.rules.shared import training_loops as loops
from torchvet.rules.training import _modes as modes
from torchvet.source.model import Event, given, is_name, name_set, origins, receiver, targets_of, terminal

_ELSEWHERE = re.compile(
    r"\.eval\b|\.train\(|\.training\b|from_pretrained|\.backward\(|optim|\beval_mode|\bfit\(|Trainer|LightningModule"
)
"""What switches modes, or trains: such a file is judged by its loops."""
_MEANT = re.compile(
    r"monte.?carlo|\bmc_?|mc_?drop|bayesian|uncertaint|variance|calibrat|(?:update|reset|adapt)_?(?:bn|batch_?norm|stats)"
    r"|running_(?:mean|var)",
    re.IGNORECASE,
)
"""Words of who runs a model in train mode on purpose: for the noise, or for the statistics of batch norm."""
_RUNS = name_set("generate sample predict encode decode inference forward translate")
_ASKS = name_set("print len type id isinstance count_parameters summary DataParallel str")
"""Functions that leave the mode of what they are given."""


@dataclass(frozen=True)
class Loaded:
    """A model that is loaded and run, with how sure it is that it behaves differently in train mode."""

    model: ast.expr
    loaded: Event
    runs: Event
    whole: bool
    """Whether `torch.load` gives the model itself, which is in the mode that it was saved in."""
    varies: Literal["yes", "unknown"]


def never_switched(file: SourceFile) -> Iterator[Loaded]:
    """Models that are run without gradients in the mode that they were built or saved in."""
    if not file.mentions("load_state_dict(", "torch.load(") or _ELSEWHERE.search(file.text) or loops.is_test(file):
        return
    seen: set[Identity] = set()
    for event in file.calls("load_state_dict", "load"):
        model, whole = _loaded(event)
        who = origins.identity(model, event.unit) if model is not None else frozenset()
        if model is None or not who or who in seen:
            continue
        seen.add(who)
        varies = "unknown" if whole else modes.stochastic(file, model, event.unit)
        runs = _run(file, event, model, who) if varies != "no" else None
        if runs is not None and varies != "no":
            sure = varies if _without_gradients(file, runs) else "unknown"
            yield Loaded(model, event, runs, whole, sure)


def _loaded(event: Event) -> tuple[ast.expr | None, bool]:
    """The model that a call loads, and whether that is what `torch.load` gives."""
    file, on = event.unit.file, receiver(event.call)
    if terminal(event.node) == "load_state_dict":
        return (on, False) if on is not None and file.roles.is_a("module", on, event.unit) else (None, False)
    targets = targets_of(event.statement) if file.dotted(event.call.func) == "torch.load" else []
    whole = len(targets) == 1 and getattr(event.statement, "value", None) is event.node
    return (targets[0], True) if whole and isinstance(targets[0], (ast.Name, ast.Attribute)) else (None, False)


def _run(file: SourceFile, loaded: Event, model: ast.expr, who: Identity) -> Event | None:
    """The first call that runs the model without gradients: after it is loaded, or in a function that is given it.
    None as well where a function from elsewhere is given the model, which may switch its mode."""
    names = {terminal(model)}
    for event in _given_to(file, who):
        callee = file.callee(event)
        if callee is None and not _is_harmless(file, event):
            return None
        names |= set(callee.parameters if callee is not None else ())
    for event in file.calls(*names, *_RUNS):
        ran = event.call.func if terminal(event.node) in names else receiver(event.call)
        earlier = event.unit is loaded.unit and event.index < loaded.index
        if earlier or ran is None or not given(event.call) or not _is_switched_alone(ran, event):
            continue
        if origins.identity(ran, event.unit) & who and _evaluates(file, loaded, event):
            return event
    return None


def _evaluates(file: SourceFile, loaded: Event, ran: Event) -> bool:
    """Whether a call is one of an evaluation, in a function that says nothing of train mode's noise or statistics."""
    evaluates = _without_gradients(file, ran) or _is_script(loaded, ran)
    return evaluates and not _MEANT.search(file.text_of(ran.unit))


def _is_script(loaded: Event, ran: Event) -> bool:
    """Whether one function, or the module, loads a model that it has built and runs it: such a one evaluates."""
    built = terminal(loaded.node) == "load_state_dict"
    return built and loaded.unit is ran.unit and ran.unit.owner is None and bool(ran.call.args)


def _is_switched_alone(ran: ast.expr, event: Event) -> bool:
    """Whether a model is a variable, or kept by an object of a class that has no base: what a module keeps is switched
    with it, and an agent's base class may switch its models."""
    if isinstance(ran, ast.Name):
        return ran.id != event.unit.self_name()
    owner = event.unit.method_class()
    on = ran.value if isinstance(ran, ast.Attribute) else None
    return owner is not None and not owner.bases and is_name(on, event.unit.self_name())


def _given_to(file: SourceFile, who: Identity) -> Iterator[Event]:
    """The calls that are given the model."""
    for unit in file.units:
        for event in unit.events:
            named = given(event.call) if isinstance(event.node, ast.Call) else []
            if any(isinstance(n, (ast.Name, ast.Attribute)) and origins.identity(n, unit) & who for n in named):
                yield event


def _is_harmless(file: SourceFile, event: Event) -> bool:
    return terminal(event.node) in _ASKS or file.dotted(event.call.func).startswith("torch.nn.")


def _without_gradients(file: SourceFile, event: Event) -> bool:
    # The keyword is that of torch before 0.4.
    return file.gradients.enabled(event) == "no" or file.mentions("volatile=True")

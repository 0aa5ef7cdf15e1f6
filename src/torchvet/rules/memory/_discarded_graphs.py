"""Runs of models whose graphs nobody can use: all that is made of their results goes on without a graph."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from torchvet.rules.kit import SourceFile
from torchvet.rules.memory import _lasting
from torchvet.rules.memory._generation import generations
from torchvet.rules.shared.training_loops import is_test, unit_text
from torchvet.source.model import Event, Unit, given, name_set, receiver, terminal
from torchvet.source.model.destinations import Destinations

_OF_MODULES = name_set("eval train parameters named_parameters state_dict load_state_dict modules cuda to half")
"""What is done to modules; of what is done to tensors as well only modules are called."""
_LIKE_MODULES = tuple(
    name_set("""
    model net network generator discriminator critic actor policy encoder decoder backbone student teacher
""")
)
_CUT = (".detach", ".item(", ".tolist(", ".numpy(", "argmax(", ".data", "float(", ".max(", ".topk(", ".sort(")
_TRAINS = ("backward(", "no_grad", "inference_mode", "grad_enabled", "optim", ".step(", ".train(", "zero_grad")
"""Of a file with any of these, functions of other files may train on what they are given, or know of it."""
_GRADIENTS = ("grad", "attack", "jacobian", "hessian", "hook", "saliency", "func")
_NEEDS_GRADIENTS = re.compile(
    r"requires_grad_?\b(?!\s*=\s*False)|autograd\.(grad|functional|backward)|autograd import [^\n]*grad|enable_grad|"
    r"retain_grad|attack|jacobian|hessian|hook|saliency|torch\.func\b"
)
_FROZEN = re.compile(r"requires_grad_\(|\.requires_grad\s*=\s*False|Parameter\([^\n]*requires_grad|freeze|volatile")
"""What runs may build no graph at all; `volatile` said so in early versions of torch."""
_MAKES = re.compile(r"_*(train|get|build|load|make|create|init|fit|save|set|update|run|export|prepare|wrap|test|eval)_")


@dataclass(frozen=True, eq=False)
class Discarded:
    """A run, and the first expression that gives its result on without the graph. `trusting`: functions of other files
    are taken to keep nothing of it."""

    run: Event
    cut: ast.expr
    trusting: bool


def discarded(file: SourceFile) -> Iterator[Discarded]:
    """The first such run of each function, in the order of the file."""
    if is_test(file) or not file.mentions(*_CUT):
        return
    if file.mentions("requires_grad", "freeze", "volatile") and _FROZEN.search(file.text):
        return
    # Functions of other files may be trusted where the file trains nothing and has never heard of `no_grad`.
    trusting = not (file.mentions(*_TRAINS) or _needs_gradients(file, file.text))
    seen: set[int] = set()
    for run in file.calls(*_names(file)):
        if id(run.unit) not in seen and _may_be_discarded(file, run) and _is_model(file, run):
            flow = _followed(file, run, trusting)
            # A state that carries its graph on is MEM103's.
            if flow is not None and next(generations(file, _assigning(run)), None) is None:
                seen.add(id(run.unit))
                first = min(flow.cuts.values(), key=lambda n: (n.lineno < run.line, n.lineno))
                yield Discarded(run, first, trusting)


def _assigning(run: Event) -> list[Event]:
    """The assignment that a run is the value of."""
    return [e for e in run.unit.events if e.node is run.statement and getattr(e.node, "value", None) is run.node]


def _names(file: SourceFile) -> list[str]:
    """Last identifiers that models of the file may have, and `forward`."""
    words, text = file.words, file.text
    found = {"forward"}
    for method in _OF_MODULES & words.identifiers:
        for end in words.positions(f".{method}("):
            start = end
            while text[start - 1 : start].isidentifier() or text[start - 1 : start].isdigit():
                start -= 1
            found.add(text[start:end])
    # By the ends of names first: a file has hundreds.
    likely = (name for name in words.identifiers if name.endswith(_LIKE_MODULES) or name.startswith("net"))
    found.update(name for name in likely if name[0].islower() and file.roles.hinted("module", ast.Name(name)))
    return sorted(found - {""})


def _needs_gradients(file: SourceFile, text: str) -> bool:
    """Whether some code of the file needs gradients of its own."""
    return file.mentions(*_GRADIENTS) and _NEEDS_GRADIENTS.search(text) is not None


def _is_model(file: SourceFile, run: Event) -> bool:
    """Whether a call runs a model, by its making or by what else is done to what has its name."""
    function, unit = run.call.func, run.unit
    if terminal(function) == "forward":
        return _forwards(file, run)
    found = file.roles.of(function, unit)
    if found:
        carries = file.gradients.carries(run.node, run)
        # Its layers may come from libraries; whose parameters are asked for, that has some.
        learns = carries == "yes" or (carries == "unknown" and file.mentions(f"{terminal(function)}.parameters("))
        return learns and file.gradients.forwards.runs_module(run.call, unit)
    # Without an argument, or by a verb, it makes a model, or trains it.
    if all(isinstance(one, ast.Constant) for one in given(run.call)) or _MAKES.match(terminal(function)):
        return False
    # An import's name, or a method of an object of this file, is a function.
    if isinstance(function, ast.Name) and (file.dotted(function) != function.id or unit.home(function.id) is None):
        return False
    return isinstance(function, (ast.Name, ast.Attribute)) and file.callee(run) is None


def _forwards(file: SourceFile, run: Event) -> bool:
    """Whether a call of `forward` by name is one of a module, by its making or its class, that learns."""
    on, unit = receiver(run.call), run.unit
    known = file.roles.class_of(on, unit)
    if known is None:
        return on is not None and "module" in file.roles.of(on, unit)
    return "module" in file.roles.of_class(known) and file.gradients.carries(run.node, run) == "yes"


def _may_be_discarded(file: SourceFile, run: Event) -> bool:
    """Whether a run builds a graph again and again, in code that needs no gradients of its own."""
    unit = run.unit
    if isinstance(run.parent, ast.Expr) or file.gradients.enabled(run) != "yes":
        return False
    text, callers = _own_text(file, unit), file.callers(unit)
    # What nobody here calls must lose the graph itself.
    if not callers and not any(sign in text for sign in _CUT):
        return False
    if (unit.is_module or callers) and not _lasting.is_repeated(file, unit, run):
        return False
    # A subclass may be called by its base under `no_grad`.
    return not (unit.name == "__call__" and file.mentions("no_grad")) and not _needs_gradients(file, text)


def _own_text(file: SourceFile, unit: Unit) -> str:
    return file.text if unit.is_module else unit_text(unit)


def _followed(file: SourceFile, run: Event, trusting: bool) -> Destinations | None:
    """Where the result goes; None where its graph goes somewhere, too."""
    flow = Destinations(file, trusting)
    flow.made_by(run)
    flow.follow(while_harmless=True)
    # What is put into attributes, code of other files may read and send backward.
    return flow if flow.cuts and flow.harmless and not flow.attributes else None

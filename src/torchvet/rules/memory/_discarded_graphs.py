"""Runs of models whose graphs nobody can use: all that is made of their results goes on without a graph."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass

from torchvet.rules.kit import Iterator, SourceFile
from torchvet.rules.memory import _lasting, _model_runs
from torchvet.rules.memory._generation import generations
from torchvet.rules.memory._left_behind import leaves_more
from torchvet.rules.shared.training_loops import is_test, unit_text
from torchvet.source.model import Event, Unit, destinations, given, name_set, terminal, walk

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
_OTHER_FRAMEWORKS = name_set("mxnet tensorflow keras jax flax paddle chainer mindspore onnxruntime")
_ONCE = name_set("__init__ __new__ __post_init__ __setstate__ reset_parameters init_weights setup")
"""They run once an object, and what they compute is gone soon."""


@dataclass(frozen=True, eq=False)
class Discarded:
    """A run, and the first expression that gives its result on without the graph. `trusting`: functions of other files
    are taken to keep nothing of it."""

    run: Event
    cut: ast.expr
    trusting: bool


def discarded(file: SourceFile) -> Iterator[Discarded]:
    """The first such run of each function, in the order of the file."""
    if is_test(file) or not file.mentions(*_CUT) or not _is_of_torch(file) or _freezes(file):
        return
    # Functions of other files may be trusted where the file trains nothing and has never heard of `no_grad`.
    trusting = not (file.mentions(*_TRAINS) or _needs_gradients(file, file.text))
    seen: set[int] = set()
    for run in file.calls(*_model_runs.names_of(file)):
        if id(run.unit) not in seen and _may_be_discarded(file, run) and _model_runs.is_one(file, run):
            # Both look through other functions, so they come after what costs less.
            if _is_run_by_others(file, run) or leaves_more(file, run):
                continue
            flow = _followed(file, run, trusting)
            # A state that carries its graph on is MEM103's.
            if flow is not None and next(generations(file, _assigning(run)), None) is None:
                seen.add(id(run.unit))
                first = min(flow.cuts.values(), key=lambda n: (n.lineno < run.line, n.lineno))
                yield Discarded(run, first, trusting)


def _is_of_torch(file: SourceFile) -> bool:
    """Whether a file is about torch: other frameworks' models look the same, and record no graph by themselves."""
    roots = {name.partition(".")[0] for name in file.imports.names.values()}
    if any("torch" in root for root in roots):
        return True
    # `from .network import *` may bring it along.
    return not roots & _OTHER_FRAMEWORKS and file.mentions("torch", "import *")


def _freezes(file: SourceFile) -> bool:
    """Whether a file says that weights need no gradients: then there may be no graph."""
    return file.mentions("requires_grad", "freeze", "volatile") and _FROZEN.search(file.text) is not None


def _assigning(run: Event) -> list[Event]:
    """The assignment that a run is the value of."""
    return [e for e in run.unit.events if e.node is run.statement and getattr(e.node, "value", None) is run.node]


def _needs_gradients(file: SourceFile, text: str) -> bool:
    """Whether some code of the file needs gradients of its own."""
    return file.mentions(*_GRADIENTS) and _NEEDS_GRADIENTS.search(text) is not None


def _may_be_discarded(file: SourceFile, run: Event) -> bool:
    """Whether a run builds a graph again and again, in code that needs no gradients of its own."""
    unit = run.unit
    if isinstance(run.parent, ast.Expr) or file.gradients.enabled(run) != "yes":
        return False
    text, callers = _own_text(file, unit), file.callers(unit)
    # What nobody here calls must lose the graph itself.
    if not callers and not any(sign in text for sign in _CUT):
        return False
    if (unit.is_module or callers) and not _is_repeated(file, run):
        return False
    # A subclass may be called by its base under `no_grad`.
    return not (unit.name == "__call__" and file.mentions("no_grad")) and not _needs_gradients(file, text)


def _is_run_by_others(file: SourceFile, run: Event) -> bool:
    """Whether a function runs once an object, or where gradients are off."""
    unit, owner = run.unit, run.unit.method_class()
    if unit.name in _ONCE and run.loop is None:
        return True
    # Lightning calls it for predictions, with gradients off.
    if unit.name == "forward" and owner is not None and any(b.endswith("LightningModule") for b in owner.ancestors):
        return True
    return _given_away_without(file, unit)


def _is_repeated(file: SourceFile, run: Event) -> bool:
    """Whether a run happens again and again; what a comprehension goes through it asks for once."""
    loop = run.loop
    around = getattr(loop.node, "generators", None) if loop is not None else None
    if loop is not None and around and any(one is run.node for one in walk(around[0].iter)):
        return loop.parent is not None or _lasting.is_repeated(file, run.unit)
    return _lasting.is_repeated(file, run.unit, run)


def _given_away_without(file: SourceFile, unit: Unit) -> bool:
    """Whether a function is given to something that runs with gradients off: `map(self.act, states)`."""
    for other in file.units_with(unit.name) if not unit.is_module else ():
        for event in other.events:
            given_away = isinstance(event.node, ast.Call) and any(terminal(a) == unit.name for a in _named(event.node))
            if given_away and file.gradients.enabled(event) != "yes":
                return True
    return False


def _named(call: ast.Call) -> Iterator[ast.expr]:
    return (one for one in given(call) if isinstance(one, (ast.Name, ast.Attribute)))


def _own_text(file: SourceFile, unit: Unit) -> str:
    return file.text if unit.is_module else unit_text(unit)


def _followed(file: SourceFile, run: Event, trusting: bool) -> destinations.Destinations | None:
    """Where the result goes; None where its graph goes somewhere, too."""
    flow = destinations.Destinations(file, trusting)
    flow.made_by(run)
    flow.follow(while_harmless=True)
    # What is put into attributes, code of other files may read and send backward.
    if (
        not (flow.cuts and flow.harmless)
        or flow.attributes
        or any(_fails(file, run, one) for one in flow.cuts.values())
    ):
        return None
    return flow


def _fails(file: SourceFile, run: Event, cut: ast.expr) -> bool:
    """Whether a result with a graph would stop the program here: then it has none, or it is none of torch's."""
    at = run.unit.call_of(cut)
    # What is computed of it with gradients off has none.
    if not isinstance(cut, ast.Call) or at is None or file.gradients.enabled(at) != "yes":
        return False
    if file.dotted(cut.func).startswith("numpy."):
        return True
    # What a distribution gives as a sample has no graph, and is followed all the same.
    return terminal(cut) == "numpy" and "sample" not in _own_text(file, run.unit)

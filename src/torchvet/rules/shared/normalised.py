"""What a softmax or a sigmoid has normalised; which losses do so themselves, and which take logarithms; an edit that
lets a softmax normalise over another dimension."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, replace

from torchvet.rules.kit import Edits, Finding, Iterator, SourceFile, about, events_at
from torchvet.rules.shared import training_loops as loops
from torchvet.source import model
from torchvet.source.model import origins

_SOFTMAX = ("torch.nn.Softmax", "torch.nn.LogSoftmax")
BINARY = {"binary_cross_entropy_with_logits", "BCEWithLogitsLoss"}


@dataclass(frozen=True)
class Losses:
    """Losses that expect the same of their input: functions of `torch.nn.functional`, and modules of `torch.nn`."""

    functions: tuple[str, ...]
    classes: tuple[str, ...]

    def made(self, file: SourceFile, node: ast.Call) -> bool:
        """Whether a call makes a module of these."""
        dotted = file.dotted(node.func)
        return dotted.startswith("torch.nn.") and dotted[len("torch.nn.") :] in self.classes


NORMALISING = Losses(("cross_entropy", "binary_cross_entropy_with_logits"), ("CrossEntropyLoss", "BCEWithLogitsLoss"))
LOGARITHMIC = Losses(("nll_loss", "kl_div"), ("NLLLoss", "KLDivLoss"))
_FUNCTIONS = {"softmax", "log_softmax", "sigmoid"}
_MODULES = {"torch.nn.Softmax": "softmax", "torch.nn.LogSoftmax": "log_softmax", "torch.nn.Sigmoid": "sigmoid"}
_SHAPES = model.name_set("""
    view reshape squeeze unsqueeze flatten float to contiguous double half cuda cpu transpose permute clone
""")
_HARMLESS = model.name_set("requires_grad_ detach_ squeeze_ unsqueeze_ clamp_ clamp_min_ clamp_max_")
"""Methods in place that leave probabilities what they are."""
_CRITERION = re.compile(r"crit|loss|cost|objective|entrop|^x?ce_|_x?ce$|^x?ce$", re.IGNORECASE)
"""What losses are called: who they are is asked afterwards."""
_DEEPEST = 9
_RUNS_GIVEN = ("torch.utils.checkpoint.checkpoint", "torch.nn.parallel.data_parallel")
"""Functions that run the module that they are given first."""


@dataclass(frozen=True)
class Normalised:
    """The function that has normalised something, and the call or module that did it."""

    done: str
    node: ast.AST
    applied: ast.AST | None = None
    """The call that runs the module, which may stand elsewhere than what makes it."""
    by: str = ""
    """The module of another file that was given the layers which normalise: what it does with them is not shown."""


# Losses --------------------------------------------------------------------------------------------------------------


def losses(file: SourceFile, kind: Losses) -> Iterator[tuple[model.Event, ast.Call, str]]:
    """Calls of losses of a kind: functions, and criteria made of the classes."""
    for event in file.calls(*kind.functions):
        if file.dotted(event.call.func).startswith("torch.nn.functional."):
            yield event, event.call, model.terminal(event.node)
    names = {name for name in file.words.identifiers if _CRITERION.search(name)}
    for made in file.calls(*kind.classes):
        if isinstance(made.parent, ast.Call) and made.parent.func is made.node and kind.made(file, made.call):
            yield made, made.parent, model.terminal(made.node)
        names |= {model.terminal(target) for target in model.targets_of(made.statement)}
    for event in file.calls(*(names - {""})):
        loss = _criterion(event, kind)
        if loss:
            yield event, event.call, loss


def _criterion(event: model.Event, kind: Losses) -> str:
    """The class of the criterion that a call asks, if it is of the kind; empty for any other."""
    values = [(v, w) for v, w in origins.made_by(event.call.func, event.unit) if isinstance(v, ast.Call)] or _default(
        event
    )
    mine = [v for v, _ in values if kind.made(event.unit.file, v)]
    sure = len(mine) == len(values) or _chosen(event, values, kind)
    return model.terminal(mine[0]) if mine and sure else ""


def _default(event: model.Event) -> list[tuple[ast.Call, model.Unit]]:
    """The criterion that a parameter has by default, where no caller gives another."""
    called = event.call.func
    home = event.unit.home(called.id) if isinstance(called, ast.Name) else None
    value = home.default(called.id) if home is not None and isinstance(called, ast.Name) else None
    return [(value, home)] if home is not None and isinstance(value, ast.Call) else []


def _chosen(event: model.Event, values: list[tuple[ast.Call, model.Unit]], kind: Losses) -> bool:
    """Whether the branches around a call leave only criteria of the kind: `if self.discrete` where the criterion is
    made, and again where it is called."""
    asked = dict(_questions(event))
    left = [v for v, w in values if not _ruled_out(w.call_of(v), asked)]
    return bool(left) and all(kind.made(event.unit.file, v) for v in left)


def _ruled_out(made: model.Event | None, asked: dict[str, int]) -> bool:
    return made is not None and any(asked.get(text, arm) != arm for text, arm in _questions(made))


def _questions(event: model.Event) -> list[tuple[str, int]]:
    """The conditions of the branches around an event, as they are written, with the arm that it lies in."""
    found = ((b, arm) for b, arm in event.context.arms if isinstance(b, ast.If))
    return [(ast.unparse(branch.test).replace("self.", ""), arm) for branch, arm in found]


# What is normalised --------------------------------------------------------------------------------------------------


def normalised(node: ast.AST | None, event: model.Event, depth: int = 0) -> Normalised | None:
    """What has normalised an expression; None where nothing has, or that is unsure."""
    if depth > _DEEPEST:
        return None
    if isinstance(node, ast.Name):
        return _of_name(node.id, event, depth)
    if isinstance(node, ast.Subscript) and not isinstance(node.slice, (ast.Tuple, ast.Constant)):
        return normalised(node.value, event, depth + 1)  # rows of it, as those of a mask
    return _of_call(node, event, depth) if isinstance(node, ast.Call) else None


def _agreed(answers: list[Normalised | None]) -> Normalised | None:
    """The first answer, if none is missing."""
    if not answers or not all(answers):
        return None
    unsure = next((one for one in answers if one is not None and one.by), None)
    return unsure if unsure is not None else answers[0]


def _of_name(name: str, event: model.Event, depth: int) -> Normalised | None:
    unit = event.unit
    if unit.home(name) is not unit:
        return None
    if not unit.bindings.get(name):
        return _of_parameter(name, unit, depth) if depth < 6 else None
    binding = event.binding_of(name)
    if binding is None or any(_changes_in_place(e, name) for e in unit.events[binding.index + 1 : event.index]):
        return None
    value, parts = loops.bound_value(binding, name)
    if value is None:
        return _agreed([normalised(one, at, depth + 2) for one, at in parts])
    # `x = softmax(x)`: what is asked is the state before the binding.
    return normalised(value, binding, depth + 1)


def _changes_in_place(event: model.Event, name: str) -> bool:
    """`p.log_()`, `p *= 10`, `torch.log(p, out=p)`: from there on the numbers are others."""
    node = event.node
    if isinstance(node, ast.AugAssign):
        return model.is_name(node.target, name)
    if not isinstance(node, ast.Call):
        return False
    method = model.terminal(node)
    in_place = method.endswith("_") and not method.startswith("_") and method not in _HARMLESS
    return (in_place and model.is_name(model.receiver(node), name)) or model.is_name(model.keyword(node, "out"), name)


def _of_parameter(name: str, unit: model.Unit, depth: int) -> Normalised | None:
    """What every caller of this file gives, where that is normalised."""
    calls = unit.file.callers(unit)
    values = [(value, call) for call in calls for value in unit.file.passed(call, unit, name)]
    return _agreed([normalised(v, call, depth + 2) for v, call in values]) if len(values) == len(calls) else None


def _of_call(node: ast.Call, event: model.Event, depth: int) -> Normalised | None:
    unit, name = event.unit, model.terminal(node)
    if name in _FUNCTIONS and _is_torch(node, event):
        return Normalised(name, node)
    shaped = model.operand(unit.file, node) if name in _SHAPES else None
    if shaped is not None:
        return normalised(shaped, event, depth + 1)
    if unit.file.dotted(node.func) in _RUNS_GIVEN:
        return _of_modules(node.args[0], unit, depth) if node.args else None
    found = _of_modules(node.func, unit, depth) or _of_kept_function(node, unit)
    if found is not None:
        return found if found.applied is not None else replace(found, applied=node)
    called = _called(node, unit)
    return _of_returns(called, depth) if called is not None else _of_wrapper(node, unit, depth)


def _called(node: ast.Call, unit: model.Unit) -> model.Unit | None:
    """The function of this file that a call runs; the forward for a module that calls itself, as `self(x)`."""
    own = unit.call_of(node)
    called = unit.file.callee(own) if own is not None else None
    if called is None and model.is_name(node.func, unit.self_name()):
        owner = unit.method_class()
        called = owner.method("forward") if owner is not None else None
    return called


def _is_torch(node: ast.Call, event: model.Event) -> bool:
    """Whether a call is of torch's function or of a tensor's method; `self.softmax` is a module, or the user's own."""
    unit, on = event.unit, model.receiver(node)
    if unit.file.dotted(node.func).startswith("torch."):
        return True
    own = unit.call_of(node)
    called = unit.file.callee(own) if own is not None else None
    if on is None or unit.file.roles.values(node.func, unit) or called is not None:
        return False
    return not (isinstance(on, ast.Name) and on.id in (unit.self_name(), *unit.file.imports.names))


def _of_kept_function(node: ast.Call, unit: model.Unit) -> Normalised | None:
    """`self.norm(x)` after `self.norm = torch.softmax`."""
    kept = [unit.file.dotted(v) for v, _ in unit.file.roles.values(node.func, unit) if not isinstance(v, ast.Call)]
    known = [one.startswith("torch.") and one.rpartition(".")[2] in _FUNCTIONS for one in kept]
    return Normalised(kept[0].rpartition(".")[2], node) if known and all(known) else None


def _of_wrapper(node: ast.Call, unit: model.Unit, depth: int) -> Normalised | None:
    """What a module from elsewhere gives that is given layers which end in a softmax, to run them in its own way."""
    file = unit.file
    made = [v for v, _ in origins.made_by(node.func, unit) if isinstance(v, ast.Call)]
    if not made or depth > _DEEPEST or any(file.dotted(v.func).startswith("torch.") for v in made):
        return None
    if any(file.roles.class_named(v.func, unit) is not None for v in made):
        return None
    # Softmax alone may be what an attention is to use within; a Sequential that ends in it is a whole head.
    heads = [v for one in model.given(node) for v, _ in origins.made_by(one, unit) if _is_head(file, v)]
    found = _of_modules(heads[0], unit, depth + 1) if len(heads) == 1 else None
    return replace(found, node=node, applied=node, by=file.segment(node.func)) if found is not None else None


def _is_head(file: SourceFile, node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and file.dotted(node.func) == "torch.nn.Sequential" and len(node.args) > 1


# Modules -------------------------------------------------------------------------------------------------------------


def _of_modules(node: ast.expr, unit: model.Unit, depth: int) -> Normalised | None:
    """What calling the module that an expression stands for gives."""
    return _agreed([_of_module(v, w, depth + 1) for v, w in origins.made_by(node, unit) if isinstance(v, ast.Call)])


def _of_module(made: ast.Call, unit: model.Unit, depth: int) -> Normalised | None:
    """What calling a module of this constructor gives."""
    if depth > _DEEPEST:
        return None
    file = unit.file
    dotted = file.dotted(made.func)
    if dotted in _MODULES:
        return Normalised(_MODULES[dotted], made)
    if dotted == "torch.nn.Sequential":
        last, where = _last_layer(made, unit)
        return _of_modules(last, where, depth) if last is not None else None
    known = file.roles.class_named(made.func, unit)
    if known is not None:
        forward = known.method("forward")
        return _of_returns(forward, depth) if forward is not None and depth < 7 else None
    call = unit.call_of(made)
    builder = file.callee(call) if call is not None else None
    returned = builder.returned if builder is not None else ()
    # What a function builds and returns is a module if it is called.
    return _agreed([_of_modules(v, e.unit, depth + 1) if v is not None else None for v, e in returned])


def _last_layer(made: ast.Call, unit: model.Unit) -> tuple[ast.expr | None, model.Unit]:
    """The last layer of a Sequential, which may be given as a dict of layers, or as a list with a star."""
    last: ast.expr | None = made.args[-1] if made.args else None
    if isinstance(last, ast.Starred):
        return _last_of_list(last.value, unit)
    if len(made.args) == 1 and model.is_call(last, "OrderedDict") and last.args:
        pairs = getattr(last.args[0], "elts", [])
        pair = getattr(pairs[-1], "elts", []) if pairs else []
        last = pair[1] if len(pair) == 2 else None
    return last, unit


def _last_of_list(node: ast.expr, unit: model.Unit) -> tuple[ast.expr | None, model.Unit]:
    """The last element of a list that one statement binds, and that nothing but `append` in no branch changes."""
    home = unit.home(node.id) if isinstance(node, ast.Name) else None
    if isinstance(node, ast.Name) and home is not None:
        bound = home.bindings.get(node.id, [])
        changes = [e for e in home.events if _changes(e, node.id)]
        if changes:
            last = changes[-1]
            sure = len(bound) == 1 and model.is_call(last.node, "append") and not last.context.arms
            return (last.call.args[0] if sure and last.call.args else None), home
        node, unit = getattr(bound[0].node, "value", node) if len(bound) == 1 else node, home
    last_one = node.elts[-1] if isinstance(node, ast.List) and node.elts else None
    return (None if isinstance(last_one, ast.Starred) else last_one), unit


def _changes(event: model.Event, name: str) -> bool:
    on = model.receiver(event.call) if isinstance(event.node, ast.Call) else None
    return model.is_name(on, name)


def _of_returns(function: model.Unit, depth: int) -> Normalised | None:
    # A callee is known by its call's event.
    values = ((e.node.value, e) for e in function.returns)  # type: ignore[attr-defined]
    return _agreed([normalised(value, function.call_of(value) or e, depth + 1) for value, e in values])


def along_another(file: SourceFile, finding: Finding) -> Edits:
    """`softmax(scores, dim=1)` for the dimension that a call on the finding's line has written down, or that of its
    module where that is made: where there is one such call, and one dimension that has more than one value."""
    dims = about(finding).operands
    calls = [call for e in events_at(file, finding) if isinstance(e.node, ast.Call) for call in _normalising(file, e)]
    numbers = [n for call in calls for n in (*call.args, *(k.value for k in call.keywords)) if is_number(n)]
    return [model.edits.replace(file, numbers[0], dims[0])] if len(dims) == len(calls) == len(numbers) == 1 else ()


def _normalising(file: SourceFile, event: model.Event) -> list[ast.Call]:
    """The call that says over which dimension an event normalises: its own, or the one that makes its module."""
    made = [call for call in origins.modules_made(event) if file.dotted(call.func) in _SOFTMAX]
    return made or ([event.call] if model.is_call(event.node, "softmax", "log_softmax") else [])


def is_number(node: ast.expr) -> bool:
    """Whether an expression is a whole number that is written down, a negative one as well."""
    value = node.operand if isinstance(node, ast.UnaryOp) else node
    return isinstance(value, ast.Constant) and isinstance(value.value, int)

"""Dropout in a module's own methods that is not told whether the module trains."""

from __future__ import annotations

import ast
import re
from typing import NamedTuple

from torchvet.rules.kit import About, Edits, Iterator, SourceFile
from torchvet.rules.training._unused_results import is_trial
from torchvet.source.model import Event, Unit, argument, calls_in, edits, given, terminal, value_bound, walk

ALWAYS_ACTIVE = About("dropout in every mode")
_MEANT = re.compile(
    r"monte.?carlo|\bmc_?|mc_?drop|mcdrop|bayesian|uncertaint|always|pre_?net|even (?:at|during|in) ", re.IGNORECASE
)
"""Words of who wants dropout in evaluation, too."""
_TRAINS = re.compile(
    r"train(?:ing)?(?:_|$)|^is_train|(?:^|_)(?:eval|evaluating|deterministic|infer|inference)(?:_|$)", re.IGNORECASE
)
"""Names that say whether, or that, something trains."""
_FOR_TRAINING = re.compile(r"(?:^|_)loss(?:es)?(?:_|$)|contrast|augment|stochastic|perturb|consistency", re.IGNORECASE)
"""Names of methods that only training calls, or that are there for the noise."""


class DropoutCall(NamedTuple):
    """One such call, with the node to point at; the share that it drops, None for torch's default of a half; what to
    write."""

    event: Event
    node: ast.expr
    share: ast.expr | None
    instead: str
    edits: Edits


def always_active(file: SourceFile) -> Iterator[DropoutCall]:
    """Every such call of a file, in classes with a `forward`."""
    if is_trial(file):
        return
    for name, read in _READERS.items():
        home = "torch.nn." if read is _new_layer else "torch.nn.functional."
        for event in file.calls(name) if file.mentions(f"{name}(") else ():
            if file.dotted(event.call.func) == home + name and _is_blind(file, event):
                yield from read(file, event)


def drops_surely(found: DropoutCall) -> bool:
    """Whether the share that is dropped is more than 0 by what the file shows."""
    share, unit = found.share, found.event.unit
    if share is None:
        return True
    if isinstance(share, ast.Name):
        # `p = self.p`, bound once.
        share = next((value for value, _ in unit.file.roles.values(share, unit)), share)
    values = [share] if isinstance(share, ast.Constant) else [v for v, _ in unit.file.roles.values(share, unit)]
    numbers = [_number(value, unit) for value in values]
    return bool(numbers) and all(n is not None and n > 0 for n in numbers)


def _number(value: ast.expr, unit: Unit) -> float | None:
    """A number as it stands there, or as the default of `__init__`'s parameter of this name."""
    if isinstance(value, ast.Constant):
        return value.value if isinstance(value.value, (int, float)) else None
    owner = unit.method_class()
    made = owner.method("__init__") if owner is not None else None
    if made is None or not isinstance(value, ast.Name) or isinstance(made.node, ast.Module):
        return None
    given = made.node.args
    ordered = [*given.posonlyargs, *given.args]
    defaults = dict(zip([p.arg for p in ordered[len(ordered) - len(given.defaults) :]], given.defaults, strict=True))
    default = defaults.get(value.id)
    return default.value if isinstance(default, ast.Constant) and isinstance(default.value, (int, float)) else None


def _function(file: SourceFile, event: Event) -> Iterator[DropoutCall]:
    call = event.call
    # Who writes `training=True` means it.
    starred = any(isinstance(a, ast.Starred) for a in call.args) or any(k.arg is None for k in call.keywords)
    if argument(call, "training", 2) is not None or starred:
        return
    share = argument(call, "p", 1)
    if not _may_drop(event, share):
        return
    change = edits.with_argument(file, call, "training=self.training") if event.unit.self_name() == "self" else []
    yield DropoutCall(event, call, share, "training=self.training", change)


def _attention(file: SourceFile, event: Event) -> Iterator[DropoutCall]:
    share = argument(event.call, "dropout_p", 4)
    if share is None or not _may_drop(event, share):
        return
    text = f"{edits.operand(file, share)} if self.training else 0.0"
    plain = event.unit.self_name() == "self" and edits.on_one_line(share)
    yield DropoutCall(event, share, share, f"dropout_p={text}", [edits.replace(file, share, text)] if plain else [])


def _new_layer(file: SourceFile, event: Event) -> Iterator[DropoutCall]:
    """`nn.Dropout(0.5)(x)`: a layer that is made here is in train mode, whatever the module's mode is."""
    share, outer = argument(event.call, "p", 0), event.parent
    if not isinstance(outer, ast.Call) or outer.func is not event.node:
        return
    if share is None or not isinstance(share, ast.Constant) or _may_drop(event, share):
        yield DropoutCall(event, outer, share, "nn.functional.dropout(..., training=self.training)", [])


def _may_drop(event: Event, share: ast.expr | None) -> bool:
    """Whether a share is a number above 0 or the module's own, and no word of training is in what it is made of."""
    if share is None:
        return True
    if isinstance(share, ast.Constant):
        return isinstance(share.value, (int, float)) and share.value > 0
    if isinstance(share, ast.Name):
        bound = [value_bound(e.node, share.id) for e in event.unit.bindings.get(share.id, ())]
        # What callers give, or a branch decides, may be 0 in evaluation.
        if len(bound) != 1 or bound[0] is None or share.id in event.unit.parameters:
            return False
        return not isinstance(bound[0], ast.Name) and _may_drop(event, bound[0])
    own = event.unit.self_name()
    root = share
    while isinstance(root, ast.Attribute):
        root = root.value
    return isinstance(share, ast.Attribute) and isinstance(root, ast.Name) and root.id == own and bool(own)


def _is_blind(file: SourceFile, event: Event) -> bool:
    """Whether a call stands in a module's method that comes there in evaluation, too."""
    unit = event.unit
    owner = unit.method_class()
    if owner is None or owner.method("forward") is None or unit.name == "__init__" or _TRAINS.search(unit.name):
        return False
    if _FOR_TRAINING.search(unit.name) or _asked_for_by_callers(file, unit):
        return False
    tests = [getattr(branch, "test", None) for branch, _ in (*event.context.arms, *event.context.guards)]
    if any(_speaks_of_training(test) for test in tests) or _MEANT.search(file.text_of(unit)):
        return False
    return not _MEANT.search(owner.name) and "train" not in owner.methods and not _set_elsewhere(unit)


def _asked_for_by_callers(file: SourceFile, unit: Unit) -> bool:
    """Whether all calls of a method in its file ask for the mode first: `self.noisy(x) if self.training else x`."""
    calls = file.callers(unit) if unit.name != "forward" else []
    return bool(calls) and all(_asks_for_mode(call) for call in calls)


def _asks_for_mode(event: Event) -> bool:
    tests = (getattr(branch, "test", None) for branch, _ in (*event.context.arms, *event.context.guards))
    return any(_speaks_of_training(test) for test in tests)


def _speaks_of_training(node: ast.AST | None) -> bool:
    names = (terminal(n) for n in walk(node) if isinstance(n, (ast.Name, ast.Attribute))) if node is not None else ()
    return any(_TRAINS.search(name) or name == "eval" for name in names)


def _set_elsewhere(unit: Unit) -> bool:
    """Whether a method reads the mode for itself: it may return early, or set the share to 0. What it only passes on
    to another call says nothing of this one."""
    calls = calls_in(unit.node)
    passed_on = {id(n) for call in calls for one in given(call) for n in walk(one)}
    modes = (n for n in walk(unit.node) if isinstance(n, ast.Attribute) and n.attr == "training")
    return any(id(n) not in passed_on for n in modes)


_READERS = {
    **dict.fromkeys(("dropout", "dropout1d", "dropout2d", "dropout3d"), _function),
    **dict.fromkeys(("alpha_dropout", "feature_alpha_dropout"), _function),
    **dict.fromkeys(
        ("Dropout", "Dropout1d", "Dropout2d", "Dropout3d", "AlphaDropout", "FeatureAlphaDropout"), _new_layer
    ),
    "scaled_dot_product_attention": _attention,
}
"""What reads a call, by the name of what is called."""

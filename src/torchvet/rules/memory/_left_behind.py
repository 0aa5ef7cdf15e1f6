"""What a run leaves on its model beside its result: a loss, a state, an output of a layer, each with the graph."""

from __future__ import annotations

import ast

from torchvet.rules.kit import Iterator, SourceFile
from torchvet.source.model import Event, Unit, given, is_attribute, name_set, receiver, targets_of, terminal, walk

_NOT_OF_THE_RUN = name_set("""
    parameters named_parameters state_dict load_state_dict modules named_modules children buffers named_buffers eval
    train zero_grad to cuda cpu half float module training weight bias forward
""")
"""What is asked of a module whatever ran before."""


def leaves_more(file: SourceFile, run: Event) -> bool:
    """Whether a backward may go through what a run leaves on its model."""
    if not file.mentions("backward("):
        return False
    # A hook may keep what passes through a layer.
    return file.mentions("forward_hook") or _is_read_off(file, run) or _is_kept_by_forward(file, run)


def _model(run: Event) -> ast.expr:
    function = run.call.func
    return (receiver(run.call) or function) if terminal(function) == "forward" else function


def _is_read_off(file: SourceFile, run: Event) -> bool:
    """Whether something is read off the model between the run and a backward of the same function."""
    backwards = [e.at for e in file.effects(run.unit) if e.kind == "backward" and not e.at.excludes(run)]
    last = max((at.line for at in backwards if at.index > run.index), default=0)
    return last > 0 and any(run.line < node.lineno <= last for node in _reads(run.unit, ast.dump(_model(run))))


def _reads(unit: Unit, model: str) -> Iterator[ast.Attribute]:
    """Reads of what may come from a run: no attributes that the function sets, no methods that compute on arguments."""
    found = [n for n in walk(unit.node) if isinstance(n, ast.Attribute) and ast.dump(n.value) == model]
    set_here = {n.attr for n in found if not isinstance(n.ctx, ast.Load)}
    computing = {id(e.call.func) for e in unit.events if isinstance(e.node, ast.Call) and given(e.call)}
    return (n for n in found if n.attr not in set_here | _NOT_OF_THE_RUN and id(n) not in computing)


def _is_kept_by_forward(file: SourceFile, run: Event) -> bool:
    """Whether the model's own `forward` puts something on `self` that another function of the file reads."""
    owner = file.roles.class_of(_model(run), run.unit)
    forward = owner.method("forward") if owner is not None else None
    if forward is None:
        return False
    return any(
        _is_read(one, name) for name in set(_kept(forward)) for one in file.units_with(name) if one is not forward
    )


def _kept(forward: Unit) -> Iterator[str]:
    """Names of the attributes that a `forward` binds or adds to."""
    for event in forward.events:
        places = targets_of(event.node) if isinstance(event.node, (ast.Assign, ast.AnnAssign)) else []
        if isinstance(event.node, ast.Call) and terminal(event.node) in ("append", "extend"):
            places = [on for on in [receiver(event.node)] if on is not None]
        for place in places:
            if isinstance(place, ast.Attribute) and terminal(place.value) == forward.self_name():
                yield place.attr


def _is_read(unit: Unit, name: str) -> bool:
    return any(is_attribute(n, name) and isinstance(n.ctx, ast.Load) for n in walk(unit.node))

"""Edits for a part of a model that came after the optimizer: the optimizer is built later, or is given the part."""

from __future__ import annotations

import ast
import itertools
import re

from torchvet.rules.kit import Edits, Finding, Iterator, Sequence, SourceFile, about, all_or_none, events_at
from torchvet.rules.shared import training_loops as loops
from torchvet.source.model import Event, calls_in, edits, names_bound, names_in, origins, torch_names
from torchvet.source.model.units import targets_of, value_for
from torchvet.source.syntax import receiver, terminal

_SCHEDULES = re.compile(r"schedul|warmup|lr_lambda|LRPolicy", re.I)
_GIVEN = ("optimizer", "optim", "opt")
"""What a function calls an optimizer that it is given."""


def given_to_the_optimizer(file: SourceFile, finding: Finding) -> Edits:
    """What a run has found unowned was put into the model by a line of this file, after an optimizer of the whole; or
    the whole module was made beside an optimizer of something else."""
    return _put_in_later(file, finding) or _made_beside(file, finding)


def frozen(file: SourceFile, finding: Finding) -> Edits:
    """`model.body.requires_grad_(False)` before the line that gives an optimizer `model.head.parameters()` alone. Not
    where the file may let the part learn later."""
    parts = {name.partition(".")[0] for name in (finding.holder.path if finding.holder is not None else [])}
    if len(parts) != 1 or file.mentions("requires_grad", "add_param_group", "freeze") or _is_trained(file, *parts):
        return ()
    for event in events_at(file, finding):
        owner = _owner_of_one_part(file, event)
        if owner is not None and owner[1] not in parts:
            (part,) = parts
            return edits.before(file, event.statement, f"{owner[0]}.{part}.requires_grad_(False)")
    return ()


def _is_trained(file: SourceFile, part: str) -> bool:
    """Whether a part is set to train mode or asked for its parameters by its own name, or is none by name."""
    calls = file.calls("train", "parameters", "named_parameters")
    own = (receiver(event.call) for event in calls)
    # `body.parameters()` of a variable is another's, or the part before it is put in.
    return not part.isidentifier() or any(isinstance(on, ast.Attribute) and on.attr == part for on in own)


def _owner_of_one_part(file: SourceFile, event: Event) -> tuple[str, str] | None:
    """Whose one part an optimizer is given, and which; None where it is given more, or something else."""
    if not isinstance(event.node, ast.Call) or "optimizer" not in torch_names.role_of_call(
        file.dotted(event.call.func)
    ):
        return None
    given = origins.models_in(event.call)
    only = given[0] if len(given) == 1 else None
    return (file.segment(only.value), only.attr) if isinstance(only, ast.Attribute) else None


def _put_in_later(file: SourceFile, finding: Finding) -> Edits:
    parts = {name.partition(".")[0] for name in (finding.holder.path if finding.holder is not None else [])}
    pairs = [(put, made) for put in _put_in(file, parts) for made in _built_before(file, put)]
    if not pairs or len({id(made) for _, made in pairs}) != 1 or {_attribute(put) for put, _ in pairs} != parts:
        return ()
    made, puts = pairs[0][1], [put for put, _ in pairs]
    return _built_after(file, made, puts) or all_or_none(_added(file, put, made) for put in puts)


def _made_beside(file: SourceFile, finding: Finding) -> Edits:
    """`optimizer.add_param_group({"params": criterion.parameters()})` behind the one line that makes the module, or
    behind the optimizer's where that comes later."""
    of = about(finding).operands
    made = [e for name in of for e in file.calls(name) if len(targets_of(e.statement)) == 1]
    # A scheduler of one group would not know of the second.
    if len(made) != 1 or made[0].loop is not None or _SCHEDULES.search(file.text):
        return ()
    whole = _whole(file, made[0], finding.holder.path if finding.holder is not None else [])
    there = [(name, s) for name, s in _optimizers_in(file, made[0]) if s in _block(made[0])]
    if not whole or len(there) != 1 or made[0].statement not in _block(made[0]):
        return ()
    name, statement = there[0]
    last = max(statement, made[0].statement, key=lambda s: s.lineno)
    return edits.after(file, last, f'{name}.add_param_group({{"params": {whole}.parameters()}})')


def _whole(file: SourceFile, made: Event, names: list[str]) -> str:
    """The part of a module that has all parameters of these names, as code; empty where that is none."""
    within = _common([name.split(".")[:-1] for name in names])
    # Not what is computed from it; and items of a Sequential have numbers for names.
    alone = getattr(made.statement, "value", None) is made.call
    plain = alone and all(part.isidentifier() for part in within)
    return ".".join([file.segment(targets_of(made.statement)[0]), *within]) if plain else ""


def _common(paths: list[list[str]]) -> list[str]:
    """What paths of names begin with alike."""
    alike = itertools.takewhile(lambda parts: len(set(parts)) == 1, zip(*paths, strict=False))
    return [parts[0] for parts in alike]


def _optimizers_in(file: SourceFile, made: Event) -> Iterator[tuple[str, ast.stmt]]:
    """What optimizers are called in a function that makes a module: those that it makes, and those that it is given and
    keeps as an attribute."""
    for event in made.unit.events:
        if isinstance(event.node, ast.Assign) and len(event.node.targets) == 1:
            (target,), value = event.node.targets, event.node.value
            given = isinstance(value, ast.Name) and value.id in made.unit.parameters and value.id in _GIVEN
            called = isinstance(value, ast.Call) and "optimizer" in torch_names.role_of_call(file.dotted(value.func))
            if (given or called) and isinstance(target, (ast.Name, ast.Attribute)):
                yield file.segment(target), event.statement


def _attribute(put: Event) -> str:
    return terminal(targets_of(put.node)[0])


def _put_in(file: SourceFile, parts: set[str]) -> Iterator[Event]:
    """The lines that put parts of these names into an object from outside its own class's `__init__`."""
    for part in parts:
        for unit in file.units_with(part):
            for event in unit.events:
                bound = event.node.targets if isinstance(event.node, ast.Assign) else []
                target = bound[0] if len(bound) == 1 else None
                if not isinstance(target, ast.Attribute) or target.attr != part:
                    continue
                if not (isinstance(target.value, ast.Name) and target.value.id == unit.self_name()):
                    yield event


def _built_before(file: SourceFile, put: Event) -> Iterator[Event]:
    """Optimizers of a whole model that a line puts a part into, by another method or earlier in the same unit."""
    target = targets_of(put.node)[0]
    assert isinstance(target, ast.Attribute)
    model = origins.identity(target.value, put.unit)
    for made in file.calls(*torch_names.OPTIMIZERS):
        if "optimizer" not in torch_names.role_of_call(file.dotted(made.call.func)):
            continue
        given = origins.models_in(made.call)
        if made.unit is put.unit and made.index > put.index:
            continue
        bound = targets_of(made.statement)
        once = len(bound) == 1 and (
            not isinstance(bound[0], ast.Name) or len(made.unit.bindings.get(bound[0].id, ())) == 1
        )
        if len(given) == 1 and once and origins.identity(given[0], made.unit) & model:
            yield made


def _built_after(file: SourceFile, made: Event, puts: Sequence[Event]) -> Edits:
    """The optimizer's line moved below the last part's, in one block and with nothing between that asks for it."""
    last, block, name = max(puts, key=lambda e: e.index), _block(made), targets_of(made.statement)[0]
    same = all(e.unit is made.unit and e.loop is None and e.context.arms == made.context.arms for e in (made, *puts))
    if not same or last.statement not in block or not isinstance(name, ast.Name):
        return ()
    between = block[block.index(made.statement) + 1 : block.index(last.statement) + 1]
    return () if _depends_on(made, name.id, between) else loops.moved_behind(file, made.statement, last.statement)


def _depends_on(made: Event, name: str, between: Sequence[ast.stmt]) -> bool:
    """Whether statements below an optimizer's line read it, or bind what it is built of."""
    if any(name in names_in(s) for s in between) or names_in(made.call) & names_bound(between):
        return True
    # At the file's own level, a function that is called in between may read or bind these names.
    called = (terminal(n) for s in between for n in calls_in(s) if isinstance(n.func, ast.Name))
    return made.unit.is_module and any(made.unit.file.functions(function) for function in called)


def _block(event: Event) -> list[ast.stmt]:
    """The statements that one stands among, where it stands in no `with`, `try` or branch."""
    body = event.unit.node.body
    if event.statement in body:
        return body
    return next((s.body for s in body if isinstance(s, ast.If) and event.statement in s.body), [])


def _added(file: SourceFile, put: Event, made: Event) -> Edits:
    """`optimizer.add_param_group(…)` after the line that puts a part in."""
    target, name = targets_of(put.node)[0], targets_of(made.statement)[0]
    optimizer = _seen_from(name, made, put)
    given = _parameters(file, target, put)
    # A scheduler of one group would not know of the second.
    if not optimizer or not given or file.mentions("lr_scheduler", "Scheduler", "scheduler"):
        return ()
    return edits.after(file, put.statement, f'{optimizer}.add_param_group({{"params": {given}}})')


def _seen_from(name: ast.expr, made: Event, put: Event) -> str:
    """What an optimizer is called where a part is put in; empty where it is not known there."""
    if isinstance(name, ast.Name):
        return name.id if put.unit.home(name.id) is made.unit and put.unit is made.unit else ""
    mine, theirs = made.unit.self_name(), put.unit.self_name()
    on_self = isinstance(name, ast.Attribute) and isinstance(name.value, ast.Name) and name.value.id == mine
    owner = made.unit.method_class()
    if not mine or not theirs or not on_self or owner is not put.unit.method_class() or owner is None:
        return ""
    return f"{theirs}.{terminal(name)}" if len(owner.attributes[terminal(name)]) == 1 else ""


def _parameters(file: SourceFile, target: ast.expr, put: Event) -> str:
    """The parameters of a part, as code; empty where it is not known for a module or a parameter."""
    value = value_for(put.node, target)
    text = file.segment(target)
    if not isinstance(value, ast.Call):
        return ""
    if terminal(value) == "Parameter":
        return f"[{text}]"
    roles = file.roles.of(value, put.unit)
    return f"{text}.parameters()" if "module" in roles else ""

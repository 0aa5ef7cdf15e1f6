"""Train and eval mode as source shows it: who is switched when, which calls evaluate, and whether it matters."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, replace
from typing import Literal

from torchvet.rules.kit import Identity, Iterator, SourceFile
from torchvet.rules.shared import training_loops as loops
from torchvet.source.model import ClassModel, Event, Unit, given, names_in, origins, receiver, target_names, terminal
from torchvet.source.walking import Loop

_MODES = re.compile(r"Drop(out|path)|Batch_?Norm|BatchNorm|dropout|drop_path|\bDropPath\b|nn\.Transformer|rrelu|RReLU")
_JUDGES = re.compile(r"eval|valid|(^|_)test", re.IGNORECASE)
"""Names of functions that evaluate what they are given; one that samples or predicts may mean to be in train mode."""
_SWITCHES = re.compile(r"(^|_)(eval|evaluat\w*|mode|freeze)($|_)|Eval|Mode|Freeze")
"""Names of functions from elsewhere that switch modes, and of decorators."""
_DEEPEST = 3


@dataclass(frozen=True)
class Moment:
    """A switch of a model's mode, or a call of a model without gradients over a loader."""

    kind: Literal["train", "eval", "either", "evaluates"]
    who: Identity
    event: Event
    at: Event
    passing: Event | None = None
    """For `evaluates`: what stands in the loop over batches, where a function that it calls runs the model."""

    @property
    def over(self) -> Event:
        """The event that stands in the loop over batches."""
        return self.passing or self.event


def moments(file: SourceFile, unit: Unit, depth: int = 0) -> Iterator[Moment]:
    """What one run of a unit does to modes, in order; functions of the file are followed."""
    leaving: list[tuple[Event, list[Moment]]] = []
    for event in unit.events:
        if event.node.__class__ is not ast.Call:
            continue
        while leaving and not _within(event, leaving[-1][0]):
            yield from leaving.pop()[1]
        callee = file.callee(event)
        for model in _switched_unseen(file, event, callee):
            yield Moment("either", origins.identity(model, unit), event, event)
        if callee is None or callee.name == "forward":
            yield from _own(file, event)
            continue
        now, later = _in_callee(file, event, callee, depth)
        yield from now
        if later:
            leaving.append((event, later))
    for _, rest in reversed(leaving):
        yield from rest


def _own(file: SourceFile, event: Event) -> Iterator[Moment]:
    """What a call does that runs no function of the file, or a `forward`."""
    on, unit = receiver(event.call), event.unit
    if terminal(event.node) in ("train", "eval") and on is not None:
        if not file.roles.of(on, unit) & {"trainer", "engine"}:
            yield Moment(_kind(event), origins.identity(on, unit), event, event)
    elif file.roles.is_a("module", event.call.func, unit) and _is_pass(file, event):
        yield Moment("evaluates", origins.identity(event.call.func, unit), event, event)


def _in_callee(file: SourceFile, event: Event, callee: Unit, depth: int) -> tuple[list[Moment], list[Moment]]:
    """What a function of the file does that a call runs; and where the call makes the context manager of a `with`
    statement, what it does when the block is left."""
    inner = list(moments(file, callee, depth + 1)) if depth < _DEEPEST else []
    # A context manager switches before its `yield` and switches back after it, when the block is left.
    handed = next((e for e in callee.events if e.node.__class__ is ast.Yield), None) if _entered(event) else None
    later = [m for m in inner if handed is not None and m.at.index > handed.index]
    now = [replace(m, at=event) for m in inner if handed is None or m.at.index < handed.index]
    if _is_pass(file, event):
        runs = _runs_given(file, callee)
        now += [Moment("evaluates", origins.identity(run.call.func, callee), run, event, event) for run in runs]
    return now, [replace(m, at=event) for m in later]


def _kind(event: Event) -> Literal["train", "eval", "either"]:
    call = event.call
    if terminal(call) == "eval":
        return "eval"
    if not given(call):
        return "train"
    mode = given(call)[0]
    # `model.train(was_training)` may switch either way.
    return ("train" if mode.value else "eval") if isinstance(mode, ast.Constant) else "either"


def _is_pass(file: SourceFile, event: Event) -> bool:
    """Whether a call without gradients is given the batches of a loader, or of what a function that evaluates goes
    over."""
    loop = event.loop
    head = _head(loop.node) if loop is not None else None
    if loop is None or head is None or isinstance(event.parent, ast.Expr):
        return False
    if file.gradients.enabled(event) != "no" or not _given_a_batch(event, loop, target_names(head)):
        return False
    over = head.iter
    judges = bool(_JUDGES.search(event.unit.name)) and isinstance(over, ast.Name) and over.id in event.unit.parameters
    return judges or loops.is_loader(file, over, event.unit)


def _runs_given(file: SourceFile, unit: Unit) -> Iterator[Event]:
    """The calls of models in a function that are given what the function is given."""
    known = set(unit.parameters) - {unit.self_name()}
    for event in unit.events:
        value = getattr(event.node, "value", None)
        if isinstance(event.node, ast.Assign) and names_in(value) & known:
            known |= target_names(event.node)
            continue
        called = event.node.__class__ is ast.Call and file.roles.is_a("module", event.call.func, unit)
        if called and names_in(event.node) & known:
            yield event


def _given_a_batch(event: Event, loop: Loop, batch: set[str]) -> bool:
    """Whether what the model is given comes from the loader: a generator is sampled from noise, often in train mode."""
    for binding in event.unit.events:
        assigned = binding.node.value if isinstance(binding.node, ast.Assign) and binding.inside(loop) else None
        if binding.index < event.index and names_in(assigned) & batch:
            batch |= target_names(binding.node)
    return any(names_in(a) & batch for a in given(event.call))


def _head(node: ast.AST) -> ast.For | ast.comprehension | None:
    """What says what a `for` loop or a comprehension goes over."""
    if isinstance(node, (ast.ListComp, ast.GeneratorExp, ast.SetComp, ast.DictComp)):
        return node.generators[0]
    return node if isinstance(node, ast.For) else None


def _entered(event: Event) -> bool:
    """Whether a call makes the context manager of a `with` statement."""
    items = event.statement.items if isinstance(event.statement, (ast.With, ast.AsyncWith)) else []
    return any(item.context_expr is event.node for item in items)


def _within(event: Event, manager: Event) -> bool:
    """Whether an event happens before the block of a context manager is left."""
    return event.statement is manager.statement or manager.node in event.context.withs


def _switched_unseen(file: SourceFile, event: Event, callee: Unit | None) -> Iterator[ast.expr]:
    """The models whose mode a call may switch out of sight: a context manager that the file does not write as a
    generator, a function from elsewhere whose name says so, or a decorator."""
    dotted = file.dotted(event.call.func)
    if dotted.startswith("torch.") or (receiver(event.call) is not None and terminal(event.node) in ("eval", "train")):
        return
    if callee is None or callee.name == "__init__":
        # A class used in a `with` switches in `__enter__`, which no call in the text runs.
        unseen = _entered(event) or bool(_SWITCHES.search(terminal(event.node)))
    else:
        unseen = any(_SWITCHES.search(d.rpartition(".")[2]) for d in callee.decorators if not d.startswith("torch."))
    if not unseen:
        return
    given = [receiver(event.call), *event.call.args, *(k.value for k in event.call.keywords)]
    for node in given:
        if node is not None and file.roles.is_a("module", node, event.unit):
            yield node


def made_by_calls(file: SourceFile, unit: Unit, loop: Loop, model: ast.expr, where: Unit) -> bool:
    """Whether what a model stands for in some unit is made, each time, by functions that a loop calls."""
    makers = origins.made_by(model, where)
    made = [home.call_of(value) for value, home in makers if home is not unit and not home.is_module]
    if not makers or len(made) < len(makers) or any(call is None or call.context.arms for call in made):
        return False
    run = _run_in(file, unit, loop)
    return all(home in run for _, home in makers)


def _run_in(file: SourceFile, unit: Unit, loop: Loop) -> set[Unit]:
    """The functions of the file that a loop's turns run, a few calls deep."""
    waiting, run = list(loops.events_in(unit, loop)), set[Unit]()
    for _ in range(_DEEPEST):
        callees = {u for e in waiting if e.node.__class__ is ast.Call and (u := _run_by(file, e)) is not None}
        waiting = [e for u in callees - run for e in u.events]
        run |= callees
    return run


def _run_by(file: SourceFile, event: Event) -> Unit | None:
    """The function of the file that a call runs, or the constructor."""
    made = file.roles.class_named(event.call.func, event.unit)
    return made.method("__init__") if made is not None else file.callee(event)


def stochastic(file: SourceFile, model: ast.expr, unit: Unit) -> Literal["yes", "no", "unknown"]:
    """Whether a model has layers that behave differently in train mode: dropout, batch norm and their like."""
    made = ((v, w) for v, w in origins.made_by(model, unit) if isinstance(v, ast.Call))
    answers = {_of_constructor(file, call, where) for call, where in made}
    return "yes" if "yes" in answers else "unknown" if "unknown" in answers or not answers else "no"


def _of_constructor(file: SourceFile, call: ast.Call, unit: Unit) -> Literal["yes", "no", "unknown"]:
    known = file.roles.class_named(call.func, unit)
    dotted = file.dotted(call.func)
    if known is not None:
        return _of_class(file, known)
    if dotted.startswith("torch.nn."):
        if _MODES.search(ast.unparse(call)):
            return "yes"
        starred = any(isinstance(one, (ast.Starred, ast.Name)) for one in call.args)
        plain = all(isinstance(a, ast.Call) and file.dotted(a.func).startswith("torch.nn.") for a in call.args)
        return "unknown" if starred or ("Sequential" in dotted and not plain) else "no"
    return "yes" if dotted.startswith("torchvision.models.") else "unknown"


def _of_class(file: SourceFile, model: ClassModel) -> Literal["yes", "no", "unknown"]:
    """By the text of the class and of the file's classes that it names."""
    waiting, seen = [*model.lineage], set()
    foreign = any(file.roles.of_class(model) == frozenset({"object"}) for model in model.lineage[-1:])
    while waiting:
        one = waiting.pop()
        if one.qualname in seen:
            continue
        seen.add(one.qualname)
        text = file.text_of(one)
        if _MODES.search(text):
            return "yes"
        words = set(re.findall(r"\w+", text))
        waiting += [c for name, c in file.classes.items() if name in words]
        imported = {w for w in words & set(file.imports.names) if w[:1].isupper()}
        foreign = foreign or any(not file.imports.names[w].startswith("torch.") for w in imported)
    return "unknown" if foreign else "no"

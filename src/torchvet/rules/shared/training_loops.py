"""What rules about training loops share: who is cleared and stepped, what calls may do unseen, and when a pass ends."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from torchvet.rules.kit import Edits, Effect, Findings, Identity, Iterator, Rule, SourceFile, Step
from torchvet.source.model import Event, Unit, blocks, edits, is_call, is_name, origins, value_bound
from torchvet.source.model.units import behind_progress
from torchvet.source.syntax import given, mentions, receiver, terminal
from torchvet.source.walking import Loop, walk

if TYPE_CHECKING:
    from torchvet.source.model.events import Arm
    from torchvet.source.model.steps import Kind

# `p.grad = None` is an effect of its own; this finds all else that writes to gradients.
_BY_HAND = re.compile(r"\.grad(\.data)?(\s*=[^=]|\.(zero_|fill_|mul_|copy_|detach_|sub_|div_|add_)|\[)|_foreach_")
_MAY_CLEAR = re.compile(r"zero|clear|reset|grad|hook|callback|optim|step|update|backward|train|handler|call_event")
# Tried first: `log_gradients` would also be something that may clear.
_ONLY_READS = re.compile(
    r"^(print|save|dump|log|info|debug|append|format|len|id|isinstance|get_lr|state_dict|.*checkpoint|.*meter.*"
    r"|add_scalar|set_postfix|get_last_lr|item|set_desc\w+)$"
)
_SEEN = frozenset(("", "step", "backward", "zero_grad", "update", "unscale_", "scale", "train", "eval"))
"""Calls that are effects of a step themselves, and those of what has no name."""
_TEST = re.compile(r"(^|[/\\])(tests?|testing|test_utils)[/\\]|(^|[/\\])(test_[^/\\]*|[^/\\]*_test|conftest)\.py$")


class LoopRule(Rule):
    """A rule about training loops. In a test suite its findings are `info`: faults often stand there on purpose."""

    def in_source(self, file: SourceFile) -> Findings:
        """See `Rule`."""
        for finding in super().in_source(file):
            yield msgspec.structs.replace(finding, severity="info") if is_test(file) else finding


def is_loader(file: SourceFile, node: ast.expr, unit: Unit) -> bool:
    """Whether a loop over an expression goes over a loader's batches."""
    while is_call(node, "enumerate", "tqdm", "zip", "track", "trange", "iter"):
        if not node.args:
            return False
        node = node.args[0]
    # Only names and calls: a list of loaders is none.
    return file.roles.is_a("loader", node, unit)


def is_test(file: SourceFile) -> bool:
    """Whether the file is one of a test suite: what stands there was often written on purpose."""
    return bool(_TEST.search(file.path))


def text_between(file: SourceFile, first: int, last: int) -> str:
    """The text of some lines."""
    return "\n".join(file.lines[first - 1 : last])


def unit_text(unit: Unit) -> str:
    """The text of a unit, nested functions included."""
    return unit.file.text_of(unit)


def loop_text(file: SourceFile, loop: Loop) -> str:
    """The text of a loop."""
    return text_between(file, loop.node.lineno, loop.node.end_lineno)  # type: ignore[attr-defined]


def events_in(unit: Unit, loop: Loop | None) -> Iterator[Event]:
    """Events of a unit that lie in a loop, all of them without one."""
    return (e for e in unit.events if e.inside(loop))


def effects_in(unit: Unit, loop: Loop | None, *kinds: Kind) -> list[Effect]:
    """What a unit does of some kinds (of all, where none is given) in a loop, in functions that it calls too; anywhere
    without a loop."""
    return [e for e in unit.file.effects(unit) if (not kinds or e.kind in kinds) and e.at.inside(loop)]


def bound_before(name: str, event: Event) -> list[Event]:
    """The bindings of a name in an event's unit that may come before it, in order."""
    return event.bindings_before(name)


def subject_of(effect: Effect) -> ast.expr | None:
    """The expression, in the event's own unit, of what is stepped, cleared or unscaled."""
    node = effect.event.node
    if not isinstance(node, ast.Call):
        return None
    if effect.kind in ("scaler_step", "unscale"):
        return node.args[0] if node.args else None
    return receiver(node)


def who(effect: Effect) -> Identity:
    """Which object an effect is about, comparable within the file."""
    node = subject_of(effect)
    return origins.identity(node, effect.event.unit) if node is not None else frozenset()


def constructors(node: ast.AST | None, unit: Unit) -> list[tuple[ast.Call, Unit]] | None:
    """The calls that make what an expression stands for; None where one of them cannot be seen."""
    values = origins.made_by(node, unit)
    found = [(value, where) for value, where in values if isinstance(value, ast.Call)]
    # A parameter stands for itself too: what this file's callers give it is taken for all.
    # Whatever else it may stand for is not seen being made.
    rest = [(v, w) for v, w in values if not isinstance(v, ast.Call)]
    parameters = all(isinstance(v, ast.Name) and v.id in w.parameters for v, w in rest)
    return found if parameters and found else None


def name_of(effect: Effect) -> str:
    """What an effect is about, as its own unit writes it."""
    node = subject_of(effect)
    return effect.event.unit.file.segment(node) if node is not None else effect.subject or "the optimizer"


def models_of(node: ast.AST | None, unit: Unit) -> Identity | None:
    """The models whose `.parameters()` an optimizer was given; None where that is not known."""
    made = constructors(node, unit)
    if made is None:
        return None
    found: set[tuple[object, ...]] = set()
    for call, where in made:
        models = origins.models_in(call)
        # An optimizer over a list that was built elsewhere could have any parameters.
        if not models or "optimizer" not in where.file.roles.of(call, where):
            return None
        found.update(*(origins.identity(model, where) for model in models))
    # Empty, too, where what clears is the optimizer of no model.
    return frozenset(found)


def wholes_of(node: ast.AST | None, unit: Unit) -> Identity:
    """What the models of an optimizer are parts of: `net` for `net.encoder.parameters()`."""
    made = constructors(node, unit) or []
    return frozenset[tuple[object, ...]]().union(
        *(bases_of(m, where) for call, where in made for m in origins.models_in(call))
    )


def bases_of(node: ast.AST, unit: Unit) -> Identity:
    """What the objects are that an attribute chain goes through."""
    found: set[tuple[object, ...]] = set()
    while isinstance(node, (ast.Attribute, ast.Subscript)):
        node = node.value
        found |= origins.identity(node, unit)
    return frozenset(found)


def clears_by_hand(units: set[Unit]) -> bool:
    """Whether `.grad` is written to in the text of some units."""
    return any(_BY_HAND.search(unit_text(u)) for u in units)


def units_of(step: Step) -> set[Unit]:
    """The units that a step runs through, as far as its effects show."""
    return {step.unit, *(e.event.unit for e in step.effects)}


def made_anew(node: ast.expr, unit: Unit, step: Step, at: Event) -> bool:
    """Whether each turn of a step's loop that reaches `at` has made anew what an expression of a unit stands for."""
    events: list[tuple[Event, ast.expr | None]] = []
    if isinstance(node, ast.Name):
        events = [(e, value_bound(e.node, node.id)) for e in unit.bindings.get(node.id, ())]
    elif isinstance(node, ast.Attribute) and is_name(node.value, unit.self_name()):
        owner = unit.method_class()
        events = owner.attributes.get(node.attr, []) if owner is not None else []
    # `model = model.to(device)` is the one there was.
    made = [e for e, value in events if isinstance(value, ast.Call) and not mentions(value, node)]
    return any(_in_each_turn(e, step, at) for e in made)


def _in_each_turn(event: Event, step: Step, at: Event) -> bool:
    if event.unit is step.unit:
        return event.inside(step.loop) and at.sure_after(event)
    calls = (e for e in events_in(step.unit, step.loop) if e.node.__class__ is ast.Call)
    return not event.context.arms and any(
        at.sure_after(call) and event.unit.file.callee(call) is event.unit for call in calls
    )


def may_do_more(file: SourceFile, step: Step) -> bool:
    """Whether the step calls something from elsewhere that could clear gradients, run a backward or step."""
    return any(
        _hides_something(file, event)
        for unit in units_of(step)
        for event in events_in(unit, step.loop if unit is step.unit else None)
        if event.node.__class__ is ast.Call
    )


def _hides_something(file: SourceFile, event: Event) -> bool:
    name, on = terminal(event.node), receiver(event.call)
    # The file's own functions are followed anyway.
    if name in _SEEN or _ONLY_READS.search(name) or file.callee(event) is not None:
        return False
    if file.dotted(event.call.func).startswith("torch."):
        return False
    trains = _MAY_CLEAR.search(name.lower()) is not None
    # A method of the program's own class that stands in another file, in a base class say.
    if trains and is_name(on, event.unit.self_name()):
        return not name.startswith("clip_")
    # `torch.zeros` by another name, as `np.zeros`, clears nothing.
    if any(word in name for word in ("zero", "clear_grad", "call_event", "callback")):
        return not name.startswith(("zeros", "zero_like"))
    wanted = ("optimizer", "module") if trains and not name.startswith("clip_grad") else ("optimizer",)
    return any(file.roles.is_a(role, one, event.unit) for one in given(event.call) for role in wanted)


def hides_between(file: SourceFile, one: Effect, other: Effect) -> bool:
    """Whether a call between two effects may do more than is seen."""
    # Callers give them in either order.
    first, last = sorted((one, other), key=lambda e: e.order)
    if first.at.unit is not last.at.unit:
        return True
    between = first.at.unit.events[first.at.index + 1 : last.at.index]
    return any(e.node.__class__ is ast.Call and _hides_something(file, e) for e in between)


def loss_in(file: SourceFile, event: Event) -> ast.expr | None:
    """The loss of a plain or scaled `backward()`, an accelerator's likewise, as its own unit writes it."""
    call, on = event.call, receiver(event.call)
    if is_call(on, "scale") and len(on.args) == 1:
        return on.args[0]
    if call.args:
        known = on is not None and file.roles.of(on, event.unit) & {"accelerator"}
        return call.args[0] if known else None
    # `y.backward(gradient=g)`: `y` is no loss.
    return on if not any(k.arg == "gradient" for k in call.keywords) else None


def loss_of(backward: Effect) -> ast.expr | None:
    """The loss of a backward; None where it is an unknown engine's."""
    return loss_in(backward.event.unit.file, backward.event)


def bound_value(binding: Event, name: str) -> tuple[ast.expr | None, list[tuple[ast.expr, Event]]]:
    """What a binding gives a name: the expression; else, where it unpacks what a module or function of this file
    returns, the name's element of each of the tuples returned, with its event."""
    node = binding.node
    value = value_bound(node, name)
    return value, _returned_part(node, name, binding) if value is None and isinstance(node, ast.Assign) else []


def _returned_part(node: ast.Assign, name: str, binding: Event) -> list[tuple[ast.expr, Event]]:
    call, target = node.value, node.targets[0]
    if not isinstance(call, ast.Call) or not isinstance(target, ast.Tuple):
        return []
    run = _run_by(call, binding.unit)
    place = next((n for n, one in enumerate(target.elts) if is_name(one, name)), None)
    if run is None or place is None:
        return []
    returned = [(e.node.value, e) for e in run.events if isinstance(e.node, ast.Return)]
    found = [(v.elts[place], e) for v, e in returned if isinstance(v, ast.Tuple) and len(v.elts) == len(target.elts)]
    # One `return` of something else, and the element is not known.
    return found if len(found) == len(returned) else []


def _run_by(call: ast.Call, unit: Unit) -> Unit | None:
    """The function of this file that a call runs: a module's call its forward, any other its function."""
    model = unit.file.gradients.forwards.class_run(call, unit)
    if model is not None:
        return model.method("forward")
    own = unit.call_of(call)
    return unit.file.callee(own) if own is not None else None


def without_statement(file: SourceFile, statement: ast.stmt) -> Edits:
    """Take out a statement with its lines; nothing where it shares them."""
    return blocks.without(file, [statement])


def moved_behind(file: SourceFile, statement: ast.stmt, other: ast.stmt) -> Edits:
    """Move a statement to right after another; nothing where one of them shares its lines."""
    removed, put = blocks.without(file, [statement]), edits.after(file, other, file.segment(statement))
    return [*removed, *put] if removed and put else []


@dataclass(frozen=True)
class Window:
    """Gradient accumulation: backward in every pass, a step in one of `period` passes."""

    step: Step
    backward: Effect
    stepped: Effect
    period: ast.expr
    """The number of passes, or `batch.split(size)`, which has so many pieces."""

    @property
    def passes(self) -> str:
        """The number of passes, as code."""
        text = self.step.unit.file.segment(self.period)
        return f"len({text})" if is_call(self.period, "split") else text


def windows(file: SourceFile) -> Iterator[Window]:
    """Accumulation windows of a file, each optimizer's once."""
    seen: set[int] = set()
    for step in file.steps:
        for stepped in step.of("step", "scaler_step"):
            for backward in step.of("backward"):
                # One optimizer's step may belong to several backward calls of its window.
                if backward.order > stepped.order or backward.excludes(stepped) or id(stepped.event) in seen:
                    continue
                period = _period(step, backward, stepped)
                if period is not None:
                    seen.add(id(stepped.event))
                    yield Window(step, backward, stepped, period)


def _period(step: Step, backward: Effect, stepped: Effect) -> ast.expr | None:
    clears = [e for e in step.of("zero_grad") if not e.excludes(stepped)]
    # Only where gradients are cleared as rarely as they are applied do they add up over the passes.
    for arm in stepped.arms if clears else ():
        # In a branch that the backward is not in, and in which alone gradients are cleared.
        own = arm not in backward.arms and all(arm in e.arms for e in clears)
        found = _modulus(arm, stepped.event.unit) if own else None
        if found is not None:
            return found
    return _inner_loop(step, backward, stepped, clears)


def tells_last(branch: ast.If, unit: Unit) -> bool:
    """Whether the body of an `if` runs in the last pass of each window alone."""
    return _modulus((branch, 0), unit) is not None


def _modulus(arm: Arm, unit: Unit) -> ast.expr | None:
    """`n` of `if (i + 1) % n == 0:`, also through a name (`is_last = …`)."""
    branch, number = arm
    if not isinstance(branch, ast.If) or number != 0:
        return None
    tests: list[ast.expr] = [branch.test]
    for name in (n for n in walk(branch.test) if isinstance(n, ast.Name)):
        # One name deep: `is_last = (i + 1) % n == 0`.
        tests += [v for v, _ in unit.file.roles.values(name, unit) if isinstance(v, (ast.Compare, ast.BoolOp))]
    periods = (_period_in(one, branch, unit) for test in tests for one in walk(test))
    return next((found for found in periods if found is not None), None)


def _period_in(test: ast.AST, branch: ast.If, unit: Unit) -> ast.expr | None:
    """`n` of `… % n == 0`, of `not … % n`, and of the `pending == n` of a counter."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return _divisor(test.operand)
    if not isinstance(test, ast.Compare):
        return None
    by = _divisor(test.left) if isinstance(test.ops[0], ast.Eq) else None
    return test.comparators[0] if by is None and _counts(test, branch, unit) else by


def _divisor(node: ast.expr) -> ast.expr | None:
    """`n` of `… % n`; None for `… % 1`, which is always 0."""
    mod = isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod) and not _is_number(node.right, 1)
    return node.right if mod else None  # type: ignore[attr-defined]


def _counts(test: ast.Compare, branch: ast.If, unit: Unit) -> bool:
    """`pending == n` of a name that each pass adds 1 to and the branch sets back to 0."""
    name = test.left.id if isinstance(test.left, ast.Name) else ""
    if not name or len(test.ops) != 1 or not isinstance(test.ops[0], (ast.Eq, ast.GtE)):
        return False
    bound = [e.node for e in unit.bindings.get(name, ())]
    added = [b for b in bound if isinstance(b, ast.AugAssign) and isinstance(b.op, ast.Add) and _is_number(b.value, 1)]
    # Without being set back the counter says how many passes there were.
    back = [s for s in branch.body if isinstance(s, ast.Assign) and s in bound and _is_number(s.value, 0)]
    return bool(added and back)


def _is_number(node: ast.expr, value: int) -> bool:
    return isinstance(node, ast.Constant) and node.value == value


def _inner_loop(step: Step, backward: Effect, stepped: Effect, clears: list[Effect]) -> ast.expr | None:
    """`n` of `for micro_step in range(n): … backward()` with the step after that loop."""
    loop, owner = backward.event.loop, backward.event.unit
    if loop is None or step.loop is None or loop is step.loop or not isinstance(loop.node, ast.For):
        return None
    # A step within the inner loop is one a pass.
    if stepped.event.unit is not owner or any(e.event.inside(loop) or e.at.inside(loop) for e in (stepped, *clears)):
        return None
    over = behind_progress(loop.node.iter)
    pieces = _pieces(over)
    if pieces is not None:
        return pieces
    if not (is_call(over, "range") and over.args):
        return None
    # Any inner loop with a backward could be meant; these words say that it is an accumulation.
    words = ast.unparse(loop.node.target) + ast.unparse(over)
    return over.args[-1] if re.search(r"accum|micro", words.lower()) else None


def _pieces(over: ast.expr) -> ast.expr | None:
    """`n` of `batch.chunk(n)`, and `batch.split(size)` itself, also within `zip`: one batch, rows by rows."""
    while is_call(over, "zip", "enumerate") and over.args:
        over = over.args[0]
    if not isinstance(over, ast.Call) or terminal(over) not in ("split", "chunk", "tensor_split") or over.keywords:
        return None
    # `torch.chunk(batch, n)` has the batch first.
    numbers = over.args[1:] if terminal(receiver(over)) == "torch" else over.args
    # `text.split(",")` splits a string.
    if len(numbers) != 1 or (isinstance(numbers[0], ast.Constant) and not isinstance(numbers[0].value, int)):
        return None
    return over if terminal(over) == "split" else numbers[0]

"""Which stores pile up: where a holder grows, whether it outlives a pass, and whether anything empties it."""

from __future__ import annotations

import ast
import re
from dataclasses import replace

from torchvet.rules.kit import Iterator, SourceFile, Step
from torchvet.rules.memory import _stores
from torchvet.source import model
from torchvet.source.model import destinations
from torchvet.source.syntax import limit

EMPTYING = ("clear", "pop", "popleft", "popitem", "reset")
_REPEATED = model.name_set(
    "training_step validation_step test_step compute_loss on_train_batch_end train_step step on_validation_batch_end "
    "on_step_end forward __call__"
)
_DEEPEST = 4


def stores(file: SourceFile) -> Iterator[_stores.Stored]:
    """Stores into what outlives the pass: appended, put under a new key, or added up."""
    for store in (*_stores.collected(file), *_stores.added_up(file)):
        found = kept_on(file, store)
        if found is not None:
            yield found


def kept_on(file: SourceFile, store: _stores.Stored, repeated: bool = False) -> _stores.Stored | None:
    """The store with the loop in which its holder grows; None where it does not, or that is not sure. `repeated` says
    that its function is known to run again and again."""
    root = store.root
    unit, found = store.event.unit, None
    if isinstance(root, ast.Name):
        found = _on_name(file, store, root.id, repeated)
    elif isinstance(root, ast.Attribute) and isinstance(root.value, ast.Name):
        found = _on_attribute(file, store, root.attr, file.roles.class_of(root.value, unit), repeated)
    elif isinstance(root, ast.Attribute) and isinstance(root.value, ast.Attribute):
        found = _on_attribute(file, store, root.attr, _class_of_part(file, root.value, unit), repeated)
    if found is None or found.key is None or _stores.counts_up(found.key, found.event):
        return found
    # The same keys come again when their loop does.
    # `x[i] = v` in the inner loop over `i` is full after one turn of the outer loop.
    return replace(found, loop=_stores.loop_of_key(found.key, found.event))


def _class_of_part(file: SourceFile, part: ast.Attribute, unit: model.Unit) -> model.ClassModel | None:
    """The class of `self.stats`, where the object that was made with its owner stays there."""
    owner = unit.method_class() if model.terminal(part.value) == unit.self_name() else None
    made = owner.attributes.get(part.attr, []) if owner is not None else []
    # Bound anew elsewhere it starts afresh.
    if any(e.unit.name != "__init__" or e.loop is not None for e, _ in made) or _attribute_cut(part.attr, file.text):
        return None
    return file.roles.class_of(part, unit) if made else None


def _on_name(file: SourceFile, store: _stores.Stored, name: str, repeated: bool) -> _stores.Stored | None:
    event = store.event
    home = event.unit.home(name)
    # A caller's container may be emptied, or thrown away, by the caller.
    if home is None or name in home.parameters:
        return None
    fresh = _starts(home.bindings.get(name, []), name, store)
    if not fresh:
        return None
    emptied = _emptied(file, home, name)
    # A function that stores into an outer variable grows it with each call.
    if home is not event.unit:
        stays = not emptied and not _bound_elsewhere(file, name)
        return _for_ever(store) if stays and (repeated or is_repeated(file, event.unit, event)) else None
    # Made once and never emptied: then it lasts as long as its unit.
    once = not emptied and all(b.loop is None for b in fresh)
    loop = _widest(event, [*fresh, *emptied])
    if loop is None:
        return _for_ever(store) if repeated and once else None
    return replace(store, loop=loop, lasting=home.is_module and once)


def _emptied(file: SourceFile, home: model.Unit, name: str) -> list[model.Event]:
    """Where something is taken out of a variable, or it is deleted."""
    # By text: `del rows[0]` and `del rows[:n]` alike.
    deleted = [e for e in home.events if isinstance(e.node, ast.Delete) and name in ast.unparse(e.node)]
    return [*(e for e in file.calls(*EMPTYING) if model.terminal(model.receiver(e.call)) == name), *deleted]


def _for_ever(store: _stores.Stored) -> _stores.Stored:
    """A store whose holder grows from call to call, and is never emptied."""
    return replace(store, loop=None, lasting=True)


def _starts(bindings: list[model.Event], name: str, store: _stores.Stored) -> list[model.Event] | None:
    """The bindings that start a holder afresh; None where one of them starts it as something that does not grow."""
    # `total = total + x` continues what was there; only a binding of something else ends the growth.
    fresh = [b for b in bindings if not _from_itself(b, name)]
    return fresh if all(_can_grow(b, name, store) for b in fresh) else None


def _bound_elsewhere(file: SourceFile, name: str) -> bool:
    """Whether a function that declares a name `global` or `nonlocal` starts it afresh."""
    others = [u for u in file.units_with(name) if name in u.outer_names]
    return any(not _from_itself(b, name) for u in others for b in u.bindings.get(name, ()))


def _on_attribute(
    file: SourceFile, store: _stores.Stored, name: str, owner: model.ClassModel | None, repeated: bool
) -> _stores.Stored | None:
    if owner is None:
        return None
    fresh = _starts([event for event, _ in owner.attributes.get(name, [])], name, store)
    # An attribute that nothing in the class begins was put there by somebody else.
    if fresh is None or not (fresh or _is_field(owner, name)):
        return None
    if _ends(file, name, fresh) or not (repeated or is_repeated(file, store.event.unit, store.event)):
        return None
    return _as_long_as_its_object(file, store, owner) or _for_ever(store)


def _ends(file: SourceFile, name: str, fresh: list[model.Event]) -> bool:
    """Whether an attribute is started afresh by `reset()` or a loop over epochs, emptied or shortened."""
    if any(b.unit.name != "__init__" or b.loop is not None for b in fresh):
        return True
    if any(model.terminal(_stores.root_of(model.receiver(e.call) or e.call)) == name for e in file.calls(*EMPTYING)):
        return True
    # By the text of the whole file: who shortens an attribute may have the object under any name.
    return _attribute_cut(name, file.text)


def _as_long_as_its_object(file: SourceFile, store: _stores.Stored, owner: model.ClassModel) -> _stores.Stored | None:
    """The store as one that ends with its object, which each run of a function makes anew and nobody else gets; None
    where the object may last."""
    made = list(file.calls(owner.name))
    fills = file.callers(store.event.unit)
    anew = made and fills and all(_is_anew(file, event) for event in made)
    return replace(store, loop=None, lasting=False) if anew else None


def _is_anew(file: SourceFile, made: model.Event) -> bool:
    """Whether an object gets a name of a function that runs again and again, and is only asked by that name."""
    unit, statement = made.unit, made.statement
    if not isinstance(statement, ast.Assign) or statement.value is not made.node or unit.is_module:
        return False
    names = [target.id for target in statement.targets if isinstance(target, ast.Name)]
    # Bound in a loop it may be what the loop's next turn begins with, and ends the one before.
    again = made.loop is not None or is_repeated(file, unit)
    if len(names) != len(statement.targets) or not again or any(unit.home(name) is not unit for name in names):
        return False
    asked = {id(n.value) for n in ast.walk(unit.node) if isinstance(n, ast.Attribute)}
    return all(id(read) in asked for name in names for read in model.reads_of(unit.node, name))


def _is_field(owner: model.ClassModel, name: str) -> bool:
    """Whether a dataclass makes the attribute, a list or a dict, for each of its objects."""
    for one in owner.node.body:
        if isinstance(one, ast.AnnAssign) and model.terminal(one.target) == name and isinstance(one.value, ast.Call):
            made = model.keyword(one.value, "default_factory")
            return model.terminal(one.value) == "field" and model.terminal(made) in (
                "list",
                "dict",
                "OrderedDict",
                "deque",
            )
    return False


def _attribute_cut(name: str, text: str) -> bool:
    """Whether an attribute is bound from outside, deleted or shortened by slices somewhere."""
    return bool(
        re.search(
            # From outside, by any name but `self`; deleted; shortened by a slice.
            rf"(?<!self)\.{name}\s*=(?!=)|\bdel[ \t]+[\w.]+\.{name}\b|\.{name}\[[^\]\n]*:[^\]\n]*\]\s*=(?!=)"
            rf"|\.{name}\s*=[^=\n]*\.{name}\[[^\]\n]*:",
            text,
        )
    )


def _widest(event: model.Event, fresh: list[model.Event]) -> model.Loop | None:
    """The outermost loop around an event in which nothing starts the holder afresh."""
    loop, found = event.loop, None
    while loop is not None:
        if any(b.unit is event.unit and b.inside(loop) for b in fresh):
            break
        # A comprehension's turns are one statement.
        found = found if loop.comprehension else loop
        loop = loop.parent
    return found


def _from_itself(binding: model.Event, name: str) -> bool:
    """`total += x`, `total = total + x`."""
    node = binding.node
    if isinstance(node, ast.AugAssign):
        return True
    value = getattr(node, "value", None)
    # A call too: `total = torch.cat([total, x])`.
    return isinstance(value, (ast.BinOp, ast.Call)) and any(
        model.terminal(n) == name for n in model.walk(value) if isinstance(n, (ast.Name, ast.Attribute))
    )


def _can_grow(binding: model.Event, name: str, store: _stores.Stored) -> bool:
    """Whether what a holder starts as is a container without a limit, or something to add to."""
    node = binding.node
    if not isinstance(node, (ast.Assign, ast.AnnAssign)):
        return False
    values: list[ast.expr | None] = [node.value]
    target = next((t for t in model.targets_of(node) if model.terminal(t) == name), None)
    if isinstance(node, ast.Assign) and target not in node.targets and isinstance(node.value, (ast.Tuple, ast.List)):
        # `losses, total = [], 0`: each has its own beginning.
        own = model.value_for(node, target) if target is not None else None
        values = [own] if own is not None else list(node.value.elts)
    return all(growable(one, store.adds) for one in values)


def growable(value: ast.expr | None, adds: bool) -> bool:
    """Whether an expression makes a container without a limit; with `adds` a number to add to."""
    if isinstance(value, ast.Constant):
        # `total = None` begins a sum as well as `total = 0` does.
        return adds and (value.value is None or isinstance(value.value, (int, float)))
    if isinstance(value, (ast.List, ast.ListComp, ast.Dict, ast.DictComp)):
        return not _of_limited(value)
    if isinstance(value, ast.Call):
        name = model.terminal(value)
        if name == "deque":
            return not limit(value)
        if name == "defaultdict" and value.args and _makes_limited(value.args[0]):
            return False
        # A tensor of zeros is added to; collecting into it writes to places that are there.
        return name in ("list", "dict", "defaultdict", "OrderedDict") or (adds and name in ("zeros", "tensor", "float"))
    return False


def _of_limited(value: ast.List | ast.ListComp | ast.Dict | ast.DictComp) -> bool:
    """Whether a container is made of such as limit their own length: `{name: deque(maxlen=8) for name in names}`."""
    if isinstance(value, (ast.List, ast.Dict)):
        parts = value.elts if isinstance(value, ast.List) else value.values
        return bool(parts) and all(limit(part) for part in parts)
    return limit(value.elt if isinstance(value, ast.ListComp) else value.value)


def _makes_limited(factory: ast.expr) -> bool:
    """Whether what makes a `defaultdict`'s values makes such: `lambda: deque(maxlen=8)`, `partial(deque, maxlen=8)`."""
    if isinstance(factory, ast.Lambda):
        return limit(factory.body)
    if not (model.is_call(factory, "partial") and factory.args):
        return False
    return limit(ast.Call(factory.args[0], factory.args[1:], factory.keywords))


def is_repeated(file: SourceFile, unit: model.Unit, event: model.Event | None = None, depth: int = 0) -> bool:
    """Whether a unit, or an event in it, runs again and again: in a loop here, or called in one."""
    if event is not None and event.loop is not None:
        return True
    if depth > _DEEPEST or unit.is_module:
        return False
    if unit.owner is not None and unit.name in _REPEATED:
        return True
    return any(is_repeated(file, caller.unit, caller, depth + 1) for caller in file.callers(unit))


def surely_recording(file: SourceFile, event: model.Event, depth: int = 0) -> bool:
    """Whether gradients are on at an event as far as every way there is seen: from the file's own level, from what runs
    a backward itself, from `main`."""
    unit = event.unit
    if file.gradients.enabled(event) != "yes":
        return False
    # Who runs a backward has gradients on.
    if unit.is_module or unit.name == "main" or any(e.kind == "backward" for e in file.effects(unit)):
        return True
    callers = file.callers(unit)
    return depth < _DEEPEST and bool(callers) and all(surely_recording(file, c, depth + 1) for c in callers)


def bindings_at(name: str, event: model.Event) -> list[model.Event]:
    """The bindings of a local name that an event may read."""
    return destinations.reaching(name, event) if event.unit.home(name) is event.unit else []


def kept_in_steps(file: SourceFile) -> Iterator[_stores.Stored]:
    """Stores within a training loop into names that are bound outside of it, in the order of the file."""
    # A store may lie in several steps: that of each optimizer.
    seen: set[int] = set()
    for step in file.steps:
        if step.loop is None:
            continue
        for event in _events_of(step):
            if id(event) in seen:
                continue
            kept = _stores.store(event)
            own = event.unit is step.unit
            # In a method that the step calls, its own variables die with each call.
            if kept is None or not (outlives(kept, step.loop) if own else _is_of_others(kept)):
                continue
            if _is_new(kept, step.loop):
                seen.add(id(event))
                yield kept


def _events_of(step: Step) -> Iterator[model.Event]:
    """What each pass does in the step's own unit, then in the methods without loops that go backward for it."""
    assert step.loop is not None
    yield from (e for e in step.unit.events if e.inside(step.loop))
    for unit in {id(e.event.unit): e.event.unit for e in step.of("backward")}.values():
        if unit is not step.unit and unit.owner is not None:
            # In a loop of its own a method may collect what it empties behind it.
            yield from (e for e in unit.events if e.loop is None)


def _is_new(kept: _stores.Stored, loop: model.Loop) -> bool:
    """Whether a key, where the value is stored under one, is another one in each pass of a loop."""
    if kept.key is None:
        return True
    changing = _stores.loop_of_key(kept.key, kept.event)
    return _stores.counts_up(kept.key, kept.event) or (changing is not None and loop.within(changing))


def kept_in_loops(file: SourceFile, lines: list[int]) -> Iterator[_stores.Stored]:
    """Calls on given lines, in a loop, that put a value into a container from outside of all loops of the function."""
    units = file.units_at(lines)
    for event in (e for unit in units for name in _stores.ADDING for e in unit.calls.get(name, ()) if e.line in lines):
        loop = outermost_loop(event)
        kept = _stores.store(event) if loop is not None and not loop.comprehension else None
        if kept is not None and loop is not None and outlives(kept, loop):
            yield kept


def kept_under_keys(file: SourceFile, lines: list[int]) -> Iterator[_stores.Stored]:
    """Assignments on given lines, made again and again, of a value to a key that is not written down in a dict that
    lasts: an attribute, the module's, or one from outside of all loops of the function."""
    for event in (e for unit in file.units_at(lines) for e in unit.events):
        kept = _stores.under_a_key(event) if event.line in lines else None
        if kept is None or isinstance(kept.key, ast.Constant) or not _stores.in_dict(kept):
            continue
        loop = outermost_loop(event)
        lasts = outlives(kept, loop) if loop is not None else _is_of_others(kept)
        if lasts and is_repeated(file, event.unit, event):
            yield kept


def outermost_loop(event: model.Event) -> model.Loop | None:
    """The loop around all others that an event stands in."""
    loop = event.loop
    while loop is not None and loop.parent is not None:
        loop = loop.parent
    return loop


def _is_of_others(kept: _stores.Stored) -> bool:
    """Whether what keeps the value is not the function's own."""
    root, unit = kept.variable, kept.event.unit
    # A name that nobody binds here is not known.
    return root == unit.self_name() or unit.home(root) not in (unit, None)


def outlives(kept: _stores.Stored, loop: model.Loop) -> bool:
    """Whether what keeps the value is not made anew in each pass of a loop."""
    root = kept.variable
    unit = kept.event.unit
    if root == unit.self_name():
        return True
    home = unit.home(root)
    if home is not unit:
        return home is not None
    return not any(
        # The store itself binds its name anew: `total = total + loss`.
        b.inside(loop) and b.node is not kept.event.node and not isinstance(b.node, ast.AugAssign)
        for b in unit.bindings.get(root, ())
    )

"""What is put into things that outlive a pass: the store, its holder, the loop in which the holder grows."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, replace

from torchvet.rules.kit import Iterator, SourceFile
from torchvet.rules.memory import _keyed
from torchvet.source.model import (
    ClassModel,
    Event,
    Loop,
    Unit,
    keyword,
    receiver,
    targets_of,
    terminal,
    value_for,
    walk,
)
from torchvet.source.model.destinations import reaching
from torchvet.source.syntax import limit

_ADDABLE = re.compile(r"\s*[^\s\d\"'\[{]")
_BINDS = re.compile(r"([A-Za-z_][\w.]*)[ \t]*(?::[^=]+)?=(?!=)(.*)")
EMPTYING = ("clear", "pop", "popleft", "popitem", "reset")
_REPEATED = {"training_step", "validation_step", "test_step", "compute_loss", "on_train_batch_end", "train_step",
             "step", "on_validation_batch_end", "on_step_end", "forward", "__call__"}  # fmt: skip
_DEEPEST = 4


@dataclass(eq=False, frozen=True)
class Store:
    """One store. `loop` is the widest loop of its unit in which the holder goes on growing; None where it only grows
    from call to call. `lasting` is whether nothing ever empties the holder as long as the program runs."""

    event: Event
    holder: ast.expr
    value: ast.expr
    loop: Loop | None = None
    lasting: bool = False
    key: ast.expr | None = None
    """The key under which a dict takes it in."""

    @property
    def adds(self) -> bool:
        """Whether it adds up values instead of collecting them."""
        return self.key is None and not isinstance(self.event.node, ast.Call)


def stores(file: SourceFile) -> Iterator[Store]:
    """Stores into what outlives the pass: appended, put under a new key, or added up."""
    for store in (*collected(file), *added_up(file)):
        found = kept_on(file, store)
        if found is not None:
            yield found


def appended(file: SourceFile) -> Iterator[Store]:
    """`holder.append(value)` and its kin, wherever they stand."""
    for event in file.calls("append", "appendleft", "extend"):
        on, given = receiver(event.call), event.call.args
        if on is not None and len(given) == 1:
            yield Store(event, on, given[0])


def collected(file: SourceFile) -> Iterator[Store]:
    """`holder.append(value)` and `holder[step] = value`, wherever they stand."""
    yield from appended(file)
    yield from keyed(file)


def keyed(file: SourceFile) -> Iterator[Store]:
    """`holder[step] = value`."""
    for one in _keyed.keyed(file):
        yield Store(one.event, one.holder, one.value, key=one.key)


def added_up(file: SourceFile) -> Iterator[Store]:
    """`total += value`, `mean = 0.9 * mean + 0.1 * value`."""
    lines = list(_lines_that_add(file))
    units = {id(u): u for u in map(file.unit_at, lines)}
    wanted = set(lines)
    for unit in units.values():
        for event in unit.events:
            if event.line in wanted:
                yield from _sum(event)


def _lines_that_add(file: SourceFile) -> Iterator[int]:
    """Lines that may add something to a name: a look at the text before anything is walked."""
    for operator in ("+=", "+"):
        position = file.text.find(operator)
        while position >= 0:
            line = file.line_of(position)
            text = file.lines[line - 1].strip()
            if operator == "+=":
                rest = text.partition("+=")[2]
                wanted = not rest.endswith(".item()") and _ADDABLE.match(rest) is not None
            else:
                bound = _BINDS.match(text)
                wanted = bound is not None and bound[1] in bound[2]
            if wanted:
                yield line
            position = file.text.find(operator, position + 2)


def _sum(event: Event) -> Iterator[Store]:
    node = event.node
    if isinstance(node, ast.AugAssign):
        if isinstance(node.op, ast.Add):
            yield Store(event, node.target, node.value)
    elif isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.value, ast.BinOp):
        target = node.targets[0]
        if isinstance(target, (ast.Name, ast.Attribute)):
            for value in _without(node.value, ast.unparse(target)):
                yield Store(event, target, value)


def _without(node: ast.BinOp, name: str) -> Iterator[ast.expr]:
    """The other side of a sum of which one side is the name, or a multiple of it."""
    if not isinstance(node.op, (ast.Add, ast.Sub)):
        return
    for own, other in ((node.left, node.right), (node.right, node.left)):
        parts = [own.left, own.right] if isinstance(own, ast.BinOp) and isinstance(own.op, ast.Mult) else [own]
        if any(ast.unparse(part) == name for part in parts):
            yield other
            return


def holder_root(node: ast.expr) -> ast.expr:
    """`history` of `history["loss"]` and of `history.setdefault(k, [])`."""
    while isinstance(node, (ast.Subscript, ast.Call)):
        node = node.value if isinstance(node, ast.Subscript) else (receiver(node) or node.func)
    return node


def kept_on(file: SourceFile, store: Store, repeated: bool = False) -> Store | None:
    """The store with the loop in which its holder grows; None where it does not, or that is not sure. `repeated` says
    that its function is known to run again and again."""
    root = holder_root(store.holder)
    unit, found = store.event.unit, None
    if isinstance(root, ast.Name):
        found = _on_name(file, store, root.id, repeated)
    elif isinstance(root, ast.Attribute) and isinstance(root.value, ast.Name) and root.value.id == unit.self_name():
        found = _on_attribute(file, store, root.attr, unit.method_class(), repeated)
    elif isinstance(root, ast.Attribute) and isinstance(root.value, ast.Name):
        found = _on_attribute(file, store, root.attr, file.roles.class_of(root.value, unit), repeated)
    elif isinstance(root, ast.Attribute) and isinstance(root.value, ast.Attribute):
        found = _on_attribute(file, store, root.attr, _class_of_part(file, root.value, unit), repeated)
    if found is None or found.key is None or _keyed.counts_up(found.key, found.event):
        return found
    # The same keys come again when their loop does.
    return replace(found, loop=_keyed.loop_of_key(found.key, found.event))


def _class_of_part(file: SourceFile, part: ast.Attribute, unit: Unit) -> ClassModel | None:
    """The class of `self.stats`, where the object that was made with its owner stays there."""
    owner = unit.method_class() if terminal(part.value) == unit.self_name() else None
    made = owner.attributes.get(part.attr, []) if owner is not None else []
    if any(e.unit.name != "__init__" or e.loop is not None for e, _ in made) or _attribute_cut(part.attr, file.text):
        return None
    return file.roles.class_of(part, unit) if made else None


def _on_name(file: SourceFile, store: Store, name: str, repeated: bool) -> Store | None:
    event = store.event
    home = event.unit.home(name)
    if home is None or name in home.parameters:
        return None
    fresh = [b for b in home.bindings.get(name, []) if not _from_itself(b, name)]
    if not fresh or not all(_can_grow(b, name, store) for b in fresh):
        return None
    emptied = [e for e in file.calls(*EMPTYING) if terminal(receiver(e.call)) == name]
    emptied += [e for e in home.events if isinstance(e.node, ast.Delete) and name in ast.unparse(e.node)]
    if home is not event.unit:
        if emptied or _bound_elsewhere(file, name) or not (repeated or is_repeated(file, event.unit, event)):
            return None
        return replace(store, loop=None, lasting=True)
    loop = _widest(event, [*fresh, *emptied])
    if loop is None:
        once = repeated and not emptied and all(b.loop is None for b in fresh)
        return replace(store, loop=None, lasting=True) if once else None
    lasting = home.is_module and not emptied and all(b.loop is None for b in fresh)
    return replace(store, loop=loop, lasting=lasting)


def _bound_elsewhere(file: SourceFile, name: str) -> bool:
    """Whether a function that declares a name `global` or `nonlocal` starts it afresh."""
    others = [u for u in file.units_with(name) if name in u.outer_names]
    return any(not _from_itself(b, name) for u in others for b in u.bindings.get(name, ()))


def _on_attribute(file: SourceFile, store: Store, name: str, owner: ClassModel | None, repeated: bool) -> Store | None:
    bound = owner.attributes.get(name, []) if owner is not None else []
    fresh = [event for event, _ in bound if not _from_itself(event, name)]
    declared = not fresh and owner is not None and _is_field(owner, name)
    if not (fresh or declared) or not all(_can_grow(b, name, store) for b in fresh):
        return None
    if any(b.unit.name != "__init__" or b.loop is not None for b in fresh):
        return None
    if any(terminal(holder_root(receiver(e.call) or e.call)) == name for e in file.calls(*EMPTYING)):
        return None
    if _attribute_cut(name, file.text) or not (repeated or is_repeated(file, store.event.unit, store.event)):
        return None
    return replace(store, loop=None, lasting=True)


def _is_field(owner: ClassModel, name: str) -> bool:
    """Whether a dataclass makes the attribute, a list or a dict, for each of its objects."""
    for one in owner.node.body:
        if isinstance(one, ast.AnnAssign) and terminal(one.target) == name and isinstance(one.value, ast.Call):
            made = keyword(one.value, "default_factory")
            return terminal(one.value) == "field" and terminal(made) in ("list", "dict", "OrderedDict", "deque")
    return False


def _attribute_cut(name: str, text: str) -> bool:
    """Whether an attribute is bound from outside, deleted or shortened by slices somewhere."""
    return bool(re.search(
        rf"(?<!self)\.{name}\s*=(?!=)|\bdel[ \t]+[\w.]+\.{name}\b|\.{name}\[[^\]\n]*:[^\]\n]*\]\s*=(?!=)"
        rf"|\.{name}\s*=[^=\n]*\.{name}\[[^\]\n]*:", text,
    ))  # fmt: skip


def _widest(event: Event, fresh: list[Event]) -> Loop | None:
    """The outermost loop around an event in which nothing starts the holder afresh."""
    loop, found = event.loop, None
    while loop is not None:
        if any(b.unit is event.unit and b.inside(loop) for b in fresh):
            break
        found = found if loop.comprehension else loop
        loop = loop.parent
    return found


def _from_itself(binding: Event, name: str) -> bool:
    """`total += x`, `total = total + x`."""
    node = binding.node
    if isinstance(node, ast.AugAssign):
        return True
    value = getattr(node, "value", None)
    return isinstance(value, (ast.BinOp, ast.Call)) and any(
        terminal(n) == name for n in walk(value) if isinstance(n, (ast.Name, ast.Attribute))
    )


def _can_grow(binding: Event, name: str, store: Store) -> bool:
    """Whether what a holder starts as is a container without a limit, or something to add to."""
    node = binding.node
    if not isinstance(node, (ast.Assign, ast.AnnAssign)):
        return False
    values: list[ast.expr | None] = [node.value]
    target = next((t for t in targets_of(node) if terminal(t) == name), None)
    if isinstance(node, ast.Assign) and target not in node.targets and isinstance(node.value, (ast.Tuple, ast.List)):
        own = value_for(node, target) if target is not None else None
        values = [own] if own is not None else list(node.value.elts)
    return all(growable(one, store.adds) for one in values)


def growable(value: ast.expr | None, adds: bool) -> bool:
    """Whether an expression makes a container without a limit; with `adds` a number to add to."""
    if isinstance(value, ast.Constant):
        return adds and (value.value is None or isinstance(value.value, (int, float)))
    if isinstance(value, (ast.List, ast.ListComp, ast.Dict, ast.DictComp)):
        return not _of_limited(value)
    if isinstance(value, ast.Call):
        name = terminal(value)
        if name == "deque":
            return not limit(value)
        if name == "defaultdict" and value.args and _makes_limited(value.args[0]):
            return False
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
    if not (isinstance(factory, ast.Call) and terminal(factory) == "partial" and factory.args):
        return False
    return limit(ast.Call(factory.args[0], factory.args[1:], factory.keywords))


def is_repeated(file: SourceFile, unit: Unit, event: Event | None = None, depth: int = 0) -> bool:
    """Whether a unit, or an event in it, runs again and again: in a loop here, or called in one."""
    if event is not None and event.loop is not None:
        return True
    if depth > _DEEPEST or unit.is_module:
        return False
    if unit.owner is not None and unit.name in _REPEATED:
        return True
    return any(is_repeated(file, caller.unit, caller, depth + 1) for caller in file.callers(unit))


def surely_recording(file: SourceFile, event: Event, depth: int = 0) -> bool:
    """Whether gradients are on at an event as far as every way there is seen: from the file's own level, from what runs
    a backward itself, from `main`."""
    unit = event.unit
    if file.gradients.enabled(event) != "yes":
        return False
    if unit.is_module or unit.name == "main" or any(e.kind == "backward" for e in file.effects(unit)):
        return True
    callers = file.callers(unit)
    return depth < _DEEPEST and bool(callers) and all(surely_recording(file, c, depth + 1) for c in callers)


def bindings_at(name: str, event: Event) -> list[Event]:
    """The bindings of a local name that an event may read."""
    return reaching(name, event) if event.unit.home(name) is event.unit else []

"""MEM111: a cache keyed by tensors or on a method never hits and keeps everything."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from torchvet.rules.kit import About, Edits, Finding, Findings, Growth, Location, Recording, SourceFile, Store, per_step
from torchvet.rules.memory import _lasting, _stores
from torchvet.rules.memory.fixes.memos import evicted, keyed_weakly
from torchvet.rules.memory.fixes.replaced_parameters import taken_out
from torchvet.rules.memory.fixes.stored_values import CACHES, caching_decorator, without_cache
from torchvet.rules.shared.growth_rule import GrowthRule, growths_of, location_of
from torchvet.source.model import ClassModel, Event, Unit, is_name, name_set, receiver, terminal, value_bound

_WRAPPER = "_lru_cache_wrapper"
_MORE = 2
"""Tensors an entry that are more than a method's result has."""


class CacheKeyedByTensor(GrowthRule):
    """A cache keyed by tensors or on a method never hits and keeps everything."""

    severity = "error"
    words = ("cache", "memo", "lookup")

    specificity = 4

    def recognises(self, growth: Growth, recording: Recording) -> bool:
        """A functools cache, or a dict whose keys are tensors."""
        return _is_cache(growth) or growth.holding.key_type == "Tensor"

    def matters_bounded(self, growth: Growth, recording: Recording) -> bool:
        """Objects that a program has dropped are kept by nobody on purpose."""
        return _keeps_objects(growth)

    def cause(self, growth: Growth, store: Store | None) -> str:
        """Tensors hash by identity; plain values may be others in every call; a method's cache keeps its objects."""
        if _keeps_objects(growth):
            return (
                f"{growth.holding.name} is a method: the cache's keys hold the objects that it was called on, and with "
                "them every tensor that they own, long after the program has dropped them"
            )
        if _by_values(growth):
            return (
                f"{growth.holding.name} is called with other arguments in every {per_step(growth.kind)}: no call "
                "finds an old entry, and every entry keeps its result alive"
            )
        if _is_state(growth):
            return (
                f"{growth.holding.name} is keyed by parameters: the entries of those that the optimizer does not have "
                "any more stay, with the parameters, their gradients and their averages"
            )
        return (
            f"{growth.holding.name} is keyed by tensors, which hash by identity: no new tensor ever finds an old "
            "entry, and every entry keeps its key and its result alive"
        )

    def advice(self, growth: Growth, store: Store | None) -> str:
        """Key by values, and by those that come again."""
        if _keeps_objects(growth):
            return (
                "cache in the object instead (`functools.cached_property`, or a dict that `__init__` makes), or cache "
                "a plain function of what determines the result"
            )
        if _by_values(growth):
            return (
                "leave arguments that never come twice (step numbers, fractions that go on) out of the cached function "
                "or round them, give the cache a small `maxsize`, or drop it"
            )
        if _is_state(growth):
            return (
                "take the old parameter's entry out where its successor takes over: "
                f"`{growth.holding.name}.pop(old, None)`"
            )
        return (
            "key the cache by what determines the result (sizes, indices, numbers), give it a `maxsize`, or drop it; "
            "on a method the cache also keeps `self` alive"
        )

    def location(self, growth: Growth, store: Store | None, recording: Recording) -> Location | None:
        """The cached function, else the store."""
        if _is_cache(growth):
            return location_of(growth.holding.place)
        return super().location(growth, store, recording)

    def fixes(self, finding: Finding, file: SourceFile) -> Edits:
        """Drop the cache, or take old entries out of the dict."""
        return without_cache(file, finding) or evicted(file, finding) or taken_out(file, finding)

    def fixes_seen(self, finding: Finding, file: SourceFile, recording: Recording) -> Edits:
        """A dict whose keys the run has seen to be tensors may also release them."""
        made = self.fixes(finding, file)
        mine = [growth.holding for growth in growths_of(finding, recording)]
        # A functools cache is no dict whose type could be changed.
        by_tensors = any(h.key_type == "Tensor" and "cache" not in h.via for h in mine)
        return made or (keyed_weakly(file, finding) if by_tensors else ())

    def in_file(self, file: SourceFile) -> Findings:
        """Cached functions with a parameter that is a tensor, and dicts that tensors are looked up in."""
        if file.mentions("lru_cache", "functools.cache", "import cache"):
            cached = [unit for unit in file.units if any(d in CACHES for d in unit.decorators)]
            found = {id(unit): list(self._of_function(file, unit)) for unit in cached}
            for unit in cached:
                yield from found[id(unit)]
            yield from self._of_methods(file, [unit for unit in cached if not found[id(unit)]])
        yield from self._of_dicts(file)

    def _of_function(self, file: SourceFile, unit: Unit) -> Findings:
        own = unit.self_name() if unit.owner is not None else ""
        # One such parameter is enough for no hit.
        tensor = next((p for p in unit.parameters if p != own and _is_tensor(file, unit, p)), None)
        start = unit.events[0] if unit.events else None
        if tensor is None or start is None:
            return
        endless = _is_endless(file, unit)
        kept = "every one of them is kept, with its result" if endless else "the last ones are kept, with their results"
        yield self.suspect(
            file,
            start,
            f"the cache of {unit.name} is keyed by {tensor}, a tensor: no new tensor ever hits, and {kept}",
            severity="error" if endless and _lasting.is_repeated(file, unit) else "warning",
            node=caching_decorator(file, unit),
            cause="tensors hash by identity, so that two batches with equal numbers are two keys",
            advice=f"give {unit.name} the plain values that its result depends on (sizes, dtype, device) instead of "
            f"{tensor}, or drop the cache",
        )

    def _of_methods(self, file: SourceFile, cached: list[Unit]) -> Findings:
        """Cached methods of objects that own much: their caches keep the objects. One finding a class."""
        owners: dict[int, list[Unit]] = {}
        for unit in cached:
            if unit.self_name() and unit.owner is not None and "classmethod" not in unit.decorators and unit.events:
                owners.setdefault(id(unit.owner), []).append(unit)
        for units in owners.values():
            owner, first = units[0].owner, units[0]
            endless = any(_is_endless(file, unit) for unit in units)
            owned = _owned(file, owner, endless) if owner is not None else ""
            if owner is None or not owned:
                continue
            kept = "every" if endless else "the last"
            yield self.suspect(
                file,
                first.events[0],
                f"the cache of {owner.name}.{first.name} keeps {kept} {owner.name} that it was called on, with "
                f"{owned}, after the program has dropped it",
                severity="info",
                node=caching_decorator(file, first),
                cause="a method's cache is the class's, and `self` is a part of each key",
                advice="cache in the object (`functools.cached_property`, an attribute), or cache a plain function of "
                "what determines the result",
                related=[self.also(file, "cached, too", unit.events[0], unit.name) for unit in units[1:]],
            )

    def _of_dicts(self, file: SourceFile) -> Findings:
        """`cache[x] = value` for a tensor `x`, in a dict that outlives the pass."""
        lines = set(_lines_that_cache(file))
        for unit in file.units_at(lines):
            for event in unit.events:
                if event.line in lines and isinstance(event.node, ast.Assign):
                    yield from self._of_dict(file, event)

    def _of_dict(self, file: SourceFile, event: Event) -> Findings:
        target = event.node.targets[0]  # type: ignore[attr-defined]
        if not isinstance(target, ast.Subscript) or not isinstance(target.slice, ast.Name):
            return
        key = target.slice
        known = file.roles.of(key, event.unit)
        is_tensor = known & {"tensor", "output", "loss"} and "parameter" not in known
        if not is_tensor and not _is_tensor(file, event.unit, key.id):
            return
        # A function that caches is there to be called again.
        store = _lasting.kept_on(file, _stores.Stored(event, target, key), repeated=not event.unit.is_module)
        if store is None or not _is_dict(file, store):
            return
        holder = file.segment(_stores.root_of(target))
        yield self.suspect(
            file,
            event,
            f"{holder} is keyed by {key.id}, a tensor: no new tensor ever hits, and every one is kept",
            severity="warning",
            cause="tensors hash by identity, so that two batches with equal numbers are two keys",
            advice=f"key {holder} by plain values: indices, sizes, `tuple({key.id}.tolist())` where the numbers matter",
            about=About(operands=(holder,)),
        )


def _is_cache(growth: Growth) -> bool:
    return "cache" in growth.holding.via or growth.holding.container == _WRAPPER


def _keeps_objects(growth: Growth) -> bool:
    """Whether a class's cached method keeps more tensors than results: those of the objects that it was called on."""
    holding = growth.holding
    of_method = holding.container == _WRAPPER and "class" in holding.via
    return of_method and holding.tensors > _MORE * max(1, holding.length or 0)


def _is_state(growth: Growth) -> bool:
    """Whether it is an optimizer's state: a dict of dicts that is keyed by parameters."""
    holding = growth.holding
    return holding.path[-1:] == [".state"] and (holding.container, holding.item_type) == ("defaultdict", "dict")


def _by_values(growth: Growth) -> bool:
    """Whether a functools cache was seen to be keyed by anything but tensors."""
    return "cache" in growth.holding.via and growth.holding.key_type not in (None, "Tensor")


_CACHED = re.compile(r"(?:cache|memo|lookup)\w*\[\w+(\])[ \t]*=(?!=)")
_ASKED = name_set(
    "size dim view reshape unsqueeze squeeze permute transpose detach backward numel flatten softmax cuda "
    "requires_grad_"
)
"""Methods that, of what can be hashed, tensors have."""


def _lines_that_cache(file: SourceFile) -> Iterator[int]:
    """Lines that store in something that is called a cache: a look at the text before anything is walked."""
    if file.mentions("cache", "memo", "lookup"):
        yield from (file.line_of(match.start(1)) for match in _CACHED.finditer(file.text))


def _is_tensor(file: SourceFile, unit: Unit, name: str) -> bool:
    """Whether a parameter is a tensor: by annotation or by what all callers pass, else by its use."""
    if name not in unit.parameters:
        return False
    given = unit.annotation(name)
    if given is not None:
        return file.dotted(given) in ("torch.Tensor", "torch.FloatTensor", "torch.LongTensor")
    passed = [file.roles.of(value, caller) for value, caller in file.arguments(unit, name)]
    # Of every caller something is known.
    if passed and all(passed):
        return all(p & {"tensor", "output", "loss"} for p in passed)
    if any(terminal(receiver(e.call)) == name for method in _ASKED for e in unit.calls.get(method, ())):
        # Bound anew, the method may be called on something else; `x = x.unsqueeze(0)` is a tensor again.
        return all(_made_of_itself(event, name) for event in unit.bindings.get(name, ()))
    return _reads_shape(file, unit, name) or (not unit.bindings.get(name) and _goes_into_modules(file, unit, name))


def _made_of_itself(event: Event, name: str) -> bool:
    value = value_bound(event.node, name)
    return isinstance(value, ast.Call) and is_name(receiver(value), name) and terminal(value) in _ASKED


def _owned(file: SourceFile, owner: ClassModel, endless: bool) -> str:
    """What objects of a class own that is worth a word; empty where the file shows nothing."""
    roles = file.roles.of_class(owner)
    if "module" in roles:
        return "its parameters"
    # Of few data sets a bounded cache keeps as many as the program does.
    if "dataset" in roles:
        return "its data" if endless else ""
    held = (file.roles.of(value, event.unit) for values in owner.attributes.values() for event, value in values)
    known = frozenset[str]().union(*held)
    return "its models" if "module" in known else "its tensors" if "tensor" in known else ""


def _goes_into_modules(file: SourceFile, unit: Unit, name: str) -> bool:
    """Whether a parameter is what a module or one of torch's functions on tensors is run on."""
    calls = (e.node for e in unit.events if isinstance(e.node, ast.Call))
    first = [call for call in calls if call.args and is_name(call.args[0], name)]
    functional = any(file.dotted(call.func).startswith("torch.nn.functional.") for call in first)
    return functional or any(file.gradients.forwards.runs_module(call, unit) for call in first)


def _reads_shape(file: SourceFile, unit: Unit, name: str) -> bool:
    """`x.shape[1]`: arrays have one too, but cannot be hashed."""
    read = re.search(rf"(?<![\w.]){name}\.(shape|ndim)\b", file.text_of(unit))
    return read is not None and not unit.bindings.get(name)


def _is_endless(file: SourceFile, unit: Unit) -> bool:
    """`cache` and `maxsize=None` keep everything; `lru_cache` keeps 128 results unless `maxsize` says otherwise."""
    node = caching_decorator(file, unit)
    if not isinstance(node, ast.Call):
        return file.dotted(node) == "functools.cache"
    sizes = [*node.args[:1], *(k.value for k in node.keywords if k.arg == "maxsize")]
    return bool(sizes) and isinstance(sizes[0], ast.Constant) and sizes[0].value is None


def _is_dict(file: SourceFile, store: _stores.Stored) -> bool:
    """Whether the holder starts as a dict."""
    values = [value for value, _ in file.roles.values(store.root, store.event.unit)]
    return bool(values) and all(map(_stores.is_dict, values))

"""Sums tensor bytes upward along paths and names the places where they gather."""

from __future__ import annotations

import sys
from collections import Counter, defaultdict, deque
from typing import Any

import torch

from torchvet.probes.base.kit import Place, frames, place_in
from torchvet.probes.base.ledger import Birth, sum_by_site
from torchvet.probes.objects import naming, threads
from torchvet.probes.objects.heap import HeapWalk, Root
from torchvet.recording.records.base import Holding, SiteBytes

_BRANCHES = 8
"""Children with bytes from which on a place is a container whose items are not told apart."""
# Longer names than eight hops nobody reads.
_DEEPEST = 8
_OF_CONTAINERS = ("length", "key_type", "item_type", "item_kind", "inner_types")
"""What `naming` says of a container, by its names in a `Holding`."""
_WRAPPERS = {"cell", "function", "method", "lru_list_elem"}
_MOST = 160
_SITES = 6
_PART, _PARTS = 2, 2
"""Hops of the names that say where most of what many threads keep is, and how many such names."""


_SUMMED = ("direct", "idle", "visible", "graph", "ctx", "nodes", "tensors")
"""What an object holds, in bytes or by number, by its names in a `Holding`."""


class _Sums(Counter[str]):
    """Of one object, and of what it leads to."""

    def __init__(self) -> None:
        super().__init__(dict.fromkeys(_SUMMED, 0))
        self.children: set[int] = set()

    @property
    def bytes(self) -> int:
        return self["direct"] + self["graph"] + self["ctx"]


class HoldingTree:
    """Bytes by path. Keys are object identities of a walk, whose parents lead up to a root."""

    def __init__(self, walk: HeapWalk) -> None:
        self._walk = walk
        self._sums: dict[int, _Sums] = defaultdict(_Sums)
        self._owned: dict[int, list[int]] = defaultdict(list)
        self._named: dict[int, tuple[list[str], list[str]]] = {}

    def add(self, key: int, **amounts: int) -> None:
        """Add amounts to an object, by their names in a `Holding`; `holdings` adds up what leads to it."""
        self._sums[key].update(amounts)

    def _add_up(self) -> None:
        """Add every object's sums to its parent's, once, the farthest first: a walk finds parents before children."""
        # Dicts keep their order, and the walk enters a parent before its children.
        for key, parent in reversed(self._walk.parent.items()):
            sums = self._sums.get(key)
            if sums is None or not parent:
                continue
            above = self._sums[parent]
            above.children.add(key)
            above.update(sums)

    def own(self, key: int, storage: int) -> None:
        """Note that an object claimed a storage."""
        self._owned[key].append(storage)

    def name(self, key: int) -> str:
        """The full name of an object."""
        return "".join(self._path(key)[0])

    def _path(self, key: int) -> tuple[list[str], list[str]]:
        """The hops that a person would see, and the special ones, from the root to an object."""
        known = self._named.get(key)
        if known is not None:
            return known
        chain = self._walk.chain(key)
        # A linked list may be thousands of hops long: the name of its end must stay readable.
        if len(chain) > 64:
            # The beginning says whose it is, the end what it is.
            chain = chain[:24] + chain[-8:]
        objects = self._walk.objects
        root = self._walk.roots[chain[0]]
        texts, vias = [root.name], []
        for index in range(1, len(chain)):
            # `__dict__` between an instance and a value shows only with both: see `naming.hop`.
            grandparent = objects[chain[index - 2]] if index > 1 else None
            found = naming.hop(objects[chain[index - 1]], objects[chain[index]], grandparent)
            if found.text:
                texts.append(found.text)
            if found.via:
                vias.append(found.via)
        self._named[key] = (texts, vias)
        return texts, vias

    def holdings(self, births: dict[int, Birth]) -> list[Holding]:
        """The places worth naming: from the roots down to where bytes spread over many children."""
        self._add_up()
        crews = threads.crews_of(self._walk.roots, _BRANCHES)
        found = [self._of_crew(crew, births) for crew in crews]
        together = {key for crew in crews for key in crew.keys}
        stack = [key for key in self._walk.roots if key in self._sums and key not in together]
        while stack:
            key = stack.pop()
            sums = self._sums[key]
            # Nothing to say of it or below it.
            if sums.bytes == 0 and sums["nodes"] == 0:
                continue
            found.append(self._holding(key, sums, births))
            # Hops that show: a module in a module is one, though its attributes and tables are objects as well.
            if len(self._path(key)[0]) <= _DEEPEST:
                stack.extend(self._branches(key))
        # A byte weighs as much as a thousand nodes.
        found.sort(key=lambda h: -(h.direct + h.graph + h.ctx) * 1000 - h.nodes)
        return _without_repeats(found)[:_MOST]

    def _branches(self, key: int) -> list[int]:
        """What is told apart of all that an object leads to. Items of a container of many are not, but for handlers,
        each of which is somebody's own, and for what hangs from a root: there the two heaviest are."""
        branches = [c for c in self._sums[key].children if c in self._sums]
        if len(branches) <= _BRANCHES:
            return branches
        apart = key in self._walk.roots or naming.holds_handlers(self._walk.objects[key])
        return sorted(branches, key=lambda c: -self._sums[c].bytes)[:2] if apart else []

    def forget_names(self) -> None:
        """Another way than the walk's leads to something: names are found anew."""
        self._named.clear()

    def holding(self, key: int) -> Holding:
        """One object by its name, without what it holds."""
        return self._holding(key, self._sums[key], {})

    def _holding(self, key: int, sums: _Sums, births: dict[int, Birth]) -> Holding:
        texts, vias = self._path(key)
        root = self._walk.roots[self._walk.chain(key)[0]]
        value = self._walk.objects[key]
        known: dict[str, Any] = {**sums, **{name: getattr(naming, name)(value) for name in _OF_CONTAINERS}}
        place = self._cached_function(key) or Place(root.path, root.line or 1, root.scope)
        # A cache lives with the function that it belongs to, which may be far from the root's line.
        known |= {"scope": root.scope, "place": place, "called_from": root.called_from}
        return Holding(
            **known,
            name="".join(texts),
            kind=_kind(root, texts, vias, value),
            path=[f"{root.scope}: {texts[0]}", *texts[1:]],
            container=type(value).__name__,
            items=len(sums.children),
            capacity=self._capacity(key),
            on_module=self._on_module(key),
            below=sorted(self._below(key)),
            via=sorted(set(vias)),
            sites=self._sites(key, births),
            files=self._files(key),
        )

    def _of_crew(self, crew: threads.Crew, births: dict[int, Birth]) -> Holding:
        """What many threads of one function keep together, as a container of many: each has the same names."""
        name = f"<threads in {crew.function}>"
        sums = _Sums()
        for key in crew.keys:
            sums.update(self._sums.get(key, {}))
        storages = [one for key in crew.keys for one in self._storages(key)]
        amounts: dict[str, Any] = dict(sums)
        return Holding(
            **amounts,
            name=name,
            kind="thread",
            path=[f"{crew.module}: {name}"],
            scope=crew.module,
            place=crew.at,
            container="Thread",
            items=crew.size,
            length=crew.size,
            parts=self._heaviest(crew.keys),
            sites=sum_by_site((births[s] for s in storages if s in births), _SITES),
        )

    def _heaviest(self, keys: list[int]) -> list[str]:
        """Of names that are the same in many threads, and of what hangs from these, those with the most bytes."""
        tally: Counter[str] = Counter()
        stack = [key for key in keys if key in self._sums]
        while stack:
            key = stack.pop()
            texts, below = self._path(key)[0], [c for c in self._sums[key].children if c in self._sums]
            # Two hops: thread variables and their attributes. Deeper names would differ from thread to
            # thread.
            if below and len(texts) < _PART:
                stack.extend(below)
            else:
                tally["".join(texts)] += self._sums[key].bytes
        return [name for name, size in tally.most_common(_PARTS) if size]

    def _below(self, key: int) -> set[str]:
        """The special hops from a container of many on to the most of what it holds: its items have no names."""
        found: set[str] = set()
        above: Any = None
        many = False  # a module's table of many layers is one too, some hops below the module
        for _ in range(_DEEPEST):
            children = [c for c in self._sums[key].children if c in self._sums]
            many = many or len(children) > _BRANCHES
            heaviest = max(children, key=lambda c: self._sums[c].bytes, default=None)
            if heaviest is None:
                break
            parent, child = self._walk.objects[key], self._walk.objects[heaviest]
            via = naming.hop(parent, child, above).via
            found |= {via} if via and many else set()
            key, above = heaviest, parent
        return found

    def _cached_function(self, key: int) -> Place | None:
        """Where the function is written whose lru_cache the path runs through."""
        for one in self._walk.chain(key):
            code = getattr(naming.cached_function(self._walk.objects[one]), "__code__", None)
            if code is not None:
                return place_in(code)
        return None

    def _capacity(self, key: int) -> int | None:
        """The limit of a container, or of the queue whose deque it is."""
        objects = self._walk.objects
        own = naming.capacity(objects[key])
        if own is not None or type(objects[key]) is not deque:
            return own
        holders = (objects[k] for k in self._walk.chain(key)[-3:-1])
        return next((naming.capacity(q) for q in holders if naming.is_queue(type(q))), None)

    def _on_module(self, key: int) -> bool:
        """Whether the last hop is an attribute of a module."""
        chain = self._walk.chain(key)[-3:-1]
        return any(issubclass(type(self._walk.objects[k]), torch.nn.Module) for k in chain)

    def _files(self, key: int) -> list[str]:
        """Files of the user's classes and functions that the path runs through: where the store may be written."""
        found: list[str] = []
        for one in self._walk.chain(key):
            module = sys.modules.get(getattr(type(self._walk.objects[one]), "__module__", "") or "")
            file = getattr(module, "__file__", None)
            if isinstance(file, str) and frames.owner(file) == frames.USER and file not in found:
                found.append(file)
        return found

    def _sites(self, key: int, births: dict[int, Birth]) -> list[SiteBytes]:
        # What was there before anybody looked has no line that made it.
        made = (births[s] for s in self._storages(key) if s in births)
        return sum_by_site((b for b in made if b.op != "adopted"), _SITES)

    def _storages(self, key: int) -> list[int]:
        """Storages that an object claimed, or what it leads to."""
        storages: list[int] = []
        stack = [key]
        # For a few sites of the sum; a container of millions must not take seconds.
        while stack and len(storages) < 5000:
            one = stack.pop()
            storages.extend(self._owned.get(one, ()))
            stack.extend(self._sums[one].children if one in self._sums else ())
        return storages

    def close(self) -> None:
        """Release everything."""
        self._sums.clear()
        self._owned.clear()
        self._named.clear()


def _without_repeats(found: list[Holding]) -> list[Holding]:
    """Keep one entry a name: hops that show no text leave several objects under one. What a person means by the name
    is the instance and not its attribute dictionary (which comes second), the dict and not the cell around it."""
    kept: dict[str, Holding] = {}
    for holding in found:
        key = f"{holding.scope}|{holding.name}"
        # `found` is sorted by bytes: of equals the outermost comes first.
        if key not in kept or kept[key].container in _WRAPPERS:
            kept[key] = holding
    return list(kept.values())


_BY_VIA = ("exception", "hook", "cache", "queue", "ctx", "iterator", "closure", "default", "class")
_LONGER = {"default": "default-argument", "class": "class-attribute"}


def _kind(root: Root, texts: list[str], vias: list[str], value: Any) -> str:
    # In the order of the tuple: an exception in a closure is an exception to its reader.
    via = next((via for via in _BY_VIA if via in vias), None)
    if via is not None:
        return _LONGER.get(via, via)
    named = [t for t in texts[1:] if t.startswith(".")]
    if root.kind == "attribute" or named:
        return "attribute"
    return "graph" if isinstance(value, torch.Tensor) and root.kind == "unknown" else root.kind

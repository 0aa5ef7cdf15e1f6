"""Counts the tensor bytes behind every Python name, at a step boundary, while the program's frames are alive.

Direct storages first, by the shortest path; then what autograd graphs saved: first through names whose value of the
last census hangs below today's (the carriers), then through containers, then through the rest. Each storage counts
once. A name's bytes include those of everything below it; what grew is found by comparing censuses.
"""

from __future__ import annotations

import itertools
import time
from collections import defaultdict
from types import FrameType
from typing import Any, NamedTuple

import msgspec
import torch

from torchvet.gc_pause import collector_off
from torchvet.probes.base.deadline import Deadline
from torchvet.probes.base.kit import Place, StepKind, frames, graphs
from torchvet.probes.base.ledger import Birth, Ledger, sum_by_site
from torchvet.probes.base.persistent_state import KnownMemory
from torchvet.probes.internals import private
from torchvet.probes.memory import unreachable_storages
from torchvet.probes.memory.retained_sizes import HoldingTree
from torchvet.probes.objects import arrays, heap
from torchvet.probes.objects.bindings import Binding, Bindings
from torchvet.probes.objects.strays import stray_roots
from torchvet.recording.records.base import Census, Holding

_CONTAINER = 4
"""Siblings with a graph from which on their parent counts as a container."""
_CARRIER_CANDIDATES = 24
_DESCRIPTIONS = 2
_FURTHER_SECONDS = 0.5
"""Budget for looking through the globals of installed packages."""
_DESCRIBING_SECONDS = 3.0
"""Budget for describing what no name reaches: done twice in a run at most, and nothing else would tell."""


class Counted(NamedTuple):
    """What a census counted below a tensor: nodes, bytes that they saved, and the number of the uppermost node."""

    nodes: int
    saved: int
    top: int


class CensusTaker:
    """Takes censuses and remembers between them only names, sequence numbers and weak references, no objects."""

    def __init__(self, known: KnownMemory, budget: float = 2.0) -> None:
        self._known = known
        self.budget = budget
        # Numbers of nodes by name, and not the nodes: these would hold the graphs that the census measures.
        self._sequences: dict[str, int] = {}
        self._carriers: dict[str, list[str]] = {}
        self._updated: dict[str, Place] = {}
        """The line that changes a carrier in place."""
        self._counted: dict[str, Counted] = {}
        """What was counted below each name of its own at the last census."""
        self._cut = False
        """Whether that census was cut short: the graphs that it did not come to the end of are longer now."""
        self._found = unreachable_storages.Found([], 0)
        self._descriptions = 0
        self._bound: Bindings = {}
        """What each name was bound to at the last census: a name bound anew is a passing one."""
        # Once something was found, every later census looks: otherwise growth would have gaps.
        self._strays = False
        """Whether something was found that only a loop's iterator holds."""
        self.anew = False
        """Whether that was at the last census: what it holds is to be seen to grow yet."""
        self.unreadable: set[str] = set()
        self.extra_frames: list[FrameType] = []
        """Frames that do not run any more but live: those of the exception that ended the program."""
        self.windows: list[int] = []
        """The windows whose storages are followed, in their order."""
        self.seconds = 0.0
        """What the last census took of this thread's own work: on a busy machine the clock tells more of others."""

    def take(self, tick: int, kind: StepKind, ledger: Ledger, final: bool = False) -> Census:
        """Walk, claim, name. What the census itself allocates is not the program's."""
        start, work = time.perf_counter(), time.thread_time()
        with ledger.quiet(), collector_off(), private.DisableTorchFunctionSubclass():
            one = _Count(self._known, ledger, tick, Deadline(self.budget))
            one.extra_frames, one.bound_before, one.goes_on = self.extra_frames, self._bound, self._cut
            # Half as much again, for graphs whose length shows only during the walk.
            one.further, one.windows = self.budget / 2, self.windows
            try:
                return self._count(one, tick, kind, start, final)
            finally:
                one.close()
                self.seconds = time.thread_time() - work

    def _count(self, one: _Count, tick: int, kind: StepKind, start: float, final: bool) -> Census:
        self.anew = False
        one.walk_all(strays=self._strays)
        # Before any graph is claimed: who carries one is credited first.
        self._find_carriers(one)
        self._find_updates(one)
        carried = self._carried()
        one.claim_graphs(set(self._carriers), carried)
        # Strays take a pass over the heap: they are looked for only where something lives on without a name.
        asks = not self._strays and self._descriptions < _DESCRIPTIONS
        if asks and one.unreached() and one.walk_strays():
            self._strays = self.anew = True
            # Claimed again after each further walk: names that were found later may hang above what is
            # unclaimed still.
            one.claim_graphs(set(self._carriers), carried)
        # Globals of installed packages are walked only where the program's own names explain too little.
        if one.much_unreached() and self._descriptions < _DESCRIPTIONS:
            one.walk_all(further=True)
            one.claim_graphs(set(self._carriers), carried)
        # Compared by the next census, which has no object of this one.
        self._counted, self._cut = one.counted(), not one.complete
        self.unreadable.update(one.unreadable)
        holdings = [self._mark(h) for h in one.tree.holdings(one.births)]
        found = self._describe(one)
        # By site even where somebody holds them: the line that made them is what the user can look at.
        sites = sum_by_site(one.unreached().values())
        self._sequences = one.sequences()
        self._bound = one.bound
        seconds = time.perf_counter() - start
        census = Census(tick=tick, kind=kind, seconds=seconds, complete=one.complete, total=one.total)
        census.categories, census.holdings, census.final = one.categories, holdings, final
        census.idle, census.renewed = sum(one.stored[key][1] for key in one.idle), self._known.newest
        # A window that was cut short amid a step gives no rate: a GAN's leak was 7 steps' worth in 6.
        census.unreached = sum(b.nbytes for b in one.unreached().values() if b.rated)
        census.unreached_sites, census.strangers, census.garbage = sites, found.strangers, found.garbage
        return census

    def _describe(self, one: _Count) -> unreachable_storages.Found:
        """Who holds what no name reaches. Each answer costs a pass over the heap: the first few are kept."""
        births, orphans = one.unreached(), one.orphans()
        # Orphans alone count too: a whole model in a cycle has only known memory, and no births.
        if not births and not orphans:
            return unreachable_storages.Found([], 0)
        again = self._descriptions < _DESCRIPTIONS
        self._descriptions += 1
        # Once an owner has a name it is not searched again; the bytes are the census's own.
        if again and not any(s.owner for s in self._found.strangers):
            late = graphs.within(_DESCRIBING_SECONDS)
            self._found = unreachable_storages.describe(
                births, one.own_objects(), one.walk.parent.keys(), late, orphans=orphans, claimed=one.named()
            )
            return self._found
        # Who held it before is told still. How much garbage there is now was not counted.
        return unreachable_storages.Found(self._found.strangers, 0)

    def _find_carriers(self, one: _Count) -> None:
        """Names whose previous value's graph is part of the graph of their value now."""
        # Found once they stay: a carrier may be bound anew, its name carries on.
        if self._carriers:
            return
        for key, tensor in one.candidates():
            name = one.tree.name(key)
            before = self._sequences.get(name)
            node = tensor.grad_fn
            # The same node is a value that was not changed since, and no chain.
            if before is None or node is None or node._sequence_nr() == before:
                continue
            ops = graphs.ops_between(node, before, one.late)
            if ops is not None:
                # More would be a page of the same few operators.
                self._carriers[name] = ops[:40]

    def _find_updates(self, one: _Count) -> None:
        """Lines that change carriers in place: an average that is bound once, and then only updated."""
        for key, tensor in one.candidates() if self._carriers else ():
            name = one.tree.name(key)
            if name in self._carriers and name not in self._updated:
                lines = (one.updated.get(s._cdata) for s in graphs.storages_of(tensor))
                self._updated.update((name, line) for line in lines if line is not None)

    def _carried(self) -> dict[str, Counted]:
        """What is known of graphs that are carried on."""
        return {name: known for name, known in self._counted.items() if name in self._carriers}

    def _mark(self, holding: Holding) -> Holding:
        name = holding.name
        if name not in self._carriers:
            # An average of many weights is one container: what holds carried tensors counts as carried itself.
            below = next((n for n in self._carriers if n.startswith(f"{name}[")), None)
            if below is None:
                return holding
            ops, line = self._carriers[below], self._updated.get(below)
            return msgspec.structs.replace(holding, carried=True, carrier_ops=ops, updated=line)
        ops, line = self._carriers[name], self._updated.get(name)
        return msgspec.structs.replace(holding, carried=True, carrier_ops=ops, updated=line)


# See `_made_once`: DistributedDataParallel's buckets come in the first steps alone.
_CLEAN = 2
"""Windows that left nothing without a name after which what an earlier one has left is no habit."""


class _Count:
    """The state of one census: the walk, who claimed which storage, and sums by name."""

    def __init__(self, known: KnownMemory, ledger: Ledger, tick: int, deadline: Deadline) -> None:
        self._deadline = deadline
        self.bound_before: Bindings = {}
        self.bound: dict[tuple[str, str], Binding] = {}
        self.extra_frames: list[FrameType] = []
        self.walk = heap.HeapWalk(deadline.left())
        # Whatever torchvet notes of the program is no name that a person would say.
        # Its tables lead to every optimizer and module: the shortest path of all would go through torchvet.
        self.walk.skip |= {id(known), id(known.__dict__), id(ledger), id(ledger.__dict__), id(ledger.live)}
        self.unreadable: list[str] = []
        self.tree = HoldingTree(self.walk)
        self._known = known
        self.stored = known.storages()
        """By key, of parameters and the like: category and bytes."""
        self.idle = known.idle(self.stored)
        # Nobody's leak from the start, but for models that nothing trains, and histories, whose optimizer has a name.
        self.claimed: set[int] = self.stored.keys() - self.idle - known.histories()
        self.categories: dict[str, int] = defaultdict(int)
        for category, size in self.stored.values():
            self.categories[category] += size
        self.total = sum(self.categories.values())
        # The living table itself: what dies while the walk runs is gone from it.
        self.births: dict[int, Birth] = ledger.live
        self.updated = ledger.updated
        self._tick = tick
        # How far in the walk's lists each was taken in: a second walk adds to their ends.
        self._absorbed = self._absorbed_arrays = 0
        self.graphs_of: dict[int, tuple[int, int]] = {}
        """Nodes and saved bytes that were credited to a tensor's graph."""
        self._claimed_arrays: set[int] = set()
        self._slots: list[tuple[int, torch.Tensor]] = []
        self._nodes: graphs.Seen = set()
        self.goes_on = False
        """Whether the census before was cut short: of graphs that are carried on only what is new is followed."""
        self.windows: list[int] = []
        self.further = 0.0
        """Seconds for what is new of graphs that are too long to be walked, where that shows only now."""

    @property
    def complete(self) -> bool:
        """Whether everything was looked at."""
        return self.walk.complete

    def walk_all(self, further: bool = False, strays: bool = False) -> None:
        """Walk from the user's names, or `further` from everybody's, and claim what tensors hold directly; with
        `strays` from what only the iterators of running loops hold, too."""
        if further:
            self.walk.allow(_FURTHER_SECONDS)
            self.walk.add_roots(heap.module_roots((frames.INSTALLED,)))
        else:
            # Reached through the traceback they would be `error.__traceback__...`; as roots their
            # variables have names.
            self.walk.skip |= {id(frame) for frame in self.extra_frames}  # they count as running
            # Each age is walked to its end before the next: a lasting name claims even what a passing one is nearer to.
            for roots in self._by_age():
                self.walk.add_roots(roots)
                # With strays the iterators come as roots of their own, and their queues below those.
                self.walk.run(tees=not strays)
        if strays:
            self._add_strays()
        self._absorb()

    def walk_strays(self) -> bool:
        """Walk from what only the iterators of running loops hold; whether that led to tensors."""
        before = len(self.walk.tensors)
        self._add_strays()
        self._absorb()
        return len(self.walk.tensors) > before

    def _add_strays(self) -> None:
        running = heap.running_frames()
        self.walk.add_roots(list(stray_roots(self.walk.parent, running)))
        # A list of frames that outlives this call keeps every variable of the program.
        running.clear()

    def _absorb(self) -> None:
        """Walk on from the roots added, and claim what tensors hold directly."""
        self.walk.run()
        for tensor in self.walk.tensors[self._absorbed :]:
            self._claim_direct(tensor)
        self._absorbed = len(self.walk.tensors)
        for array in self.walk.arrays[self._absorbed_arrays :]:
            self._claim_array(array)
        self._absorbed_arrays = len(self.walk.arrays)

    def _by_age(self) -> tuple[list[heap.Root], ...]:
        """Names that are bound to what they were bound to before, then those bound anew each step: a batch drawn from
        a buffer must not claim the buffer's tensors just because its path is shorter. Then the variables of torch's own
        frames: an optimizer that is just stepping is nobody's name for a parameter."""
        lasting: list[heap.Root] = []
        passing: list[heap.Root] = []
        inside: list[heap.Root] = []
        roots = (
            heap.module_roots((frames.USER,)),
            heap.frame_roots(self.unreadable, self.extra_frames),
            heap.finalizer_roots(self.walk.skip),
        )
        for root in itertools.chain(*roots):
            key = (root.scope, root.name)
            binding = self.bound[key] = Binding(root.value)
            # Torch's frames and the standard library's.
            if root.kind != "global" and frames.owner(root.path) not in (frames.USER, frames.INSTALLED):
                inside.append(root)
            else:
                (lasting if binding.lasts(self.bound_before.get(key)) else passing).append(root)
        return lasting, passing, inside

    def _claim_direct(self, tensor: torch.Tensor) -> None:
        key = id(tensor)
        size = idle = 0
        for storage in graphs.storages_of(tensor):
            identity = storage._cdata
            if identity not in self.claimed:
                self.claimed.add(identity)
                size += storage.nbytes()
                idle += storage.nbytes() if identity in self.idle else 0
                self.tree.own(key, identity)
        # What is known is in the total from the start.
        self.total += size - idle
        # Without bytes of its own it is a view: whoever claimed the storage first has them.
        if size:
            shown = min(self._shown(key, tensor, size), size)
            self.tree.add(key, direct=size, idle=idle, visible=shown, tensors=1)
        if tensor.grad_fn is not None and graphs.followed():
            self._slots.append((key, tensor))

    def _shown(self, key: int, tensor: torch.Tensor, size: int) -> int:
        """Bytes that a tensor shows; of one that arrays alone lead to, as they view its memory, what these show."""
        shown = tensor.numel() * tensor.element_size() if tensor.layout is torch.strided else size
        # Up through views of arrays to the first holder that is none.
        while heap.kind_of(type(above := self.walk.objects.get(self.walk.parent[key]))) == heap.ARRAY:
            shown, key = arrays.memory(above)[2], id(above)
        return shown

    def _claim_array(self, array: Any) -> None:
        """Memory of NumPy's own, which a view of it keeps. What shows a tensor's memory leads to that tensor."""
        whole, size, shown = arrays.memory(array)
        # Size 0 is what shares a tensor's memory.
        if size and id(whole) not in self._claimed_arrays:
            self._claimed_arrays.add(id(whole))
            self.total += size
            self.tree.add(id(array), direct=size, visible=min(shown, size), tensors=1)

    def singles(self) -> list[tuple[int, torch.Tensor]]:
        """Tensors with a graph that stand under a name of their own, not in a container of many."""
        siblings: dict[int, int] = defaultdict(int)
        for key, _ in self._slots:
            siblings[self.walk.parent[key]] += 1
        roots = 0
        return [s for s in self._slots if (p := self.walk.parent[s[0]]) == roots or siblings[p] < _CONTAINER]

    def candidates(self) -> list[tuple[int, torch.Tensor]]:
        """Tensors that may carry their graph from step to step: those under names of their own, and of each container
        of many the first few, as an average of weights has one for each parameter."""
        found = self.singles()
        known = {key for key, _ in found}
        taken: dict[int, int] = defaultdict(int)
        for key, tensor in self._slots:
            parent = self.walk.parent[key]
            taken[parent] += 1
            if key not in known and taken[parent] < _CONTAINER:
                found.append((key, tensor))
        return found[:_CARRIER_CANDIDATES]

    def claim_graphs(self, carriers: set[str], known: dict[str, Counted]) -> None:
        """Claim what graphs saved, for carriers, then containers, then the rest in order of distance. `known` is what
        was counted below carriers at the census before."""
        singles = {key for key, _ in self.singles()}

        def rank(slot: tuple[int, torch.Tensor]) -> int:
            if slot[0] not in singles:
                return 1
            return 0 if carriers and self.tree.name(slot[0]) in carriers else 2

        # `sorted` is stable: within a rank the order stays that of distance.
        for key, tensor in sorted(self._slots, key=rank):
            # Items of a container share no names from census to census.
            before = known.get(self.tree.name(key)) if known and key in singles else None
            self._claim_graph(key, tensor, before)

    def _claim_graph(self, key: int, tensor: torch.Tensor, before: Counted | None) -> None:
        # The walk of all of it would be cut short again: only what is new fits into the budget.
        short = self.goes_on and before is not None
        reach = graphs.Reach(complete=False) if short else self._walk_graph(tensor)
        nodes, saved = reach.nodes, _saved(reach)
        if not reach.complete:
            self.walk.complete = False
            # Claimed again after a further walk: what is new since the census before was counted by then.
            if before is not None and key not in self.graphs_of:
                new = self._walk_new(tensor, before)
                nodes, saved = _with_new(before, new, tensor)
                reach = new if short else reach
        # Graphs are claimed again after a further walk, which goes through no node twice: what was counted stays.
        counted = self.graphs_of.get(key, (0, 0))
        self.graphs_of[key] = (counted[0] + nodes, counted[1] + saved)
        ctx = sum(s.nbytes() for s in reach.ctx.values())
        if nodes:
            self.total += saved + ctx
            self.tree.add(key, graph=saved, ctx=ctx, nodes=nodes, tensors=0)
            for identity in (*reach.saved, *reach.leaves, *reach.ctx):
                self.tree.own(key, identity)

    def _walk_graph(self, tensor: torch.Tensor) -> graphs.Reach:
        return graphs.walk([tensor.grad_fn], self._nodes, self.claimed, self.late)

    def _walk_new(self, tensor: torch.Tensor, before: Counted) -> graphs.Reach:
        """The part of a graph that was made since the census before. Where a walk of all of it has been cut short, this
        one has time of its own and is not led astray by what that one came through."""
        if self.goes_on:
            return graphs.walk([tensor.grad_fn], self._nodes, self.claimed, self.late, before.top)
        return graphs.walk([tensor.grad_fn], set(), set(self.stored), graphs.within(self.further), before.top)

    def late(self) -> bool:
        """Whether the budget is spent."""
        return self._deadline.passed()

    def sequences(self) -> dict[str, int]:
        """Sequence numbers of the graph roots under names of their own, for the next census."""
        nodes = ((key, tensor.grad_fn) for key, tensor in self.candidates())
        return {self.tree.name(key): node._sequence_nr() for key, node in nodes if node is not None}

    def counted(self) -> dict[str, Counted]:
        """What was counted below names of their own, for the next census."""
        found = {}
        for key, tensor in self.singles():
            if tensor.grad_fn is not None:
                found[self.tree.name(key)] = Counted(*self.graphs_of.get(key, (0, 0)), tensor.grad_fn._sequence_nr())
        return found

    def unreached(self) -> dict[int, Birth]:
        """Storages of earlier steps that are alive although no name leads to them; none where the search was cut short,
        since then nobody knows. Without what was made once, such as the buckets of DistributedDataParallel."""
        if not self.complete:
            return {}
        # Two steps old at the least: what this step and the last one bind is passing.
        found = self.claimed | self.idle
        left = {k: b for k, b in self.births.items() if k not in found and b.tick < self._tick - 1}
        windows = {b.window for b in left.values()}
        # Storages of two windows are a habit, those of one may be a single act.
        return {} if len(windows) == 1 and self._made_once(*windows) else left

    def _made_once(self, window: int) -> bool:
        """Whether the windows since then have left nothing: what every step keeps is of all of them."""
        return window in self.windows and len(self.windows) - self.windows.index(window) > _CLEAN

    def orphans(self) -> set[int]:
        """Identities of the parameters and buffers of root modules that no name leads to."""
        if not self.complete:
            return set()
        # A module that the walk has met is not lost, whatever holds it.
        roots = [m for m in self._known.live_roots() if id(m) not in self.walk.parent]
        tensors = (t for m in roots for t in itertools.chain(m.parameters(), m.buffers()))
        return {key for key in map(id, tensors) if key not in self.walk.parent}

    def named(self) -> set[int]:
        """Storages that names lead to, and those of the parameters and the like that they lead to."""
        return self.claimed - self.stored.keys()

    def much_unreached(self) -> bool:
        """Whether so much lives on without a name that other people's modules are worth a look."""
        old = sum(b.nbytes for b in self.births.values() if b.tick < self._tick - 1)
        # A twentieth: walking the globals of all packages costs `_FURTHER_SECONDS`.
        return sum(b.nbytes for b in self.unreached().values()) > 0.05 * old

    def own_objects(self) -> set[int]:
        """Identities that belong to the census itself."""
        return {id(self.walk.objects), id(self.walk.tensors), id(self._slots), id(self.__dict__), id(self)}

    def close(self) -> None:
        """Release every object."""
        self.walk.close()
        self._slots.clear()
        self._nodes.clear()
        # Their entries are objects of the program: a forgotten census would be its largest leak.
        self.tree.close()


def _saved(reach: graphs.Reach) -> int:
    return reach.saved_bytes + sum(s.nbytes() for s in reach.leaves.values())


def _with_new(before: Counted, new: graphs.Reach, tensor: torch.Tensor) -> tuple[int, int]:
    """Nodes and saved bytes below a tensor by what was counted below its value of before, if that hangs below it still,
    and what is new. Nodes are numbered as they are made: where not all that is new could be walked, the rest of the
    numbers stands for as many nodes as the walked ones did."""
    if new.complete and not new.met:
        return new.nodes, _saved(new)
    nodes, top = new.nodes, tensor.grad_fn._sequence_nr() if tensor.grad_fn is not None else before.top
    if not new.complete and before.top < new.lowest < top:
        nodes = nodes * (top - before.top) // (top - new.lowest)
    return before.nodes + nodes, before.saved + _saved(new)


def forget_the_program() -> None:
    """Empty the caches of types and places. Classes of the program's own must not outlive it there: their destructors
    would run too late."""
    heap.forget_types()
    graphs.forget_types()
    frames.forget_places()

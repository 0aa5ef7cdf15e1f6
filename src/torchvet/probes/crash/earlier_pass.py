"""The part of a graph that an earlier pass has made: where this pass goes into it, and whether it is of use still.

Nodes are numbered as they are made. What a node saved is read from its raw slots; it is unpacked only where no hook of
anybody's would be called.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from torchvet.probes.base import graphs
from torchvet.probes.internals import graph_teardown
from torchvet.probes.internals.saved import Why, spoilt

Node = graphs.Node


@dataclass
class Reached:
    """What a backward's roots lead to. `border` are the nodes of earlier passes that nodes of this pass read, each with
    its readers; `tainted` the nodes of this pass that lead there. `spoilt` says that what some node of an earlier pass
    saved is gone, or was changed where nothing of this pass was."""

    border: dict[Node, list[Node]] = field(default_factory=dict)
    tainted: set[Node] = field(default_factory=set)
    spoilt: bool = False
    _clean: set[Node] = field(default_factory=set)

    def leads_there(self, node: Node, late: graphs.Late) -> bool:
        """Whether a node, even one that the roots do not lead to, leads to the border: the state that a recurrent
        layer returns beside its output."""
        way, waiting = {node}, [node]
        while waiting:
            one = waiting.pop()
            if one in self.tainted or one in self.border:
                return True
            for below in graph_teardown.nodes_below(one):
                # `_clean` spares what an earlier question has walked: many names hang on one graph.
                if below not in way and below not in self._clean and graphs.name_of(below) != graphs.ACCUMULATE:
                    way.add(below)
                    waiting.append(below)
            if not len(way) & 1023 and late():
                # Late: nothing was proven, and a name that is not told is better than a wrong one.
                return False
        self._clean |= way
        return False

    def ops_on(self, root: Node, most: int = 6) -> list[str]:
        """The operators that read what was carried, as far as a node leads to them; of all where it leads to none."""
        below = graphs.sequences_below([root]) or set()
        readers = [n for nodes in self.border.values() for n in nodes]
        # Readers of other tensors of the same border would name operators that this one never met.
        mine = [n for n in readers if n._sequence_nr() in below]
        return list(dict.fromkeys(graphs.name_of(n) for n in mine or readers))[:most]


def reached(roots: list[Node], mark: int, why: Why, late: graphs.Late) -> Reached:
    """Follow a graph to the nodes that were there before the one numbered `mark` was made."""
    found = Reached()
    # Breadth first from the failed pass: the border is where it first meets a node older than its own beginning.
    above = _this_pass(roots, mark, found.border, late)
    if above is None:
        return Reached()
    waiting = [n for nodes in found.border.values() for n in nodes]
    while waiting:
        node = waiting.pop()
        if node not in found.tainted:
            found.tainted.add(node)
            waiting += above[node]
    old = _all_below(list(found.border), late)
    found.spoilt = any(spoilt(n, why) for n in old)
    if why == "changed":  # the failed pass itself has freed what it went through
        found.spoilt = found.spoilt and not any(spoilt(n, why) for n in above)
    return found


def _this_pass(
    roots: list[Node], mark: int, border: dict[Node, list[Node]], late: graphs.Late
) -> dict[Node, list[Node]] | None:
    """The nodes that this pass has made, each with those that read it; older ones that it reads are put into `border`.
    None where it got late."""
    above: dict[Node, list[Node]] = {root: [] for root in roots}
    queue = list(roots)
    # The queue grows while it is read.
    for count, node in enumerate(queue, start=1):
        if not count & 1023 and late():
            return None
        for below in graph_teardown.nodes_below(node):
            # The nodes of leaves are as old as the leaf: they are of no pass.
            if graphs.name_of(below) == graphs.ACCUMULATE:
                continue
            # What is below the border is not followed here: it is older throughout.
            readers = border if below._sequence_nr() < mark else above
            if below not in readers and readers is above:
                queue.append(below)
            readers.setdefault(below, []).append(node)
    return above


def _all_below(roots: list[Node], late: graphs.Late) -> list[Node]:
    """Nodes at and below these, as far as there is time: a long history has one that is spoilt near its top."""
    seen = dict.fromkeys(roots)
    queue = list(seen)
    for count, node in enumerate(queue, start=1):
        if not count & 1023 and late():
            break
        for below in graph_teardown.nodes_below(node):
            if below not in seen:
                seen[below] = None
                queue.append(below)
    return queue

"""What a block is, told from its life: made in which phase, freed in which, as large as which others.

A block that its backward pass freed is an activation, whatever its stack is called; what a backward pass leaves behind
is a gradient; what an optimizer step leaves behind is its state; what a phase makes and frees itself is a temporary.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass
from functools import cached_property

from torchvet.readers.snapshot import OOM
from torchvet.snapshots.lifetimes import Lifetimes, Older
from torchvet.snapshots.phases import Phases, Run
from torchvet.snapshots.places import BACKWARD, FORWARD, OPTIMIZER, UNKNOWN, StackFacts

PARAMETERS, GRADIENTS, STATE = "parameters", "gradients", "optimizer state"
ACTIVATIONS, TEMPORARIES, INPUTS, KEPT = "activations", "temporaries", "inputs", "kept over steps"
_INPUT_MAKING = re.compile(
    "to|copy_|clone|pin_memory|tensor|stack|cat|arange|randint|randperm|empty_strided"
    "|(new_)?(empty|zeros|ones|full|rand|randn)(_like)?"
)
"""Operators that batches are made with; what others make outside of modules is computed."""
OLDER, NOT_KNOWN = "older than the recording", "unknown"


@dataclass(frozen=True)
class Categories:
    """Tells categories of blocks. Names of older blocks end in `(older)` where behaviour shows what they are."""

    lifetimes: Lifetimes
    phases: Phases
    stacks: list[StackFacts]

    def of(self, start: int) -> str:
        """The category of a block of the recording."""
        kind, run = self.phases.kind(start), self.phases.run(start)
        end = self.lifetimes.let_go[start]
        if kind == UNKNOWN or run is None:
            return NOT_KNOWN
        if kind == OPTIMIZER:
            return TEMPORARIES if end < run.end or self._passing(start, run) else STATE
        if kind == BACKWARD:
            return self._in_backward(start, end, run)
        return self._in_forward(start, end)

    def _passing(self, start: int, run: Run) -> bool:
        """Whether a block of an optimizer step that the trace ends in is of a kind that earlier steps have freed."""
        if run.end < len(self.lifetimes.trace):
            return False
        trace = self.lifetimes.trace
        return self._freed_by_optimizer.get((trace.stacks[start], trace.sizes[start]), False)

    @cached_property
    def _freed_by_optimizer(self) -> dict[tuple[int, int], bool]:
        """Whether the optimizer steps before the last freed, within the same step, the last block of each stack and
        size."""
        trace, ends, kinds = self.lifetimes.trace, self.lifetimes.let_go, self.phases.kinds
        found: dict[tuple[int, int], bool] = {}
        for start in self.lifetimes.starts:
            if kinds[trace.stacks[start]] == OPTIMIZER:
                run = self.phases.run(start)
                if run is not None and run.end < len(trace):
                    found[trace.stacks[start], trace.sizes[start]] = ends[start] < run.end
        return found

    def _in_backward(self, start: int, end: int, run: Run) -> str:
        if end < run.end:
            return TEMPORARIES
        if run.end < len(self.lifetimes.trace) or self._ended(run):
            return GRADIENTS
        # The trace ends within this pass: as large as a gradient of an earlier pass, or as a parameter?
        return GRADIENTS if self.lifetimes.trace.sizes[start] in self._sizes_of_gradients else TEMPORARIES

    def _ended(self, run: Run) -> bool:
        """Whether the pass ran to its end, although nothing was allocated after it: what it had to free is freed."""
        before = [s for s in self.lifetimes.alive(len(self.lifetimes.trace) - 1) if s < run.start]
        # A pass that is over has freed what the forward pass saved; one that was cut off still has most of it to free.
        waiting = [s for s in before if self.phases.kind(s) == FORWARD and self.phases.next_backward(s) == run]
        freed = sum(1 for b in self.lifetimes.begins[run.start :] if 0 <= b < run.start)
        return len(waiting) <= freed // 4

    def _in_forward(self, start: int, end: int) -> str:
        backward = self.phases.next_backward(start)
        loading = self.stacks[self.lifetimes.trace.stacks[start]].loading
        if backward is None or end < backward.start:
            return self._without_backward(start, end, loading)
        if end < backward.end and end < len(self.lifetimes.trace):
            return ACTIVATIONS
        if self.phases.crossed(start, end) >= 2 or (end == len(self.lifetimes.trace) and start < self._first_forward):
            if start < self._first_forward or loading:
                return self._lasting(start, loading)
            return KEPT
        return ACTIVATIONS if self._computed(start) else INPUTS

    def _without_backward(self, start: int, end: int, loading: bool) -> str:
        """Made in a forward pass that no backward follows, or freed before it."""
        if self._unwound(start, end):
            return ACTIVATIONS if self._computed(start) else INPUTS
        if end < len(self.lifetimes.trace):
            crossed = self.phases.crossed(start, end)
            return KEPT if crossed >= 2 else TEMPORARIES if self._computed(start) else INPUTS
        if start < self._first_forward:
            return self._lasting(start, loading)
        if self.phases.crossed(start, end) >= 2:
            return KEPT
        return ACTIVATIONS if self._computed(start) else INPUTS

    def _unwound(self, start: int, end: int) -> bool:
        """Whether memory ran out in the step that made a block, before the block was freed: the error freed it, and
        what it was for is not known from when it ended."""
        place = bisect_left(self._failures, start)
        failed = self._failures[place] if place < len(self._failures) else end
        return failed < end and not self.phases.crossed(start, failed)

    @cached_property
    def _failures(self) -> list[int]:
        return self.lifetimes.trace.where(OOM)

    def _computed(self, start: int) -> bool:
        """Whether a block of a forward pass is a result rather than an input."""
        operator = self.stacks[self.lifetimes.trace.stacks[start]].operator
        made = bool(operator) and not _INPUT_MAKING.fullmatch(operator)
        return made or self.phases.kind(start) == FORWARD or self._after_forward(start)

    def _lasting(self, start: int, loading: bool) -> str:
        """Made before the first forward pass, and there to stay."""
        as_large = self.lifetimes.trace.sizes[start] in self._sizes_of_gradients
        return PARAMETERS if loading or as_large else INPUTS

    def _after_forward(self, start: int) -> bool:
        """Whether the forward pass of its step has begun already: a loss, not an input."""
        run = self.phases.run(start)
        if run is None:
            return False
        stacks, kinds, starts = self.lifetimes.trace.stacks, self.phases.kinds, self.lifetimes.starts
        first = self._first_in_run.get(run.start)
        if first is None:
            inside = starts[bisect_left(starts, run.start) : bisect_left(starts, run.end)]
            forward = (s for s in inside if kinds[stacks[s]] == FORWARD)
            first = self._first_in_run[run.start] = next(forward, run.end)
        return start > first

    @cached_property
    def _first_in_run(self) -> dict[int, int]:
        return {}

    @cached_property
    def _first_forward(self) -> int:
        """The first allocation of a forward pass: within a module, or of what a backward pass freed."""
        kinds, stacks = self.phases.kinds, self.lifetimes.trace.stacks
        number = len(self.lifetimes.trace)
        inside = next((s for s in self.lifetimes.starts if kinds[stacks[s]] in (FORWARD, BACKWARD)), number)
        runs = self.phases.backwards[:1]
        freed = [b for r in runs for b in self.lifetimes.begins[r.start : r.end] if 0 <= b < r.start]
        return min([inside, *freed])

    @cached_property
    def _sizes_of_gradients(self) -> Counter[int]:
        """How many gradients of each size one backward pass leaves: of the passes, the one that leaves most."""
        sizes, ends, best = self.lifetimes.trace.sizes, self.lifetimes.let_go, Counter[int]()
        number = len(self.lifetimes.trace)
        for run in self.phases.backwards[:8]:
            # A pass that the trace ends in has temporaries left, which would pass for gradients.
            if run.end == number and len(self.phases.backwards) > 1:
                continue
            inside = (s for s in self.lifetimes.starts if run.start <= s < run.end)
            left = Counter(sizes[s] for s in inside if ends[s] >= run.end and self.phases.kind(s) == BACKWARD)
            best = max(best, left, key=Counter.total)
        return best

    @cached_property
    def _sizes_of_state(self) -> set[int]:
        """Sizes of what optimizer steps leave behind."""
        kinds, trace = self.phases.kinds, self.lifetimes.trace
        made = (s for s in self.lifetimes.starts if kinds[trace.stacks[s]] == OPTIMIZER)
        return {trace.sizes[s] for s in made if self.of(s) == STATE}

    @cached_property
    def older(self) -> dict[Older, str]:
        """The category of every block that is older than the recording."""
        spare = Counter(self._sizes_of_gradients)
        return {block: self._older(block, spare) for block in self.lifetimes.older}

    def _older(self, block: Older, spare: Counter[int]) -> str:
        """By its stack where torch kept one, else by who freed it, else by its size. `spare` are gradients without a
        parameter yet: every parameter has one gradient."""
        kind = self.stacks[block.stack].kind if block.stack else ""
        if kind in (OPTIMIZER, BACKWARD):
            return f"{STATE if kind == OPTIMIZER else GRADIENTS} (older)"
        if block.end < len(self.lifetimes.trace):
            return self._older_freed(block)
        if spare[block.size] > 0:
            spare[block.size] -= 1
            return f"{PARAMETERS} (older)"
        updated = any(r.kind == OPTIMIZER for r in self.phases.runs)
        return f"{STATE} (older)" if updated and block.size in spare else OLDER

    def _older_freed(self, block: Older) -> str:
        """Freed in an optimizer step that makes others as large; in a backward pass; or when gradients were cleared."""
        run = self.phases.run(block.end)
        as_gradient = block.size in self._sizes_of_gradients
        if run is not None and run.kind == OPTIMIZER:
            return f"{STATE} (older)" if as_gradient or block.size in self._sizes_of_state else OLDER
        if run is not None and run.kind == BACKWARD and not (as_gradient and block.end > run.last):
            return f"{ACTIVATIONS} (older)"
        return f"{GRADIENTS} (older)" if as_gradient else OLDER

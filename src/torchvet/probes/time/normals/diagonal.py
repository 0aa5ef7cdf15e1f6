"""Finds normal distributions of many dimensions whose covariance is diagonal, counts what their operators take, and
times them dimension by dimension after the program has ended."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from types import CodeType
from typing import Any

import torch

from torchvet.probes.base import frames
from torchvet.probes.base.kit import Host, Place, StepKind, Unchecked, user_lines
from torchvet.probes.internals import private
from torchvet.probes.time.normals.forms import Form, timed
from torchvet.probes.time.real_time import ENDED, WORTH, SampledTimer
from torchvet.recording.records.distributions import DiagonalNormals

CHECK = "what a normal distribution with a diagonal covariance would take dimension by dimension"
_FIRST = 64
"""Distributions that are looked at outside sampled steps: a prior is made once."""
_MOST_LINES = 8
_FRAMES = 24
_MATRICES = ("covariance_matrix", "precision_matrix", "scale_tril")
"""Arguments, of which one is given."""
_ASKED = ("rsample", "log_prob", "entropy")


class DiagonalCovariances(SampledTimer):
    """Normal distributions of many dimensions with a diagonal covariance."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._lines: dict[Place, tuple[int, int, torch.dtype]] = {}
        """Those that make them in sampled steps: how many, of how many dimensions."""
        self._looked = 0
        self._full = False
        """Whether one in sampled steps has a covariance that is not diagonal: whose operators run is not told apart."""
        self._doubtful = False
        """Whether one was made outside of sampled steps that has, and may be used in the next one."""
        self._asked: set[str] = set()
        self._factored = False
        self._nodes: set[int] = set()
        self._numbered = 0
        self._forward = self._backward = self._every = 0.0
        self._file = ""
        self._kl: CodeType | None = None

    def install(self) -> None:
        """See each that is made, and hear operators of sampled steps."""
        from torch.distributions import kl, multivariate_normal

        self._file = multivariate_normal.__file__
        function = getattr(kl, "_kl_multivariatenormal_multivariatenormal", None)
        self._kl = getattr(function, "__code__", None)
        if not isinstance(private.sequence_nr, private.Lacking):
            self.replace(multivariate_normal.MultivariateNormal, "__init__", self._watched)
            self.host.ledger.listeners.append(self._operator)

    def _watched(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def __init__(one: Any, *args: Any, **kwargs: Any) -> None:
            original(one, *args, **kwargs)
            if self.host.active and not self._full and (self.host.sampling or self._looked < _FIRST):
                with self.host.looking(CHECK):
                    self._made(one, next((m for m in (*args[1:4], *map(kwargs.get, _MATRICES)) if m is not None), None))

        return __init__

    def _made(self, one: Any, matrix: Any) -> None:
        self._looked += 1
        # On a device this would wait. A factor and an inverse are diagonal where the covariance is.
        if not isinstance(matrix, torch.Tensor) or matrix.device.type != "cpu" or not _is_diagonal(matrix.detach()):
            self._doubtful = True
            self._full |= self.host.sampling
            return
        places = user_lines(sys._getframe(2), 1)
        if self.host.sampling and places and (places[0] in self._lines or len(self._lines) < _MOST_LINES):
            rows, width = one.loc.numel() // max(1, one.loc.shape[-1]), one.loc.shape[-1]
            known = self._lines.get(places[0], (0, 0, matrix.dtype))
            self._lines[places[0]] = max(rows, known[0]), max(width, known[1]), matrix.dtype

    def _operator(self, func: Any, args: Any, kwargs: Any, out: Any) -> None:
        took = self.host.ledger.took
        self._every += took
        if self._full:
            return
        if private.graph_task() != -1:
            node = private.current_node() if self._nodes else None
            if node is not None and node._sequence_nr() in self._nodes:
                self._backward += took
            return
        before, self._numbered = self._numbered, private.sequence_nr()
        if (self._looked or self._asked) and self._of_normal():
            self._full |= self._doubtful
            self._factored |= func is torch.ops.aten.linalg_cholesky_ex.default
            self._forward += took
            # A node is numbered before its operator runs; an operator without one leaves the number as it was.
            if self._numbered > before:
                self._nodes.add(self._numbered - 1)

    def _of_normal(self) -> bool:
        """Whether a function of such a distribution runs, below the user's line."""
        frame: Any = sys._getframe(2)
        found = ""
        for _ in range(_FRAMES):
            if frame is None or frames.owner(frame.f_code.co_filename) == frames.USER:
                break
            if frame.f_code is self._kl:
                found = "kl"
            elif frame.f_code.co_filename == self._file:
                found = frame.f_code.co_name
            frame = frame.f_back
        if found:
            self._asked.add(found)
        return bool(found)

    def boundary(self, tick: int, kind: StepKind) -> None:
        """A step ended, and its graph with it."""
        self._nodes.clear()

    def restarted(self) -> None:
        """Steps are counted anew."""
        super().restarted()
        self._lines.clear()
        self._forward = self._backward = self._every = 0.0

    def last_look(self, how: str, error: BaseException | None) -> None:
        """Time both ways, where that may matter."""
        seconds = self._forward + self._backward
        if self._full or not self._lines or self.sampled <= 0 or seconds < WORTH * self._every:
            return
        if how not in ENDED:
            self.host.write(Unchecked(check=CHECK, reason="the program did not come to its end"))
            return
        place = max(self._lines, key=lambda one: self._lines[one][0] * self._lines[one][1] ** 2)
        rows, width, dtype = self._lines[place]
        asked = tuple(name for name in (*_ASKED, "kl") if name in self._asked)
        taken = timed(Form(rows, width, dtype, asked, self._backward > 0, self._factored))
        if taken is not None:
            self.host.write(
                DiagonalNormals(
                    place=place,
                    others=[one for one in self._lines if one != place],
                    rows=rows,
                    width=width,
                    sampled=self.sampled,
                    seconds=seconds,
                    every=self._every,
                    whole=taken[0],
                    apart=taken[1],
                    asked=list(asked),
                    backward=self._backward > 0,
                )
            )


def _is_diagonal(matrix: torch.Tensor) -> bool:
    """Exactly: no number beside the diagonal. A single dimension has nothing beside it."""
    diagonal = matrix.diagonal(dim1=-2, dim2=-1)
    return bool(torch.count_nonzero(matrix) == torch.count_nonzero(diagonal)) and matrix.shape[-1] > 1

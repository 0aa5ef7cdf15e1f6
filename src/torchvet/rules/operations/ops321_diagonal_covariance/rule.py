"""OPS321: a normal distribution of many dimensions is made with a matrix that is diagonal."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from torchvet.formatting import ms
from torchvet.recording.records.distributions import DiagonalNormals
from torchvet.rules.kit import About, Edits, Finding, Iterator, RankRecording, SourceFile, about
from torchvet.rules.shared.line_costs import Cost, LineCostRule
from torchvet.source.model import edits, terminal

if TYPE_CHECKING:
    from torchvet.analysis.line_times import Timing

_QUICKER = 0.8
"""What the other way takes of the time, up to which it is worth a word. Chosen, not measured."""
_DIAGONALS = ("torch.diag_embed", "torch.diag")
_OF_MATRICES = ("covariance_matrix", "scale_tril", "precision_matrix", "kl_divergence")
"""What a distribution without a matrix has not, or cannot do with one that has."""


class DiagonalCovariance(LineCostRule):
    """A normal distribution of many dimensions is made with a matrix that is diagonal."""

    severity = "warning"
    silence_clears = False
    fix_may_change_losses = True

    def fixes(self, finding: Finding, file: SourceFile) -> Edits:
        """`Independent(Normal(mean, variance.sqrt()), 1)`, where the call shows the diagonal, and nothing in the file
        wants a matrix."""
        at = finding.location
        here = file.events_on(at.line) if at is not None and at.path == file.path and at.line is not None else []
        made = [e.call for e in here if isinstance(e.node, ast.Call) and terminal(e.node) == "MultivariateNormal"]
        if about(finding).variant == "kl" or len(made) != 1 or not edits.on_one_line(made[0]):
            return ()
        return _apart(file, made[0])

    def in_time(self, rank: RankRecording, timing: Timing) -> Iterator[Finding]:
        """Distributions whose matrices take a part of the step, by what was measured without."""
        parts = [part for part in timing.times.lines if part.phase != "data"]
        for seen in rank.all(DiagonalNormals):
            if not seen.every or not seen.whole or seen.apart > _QUICKER * seen.whole:
                continue
            cost = Cost(timing, parts, saved=min(1.0, seen.seconds / seen.every) * (1 - seen.apart / seen.whole))
            if cost.counts:
                yield self._diagonal(rank, seen, cost)

    def _diagonal(self, rank: RankRecording, seen: DiagonalNormals, cost: Cost) -> Finding:
        passes = "forward and backward" if seen.backward else "forward"
        together = " Both distributions of a `kl_divergence` have to be of this kind" * ("kl" in seen.asked)
        return self.takes(
            rank,
            seen.place,
            f"a MultivariateNormal of {seen.width} dimensions has a covariance that is exactly diagonal: without its "
            f"matrices a step would save {cost.of_step()}",
            cost,
            cause="it is checked and factored as a matrix, and each value solves a triangular system, for what is "
            f"elementwise; measured after the run on {seen.rows:,} made alike, {passes}: {ms(seen.whole)} with "
            f"matrices and {ms(seen.apart)} without",
            advice="`Independent(Normal(mean, std), 1)` is the same distribution: it draws the same numbers, and "
            f"results differ by rounding.{together}",
            related=[self.beside("also", "is made with a diagonal covariance as well", one) for one in seen.others],
            about=About(variant="kl" if "kl" in seen.asked else ""),
        )


def _apart(file: SourceFile, call: ast.Call) -> Edits:
    named = {k.arg: k.value for k in call.keywords}
    mean = call.args[0] if call.args else named.get("loc")
    matrix = call.args[1] if len(call.args) > 1 else named.get("covariance_matrix")
    if len(call.args) + len(named) != 2 or mean is None or not isinstance(matrix, ast.Call):
        return ()
    # The call has the word itself, where the matrix is given by name.
    others = sum(file.text.count(word) for word in _OF_MATRICES) - ("covariance_matrix" in named)
    plain = file.dotted(matrix.func) in _DIAGONALS and len(matrix.args) == 1 and not matrix.keywords
    # Whatever the call is written as, `torch.distributions` is there where `torch` is.
    if others or not plain or file.imports.names.get("torch") != "torch":
        return ()
    normal = f"torch.distributions.Normal({file.segment(mean)}, {edits.operand(file, matrix.args[0])}.sqrt())"
    return [edits.replace(file, call, f"torch.distributions.Independent({normal}, 1)")]

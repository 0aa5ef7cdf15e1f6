"""TRN125: batch norm's momentum is so large that evaluation uses the last batch's statistics."""

from __future__ import annotations

import ast
import statistics
from collections.abc import Iterator

from torchvet.formatting import count, percent
from torchvet.recording.records.training import FastStatistics
from torchvet.rules.kit import (
    Edits,
    Finding,
    Findings,
    Location,
    Measured,
    RankRecording,
    Recording,
    Rule,
    Severity,
    SourceFile,
)
from torchvet.source.model import edits, terminal, walk

_LOOKS = 3
_JUMP = 0.05
"""Standard deviations by which the statistics jump between two steps, from which on evaluations differ by chance."""
_OPTIMIZERS = ("SGD", "RMSprop")
"""Whose momentum is another."""
_NAMED = "momentum"


class BatchNormMomentum(Rule):
    """Evaluation uses the statistics of the last batch, because batch norm's momentum is large."""

    severity = "warning"
    silence_clears = False
    fix_changes_results = True

    def fixes(self, finding: Finding, file: SourceFile) -> Edits:
        """The share that is kept as the share that is taken over: 0.01 for 0.99."""
        line = finding.location.line if finding.location is not None else None
        found = [(node, value) for node, value in _momenta(file) if node.lineno == line and value < 1]
        return [edits.replace(file, node, f"{1 - value:.6g}") for node, value in found] if len(found) == 1 else ()

    def in_rank(self, rank: RankRecording, recording: Recording) -> Findings:
        """Models whose statistics jump from one step to the next."""
        for record in rank.latest(FastStatistics, "model"):
            if record.looks >= _LOOKS:
                yield self._finding(rank, recording, record)

    def _finding(self, rank: RankRecording, recording: Recording, record: FastStatistics) -> Finding:
        layers, jump = count(record.layers, "batch norm layer"), statistics.median(record.jumps)
        severity: Severity = "warning" if record.used is not None and jump >= _JUMP else "info"
        used = [self.beside("evaluates", f"{record.model} evaluates here", record.used)] if record.used else []
        made = _where(recording, record.momentum)
        return self.observed(
            rank,
            made or record.used,
            f"{layers} of {record.model} with a momentum of {record.momentum:g}: the statistics of an evaluation are "
            f"{percent(record.momentum)} those of the last batch, and jump by {jump:.2g} standard deviations from step "
            "to step",
            cause="in torch, momentum is the weight of the new batch (0.1 by default); in TensorFlow and Keras it is "
            "that of all batches before",
            advice=f"momentum={1 - record.momentum:.3g}, if {record.momentum:g} is the share that is to be kept; "
            "momentum=None averages all batches",
            severity=severity,
            measured=Measured(steps=record.looks),
            related=used if made is not None else [],
        )


def _where(recording: Recording, momentum: float) -> Location | None:
    """The only place in the program's text that gives this momentum, and not to an optimizer."""
    found = []
    for path, text in recording.sources.items():
        file = recording.model(path) if "BatchNorm" in text else None
        if file is not None:
            lines = (node.lineno for node, value in _momenta(file) if value == momentum)
            found += [Location(path=path, line=line, function=file.unit_at(line).name) for line in lines]
    return found[0] if len(found) == 1 else None


def _momenta(file: SourceFile) -> Iterator[tuple[ast.expr, float]]:
    """Numbers that are given, bound or preset under a name of momentum."""
    for node in walk(file.tree):
        for name, value in _named(node):
            if _NAMED in name.lower() and isinstance(value, ast.Constant) and isinstance(value.value, float):
                yield value, value.value


def _named(node: ast.AST) -> Iterator[tuple[str, ast.expr | None]]:
    """What a call's keywords, an assignment or a function's defaults name."""
    if isinstance(node, ast.Call) and terminal(node) not in _OPTIMIZERS:
        yield from ((one.arg or "", one.value) for one in node.keywords)
    elif isinstance(node, ast.Assign):
        yield from ((terminal(target), node.value) for target in node.targets)
    elif isinstance(node, ast.AnnAssign):
        yield terminal(node.target), node.value
    elif isinstance(node, ast.arguments):
        named = [*node.posonlyargs, *node.args]
        yield from zip([one.arg for one in named[len(named) - len(node.defaults) :]], node.defaults, strict=True)
        yield from zip([one.arg for one in node.kwonlyargs], node.kw_defaults, strict=True)

"""TRN125: batch norm's momentum is so large that evaluation uses the last batch's statistics."""

from __future__ import annotations

import ast
import re
import statistics
from collections.abc import Iterator

from torchvet.formatting import count, percent
from torchvet.recording import records
from torchvet.rules import kit
from torchvet.source.model import edits, terminal, walk

_LOOKS = 3
_JUMP = 0.05
"""Standard deviations by which the statistics jump between two steps, from which on evaluations differ by chance."""
_NAMED, _NORM = "momentum", "BatchNorm"
_OF_NORM = re.compile(r"(^|_)(bn|batch_?norm|norm)")


class BatchNormMomentum(kit.Rule):
    """Evaluation uses the statistics of the last batch, because batch norm's momentum is large."""

    severity = "warning"
    silence_clears = False
    fix_changes_results = True

    def fixes(self, finding: kit.Finding, file: kit.SourceFile) -> kit.Edits:
        """The share that is kept as the share that is taken over: 0.01 for 0.99."""
        line = finding.location.line if finding.location is not None else None
        found = [(node, value) for node, value in _momenta(file) if node.lineno == line and value < 1]
        return [edits.replace(file, node, f"{1 - value:.6g}") for node, value in found] if len(found) == 1 else ()

    def in_rank(self, rank: kit.RankRecording, recording: kit.Recording) -> kit.Findings:
        """Models whose statistics jump from one step to the next."""
        for record in rank.latest(records.training.FastStatistics, "model"):
            if record.looks >= _LOOKS:
                yield self._finding(rank, recording, record)

    def _finding(
        self, rank: kit.RankRecording, recording: kit.Recording, record: records.training.FastStatistics
    ) -> kit.Finding:
        layers, jump = count(record.layers, "batch norm layer"), statistics.median(record.jumps)
        # 1 is no share that is kept: with it statistics are taken anew from one batch, on purpose.
        harms = record.used is not None and jump >= _JUMP and record.momentum < 1
        severity: kit.Severity = "warning" if harms else "info"
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
            measured=kit.Measured(steps=record.looks),
            related=used if made is not None else [],
        )


def _where(recording: kit.Recording, momentum: float) -> kit.Location | None:
    """The only place in the program's text that gives this momentum, and not to an optimizer."""
    found = []
    for path, text in recording.sources.items():
        file = recording.model(path) if "BatchNorm" in text else None
        if file is not None:
            lines = (node.lineno for node, value in _momenta(file) if value == momentum)
            found += [kit.Location(path=path, line=line, function=file.unit_at(line).name) for line in lines]
    return found[0] if len(found) == 1 else None


def _momenta(file: kit.SourceFile) -> Iterator[tuple[ast.expr, float]]:
    """Numbers that a batch norm is given as its momentum, or that are bound or preset under a name that says so."""
    for node in walk(file.tree):
        for value in _given(node):
            if isinstance(value, ast.Constant) and isinstance(value.value, float):
                yield value, value.value


def _given(node: ast.AST) -> Iterator[ast.expr | None]:
    if isinstance(node, ast.Call):
        yield from _to_call(node)
    elif isinstance(node, (ast.Assign, ast.AnnAssign)):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        yield from (node.value for target in targets if _says(terminal(target)))
    elif isinstance(node, ast.arguments):
        named = [*node.posonlyargs, *node.args]
        preset = [*zip(named[len(named) - len(node.defaults) :], node.defaults, strict=True)]
        yield from (value for one, value in preset if _says(one.arg))
        yield from (value for one, value in zip(node.kwonlyargs, node.kw_defaults, strict=True) if _says(one.arg))


def _to_call(call: ast.Call) -> Iterator[ast.expr]:
    """The momentum that `BatchNorm2d(…)` and `partial(BatchNorm2d, …)` are given, and any call's `bn_momentum`."""
    direct = _NORM in terminal(call)
    of_norm = direct or any(_NORM in terminal(one) for one in call.args)
    yield from (one.value for one in call.keywords if (of_norm and one.arg == _NAMED) or _says(one.arg))
    if direct and len(call.args) > 2:
        yield call.args[2]


def _says(name: str | None) -> bool:
    """`BN_MOMENTUM`, `norm_momentum`: a momentum of other things has no such name."""
    return name is not None and _NAMED in name.lower() and bool(_OF_NORM.search(name.lower()))

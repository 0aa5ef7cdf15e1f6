"""DST107: a DistributedSampler is never told the epoch, so that every epoch has the same order."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from torchvet.recording import records
from torchvet.rules.kit import Edits, Finding, Findings, Identity, Measured, RankRecording, Recording, SourceFile, count
from torchvet.rules.shared import training_loops as loops
from torchvet.source import model
from torchvet.source.model import edits, origins

_FRAMEWORKS = ("lightning", "pytorch_lightning", "accelerate", "lightning_fabric")
"""They wrap the loaders of a loop that the program writes itself, and tell their samplers the epoch."""


_CAUSE = "DistributedSampler shuffles with its seed plus the epoch that it was told, which stays 0"


class SamplerNotReshuffled(loops.LoopRule):
    """A DistributedSampler is never told the epoch, so that every epoch has the same order."""

    severity = "warning"
    words = ("DistributedSampler",)
    fix_changes_results = True

    def could_be_measured(self, recording: Recording) -> bool:
        """Only where a training went through a sampler again."""
        again = all(
            any(s.trained > 1 for s in rank.latest(records.ranks.SampledEpochs, "id")) for rank in recording.ranks
        )
        return super().could_be_measured(recording) and again

    def in_rank(self, rank: RankRecording, recording: Recording) -> Findings:
        """Samplers that shuffle, and that a training went through again in the same epoch."""
        for one in rank.latest(records.ranks.SampledEpochs, "id"):
            if one.shuffle and one.replicas > 1 and one.trained > 1 and one.epochs == 1:
                yield self._seen(rank, one)

    def _seen(self, rank: RankRecording, one: records.ranks.SampledEpochs) -> Finding:
        # At the sampler, as in source: one fault has one place.
        related = [self.beside("epochs", "each pass goes through the loader in the same order", one.place)]
        return self.observed(
            rank,
            one.made or one.place,
            f"the sampler gave the same order in {count(one.trained, 'epoch')} of training: nothing calls set_epoch",
            cause=_CAUSE,
            advice="call `set_epoch(epoch)` of the sampler at the start of every epoch",
            related=related if one.made is not None else [],
            measured=Measured(steps=rank.ticks),
        )

    def in_file(self, file: SourceFile) -> Findings:
        """A shuffling DistributedSampler whose loader is gone through epoch after epoch, and no `set_epoch`."""
        if file.mentions("set_epoch") or any(file.imports.uses(name) for name in _FRAMEWORKS):
            return
        for made in file.calls("DistributedSampler"):
            shuffle = model.keyword(made.call, "shuffle")
            torch = file.dotted(made.call.func).startswith("torch.utils.data.")
            if not torch or (shuffle is not None and not model.is_literal(shuffle, True)):
                continue
            for loader in self._loaders(file, made):
                epochs = self._epochs(file, loader)
                if epochs is not None:
                    yield self._finding(file, made, epochs)
                    break

    @staticmethod
    def _loaders(file: SourceFile, made: model.Event) -> Iterator[model.Event]:
        for loader in file.calls("DataLoader"):
            samplers = origins.made_by(model.keyword(loader.call, "sampler"), loader.unit)
            if any(value is made.node for value, _ in samplers):
                yield loader

    @staticmethod
    def _epochs(file: SourceFile, loader: model.Event) -> tuple[model.Event, model.Loop] | None:
        """The training pass over a loader and the loop over epochs around it."""
        key = origins.identity(loader.call, loader.unit) | _handed_out(file, loader)
        for step in file.steps:
            if step.loop is None or not isinstance(step.loop.node, ast.For) or not step.of("backward"):
                continue
            if not any(key & _loaders_in(one, step.unit) for one in _iterated(step.loop.node.iter)):
                continue
            pass_ = next(e for e in step.unit.events if e.node is step.loop.node)
            if step.loop.parent is not None:
                return pass_, step.loop.parent
            for caller in file.callers(step.unit):
                if caller.loop is not None:
                    return caller, caller.loop
        return None

    def _finding(self, file: SourceFile, made: model.Event, epochs: tuple[model.Event, model.Loop]) -> Finding:
        at, loop = epochs
        name = next((ast.unparse(t) for t in model.targets_of(made.statement)), "the sampler")
        name = name if re.search("sampler", name.lower()) else "the sampler"
        target = getattr(loop.node, "target", None)
        epoch = target.id if isinstance(target, ast.Name) else "epoch"
        message = f"{name} gives the same order in every epoch: nothing calls set_epoch"
        advice = f"call `{name.replace('the ', '')}.set_epoch({epoch})` at the start of every epoch"
        related = [self.also(file, "epochs", at, "each pass goes through the loader in the same order")]
        change = self._edits(file, made, at, loop, name)
        return self.suspect(file, made, message, cause=_CAUSE, advice=advice, edits=change, related=related)

    @staticmethod
    def _edits(file: SourceFile, made: model.Event, at: model.Event, loop: model.Loop, name: str) -> Edits:
        plain = isinstance(made.statement, ast.Assign) and made.statement.value is made.node and not made.context.arms
        if at.unit is not made.unit or not plain or not isinstance(loop.node, ast.For):
            return []
        target, body = loop.node.target, loop.node.body
        if name == "the sampler" or not isinstance(target, ast.Name) or model.terminal(loop.node.iter) != "range":
            return []
        return edits.before(file, body[0], f"{name}.set_epoch({target.id})")


def _handed_out(file: SourceFile, loader: model.Event) -> Identity:
    """What callers call the loader that a function makes and returns beside other things."""
    found: set[tuple[object, ...]] = set()
    names = model.target_names(loader.statement)
    for given, _ in loader.unit.returned:
        parts = given.elts if isinstance(given, ast.Tuple) else []
        for caller in file.callers(loader.unit) if parts else ():
            targets = (
                model.targets_of(caller.statement) if getattr(caller.statement, "value", None) is caller.node else []
            )
            if len(targets) == len(parts):
                mine = (t for t, part in zip(targets, parts, strict=True) if model.terminal(part) in names)
                found |= {one for target in mine for one in origins.identity(target, caller.unit)}
    return frozenset(found)


def _iterated(node: ast.expr) -> list[ast.expr]:
    """What may be the loader within `enumerate(tqdm(loader))` or `logger.log_every(loader, 10)`."""
    found = [node]
    for one in found:
        if isinstance(one, ast.Call) and model.terminal(one) not in ("len", "range"):
            found.extend(one.args)
    return [one for one in found if isinstance(one, (ast.Name, ast.Attribute))]


def _loaders_in(node: ast.expr, unit: model.Unit) -> Identity:
    """What an expression is; where a function of the file gives it back, what that gives."""
    found = set(origins.identity(node, unit))
    for value, where in (*unit.file.roles.values(node, unit), *origins.made_by(node, unit)):
        event = where.call_of(value)
        made = unit.file.callee(event) if event is not None else None
        if made is not None:
            found = found.union(*(origins.identity(value, made) for value, _ in made.returned))
    return frozenset(found)

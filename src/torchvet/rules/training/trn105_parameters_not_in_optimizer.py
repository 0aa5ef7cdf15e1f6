"""TRN105: parameters of the trained model get gradients that no optimizer applies."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from torchvet.finding import Finding, Holder, Location, Measured
from torchvet.recording.records import Place
from torchvet.recording.training_records import UnownedParameters, still_unowned
from torchvet.rules import words
from torchvet.rules.base import Rule
from torchvet.rules.share_rule import observed
from torchvet.rules.training._unowned_mends import given_to_the_optimizer

if TYPE_CHECKING:
    from torchvet.finding import Edit
    from torchvet.recording import RankRecording, Recording
    from torchvet.source.model import SourceFile


class ParametersNotInOptimizer(Rule):
    """Parameters of the trained model get gradients that no optimizer applies."""

    code = "TRN105"
    name = "parameters-not-in-optimizer"
    summary = "Parameters of the trained model get gradients that no optimizer applies"
    severity = "error"

    what = (
        "An optimizer knows the parameter objects that it was given when it was made. A layer replaced or added "
        "afterwards, or a submodule left out of the parameter list, gets gradients in every backward and is never "
        "updated; the optimizer meanwhile may hold parameters that the model no longer has."
    )
    why = (
        "That part of the model stays at its random initial values: a classifier behind a trained body that never "
        "learns. No error is raised and the loss still falls somewhat, because the rest adapts. "
        "`optimizer.zero_grad()` does not clear these gradients either."
    )
    when_not = (
        "Parameters that are frozen get no gradient and are not meant. Some are updated by hand or by another "
        "optimizer, or by a moving average (a target network); alternating training, as in a GAN, lets gradients "
        "reach the other player's parameters, which have an optimizer of their own."
    )
    proof = (
        "torch 2.13.0, CPU. In the example the head that replaced the first one is bitwise unchanged after 40 "
        "steps, while the body changed; the loss after 40 steps is 1.30, with the optimizer made after the "
        "replacement 1.08 (1.39 is guessing among four classes)."
    )
    remedy = (
        "Make the optimizer after the model is complete (layers replaced, model moved, heads added), from "
        '`model.parameters()`. For a layer that is added later call `optimizer.add_param_group({"params": '
        'layer.parameters()})`. Compare with `{id(p) for g in optimizer.param_groups for p in g["params"]}` when '
        "in doubt."
    )

    mend_changes_results = True

    BAD = """\
import torch
from torch import nn


class Classifier(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(32, 64), nn.ReLU())
        self.head = nn.Linear(64, classes)

    def forward(self, features):
        return self.head(self.body(features))


torch.manual_seed(0)
model = Classifier(classes=1000)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model.head = nn.Linear(64, 4)
for step in range(40):
    features = torch.randn(128, 32)
    loss = nn.functional.cross_entropy(model(features), features[:, :4].argmax(1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 9:
        print(f"step {step + 1} loss {loss.item():.4f}")
"""

    GOOD = """\
import torch
from torch import nn


class Classifier(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(32, 64), nn.ReLU())
        self.head = nn.Linear(64, classes)

    def forward(self, features):
        return self.head(self.body(features))


torch.manual_seed(0)
model = Classifier(classes=1000)
model.head = nn.Linear(64, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(40):
    features = torch.randn(128, 32)
    loss = nn.functional.cross_entropy(model(features), features[:, :4].argmax(1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 9:
        print(f"step {step + 1} loss {loss.item():.4f}")
"""

    def mends(self, finding: Finding, file: SourceFile) -> Sequence[Edit]:
        """The optimizer built when the model is complete, or given what came later."""
        return given_to_the_optimizer(file, finding)

    def in_recording(self, recording: Recording) -> Iterator[Finding]:
        """Parameters of a trained module with gradients that no optimizer owns and nobody changes."""
        for rank in recording.ranks:
            for record in still_unowned(rank.all(UnownedParameters)):
                if record.owned:
                    yield self._finding(recording, rank, record)

    def _finding(self, recording: Recording, rank: RankRecording, record: UnownedParameters) -> Finding:
        names = ", ".join(record.names[:4])
        rest = f" and {record.count - 4} more" if record.count > 4 else ""
        replaced = record.orphans > 0
        cause = (
            f"the optimizer was built before they were put in: it still owns {record.orphans} "
            "parameters that the model "
            "does not have any more"
            if replaced
            else "they were not among the parameters that the optimizer was given, and gradients are computed for them"
        )
        return observed(
            self, rank, severity="error" if replaced else "warning", place=self._line(recording, record, replaced),
            message=f"{record.count} parameters of {record.module} get gradients and are never stepped: {names}{rest}",
            cause=cause,
            advice="build the optimizer after the model is complete, or `add_param_group` them"
            if replaced
            else "give them to the optimizer, or, if they are meant to stay as they are, "
            "`requires_grad_(False)`: that also "
            f"saves {words.size(record.bytes)} of gradients",
            holder=Holder(name=record.names[0], kind="attribute", path=record.names[:4]),
            measured=Measured(bytes=record.bytes, steps=record.steps),
        )  # fmt: skip

    def _line(self, recording: Recording, record: UnownedParameters, replaced: bool) -> Place | Location | None:
        """Where a replaced submodule was assigned, else where the optimizer was made."""
        parts = record.names[0].split(".")
        if replaced and len(parts) > 1 and record.place is not None:
            stores = recording.index.stores(f"model.{parts[0]}", "__main__", record.place.path)
            outside = [s for s in stores if not s.function.endswith("__init__")]
            if outside:
                return Location(path=outside[0].path, line=outside[0].line, function=outside[0].function)
        return record.place

"""Score many checkpoints; a checkpoint that fails does not stop the others."""

import sys
from dataclasses import dataclass, field
from typing import Any

import torch


@dataclass
class Outcome:
    path: str
    score: float | None = None
    error: Any = None


@dataclass
class Sweep:
    paths: list[str]
    outcomes: list[Outcome] = field(default_factory=list)

    def evaluate(self, path: str, images: torch.Tensor, labels: torch.Tensor) -> float:
        net = torch.load(path, weights_only=False).cuda().eval()
        with torch.no_grad():
            logits = net(images.cuda())
        return (logits.argmax(1).cpu() == labels).float().mean().item()

    def run(self, images, labels):
        for path in self.paths:
            outcome = Outcome(path)
            try:
                outcome.score = self.evaluate(path, images, labels)
            except Exception:
                outcome.error = repr(sys.exc_info()[1])
            self.outcomes.append(outcome)

    def report(self):
        for o in self.outcomes:
            print(o.path, "failed" if o.error else f"{o.score:.3f}")


if __name__ == "__main__":
    sweep = Sweep(sys.argv[1:])
    sweep.run(torch.randn(512, 3, 224, 224), torch.randint(0, 1000, (512,)))
    sweep.report()

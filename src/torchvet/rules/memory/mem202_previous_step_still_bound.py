"""MEM202: tensors of the last step are alive while the next one runs."""

from __future__ import annotations

from torchvet.rules.base import Rule


class PreviousStepStillBound(Rule):
    """Tensors of the last step are alive while the next one runs."""

    code = "MEM202"
    name = "previous-step-still-bound"
    summary = "Tensors of the last step are alive while the next one runs"
    severity = "warning"

    what = (
        "A variable of a loop keeps its value until it is assigned again. Large results of the last step (logits, "
        "probabilities, an output with its graph) are therefore still alive during the forward pass of the next, "
        "and what is assigned after the backward pass is alive through all of it."
    )
    why = (
        "The peak rises by the size of these tensors although nobody reads them again. Where no backward ran, the "
        "old output keeps its whole graph: two graphs at once."
    )
    when_not = (
        "Variables that are bound anew before the peak (`loss`, the batch) make no difference to it, and neither "
        "do small tensors. In a function the locals die with the call. State that is meant to be carried over is "
        "read again."
    )
    proof = (
        "torch 2.13.0, CPU. Peak of the example: 8,106,872 bytes; with `del probabilities` at the end of the step "
        "6,570,872, which is less by exactly one 256 × 1500 float32 tensor; same output. `del logits` instead "
        "changes nothing: they are rebound before the peak. An evaluation without `no_grad` peaks at 786,432 "
        "bytes in its first batch and at 1,320,960 from the second on, while the old output is still bound."
    )
    remedy = (
        "Move the body of the loop into a function that returns plain numbers (`train_step(...)` returning "
        "`loss.item()`), or `del` the large names at the end of the step."
    )

    BAD = """\
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Embedding(1500, 32), nn.Linear(32, 1500))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
confidence = 0.0
for step in range(40):
    tokens, following = torch.randint(0, 1500, (2, 256))
    logits = model(tokens)
    loss = nn.functional.cross_entropy(logits, following)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    probabilities = logits.detach().softmax(1)
    confidence += probabilities.max(1).values.mean().item()
    if step % 10 == 9:
        print(f"step {step + 1} loss {loss.item():.4f} confidence {confidence / (step + 1):.6f}")
"""

    GOOD = """\
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Embedding(1500, 32), nn.Linear(32, 1500))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
confidence = 0.0
for step in range(40):
    tokens, following = torch.randint(0, 1500, (2, 256))
    logits = model(tokens)
    loss = nn.functional.cross_entropy(logits, following)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    probabilities = logits.detach().softmax(1)
    confidence += probabilities.max(1).values.mean().item()
    del probabilities
    if step % 10 == 9:
        print(f"step {step + 1} loss {loss.item():.4f} confidence {confidence / (step + 1):.6f}")
"""

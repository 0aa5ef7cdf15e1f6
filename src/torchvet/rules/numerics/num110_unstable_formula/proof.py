"""Prints the figures of the section Proof."""

import torch
from torch.nn import functional


def told(value):
    return "NaN" if value != value else f"{value:g}"


logits = torch.tensor([0.0, 110.0], requires_grad=True)
lost = torch.softmax(logits, 0).log()[0]
(gradient,) = torch.autograd.grad(lost, logits)
print(f"gave {told(lost.item())} and {told(gradient[0].item())} gradients")
kept = torch.log_softmax(logits, 0)[0]
(gradient,) = torch.autograd.grad(kept, logits)
print(f"`log_softmax` {told(kept.item())} and {told(gradient[0].item())}, {told(gradient[1].item())}")
x = torch.tensor(-90.0)
print(f"`log(sigmoid(-90))` {told(torch.sigmoid(x).log().item())}")
print(f"`logsigmoid` {told(functional.logsigmoid(x).item())}")
pair = torch.tensor([1.0, 90.0])
print(f"of 1 and 90 {told((pair.exp() / pair.exp().sum())[1].item())}")
print(f"`log(1 + exp(90))` {told((1 + (-x).exp()).log().item())}")
print(f"`softplus` {told(functional.softplus(-x).item())}")
zero = torch.zeros(3, requires_grad=True)
(gradient,) = torch.autograd.grad((zero**2).sum().sqrt(), zero)
print(f"at 0 had {told(gradient[0].item())} gradients")
(gradient,) = torch.autograd.grad(zero.norm(), zero)
print(f"`x.norm()` {told(gradient[0].item())}")

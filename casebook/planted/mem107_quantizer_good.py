"""Straight-through quantiser with a learned scale (LSQ)."""

import math

import torch


class LSQ(torch.autograd.Function):
    @staticmethod
    def forward(context, weight, scale, grad_scale, q_neg, q_pos):
        scaled = weight / scale
        rounded = scaled.round().clamp(q_neg, q_pos)
        context.bounds = (q_neg, q_pos, grad_scale)
        context.save_for_backward(weight, scale)
        out = rounded * scale
        return out

    @staticmethod
    def backward(context, grad):
        q_neg, q_pos, grad_scale = context.bounds
        w, scale = context.saved_tensors
        q = w / scale
        small, big = (q < q_neg).float(), (q > q_pos).float()
        middle = 1.0 - small - big
        g_scale = ((small * q_neg + big * q_pos + middle * (q.round() - q)) * grad * grad_scale).sum().reshape(1)
        return middle * grad, g_scale, None, None, None


class QuantLinear(torch.nn.Linear):
    def __init__(self, n_in, n_out, bits=4):
        super().__init__(n_in, n_out)
        self.bits = bits
        self.scale = torch.nn.Parameter(torch.ones(1) * 0.05)

    def forward(self, x):
        q_pos = 2 ** (self.bits - 1) - 1
        g = 1.0 / math.sqrt(self.weight.numel() * q_pos)
        w = LSQ.apply(self.weight, self.scale, g, -q_pos - 1, q_pos)
        return torch.nn.functional.linear(x, w, self.bias)


if __name__ == "__main__":
    net = torch.nn.Sequential(QuantLinear(64, 128), torch.nn.ReLU(), QuantLinear(128, 10))
    optim = torch.optim.Adam(net.parameters())
    for _ in range(10):
        optim.zero_grad()
        loss = torch.nn.functional.cross_entropy(net(torch.randn(16, 64)), torch.randint(0, 10, (16,)))
        loss.backward()
        optim.step()

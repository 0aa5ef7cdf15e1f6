"""Estimate the trace of the Hessian along a training run, with Hutchinson's method."""

import torch
import torch.nn.functional as F


def hessian_trace(model, batches, probes=8):
    parameters = [p for p in model.parameters() if p.requires_grad]
    estimates = []
    for inputs, targets in batches:
        for _ in range(probes):
            loss = F.cross_entropy(model(inputs), targets)
            loss.backward(create_graph=True)
            grads = [p.grad for p in parameters]
            vectors = [torch.randint_like(p, 2) * 2 - 1 for p in parameters]
            products = torch.autograd.grad(grads, parameters, grad_outputs=vectors)
            estimates.append(sum((v * h).sum().item() for v, h in zip(vectors, products)))
    return sum(estimates) / len(estimates)

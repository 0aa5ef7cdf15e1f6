"""Decompositions of which a part is read are found; those whose factors are read, wherever that is, are not."""

from __future__ import annotations

from pathlib import Path

from example_runs import RECORDING, forked

from torchvet.recording import read
from torchvet.recording.records.distributions import UnreadFactors

PROGRAM = """
import pickle
import torch
from torch import nn
torch.manual_seed(0)
model = nn.Linear(8, 24)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
kept = []

class Nuclear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a):
        u, s, vh = torch.linalg.svd(a, full_matrices=False)
        ctx.save_for_backward(u, vh)
        return s.sum()
    @staticmethod
    def backward(ctx, gradient):
        u, vh = ctx.saved_tensors
        return gradient * (u @ vh)

{functions}

for step in range(14):
    out = model(torch.randn(60, 8))
    loss = out.pow(2).mean()
    for use in ({names}):
        more = use(out, out.detach(), step)
        if more is not None and more.requires_grad:
            loss = loss + 1e-3 * more
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""

LESS = {
    "svd": ("_, s, _ = torch.linalg.svd(a); return s.sum()", ("svd", "values", True, False)),
    "reduced svd": ("return torch.linalg.svd(a, full_matrices=False).S.tolist()[0:0] or None",
                    ("svd", "values", False, False)),
    "kept values": ("u, s, vh = torch.linalg.svd(a, False); kept.append(s)", ("svd", "values", False, False)),
    "first columns": ("u, s, vh = torch.linalg.svd(a); return (u[:, :24] * s @ vh).sum()",
                      ("svd", "reduced", True, False)),
    "gradients of first columns": ("u, s, vh = torch.linalg.svd(out); return (u[:, :3].T @ a).sum()",
                                   ("svd", "reduced", True, True)),
    "gradients of values": ("return torch.linalg.svd(out.T).S.sum()", ("svd", "reduced", True, True)),
    "eigh": ("return torch.linalg.eigh(a.T @ a)[0].sum()", ("eigh", "values", False, False)),
    "eig": ("values, vectors = torch.linalg.eig(a.T @ a); return values.abs().max()", ("eig", "values", False, False)),
    "qr": ("return torch.linalg.qr(a)[1].diagonal().sum()", ("qr", "values", False, False)),
    "complete qr": ("q, r = torch.linalg.qr(a, mode='complete'); return q[:, :24].sum() + r[:24].sum()",
                    ("qr", "reduced", True, False)),
}  # fmt: skip
ALL = {
    "all columns": "u, s, vh = torch.linalg.svd(a); return u.sum()",
    "the null space": "u, s, vh = torch.linalg.svd(a.T); return vh[24:].sum()",
    "gradients through values": "return torch.linalg.eigh(out.T @ out + torch.eye(24))[0].sum()",
    "a derivative of its own": "return Nuclear.apply(out)",
    "kept": "u, s, vh = torch.linalg.svd(a); kept.append(u); return s.sum()",
    "pickled": "u, s, vh = torch.linalg.svd(a); return len(pickle.dumps(u)) * s.sum()",
    "an array": "l, v = torch.linalg.eigh(a.T @ a); return float(v.numpy()[0, 0]) * l.sum()",
    "an address": "u, s, vh = torch.linalg.svd(a); return s.sum() * (u.data_ptr() != vh.data_ptr())",
    "sometimes": "u, s, vh = torch.linalg.svd(a); return u.sum() if step % 2 else s.sum()",
    "all rows of R": "q, r = torch.linalg.qr(a, mode='complete'); return r.sum()",
    "R, with gradients": "q, r = torch.linalg.qr(out); return r.diagonal().sum()",
    "square": "u, s, vh = torch.linalg.svd(a.T @ a); return (u[:, :3] @ vh[:3]).sum()",
    "a few elements": "return torch.linalg.svd(a[:6, :6])[1].sum()",
    "unused": "torch.linalg.svd(a)",
    "the values alone": "return torch.linalg.svdvals(a).sum()",
}


def seen(folder: Path, bodies: dict[str, str]) -> dict[str, UnreadFactors]:
    """What is found of functions with these bodies, all of one program, by name."""
    names = {f"use_{n}": name for n, name in enumerate(bodies)}
    functions = "\n".join(f"def {f}(out, a, step):\n    {bodies[name]}" for f, name in names.items())
    forked(PROGRAM.replace("{functions}", functions).replace("{names}", ", ".join(names) + ","), folder)
    return {names[one.place.function]: one for one in read(folder / RECORDING).ranks[0].latest(UnreadFactors, "place")}


def test_decompositions_of_which_a_part_is_read(tmp_path: Path) -> None:
    found: dict[str, UnreadFactors] = {}
    names = list(LESS)
    # Four lines of a program are timed.
    for start in range(0, len(names), 4):
        folder = tmp_path / str(start)
        folder.mkdir()
        found |= seen(folder, {name: LESS[name][0] for name in names[start : start + 4]})
    assert {name: (one.name, one.kind, one.full, one.gradients) for name, one in found.items()} == {
        name: told for name, (_, told) in LESS.items()
    }
    assert all(0 < one.seconds <= one.every and one.less > 0 for one in found.values())


def test_factors_that_are_read(tmp_path: Path) -> None:
    assert seen(tmp_path, ALL) == {}

"""TRN120: inputs and labels that are put into different orders, and what looks like it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from example_runs import forked

PROGRAM = """
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
N = 16
inputs = torch.randn(160, 12)
labels = torch.randint(0, 4, (160,))
lengths = torch.randint(1, 13, (160,))
body, model = nn.Linear(12, 12), nn.Sequential(nn.Linear(12, 12), nn.ReLU(), nn.Linear(12, 4))
pair, rnn = nn.Linear(24, 4), nn.GRU(1, 12, batch_first=True)
parameters = [p for m in (body, model, pair, rnn) for p in m.parameters()]
optimizer = torch.optim.SGD(parameters, lr=0.1)
ce = F.cross_entropy
{setup}
for epoch in range(2):
    for {batch} in {loader}:
        lam = 0.3
{before}
        loss = {loss}
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"loss {{loss.item():.6f}}")
"""
LOADER = "DataLoader(TensorDataset(inputs, labels, lengths), batch_size=N, shuffle=True)"
PLAIN = "ce(model(x), y)"
Case = tuple[str, str]
PACKED = "packed = nn.utils.rnn.pack_padded_sequence(x[..., None], n, batch_first=True)"
FAULTY: dict[str, Case] = {
    "two permutations": ("x = x[torch.randperm(N)]\ny = y[torch.randperm(N)]", PLAIN),
    "inputs alone": ("x = x[torch.randperm(len(x))]", PLAIN),
    "labels alone": ("y = y[torch.randperm(len(y))]", PLAIN),
    "index_select": ("x = x.index_select(0, torch.randperm(N))", PLAIN),
    "names that say that both are shuffled": (
        "shuffled_x = x[torch.randperm(N)]\nshuffled_y = y[torch.randperm(N)]",
        "ce(model(shuffled_x), shuffled_y)",
    ),
    "sorted by length": ("order = n.argsort(descending=True)\nx = x[order]", PLAIN),
    "lengths sorted": ("n, order = n.sort(descending=True)\nx = x[order]", "ce(rnn(x[..., None])[0][:, -1], y)"),
    "packed": (
        f"n, order = n.sort(descending=True)\nx = x[order]\n{PACKED}",
        "ce(model(rnn(packed)[1][0]), y)",
    ),
    "packed, with steps in between": (
        f"n, order = n.sort(descending=True)\nx = x[order]\n{PACKED}\n"
        "packed = packed._replace(data=2 * packed.data)\nh = nn.utils.rnn.pad_packed_sequence(rnn(packed)[0])[0]",
        "ce(model(h.sum(0)), y)",
    ),
    "sorted labels": ("y, _ = y.sort()", PLAIN),
    "flipped rows": ("x = x.flip(0)", PLAIN),
    "rolled": ("x = x.roll(1, 0)", PLAIN),
    "mixup": (
        "mixed = lam * x + (1 - lam) * x[torch.randperm(N)]\nz = model(mixed)",
        "lam * ce(z, y) + (1 - lam) * ce(z, y[torch.randperm(N)])",
    ),
    "mixup of soft labels": (
        "soft = F.one_hot(y, 4).float()\nx = lam * x + (1 - lam) * x[torch.randperm(N)]\n"
        "soft = lam * soft + (1 - lam) * soft[torch.randperm(N)]",
        "ce(model(x), soft)",
    ),
    "cutmix": (
        "other = y[torch.randperm(N)]\nx = x.clone()\nx[:, :4] = x[torch.randperm(N), :4]\nz = model(x)",
        "0.7 * ce(z, y) + 0.3 * ce(z, other)",
    ),
    "manifold mixup": (
        "h = body(x)\nh = lam * h + (1 - lam) * h[torch.randperm(N)]\nz = model(h)",
        "lam * ce(z, y) + (1 - lam) * ce(z, y[torch.randperm(N)])",
    ),
    "regression": ("x = x[torch.randperm(N)]", "F.mse_loss(model(x)[:, 0], n.float())"),
    "binary": ("x = x.flip(0)", "F.binary_cross_entropy_with_logits(model(x)[:, 0], (y > 1).float())"),
    "drawn from all": (
        "x = inputs[torch.randperm(160)[:N]]\ny = labels[torch.randperm(160)[:N]]",
        PLAIN,
    ),
    "two random indices": ("x = inputs[torch.randint(160, (N,))]\ny = labels[torch.randint(160, (N,))]", PLAIN),
}
HEALTHY: dict[str, Case] = {
    "one permutation": ("order = torch.randperm(N)\nx, y = x[order], y[order]", PLAIN),
    "mixup": (
        "order = torch.randperm(N)\nz = model(lam * x + (1 - lam) * x[order])",
        "lam * ce(z, y) + (1 - lam) * ce(z, y[order])",
    ),
    "mixup of soft labels": (
        "soft = F.one_hot(y, 4).float()\norder = torch.randperm(N)\nx = lam * x + (1 - lam) * x[order]\n"
        "soft = lam * soft + (1 - lam) * soft[order]",
        "ce(model(x), soft)",
    ),
    "mixup with the flipped batch": (
        "soft = F.one_hot(y, 4).float()\nx = lam * x + (1 - lam) * x.flip(0)\nsoft = lam * soft + 0.7 * soft.flip(0)",
        "ce(model(x), soft)",
    ),
    "mixup with a rolled batch": (
        "z = model(lam * x + (1 - lam) * x.roll(1, 0))",
        "lam * ce(z, y) + (1 - lam) * ce(z, y.roll(1, 0))",
    ),
    "cutmix": (
        "order = torch.randperm(N)\nx = x.clone()\nx[:, :4] = x[order, :4]\nz = model(x)",
        "0.7 * ce(z, y) + 0.3 * ce(z, y[order])",
    ),
    "manifold mixup": (
        "order = torch.randperm(N)\nh = body(x)\nz = model(lam * h + (1 - lam) * h[order])",
        "lam * ce(z, y) + (1 - lam) * ce(z, y[order])",
    ),
    "contrastive negatives": (
        "a, b = body(x), body(x + 0.1)\nnegative = b[torch.randperm(N)]",
        "F.triplet_margin_loss(a, b, negative) + ce(model(a), y)",
    ),
    "permutation importance": (
        "with torch.no_grad(): ce(model(x[torch.randperm(N)]), y)\nx.requires_grad_(False)",
        PLAIN,
    ),
    "one feature permuted": ("x = x.clone()\nx[:, 3] = x[torch.randperm(N), 3]", PLAIN),
    "MINE": (
        "t, marginal = y.float()[:, None].expand(N, 12), y[torch.randperm(N)].float()[:, None].expand(N, 12)",
        "-(pair(torch.cat([x, t], 1)).mean() - pair(torch.cat([x, marginal], 1)).logsumexp((0, 1)))",
    ),
    "deep infomax": (
        "h, g = body(x), body(x[torch.randperm(N)])\n"
        "score = torch.cat([(h * h.mean(0)).sum(1), (g * h.mean(0)).sum(1)])",
        "F.binary_cross_entropy_with_logits(score, torch.cat([torch.ones(N), torch.zeros(N)]))",
    ),
    "GAN": (
        "noise = torch.randn(N, 12)[torch.randperm(N)]",
        "F.binary_cross_entropy_with_logits(model(body(noise))[:, 0], torch.ones(N))",
    ),
    "sorted by length, labels alike": ("n, order = n.sort(descending=True)\nx, y = x[order], y[order]", PLAIN),
    "sorted and put back": (
        "order = n.argsort(descending=True)\nz = model(x[order])[order.argsort()]",
        "ce(z, y)",
    ),
    "packed": (
        "packed = nn.utils.rnn.pack_padded_sequence(x[..., None], n, batch_first=True, enforce_sorted=False)\n"
        "h = rnn(packed)[1][0]",
        "ce(model(h), y)",
    ),
    "packed with its labels": (
        f"n, order = n.sort(descending=True)\nx, y = x[order], y[order]\n{PACKED}",
        "ce(model(rnn(packed)[1][0]), y)",
    ),
    "packed and put back": (
        f"n, order = n.sort(descending=True)\nx = x[order]\n{PACKED}\nback = order.argsort()",
        "ce(model(rnn(packed)[1][0, back]), y) + ce(model(rnn(packed)[1][:, back][0]), y)",
    ),
    "padded and put back": (
        f"n, order = n.sort(descending=True)\nx = x[order]\n{PACKED}\n"
        "h = nn.utils.rnn.pad_packed_sequence(rnn(packed)[0], batch_first=True)[0][order.argsort()]",
        "ce(model(h.sum(1)), y)",
    ),
    "beams": (
        "z = model(x)\nbest = z.detach().topk(2, 1)[1].flatten()\nbeams = x.repeat_interleave(2, 0)[best.argsort()]",
        "ce(z, y) + 0 * body(beams).mean()",
    ),
    "bootstrap": ("index = torch.randint(N, (N,))\nx, y = x[index], y[index]", PLAIN),
    "bootstrap of all": ("index = torch.randint(160, (N,))\nx, y = inputs[index], labels[index]", PLAIN),
    "replay": (
        "index = torch.randperm(160)[:N]\naction = labels[index][:, None]\nq = model(inputs[index]).gather(1, action)",
        "F.mse_loss(q[:, 0], lengths[index].float())",
    ),
    "siamese": (
        "order = torch.randperm(N)\nsame = (y == y[order]).float()\nz = pair(torch.cat([x, x[order]], 1))[:, 0]",
        "F.binary_cross_entropy_with_logits(z, same)",
    ),
    "order predicted": (
        "order = torch.randperm(12)\nz = F.pad(body(x[:, order]), (0, 0))",
        "ce(z, order.argmax().expand(N))",
    ),
    "tokens routed to experts": (
        "order = model(x).argmax(1).argsort()\nh = body(x[order])\nback = torch.empty_like(order)\n"
        "back[order] = torch.arange(N)",
        "ce(model(h[back]), y)",
    ),
    "tokens routed, scattered": (
        "order = model(x).argmax(1).argsort()\nh = torch.zeros_like(x).index_add(0, order, body(x[order]))",
        "ce(model(h), y)",
    ),
    "group DRO": (
        "each = F.cross_entropy(model(x), y, reduction='none')\norder = n.argsort()",
        "(each[order] * torch.linspace(0, 1, N)).sum()",
    ),
    "points": ("x = x[:, torch.randperm(12)]", PLAIN),
    "as many points as rows": ("x = F.pad(x, (0, 4))\nx = x[:, torch.randperm(N)]", "ce(model(x[:, :12]), y)"),
    "masked": (
        "kept = torch.rand_like(x) > 0.2\nswapped = torch.where(kept, x, x[torch.randperm(N)])",
        "F.mse_loss(body(swapped), x)",
    ),
    "ShuffleBN": (
        "order = torch.randperm(N)\nback = torch.argsort(order)\nq = F.batch_norm(body(x)[order], None, None, "
        "training=True)[back]",
        "ce(model(q), y)",
    ),
    "flipped left to right": ("x = x.flip(1)", PLAIN),
    "negatives of a regression": (
        "z = model(x)[:, 0]\nfar = n.float()[torch.randperm(N)]",
        "F.mse_loss(z, n.float()) + F.relu(1 - F.mse_loss(z, far))",
    ),
    "conditional, wrong labels": (
        "wrong = y[torch.randperm(N)].float()[:, None].expand(N, 12)\nz = pair(torch.cat([x, wrong], 1))[:, 0]",
        "F.binary_cross_entropy_with_logits(z, torch.zeros(N))",
    ),
    "labels that are random by name": ("random_labels = y[torch.randperm(N)]", "ce(model(x), random_labels)"),
    "a control that is asked for": ("check = True\nif check:\n    y = y[torch.randperm(N)]", PLAIN),
    "a control by name": ("shuffled_y = y[torch.randperm(N)]", "ce(model(x), shuffled_y)"),
    "a control by name, said last": ("y_perm = y[torch.randperm(N)]", "ce(model(x), y_perm)"),
    "flow between two sets": (
        "a, b = inputs[torch.randperm(160)[:N]], (inputs * 2)[torch.randperm(160)[:N]]",
        "F.mse_loss(body(lam * a + (1 - lam) * b), b - a)",
    ),
    "easy half": (
        "kept = F.cross_entropy(model(x), y, reduction='none').detach().argsort()[: N // 2]",
        "ce(model(x[kept]), y[kept])",
    ),
    "moved to": ("order = torch.randperm(N).to(torch.int32)\nx, y = x[order].double().float(), y[order]", PLAIN),
    "one loader order, soft teacher": (
        "order = torch.randperm(N)\nwith torch.no_grad(): t = model(x)[order]",
        "F.kl_div(model(x[order]).log_softmax(1), t.softmax(1))",
    ),
    "sorted distributions": ("z = model(x)[:, 0]", "F.mse_loss(z.sort()[0], n.float().sort()[0])"),
    "sorted distributions by index": (
        "z, t = model(x)[:, 0], n.float()",
        "F.mse_loss(z[z.detach().argsort()], t[t.argsort()])",
    ),
    "labels for a generator": (
        "wanted = F.one_hot(y, 12).float()[torch.randperm(N)]\nz = model(pair(torch.cat([x, wanted], 1)).repeat(1, 3))",
        "F.binary_cross_entropy_with_logits(z, wanted[:, :4])",
    ),
    "experts, by rows": (
        "order = torch.randperm(N)\nh = torch.zeros(N, 12).index_copy(0, order, body(x[order]))",
        "ce(model(h), y)",
    ),
    "matched": ("near = torch.cdist(x, x.flip(1)).argmin(1)\ny = y[near]", PLAIN),
}
IN_TURN = "DataLoader(TensorDataset(inputs, labels, lengths), batch_size=N)"
ALONG_TIME = (
    "DataLoader(TensorDataset(inputs, labels, lengths), N, shuffle=True, "
    "collate_fn=lambda rows: [torch.stack(c).T for c in ([r[0] for r in rows], [r[0].gt(0).long() for r in rows], "
    "[r[0] for r in rows])])"
)
TWO = "zip(DataLoader(inputs, N, shuffle=True{g}), DataLoader(labels, N, shuffle=True{g}))"


def program(case: Case, loader: str = LOADER, batch: str = "x, y, n", setup: str = "") -> str:
    before, loss = case
    indented = "\n".join(" " * 8 + line for line in before.splitlines())
    return PROGRAM.format(setup=setup, batch=batch, loader=loader, before=indented, loss=loss)


def findings(tmp_path: Path, text: str) -> list[dict[str, Any]]:
    found = forked(text, tmp_path)
    assert found is not None
    return [f for f in found if f["code"] == "TRN120"]


@pytest.mark.parametrize("what", FAULTY)
def test_rows_without_their_labels(tmp_path: Path, what: str) -> None:
    text = program(FAULTY[what])
    (found,) = findings(tmp_path, text)
    line = text.splitlines()[found["location"]["line"] - 1]
    assert found["severity"] == "warning"
    assert any(sign in line for sign in ("randperm", "randint", "order", "flip", "roll", "sort"))


@pytest.mark.parametrize("what", HEALTHY)
def test_rows_with_their_labels(tmp_path: Path, what: str) -> None:
    assert findings(tmp_path, program(HEALTHY[what])) == []


@pytest.mark.parametrize(
    ("case", "loader"),
    [
        (("x = x.roll(1, 0)", PLAIN), IN_TURN),
        (("x = x.flip(0)", "F.binary_cross_entropy_with_logits(x * body.bias[0], y.float())"), ALONG_TIME),
    ],
)
def test_rows_that_follow_each_other(tmp_path: Path, case: Case, loader: str) -> None:
    """One day is learned from the one before, and a sentence is read from its end."""
    assert findings(tmp_path, program(case, loader)) == []


def test_rows_that_are_read_in_turn(tmp_path: Path) -> None:
    """A permutation means nothing in any order."""
    assert len(findings(tmp_path, program(FAULTY["two permutations"], IN_TURN))) == 1


def test_two_loaders(tmp_path: Path) -> None:
    """Each draws its own order; with equal seeds of their own they may be in step."""
    (found,) = findings(tmp_path, program(("pass", PLAIN), TWO.format(g=""), "x, y"))
    assert found["severity"] == "warning"
    assert "two loaders" in found["message"]
    seeded = TWO.format(g=", generator=torch.Generator().manual_seed(epoch)")
    assert findings(tmp_path, program(("pass", PLAIN), seeded, "x, y")) == []


REGRESSION = "F.mse_loss(model(x)[:, 0], y)"


@pytest.mark.parametrize(
    ("inputs", "labels", "loss"),
    [
        ("inputs, N, shuffle=True", "labels.float(), N, shuffle=True", REGRESSION),
        ("inputs, N, sampler=data.WeightedRandomSampler(torch.ones(160), 160)", "labels, N", PLAIN),
        ("inputs, N", "labels, N, sampler=data.SubsetRandomSampler(range(160))", PLAIN),
    ],
)
def test_two_loaders_of_which_one_draws(tmp_path: Path, inputs: str, labels: str, loss: str) -> None:
    loader = f"zip(DataLoader({inputs}), DataLoader({labels}))"
    (found,) = findings(tmp_path, program(("pass", loss), loader, "x, y", "from torch.utils import data"))
    assert found["severity"] == "warning"


IN_STEP = """
def in_step(rows):
    torch.manual_seed(epoch)
    yield from DataLoader(rows, N, shuffle=True)
"""


@pytest.mark.parametrize(
    ("loader", "loss"),
    [
        ("zip(in_step(inputs), in_step(labels))", PLAIN),
        ("zip(DataLoader(inputs, N), DataLoader(labels, N))", PLAIN),
        # A style, and no labels of the rows.
        ("zip(DataLoader(inputs, N, shuffle=True), DataLoader(inputs + 1, N, shuffle=True))", "F.mse_loss(body(x), y)"),
    ],
)
def test_two_loaders_that_may_be_meant(tmp_path: Path, loader: str, loss: str) -> None:
    assert findings(tmp_path, program(("pass", loss), loader, "x, y", IN_STEP)) == []

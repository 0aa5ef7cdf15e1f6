"""Look-alikes of the operation rules: programs in which nothing is wrong, and a few mechanisms worth pinning."""

from __future__ import annotations

import pytest

from torchvet.rules import rule
from torchvet.source.model import SourceFile

HEAD = "import torch\nfrom torch import nn\nimport numpy as np\n"
LOOP = """
model = nn.Linear(2, 1).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step, (x, y) in enumerate(batches):
    loss = nn.functional.mse_loss(model(x.to(device)), y.to(device))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    {line}
"""


def found(code: str, text: str) -> list[str]:
    return [f.severity for f in rule(code).in_source(SourceFile("t.py", HEAD + text))]


IN_A_STEP = [
    ("OPS101", "total = loss.item()", ["info"]),
    ("OPS101", "if step % 100 == 0: print(loss.item())", []),
    ("OPS101", "total += float(loss)", ["info"]),
    ("OPS101", "kept.append(loss.detach().cpu())", ["info"]),
    ("OPS101", "total += float(size)", []),
    ("OPS101", "total += loss.detach().float()", []),
    ("OPS101", "print(loss)", ["info"]),
    ("OPS101", "print(f'{step}: {loss:.3f}')", ["info"]),
    ("OPS101", "print(step)", []),
    ("OPS101", "found = [z[i].item() for i in range(n)]", []),
    ("OPS101", "z = torch.ones(n, device=device)\n    found = [z[i].item() for i in range(n)]", ["warning"]),
    ("OPS101", "z = torch.ones(n, device=device)\n    found = [z[i].item() for i in range(3)]", []),
    ("OPS101", "norms = [p.grad.norm().item() for p in model.parameters()]", ["warning"]),
    ("OPS101", "if step % 9 == 0: norms = [p.grad.norm().item() for p in model.parameters()]", []),
    ("OPS102", "z = torch.from_numpy(np.sqrt(x.cpu().numpy())).to(device)", ["warning"]),
    ("OPS102", "h = y.cpu(); b = h.max(dim=0).indices; b = b.to(device)", ["warning"]),
    ("OPS102", "z = torch.from_numpy(assign(x.cpu().numpy())).to(device)", []),
    ("OPS102", "z = x.cpu().numpy()", []),
    ("OPS103", "z = torch.zeros(x.size(0), 1).cuda()", ["info"]),
    ("OPS103", "z = torch.randn(x.size(0), 1).cuda()", ["info"]),
    ("OPS103", "z = torch.tensor(np.arange(3)).cuda()", []),
    ("OPS103", "z = torch.tril(torch.ones(n, n)).bool().cuda()", ["info"]),
    ("OPS103", "z = torch.randn(n, 2); z = z.cuda()", ["info"]),
    ("OPS103", "z = torch.zeros(n, 2); z[0] = table; fill(z); z = z.cuda()", ["info"]),
    ("OPS103", "z = torch.zeros(x.size(0), 1).to(torch.float16)", []),
    ("OPS203", "z = torch.zeros(8, 8)", ["info"]),
    ("OPS203", "z = torch.zeros(x.size(0), 8)", []),
    ("OPS203", "z = torch.randn(8, 8)", []),
    ("OPS203", "z = torch.zeros(8, 8); z[0] = x[0]", []),
    ("OPS203", "z = torch.zeros(8, 8); kept.append(z)", []),
    ("OPS203", "z = torch.ones(8, 8).tril().triu(-2)", ["info"]),
    ("OPS203", "z = torch.ones(8, 8).mul(x)", []),
]


@pytest.mark.parametrize(("code", "line", "expected"), IN_A_STEP)
def test_what_a_step_does(code: str, line: str, expected: list[str]) -> None:
    assert found(code, LOOP.format(line=line)) == expected


def test_on_the_cpu_alone_nothing_waits() -> None:
    text = LOOP.replace(".to(device)", "").format(line="norms = [p.grad.norm().item() for p in model.parameters()]")
    assert found("OPS101", text) == []


JOINED = [
    ("for part in parts:\n        out = torch.cat([out, part])", True),
    ("for part in parts:\n        out = torch.cat([out, model(out)])", False),
    ("while out.size(0) < 9:\n        out = torch.cat([out, part])", False),
    ("for part in parts:\n        out = torch.cat([out[1:], part])", False),
    ("for part in parts:\n        out = part\n        out = torch.cat([out, part])", False),
    ("for i in range(3):\n        out = torch.cat([out, parts[i]])", False),
    ("for part in parts:\n        out = part if out is None else torch.cat([out, part])", True),
    ("for part in parts:\n        if len(out) == 0:\n            out = part\n        else:\n"
     "            out = torch.cat([out, part])", True),
    ("for part in parts:\n        if len(out) == 9:\n            out = part\n        else:\n"
     "            out = torch.cat([out, part])", False),
]  # fmt: skip


@pytest.mark.parametrize(("loop", "wrong"), JOINED)
def test_a_tensor_that_the_loop_reads_has_to_be_joined(loop: str, wrong: bool) -> None:
    assert (
        bool(found("OPS204", f"def f(out, parts, part, model):\n    out = parts[0]\n    {loop}\n    return out\n"))
        is wrong
    )


LOOPS = [
    ("for i in range(x.size(0)):\n        s = s + x[i] * w[i]", True),
    ("for i in range(x.size(0)):\n        h = cell(x[i], h)", False),
    ("for i in range(1, x.size(0)):\n        y[i] = y[i - 1] + x[i]", False),
    ("for i in range(4):\n        s = s + x[i] * w[i]", False),
    ("for i in range(n):\n        s = s + sizes[i] * 2", False),
    ("for i in range(n):\n        y[t, i] = x[t + 1, i] * 2 - x[t, i]", True),
    ("for i in range(n):\n        if x[i] != 3:\n            y[x[i]] += 1", True),
    ("for i in range(n):\n        if x[i] != 3:\n            y[cell(i)] += 1", False),
    ("for i in range(n):\n        y[t, i] = torch.norm(x[t] - w[i])", True),
    ("for i in range(n):\n        y[t, i] = (x[t, 1] - w[i, 0]).clamp(min=0)", True),
    ("for i in range(n):\n        y[t, i] = x[t, i] + torch.minimum(y[t, i - 1], y[t - 1, i])", False),
    ("for i in range(n):\n        s = x[i] * s + w[i]", False),
    ("for i in range(n):\n        y[i, : x[i]] = 1", False),
]


@pytest.mark.parametrize(("loop", "wrong"), LOOPS)
def test_elements_are_worked_through(loop: str, wrong: bool) -> None:
    given = "x: torch.Tensor, w: torch.Tensor, y: torch.Tensor, s, h, cell, n, t, sizes"
    text = f"def f({given}):\n    {loop}\n    return s\n"
    assert bool(found("OPS205", text)) is wrong


FORWARD = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 3)
        self.w = nn.Parameter(torch.ones(3))
        self.act = nn.Sigmoid()
        self.gelu = nn.GELU()

    def forward(self, x):
        h = self.layer(x)
        {body}
        return h
"""
IN_PLACE = [
    ("h = torch.sigmoid(h); h *= 2", True),
    ("h = nn.functional.gelu(h); h += 1", False),
    ("h = torch.relu(h); h = h + x", False),
    ("h = torch.tanh(h).clone(); h += 1", False),
    ("self.w += 1", True),
    ("self.w.data += 1", False),
    ("with torch.no_grad(): self.w += 1", False),
    ("h = self.act(h); h += x", True),
    ("h = self.gelu(h); h += x", False),
    ("h = torch.exp(h); h[:, 0] = 0", True),
    ("h = torch.exp(h); h = h.clone(); h[:, 0] = 0", False),
    ("self.w[0] = 0", True),
    ("w = self.w.clone(); w[0] = 0", False),
    ("for m in self.modules():;     if isinstance(m, nn.Linear):;         m.weight *= 2", True),
    ("for m in self.modules():;     if isinstance(m, nn.Linear):;         m.weight.data *= 2", False),
    ("for m in self.modules():;     if isinstance(m, Gate):;         m.weight *= 2", False),
    ("for m in self.modules():;     m.weight *= 2", False),
]


@pytest.mark.parametrize(("body", "wrong"), IN_PLACE)
def test_what_autograd_saved_is_changed(body: str, wrong: bool) -> None:
    # One statement a line: a compound statement cannot follow a semicolon.
    assert bool(found("OPS208", FORWARD.format(body="\n        ".join(body.split("; "))))) is wrong


VIEWS = [
    ("x.permute(0, 2, 3, 1).view(n, -1)", True),
    ("x.permute(0, 2, 3, 1).view(n, -1, c)", False),
    ("x.permute(0, 2, 3, 1).contiguous().view(n, -1)", False),
    ("x.transpose(1, 2).view(-1)", True),
    ("x.t().view(-1)", True),
    ("x.t().contiguous().view(-1)", False),
    ("x.transpose(0, 1).view(t, b, h, d)", False),
    ("x.view(b, t, h, d).transpose(1, 2).view(b, h, t * d)", True),
    ("x.view(b, t, c).transpose(1, 2).view(b, c, t)", False),
    ("x.transpose(1, 2).transpose(1, 2).view(b, -1)", False),
    ("x.permute(2, 0, 1).reshape(-1)", False),
    ("x.view(b, t, h, d).permute(0, 1, 3, 2).view(b * t, d, h)", False),
    ("torch.matmul(n, x.view(b, t, h, d)).transpose(1, 2).view(b, t, d)", True),
    ("torch.matmul(n, x.view(b, t, h)).transpose(1, 2).view(b, h, t)", False),
]


@pytest.mark.parametrize(("expression", "wrong"), VIEWS)
def test_a_view_merges_what_is_out_of_order(expression: str, wrong: bool) -> None:
    assert bool(found("OPS209", f"def f(x, n, b, t, h, d, c):\n    return {expression}\n")) is wrong


PRODUCTS = [
    ("q @ k.transpose(-2, -1).contiguous()", True),
    ("torch.matmul(q, k.t().contiguous())", True),
    ("k.transpose(1, 2).contiguous().view(2, -1)", False),
    ("q @ k.permute(2, 0, 1).contiguous()", False),
    ("dist.all_gather(parts, k.t().contiguous())", False),
    ("torch.bmm(q, k.transpose(1, 2).contiguous())", True),
    ("q @ k.transpose(1, 2).contiguous()", False),
    ("q @ k.permute(0, 2, 1).contiguous()", True),
    ("q @ k.permute(0, 2, 1, 3).contiguous()", False),
]


@pytest.mark.parametrize(("expression", "wrong"), PRODUCTS)
def test_a_product_needs_no_copy(expression: str, wrong: bool) -> None:
    assert bool(found("OPS202", f"def f(q, k):\n    return {expression}\n")) is wrong


LARGE = "def f(net, volumes):\n    for v in volumes:\n        {made}\n        net(w[: v.size(0)] * v)\n"
MADE = [
    ("w = torch.ones(512, 512, 512)", True),
    ("w = torch.ones(512, 512, 512, device='cuda')", False),
    ("w = torch.ones(9, 9)", False),
    ("w = torch.ones(512, 512, 512); w[0] = v", False),
    ("w = torch.ones(512, 512, v.size(0))", False),
]


@pytest.mark.parametrize(("made", "wrong"), MADE)
def test_a_large_constant_costs_outside_training_too(made: str, wrong: bool) -> None:
    assert found("OPS203", LARGE.format(made=made)) == (["warning"] if wrong else [])


GATHERER = """
class Gatherer:
    def __init__(self):
        self.seen = torch.empty(0, 8)

    def read(self):
        return self.seen.sum()

    def other(self):
        return 1

    def run(self, parts):
        for part in parts:
            self.seen = torch.cat([self.seen, part])
            {more}
"""
GATHERED = [
    ("pass", True),
    ("self.other()", True),
    ("self.read()", False),
    ("self.seen = self.seen[-9:]", False),
    ("print(self.seen.sum())", False),
]


def test_over_the_images_of_a_batch_it_costs_little() -> None:
    text = (
        "def f(xs):\n    out = None\n    for a, b in {over}:\n        out = a if out is None else torch.cat([out, a])\n"
    )
    assert found("OPS204", text.format(over="zip(xs['a'], xs['b'])")) == ["info"]
    assert found("OPS204", text.format(over="tqdm(loader)")) == ["warning"]


@pytest.mark.parametrize(("more", "wrong"), GATHERED)
def test_an_attribute_grows_too(more: str, wrong: bool) -> None:
    assert bool(found("OPS204", GATHERER.format(more=more))) is wrong


NO_GRADIENT = "def f(shadow, model, x, other):\n    {mode}:\n        {body}\n    return x\n"
UPDATES = [
    ("for n, p in model.named_parameters():\n            shadow[n] = shadow[n] * 0.9 + p * 0.1", True),
    ("for n, p in model.named_parameters():\n            shadow[n] = other[n] * 0.9 + p * 0.1", False),
    ("for n, p in model.named_parameters():\n            new = 0.9 * shadow[n] + p * 0.1\n"
     "            shadow[n] = new.clone()", True),
    ("x = torch.abs(x)\n        x = x + 1\n        x = x / 2\n        x = x.clamp(0, 1)", True),
    ("x = torch.abs(x)\n        x = x + 1\n        y = x\n        x = x / 2\n        x = y.clamp(0, 1)", False),
]  # fmt: skip


@pytest.mark.parametrize(("body", "wrong"), UPDATES)
def test_without_a_graph_it_can_be_done_in_place(body: str, wrong: bool) -> None:
    assert bool(found("OPS207", NO_GRADIENT.format(mode="with torch.no_grad()", body=body))) is wrong
    assert not found("OPS207", NO_GRADIENT.format(mode="with torch.enable_grad()", body=body))


HANDED = """
def moved(batch):
    x, y = batch
    return x.cuda({more}), y.cuda({more})

loader = torch.utils.data.DataLoader(data, pin_memory=True)
for batch in loader:
    x, y = moved(batch)
"""


def test_a_batch_may_be_moved_by_a_function_that_is_given_it() -> None:
    assert found("OPS104", HANDED.format(more="")) == ["info"]
    assert not found("OPS104", HANDED.format(more="non_blocking=True"))

"""Look-alikes of the device rules: programs in which nothing is wrong, and a few mechanisms worth pinning."""

from __future__ import annotations

import ast

import pytest

from torchvet.rules import rule
from torchvet.source.model import SourceFile

HEAD = "import torch\nfrom torch import nn\nfrom torch.utils.data import DataLoader, TensorDataset\n"


def found(code: str, text: str) -> list[tuple[int, str]]:
    return [(f.location.line, f.severity) for f in rule(code).in_source(SourceFile("t.py", HEAD + text)) if f.location]


DISCARDED = [
    ("model = nn.Linear(2, 2)\nmodel.to('cuda')\n", []),
    ("def f(batch, model):\n    batch.to('cuda')\n    return model(**batch)\n", []),
    ("def f(loader):\n    for batch in loader:\n        batch.to('cuda')\n", []),
    ("w = torch.zeros(3)\nw.to('cuda')\n", [(5, "error")]),
    ("def f(x: torch.Tensor, d):\n    x.to(d.device)\n    return x\n", [(5, "error")]),
    ("def f(w):\n    w.cuda()\n    return w.view(-1)\n", [(5, "error")]),
    ("x = torch.zeros(3)\nx = nn.Linear(3, 3)\nx.cuda()\n", []),
    ("x = torch.zeros(3)\nx.cuda(); torch.cuda.synchronize()\n", [(5, "info")]),
    ("x = torch.zeros(3)\nx.cuda(); x.sum(); torch.cuda.synchronize()\n", [(5, "error")]),
    ("x = torch.zeros(3)\nfor _ in range(9):\n    x.cuda()\ntook = time.perf_counter() - t\n", [(6, "info")]),
    ("x = torch.zeros(3)\nfor _ in range(9):\n    x.cuda()\nx.sum()\n", [(6, "error")]),
    ("x = torch.zeros(3)\nwith timer('copy'):\n    x.cuda()\nx.sum()\n", [(6, "info")]),
    ("def f(x: torch.Tensor):\n    x.cuda()\nf(x)\ntime.time()\n", [(5, "error")]),
    ("try:\n    x = torch.zeros(3)\nexcept OSError:\n    x.cuda()\n    end.record()\n", [(7, "info")]),
]


@pytest.mark.parametrize(("text", "expected"), DISCARDED)
def test_only_what_is_surely_a_tensor_has_its_move_discarded(text: str, expected: list[tuple[int, str]]) -> None:
    assert found("DEV110", text) == expected


def test_a_leaf_is_not_bound_anew() -> None:
    text = HEAD + "w = torch.zeros(3, requires_grad=True)\nw.to('cuda')\n"
    (finding,) = rule("DEV110").in_source(SourceFile("t.py", text))
    assert not finding.remedy.safe and not finding.remedy.edits


LOOP = """
data = TensorDataset(torch.randn(8, 2), torch.randn(8, 1))
loader = DataLoader(data{collate})
model = nn.Linear(2, 1)
{move}
for x, y in loader:
    {batch}
    loss = nn.functional.mse_loss(model(x), y)
    loss.backward()
"""
MISMATCHES = [
    ({"move": "model.cuda()", "batch": "pass"}, True),
    ({"move": "model.cuda()", "batch": "x, y = x.cuda(), y.cuda()"}, False),
    ({"move": "model.cuda()", "batch": "x, y = (t.cuda() for t in (x, y))"}, False),
    ({"move": "model.to('cpu')", "batch": "pass"}, False),
    ({"move": "model = nn.DataParallel(model).cuda()", "batch": "y = y.cuda()"}, False),
    ({"move": "model, loader = accelerator.prepare(model.to('cuda'), loader)", "batch": "pass"}, False),
    ({"move": "if torch.cuda.is_available():\n    model.cuda()", "batch": "pass"}, False),
    ({"move": "model.cuda()", "batch": "pass", "collate": ", collate_fn=to_the_device"}, False),
    ({"move": "model.cuda()", "batch": "x, y = x.cuda() * torch.tensor([1.0, 2.0]), y.cuda()"}, True),
    ({"move": "model.cuda()", "batch": "x, y = x.cuda() * torch.tensor(0.5), y.cuda()"}, False),
    ({"move": "k = torch.linspace(0, 1, 9); model.cuda()", "batch": "x, y = x.cuda() * k[3], y.cuda()"}, False),
    ({"move": "pass", "batch": "x, y = x.cuda(), y.cuda()"}, True),
    ({"move": "for m in (model,): m.cuda()", "batch": "x, y = x.cuda(), y.cuda()"}, False),
]


@pytest.mark.parametrize(("parts", "wrong"), MISMATCHES)
def test_a_batch_is_on_the_host_only_if_nothing_may_have_moved_it(parts: dict[str, str], wrong: bool) -> None:
    assert bool(found("DEV101", LOOP.format(**{"collate": "", **parts}))) is wrong


LENGTHS = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.LSTM(8, 16, batch_first=True)
        self.part = Part()
    def forward(self, x, lengths, *more):
        {forward}
    def packed(self, x, n):
        return nn.utils.rnn.pack_padded_sequence(x, n.tolist(), batch_first=True)
class Part(nn.Module):
    def forward(self, x, n):
        return {part}
model = {made}
model.cuda()
for step in range(9):
    x = torch.randn(4, 9, 8).cuda()
    lengths = torch.tensor([9, 5, 3, 2])
    loss = {call}.mean()
    loss.backward()
"""
READ = [
    "p = nn.utils.rnn.pack_padded_sequence(x, lengths.cpu(), True)\n        return self.inner(p)[0].data",
    "p = nn.utils.rnn.pack_padded_sequence(x, lengths=lengths, batch_first=True)\n        return p.data",
    "n, order = lengths.sort(descending=True)\n        n = n.tolist()\n        return x[order][:, : n[0]]",
    "return torch.cat([row[:n] for row, n in zip(x, lengths)])",
    "steps = (lengths + 1) // 2\n        return x[:, : int(steps.max())] / lengths.max() * len(lengths)",
    "return self.packed(x, lengths).data",
    "return self.part(x, n=lengths)",
    "if lengths is None or (lengths > 9).any():\n            return x\n        return x[:, -1]",
]
COMPUTED = [
    "return x.sum(1) / lengths[:, None]",
    "mask = x[..., 0].argsort(1) < lengths[:, None]\n        return x * mask[..., None]",
    "n = lengths.cpu().float()\n        return x * n.view(-1, 1, 1)",
    "return nn.utils.rnn.pack_padded_sequence(lengths, x).data",
    "lengths *= x\n        return lengths",
    "return self.part(x, lengths * x)",
    "return elsewhere(x, lengths)",
]


@pytest.mark.parametrize(("forward", "wrong"), [*((f, False) for f in READ), *((f, True) for f in COMPUTED)])
def test_lengths_stay_on_the_host_where_forward_only_reads_them(forward: str, wrong: bool) -> None:
    text = LENGTHS.format(forward=forward, part="x[:, : max(n)]", made="Net()", call="model(x, lengths)")
    assert bool(found("DEV101", text)) is wrong


def test_lengths_are_followed_into_layers_of_the_file() -> None:
    forward, call = "return self.part(x, lengths)", "model(x, lengths)"
    assert found("DEV101", LENGTHS.format(forward=forward, part="x[:, : max(n)]", made="Net()", call=call)) == []
    assert len(found("DEV101", LENGTHS.format(forward=forward, part="x + n", made="Net()", call=call))) == 1


def test_lengths_given_to_a_class_of_another_file_are_not_known_to_be_a_fault() -> None:
    text = LENGTHS.format(forward="return x", part="x", made="nets.Tagger()", call="model({})")
    assert found("DEV101", text.replace("{}", "x, lengths")) == []
    assert len(found("DEV101", text.replace("{}", "lengths"))) == 1, "the first is what it computes with"
    made = text.replace("torch.tensor([9, 5, 3, 2])", "torch.tensor([len(r) for r in x])").replace("lengths", "n")
    assert found("DEV101", made.replace("{}", "x, n")) == []
    assert len(found("DEV101", text.replace("lengths", "weights").replace("{}", "x, weights"))) == 1


def test_targets_of_ctc_may_stay_on_the_host() -> None:
    text = """
model = nn.Linear(8, 20).cuda()
criterion = nn.{loss}()
for step in range(9):
    x = torch.randn(50, 4, 8).cuda()
    y = torch.randint(1, 20, (4, 9))
    loss = criterion(model(x).log_softmax(2), y{more})
    loss.backward()
"""
    assert found("DEV101", text.format(loss="CTCLoss", more=", torch.full((4,), 50), torch.full((4,), 9)")) == []
    assert len(found("DEV101", text.format(loss="CrossEntropyLoss", more=""))) == 1


NET = """
class Net(nn.Module):
    def __init__(self, mean=(0.4, 0.5), other=None):
        super().__init__()
        table = torch.zeros(9, 3)
        table[:, 0] = 1.0
        self.k = {value}
        {more}

    def make(self):
        return nn.Sequential(nn.Linear(2, 2))

    def plain(self):
        return nn.ReLU()

    def forward(self, x):
        return {use}
"""
ATTRIBUTES = [
    ("torch.ones(3, 3)", "x @ self.k", True),
    ("torch.ones(3, 3)", "x @ self.k.to(x.device)", False),
    ("torch.ones(3, 3)", "x.masked_fill(self.k[:2] == 0, 0.0)", True),
    ("torch.arange(3)", "x[self.k]", False),
    ("torch.tensor(0.5)", "x * self.k", False),
    ("torch.tensor([0.5, 0.5])", "x * self.k", True),
    ("torch.ones(3, device='cuda')", "x * self.k", False),
    ("torch.ones(3).cuda()", "x * self.k", False),
    ("nn.Parameter(torch.ones(3))", "x * self.k", False),
    ("torch.ones(3)", "x.view(-1, self.k.size(0))", False),
    ("table", "x + self.k[: x.size(0)]", True),
    ("table.unsqueeze(0)", "x + self.k", True),
    ("table.tolist()", "x + self.k", False),
    ("table", "x[self.k]", False),
    ("torch.tensor(mean)", "x - self.k", True),
    ("torch.tensor(mean[0])", "x - self.k", False),
    ("torch.tensor(other).view(1, -1)", "x - self.k", True),
    ("torch.tensor(other)", "x - self.k", False),
    ("torch.ones(3, 3)", "x.sum() + float(torch.matmul(self.k, self.k).sum())", False),
    ("torch.ones(3, 3)", "torch.matmul(x, self.k)", True),
]


@pytest.mark.parametrize(("value", "use", "wrong"), ATTRIBUTES)
def test_a_plain_tensor_matters_where_forward_combines_it(value: str, use: str, wrong: bool) -> None:
    assert bool(found("DEV102", NET.format(value=value, use=use, more="pass"))) is wrong


@pytest.mark.parametrize("more", ["self.k = self.k.cuda()", "self.k = None", "self.register_buffer('k', self.k)"])
def test_a_tensor_that_is_replaced_is_no_plain_attribute(more: str) -> None:
    assert not found("DEV102", NET.format(value="torch.ones(3)", use="x * self.k", more=more))


CONTAINERS = [
    ("[nn.Linear(2, 2) for _ in range(3)]", "pass", True),
    ("{'a': nn.Linear(2, 2)}", "pass", True),
    ("[nn.ReLU(), nn.Tanh()]", "pass", False),
    ("nn.ModuleList([nn.Linear(2, 2)])", "pass", False),
    ("[nn.Linear(2, 2)]", "self.net = nn.Sequential(*self.k)", False),
    ("[nn.Linear(2, 2)]", "self.add_module('first', self.k[0])", False),
    ("[teacher]", "pass", False),
    ("{n: self.make() for n in other}", "pass", True),
    ("[self.plain()]", "pass", False),
    ("dict(a=nn.Linear(2, 2))", "pass", True),
    ("list(nn.Linear(2, 2) for _ in other)", "pass", True),
    ("[[nn.Linear(2, 2), nn.ReLU()]]", "pass", True),
    ("[nn.Linear(2, 2)] * 3", "pass", True),
    ("[]", "self.k.extend([nn.Linear(2, 2)])", True),
    ("[]", "self.k += [nn.Linear(2, 2)]", True),
    ("{}", "self.k['a'] = nn.Linear(2, 2)", True),
    ("[]", "one = nn.Linear(2, 2); self.k.append(one)", True),
    ("[]", "one = nn.Linear(2, 2); self.one = one; self.k.append(one)", False),
    ("[]", "many = [nn.Linear(2, 2)]; self.many = many", True),
    ("[]", "many = [nn.Linear(2, 2)]; self.many = nn.ModuleList(many)", False),
    # What is put in may itself be a container of torch's: that registers nothing here.
    ("[nn.Sequential(nn.Linear(2, 2), nn.ReLU()) for _ in range(3)]", "pass", True),
    ("[]", "self.k.append(nn.Sequential(nn.Linear(2, 2), nn.ReLU()))", True),
    ("[nn.Sequential(nn.Linear(2, 2)), nn.Sequential(nn.Linear(2, 2))]", "self.net = nn.Sequential(*self.k)", False),
    ("[]", "many = []; many.append(nn.Sequential(nn.Linear(2, 2))); self.many = nn.Sequential(*many)", False),
    ("[]", "self.k.append(nn.Sequential(nn.Linear(2, 2))); self.all = nn.ModuleList(b for b in self.k)", False),
]


@pytest.mark.parametrize(("value", "more", "wrong"), CONTAINERS)
def test_modules_in_a_list_are_lost_unless_registered(value: str, more: str, wrong: bool) -> None:
    assert bool(found("DEV109", NET.format(value=value, use="x", more=more))) is wrong


IN_FORWARD = [
    ("out, _ = self.lstm(x, (torch.zeros(1, x.size(0), 2), torch.zeros(1, x.size(0), 2)))", True),
    ("noise = torch.randn(x.shape); out = x + noise", True),
    ("noise = torch.randn(x.shape); noise = noise.to(x); out = x + noise", False),
    ("noise = torch.randn(x.shape, device=x.device); out = x + noise", False),
    ("keep = torch.rand(3); out = x if keep[0] > 0.5 else -x", False),
    ("out = x * torch.tensor(0.5)", False),
]


@pytest.mark.parametrize(("body", "wrong"), IN_FORWARD)
def test_forward_makes_a_tensor_on_the_host(body: str, wrong: bool) -> None:
    lines = "\n        ".join(body.split("; "))
    init = "    def __init__(self):\n        super().__init__()\n        self.lstm = nn.LSTM(2, 2)\n"
    net = f"class Net(nn.Module):\n{init}\n    def forward(self, x):\n        {lines}\n        return out\n"
    assert bool(found("DEV101", net + "model = Net().cuda()\n")) is wrong
    assert not found("DEV101", net + "model = Net()\n")


OPTIMIZERS = [
    ("setattr(model, 'fc', nn.Linear(2, 2))", True),
    ("model.fc = nn.Linear(2, 2)", True),
    ("model.cuda()", False),
    ("model = nn.DataParallel(model)", False),
    ("model.fc = nn.Linear(2, 2)\noptimizer.add_param_group({'params': model.fc.parameters()})", False),
    ("model.fc = nn.Linear(2, 2)\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)", False),
    ("model.criterion = nn.MSELoss()", False),
]


@pytest.mark.parametrize(("after", "wrong"), OPTIMIZERS)
def test_parameters_are_replaced_or_kept(after: str, wrong: bool) -> None:
    text = f"model = Net()\noptimizer = torch.optim.Adam(model.parameters())\n{after}\noptimizer.step()\n"
    assert bool(found("DEV103", text)) is wrong


LEAVES = [
    ("x = x.to('cuda')\noptimizer.step()", True),
    ("x = x.cpu()\noptimizer.step()", False),
    ("y = x.to('cuda')\noptimizer.step()", False),
    ("x = x.to('cuda')\noptimizer = torch.optim.Adam([x])\noptimizer.step()", False),
]


@pytest.mark.parametrize(("after", "wrong"), LEAVES)
def test_a_leaf_that_moves_is_another_tensor(after: str, wrong: bool) -> None:
    text = f"x = torch.zeros(2, requires_grad=True)\noptimizer = torch.optim.Adam([x])\n{after}\n"
    assert bool(found("DEV103", text)) is wrong


def test_a_model_is_given_back_with_the_optimizer_of_its_old_head() -> None:
    text = "def f(model):\n    optimizer = torch.optim.SGD(model.parameters())\n    model.fc = nn.Linear(2, 2)\n"
    assert found("DEV103", text + "    return model, optimizer\n")
    assert not found("DEV103", text + "    return model, torch.optim.SGD(model.parameters())\n")


DEVICE = "device = 'cuda' if torch.cuda.is_available() else 'cpu'\n"
LOSS = """
class Loss(nn.Module):
    def __init__(self, device):
        self.device = {given}

    def forward(self, x):
        return x * torch.arange(3).cuda()
"""
STATE = """
class Net(nn.Module):
    def state(self):
        return torch.zeros(3).cuda()

def train(device):
    return {move}
"""
OWN_WORD = """
class Runner:
    def __init__(self, engine, device="cpu"):
        self.device = device
        if engine is not None:
            self.warm = torch.ones(1, 3).cuda()

    def run(self, x):
        if {test}:
            x = x.cuda()
        return x
"""
HARD = [
    (DEVICE + "x = torch.ones(2).cuda()\n", True),
    (DEVICE + "if device == 'cuda':\n    x = torch.ones(2).cuda()\n", False),
    (DEVICE + "with torch.autocast('cuda'):\n    pass\n", False),
    ("x = torch.ones(2).cuda()\n", False),
    ("def f(n, device):\n    return torch.ones(n, device='cuda:0')\n", True),
    (LOSS.format(given="device"), True),
    (LOSS.format(given="torch.device(device)"), True),
    (LOSS.format(given="'cuda'"), False),
    ("def f(args):\n    device = torch.device(args.device)\n    return torch.ones(2).cuda(), device\n", True),
    (STATE.format(move="Net().to(device)"), True),
    (STATE.format(move="Net()"), False),
    (DEVICE + "loss = nn.BCELoss().cuda()\n", False),
    (DEVICE + "loss = nn.BCELoss(weight=w).cuda()\n", True),
    # The program's own word: `to("gpu")` raises.
    (OWN_WORD.format(test="self.device == 'gpu'"), False),
    (OWN_WORD.format(test="self.device in ('gpu', 'gpu:0')"), False),
    (OWN_WORD.format(test="self.device == 'gpu'") + "\n\ndef main(args):\n    args.device = 'gpu'\n", False),
    (OWN_WORD.format(test="self.device == 'cuda'"), True),
    (OWN_WORD.format(test="self.kind == 'gpu'"), True),
    ("def f(x, device):\n    if device == 'gpu':\n        device = 'cuda'\n    return x.cuda()\n", True),
    ("def f(x, device):\n    device = 'cuda' if device == 'gpu' else 'cpu'\n    return x.cuda()\n", True),
]


@pytest.mark.parametrize(("text", "wrong"), HARD)
def test_a_device_is_hard_coded_only_beside_a_variable_for_it(text: str, wrong: bool) -> None:
    assert bool(found("DEV107", text)) is wrong


def test_fixed_examples_parse_and_are_clean() -> None:
    for code in ("DEV102", "DEV107", "DEV108", "DEV109", "DEV110"):
        subject = rule(code)
        (finding,) = subject.in_source(SourceFile("t.py", subject.BAD))
        text = subject.BAD
        for edit in finding.remedy.edits:
            assert edit.start[0] == edit.end[0]
            lines = text.splitlines(keepends=True)
            line = lines[edit.start[0] - 1]
            lines[edit.start[0] - 1] = line[: edit.start[1] - 1] + edit.text + line[edit.end[1] - 1 :]
            text = "".join(lines)
        ast.parse(text)
        assert text != subject.BAD and not list(subject.in_source(SourceFile("t.py", text)))


LOADS = [
    ("model.load_state_dict(torch.load(path))\n", [True]),
    ("state = torch.load(path)\nmodel.load_state_dict(state)\n", [False]),
    ("state = torch.load(path)\nmodel.load_state_dict(state['model'])\n", [False]),
    ("weights = torch.load(path)['model']\n", [False]),
    ("net = torch.load(path)['model']\nnet.eval()\nprobe = Probe(net)\n", [None]),
    ("net = torch.load(path)['model']\nprint(net(x))\n", [None]),
    # A whole module, or a batch, may be computed with where it lies.
    ("model = torch.load(path)\nout = model(x)\n", [None]),
    ("model = torch.load(path)\nevaluate(model)\n", [None]),
    ("def item(path):\n    return torch.load(path)\n", [None]),
    # The other arm says where to: this one is meant to go where it came from.
    ("if cpu:\n    s = torch.load(path, map_location='cpu')\nelse:\n    s = torch.load(path)\n", []),
    ("if cpu:\n    s = torch.load(path, 'cpu')['m']\nelse:\n    s = torch.load(path)['m']\n", []),
    ("if cpu:\n    s = torch.load(other, 'cpu')['m']\nelse:\n    s = torch.load(path)['m']\n", [False]),
]


@pytest.mark.parametrize(("text", "kinds"), LOADS)
def test_a_load_is_edited_where_only_state_is_read(text: str, kinds: list[bool | None]) -> None:
    findings = list(rule("DEV108").in_source(SourceFile("t.py", HEAD + text)))
    assert [f.remedy.safe if f.remedy.edits else None for f in findings] == kinds

"""What looks like a fault and is meant, bounded or without consequence is not said; the fault beside it is."""

from __future__ import annotations

import pytest

from torchvet.rules import rule
from torchvet.source.model import SourceFile

HEAD = "import io\nimport os\nimport numpy as np\nimport torch\nimport torch.nn as nn\n"


def found(code: str, text: str) -> list[str]:
    return [f.severity for f in rule(code).in_source(SourceFile("t.py", HEAD + text))]


BOUNDED = {
    "both arms": "def f(x, m):\n    if m:\n        x = x + 1\n        x = x - x.max(1)[0]\n    else:\n"
    "        x = x - x.amax(1)\n    e = torch.exp(x)\n    return e / e.sum(1)",
    "a name in both arms": "def f(x, keep):\n    m = x.amax(-1)\n    if keep:\n        z = x - m\n    else:\n"
    "        z = x - m.detach()\n    return torch.log(torch.exp(z).sum(-1)) + m",
    "three arms": "def f(x, mode):\n    if mode == 1:\n        s = x - torch.max(x, 1)[0]\n    elif mode == 2:\n"
    "        s = x - x.max(1)[0]\n    else:\n        s = x - x.amax(1)\n    p = s.exp()\n    return p / p.sum(1)",
    "guard left early": "def f(a, b):\n    if a >= b: return a + torch.log(1 + torch.exp(b - a))\n"
    "    return b + torch.log(1 + torch.exp(a - b))",
    "guard the other way": "def f(a, b):\n    if a < b:\n        return b + torch.log1p(torch.exp(a - b))\n    else:\n"
    "        return a + torch.log1p(torch.exp(b - a))",
    "conditional": "def f(a, b): return torch.log1p(torch.exp(b - a)) if a > b else torch.log1p(torch.exp(a - b))",
    "a number": "def f(x):\n    if x > 20:\n        return x\n    return torch.log(1 + torch.exp(x))",
    "filled": "def f(x):\n    return (lambda z: z.exp().log1p())(x.masked_fill(x > 18, 0))",
    "filled before": "def f(x):\n    z = x.masked_fill(x > 18, 0)\n    return z.exp().log1p()",
    "a negative with a margin": "def f(d, m): return torch.log1p(torch.exp(-d + float(m)))",
}
UNBOUNDED = {
    "one arm": "def f(x, m):\n    if m:\n        x = x - x.max(1)[0]\n    e = torch.exp(x)\n    return e / e.sum(1)",
    "another arm": "def f(x, m):\n    if m:\n        z = x - x.max(1)[0]\n    else:\n        z = x * 2\n"
    "    e = torch.exp(z)\n    return e / e.sum(1)",
    "two of three": "def f(x, m):\n    if m == 1:\n        s = x - x.max(1)[0]\n    elif m == 2:\n"
    "        s = x - x.amax(1)\n    else:\n        s = x + 1\n    p = s.exp()\n    return p / p.sum(1)",
    "guard of others": "def f(a, b, c):\n    if a >= c: return a + torch.log(1 + torch.exp(b - a))\n    return a",
    "guard reversed": "def f(a, b):\n    if a >= b: return a + torch.log(1 + torch.exp(a - b))\n    return a",
    "too large a number": "def f(x):\n    if x > 200:\n        return x\n    return torch.log(1 + torch.exp(x))",
    "filled elsewhere": "def f(x, m): return (lambda z: z.exp().log1p())(x.masked_fill(m, -1e9))",
}


@pytest.mark.parametrize("name", BOUNDED)
def test_an_exponent_that_branches_bound(name: str) -> None:
    assert found("NUM110", BOUNDED[name]) == []


@pytest.mark.parametrize("name", UNBOUNDED)
def test_an_exponent_that_nothing_bounds(name: str) -> None:
    assert found("NUM110", UNBOUNDED[name]) == ["warning"]


WHERE = """
class M(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.register_buffer("scale", torch.rand(4))
        self.register_buffer("count", torch.zeros(4))
        self.weight = nn.Parameter(torch.rand(4))
    def forward(self, x):
        {}
"""


@pytest.mark.parametrize(
    ("body", "severities"),
    [
        ("return x * torch.where(self.count > 0, self.scale / self.count, 0.0)", []),
        ("return x * torch.where(self.scale > 0, self.scale.sqrt(), 0.0)", []),
        ("b = self.scale[0]; return x + torch.where(b > 0, b.sqrt() * x.detach(), 0.0)", []),
        ("m = torch.where(x > 0, 1 / x, 0.0); return torch.argmax(m * x, 1)", []),
        ("m = torch.where(x > 0, 1 / x, 0.0); return m > 3", []),
        ("return x * torch.where(self.weight > 0, self.weight.log(), 0.0)", ["warning"]),
        ("return torch.where(x > 0, x.sqrt(), 0.0)", ["warning"]),
        ("m = torch.where(x > 0, 1 / x, 0.0); return m * x, torch.argmax(m, 1)", ["warning"]),
        ("self.scale = x * 2; return torch.where(self.scale > 0, self.scale.sqrt(), 0.0)", ["warning"]),
    ],
)
def test_where_without_a_gradient(body: str, severities: list[str]) -> None:
    assert found("NUM111", WHERE.format(body)) == severities


LOOP = """
def main(sizes, loader, model, optimizer):
    for h in {}:
        {}
        y = model(torch.randn(8, 4)).sum()
        optimizer.zero_grad()
        y.backward()
        optimizer.step()
        {}
"""
EMPTY = "torch.cuda.empty_cache()"


@pytest.mark.parametrize(
    ("over", "first", "last", "severities"),
    [
        ("sizes", "model = nn.Linear(h, h).cuda(); optimizer = torch.optim.SGD(model.parameters(), 1)", EMPTY, []),
        ("sizes", "pass", f"try: print(h)\n        finally: {EMPTY}", []),
        ("loader", "pass", EMPTY, ["warning"]),
        ("loader", "model.train(); model = model.cuda(); loss_of = nn.MSELoss()", EMPTY, ["warning"]),
        ("loader", "pass", f"try: print(h)\n        except Exception: raise\n        {EMPTY}", ["warning"]),
    ],
)
def test_emptying_the_cache_between_models(over: str, first: str, last: str, severities: list[str]) -> None:
    assert found("MEM302", LOOP.format(over, first, last)) == severities


@pytest.mark.parametrize(
    ("text", "number"),
    [
        (
            "NEW = version.parse(torch.__version__) >= version.parse('2.4')\nif NEW:\n    s = 1\nelse:\n"
            "    s = torch.cuda.amp.GradScaler()",
            0,
        ),
        (
            "def f():\n    major, minor = map(int, torch.__version__.split('.')[:2])\n"
            "    if (major, minor) >= (2, 4):\n"
            "        return torch.amp.GradScaler('cuda')\n    return torch.cuda.amp.GradScaler()",
            0,
        ),
        (
            "def f():\n    new = hasattr(torch.amp, 'GradScaler')\n    if new: return 1\n"
            "    return torch.cuda.amp.autocast()",
            0,
        ),
        ("def f(x):\n    half = x > 1\n    if half: return torch.cuda.amp.autocast()\n    return x", 1),
        ("def f(x):\n    if x is None: return 1\n    return torch.cuda.amp.autocast()", 1),
    ],
)
def test_old_names_that_a_version_chooses(text: str, number: int) -> None:
    assert len(found("AMP210", text)) == number


SCALER = """
def train(model, loader):
    optimizer = torch.optim.SGD(model.parameters(), 1)
    scaler = torch.amp.GradScaler("cuda")
    for x in loader:
        optimizer.zero_grad()
        scaler.scale(model(x).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
    {}
def {}(model, optimizer):
    torch.save({{"optimizer": optimizer.state_dict()}}, "a.pt")
"""


@pytest.mark.parametrize(
    ("last", "name", "number"),
    [("pass", "other", 0), ("save(model, optimizer)", "save", 1), ("return scaler", "other", 1)],
)
def test_a_scaler_that_is_not_there_where_the_state_is_saved(last: str, name: str, number: int) -> None:
    assert len(found("AMP111", SCALER.format(last, name))) == number


@pytest.mark.parametrize(
    ("turns", "number"), [("range(5)", 0), ("range(steps)", 0), ("range(1000)", 1), ("loader", 1), ("range(n)", 1)]
)
def test_a_trial_of_a_few_turns_needs_no_scaler(turns: str, number: int) -> None:
    text = f"""
def main(model, loader, x, n):
    optimizer = torch.optim.SGD(model.parameters(), 1)
    steps = 2
    for step in {turns}:
        optimizer.zero_grad()
        with torch.autocast("cuda"):
            loss = model(x).sum()
        loss.backward()
        optimizer.step()
"""
    assert len(found("AMP115", text)) == number


TESTED = """
import unittest
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
{}
class T({}):
    {}
    {}
    def test_it(self, device):
        x = torch.ones(2).to(device)
        return x, torch.ones(2).cuda()
"""


@pytest.mark.parametrize(
    ("above", "base", "setup", "decorator", "number"),
    [
        ("", "unittest.TestCase", "", "@skip_if_no_cuda", 0),
        ("", "unittest.TestCase", "", '@unittest.skipIf(not torch.cuda.is_available(), "")', 0),
        ('@unittest.skipUnless(torch.cuda.is_available(), "")', "unittest.TestCase", "", "", 0),
        ("", "unittest.TestCase", 'def setUp(self): self.skipTest("")', "", 0),
        ("", "unittest.TestCase", "", "@skip_on_windows", 1),
        ("", "object", "", "", 1),
    ],
)
def test_a_test_for_cuda_may_write_it_out(above: str, base: str, setup: str, decorator: str, number: int) -> None:
    assert len(found("DEV107", TESTED.format(above, base, setup, decorator))) == number


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("def f(x, device='cuda'): return x + torch.ones(2, device='cuda')", 0),
        ("def f(x, *, device='cuda'): return x.cuda()", 0),
        ("def f(x, device='cuda'): return x.cuda()\nf(1, device='cpu')", 1),
        ("def f(x, device='cpu'): return x.cuda()", 1),
        ("def f(x, device): return x.cuda()", 1),
        ("def f(net, x, device):\n    net.to('cuda')\n    y = net(x)\n    net.to(device)", 0),
        ("def f(net, x, device):\n    net.to('cuda')\n    y = net(x)\n    x.to(device)", 1),
        ("def f(net, x, device):\n    with torch.autocast('cuda'):\n        return net(x.cuda())", 0),
    ],
)
def test_a_device_that_is_meant(text: str, number: int) -> None:
    assert len(found("DEV107", text)) == number


CHOSEN = "device = torch.device('cuda' if torch.cuda.is_available() else 'cpu')\n"


@pytest.mark.parametrize(
    ("text", "severity"),
    [
        ("def f(trainer):\n    trainer.train()\n    return torch.load(trainer.best)", "info"),
        ("def f(out):\n    convert_weights(output=out)\n    return torch.load(out / 'a.pth')", "info"),
        ("def f(p):\n    m = np.mean(p)\n    s = torch.load(p)\n    r = s['mean']\n    return fid(m, r)", "info"),
        ("def f(trainer):\n    best = torch.load(trainer.best)\n    trainer.train()\n    return best", "warning"),
        ("def f(trainer, p, a):\n    if a: trainer.train()\n    return torch.load(p)", "warning"),
        ("def f(args):\n    train(args)\n    return torch.load(args.best)", "warning"),
        ("def f(p):\n    w = SummaryWriter(p)\n    return torch.load(os.path.join(p, 'a.pth'))", "warning"),
        ("def f(p):\n    m = np.mean(p)\n    s = torch.load(p)\n    r = s['w']\n    return net(r)", "warning"),
    ],
)
def test_a_file_of_the_same_run_or_of_arrays(text: str, severity: str) -> None:
    assert found("DEV108", CHOSEN + text) == [severity]


@pytest.mark.parametrize(("path", "severity"), [("f'{p}/part-{rank}.pt'", "info"), ("p", "warning")])
def test_a_file_for_each_rank(path: str, severity: str) -> None:
    text = f"def f(p):\n    dist.init_process_group('nccl')\n    rank = dist.get_rank()\n    return torch.load({path})"
    assert found("DEV108", text) == [severity]


FROZEN = """
def train(model, loader, optimizer):
    {}
    for x in loader:
        optimizer.zero_grad(); model(x).sum().backward(); optimizer.step()
def validate(model, loader):
    model.eval()
    with torch.no_grad():
        for x in loader: print(model(x))
def main(loader):
    model = nn.Sequential(nn.Linear(4, 4), nn.Dropout())
    optimizer = torch.optim.SGD(model.parameters(), 1)
    for epoch in range(9):
        train(model, loader, optimizer)
        validate(model, loader)
"""


@pytest.mark.parametrize(("first", "number"), [("model.eval()", 0), ("model.train()", 0), ("print(1)", 1)])
def test_a_model_that_is_trained_in_eval_mode_on_purpose(first: str, number: int) -> None:
    assert len(found("TRN103", FROZEN.format(first))) == number


def test_a_branch_may_choose_another_model_to_evaluate() -> None:
    text = FROZEN.format("print(1)").replace(
        "        validate(model,",
        "        if epoch > 3:\n            tested = loader.average\n        else:\n            tested = model\n"
        "        validate(tested,",
    )
    assert found("TRN103", text) == ["info"]


ACCUMULATED = """
def main(loader, optimizer, loss_fn):
    for i, x in enumerate(loader):
        value = loss_fn(x)
        loss = value.policy + value.entropy
        loss.backward()
        if (i + 1) % 4 == 0:
            optimizer.step()
            optimizer.zero_grad()
"""


def test_parts_of_a_loss_from_elsewhere_are_read_without_a_crash() -> None:
    assert found("TRN107", ACCUMULATED) == ["warning"]


def test_a_device_that_is_made_of_itself_ends_the_search() -> None:
    text = """
class M:
    def __init__(self, device):
        self.device = "cuda"
        self.device = torch.device(self.device)
    def f(self, model, x):
        with torch.autocast(self.device.type):
            return model(x)
"""
    assert found("AMP207", text) == found("AMP204", text) == []

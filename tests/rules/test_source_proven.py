"""An `error` of `check` is proven by the text: what only a name suggests is a warning, a note, or not said."""

from __future__ import annotations

import pytest

from torchvet.rules import rule
from torchvet.source.model import SourceFile

HEAD = "import copy\nimport torch\nfrom torch import nn\n"


def found(code: str, text: str) -> list[str]:
    return [f.severity for f in rule(code).in_source(SourceFile("t.py", HEAD + text))]


EVALUATE = """
from elsewhere import Net
def evaluate(net, loader):
    kept = []
    net.eval()
    for x, y in loader:
        {}
    return len(kept)
def main(loader):
    net = {}
    opt = torch.optim.Adam(net.parameters())
    for x, y in loader:
        loss = net(x, y)
        opt.zero_grad(); loss.backward(); opt.step()
    evaluate(net, loader)
"""
OWN = """
class Own(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)
    def forward(self, x, y):
        out = self.layer(x)
        return (out - y).square().mean(), out
"""


@pytest.mark.parametrize(
    "body",
    [
        "loss, pred, correct = net(x, y); kept.append(pred)",
        "loss, y_hat = net(x, y); kept.append(y_hat)",
        "loss, state = net(x, y); kept.append(state)",
        "loss, pred, text = net(x, y); kept.append((pred, text))",
        "out, score = net(x, y); kept.append(score)",
    ],
)
def test_the_name_of_a_variable_gives_it_no_graph(body: str) -> None:
    assert found("MEM101", EVALUATE.format(body, "Net()")) == []


@pytest.mark.parametrize(
    ("body", "net", "severity"),
    [
        ("out = net(x, y); kept.append(out)", "Net()", "warning"),
        ("logits, loss = net(x, y); kept.append(loss)", "Net()", "warning"),
        ("out = net(x); kept.append(out)", "nn.Linear(4, 4).cuda()", "error"),
        ("loss, out = net(x, y); kept.append(out)", "Own()", "error"),
    ],
)
def test_what_is_kept_of_a_module_from_elsewhere_is_a_warning(body: str, net: str, severity: str) -> None:
    assert found("MEM101", OWN + EVALUATE.format(body, net)) == [severity]


MODULE = """
class M(nn.Module):
    def __init__(self, sizes):
        super().__init__()
        {}
    def forward(self, x):
        for layer in self.layers: x = layer(x)
        return x
"""


def module(*lines: str) -> str:
    return MODULE.format("\n        ".join(lines))


@pytest.mark.parametrize(
    "lines",
    [
        (
            "layers = [nn.Linear(a, a) for a in sizes]",
            "seq = []",
            "for one in layers:",
            "    seq.append(one)",
            "    seq.append(nn.ReLU())",
            "self.body = nn.Sequential(*seq)",
            "self.layers = layers",
        ),
        (
            "self.layers, mods = [], []",
            "for a in sizes:",
            "    one = nn.Linear(a, a)",
            "    self.layers.append(one)",
            "    mods.append(one)",
            "self.net = nn.Sequential(*mods)",
        ),
        (
            "self.layers = []",
            "parts = {}",
            "for n, a in enumerate(sizes):",
            "    one = nn.Linear(a, a)",
            "    self.layers.append(one)",
            "    parts.update(**{str(n): one})",
            "self.net = nn.ModuleDict(parts)",
        ),
        ("self.layers = [nn.Linear(a, a) for a in sizes]", "for n, one in enumerate(self.layers):", "    keep(n, one)"),
    ],
)
def test_layers_that_are_registered_by_another_list_are_no_fault(lines: tuple[str, ...]) -> None:
    assert found("DEV109", module(*lines)) == []


@pytest.mark.parametrize(
    ("lines", "severity"),
    [
        (("self.layers = [nn.Linear(a, a) for a in sizes]",), "error"),
        (("self.layers = []", "for a in sizes:", "    one = nn.Linear(a, a)", "    self.layers.append(one)"), "error"),
        (("self.layers = [Layer(a) for a in sizes]",), "error"),
        (("self.layers = [Unknown(a) for a in sizes]",), "warning"),
        (("self.layers = [nn.Sequential(Unknown(a), nn.ReLU()) for a in sizes]",), "warning"),
        (("self.layers = [nn.Linear(a, a) for a in sizes]", "for one in self.layers:", "    one.reset()"), "error"),
    ],
)
def test_layers_in_a_plain_list_are_an_error_where_they_surely_have_parameters(
    lines: tuple[str, ...], severity: str
) -> None:
    classes = """
class Layer(nn.Module):
    def __init__(self, a):
        super().__init__()
        self.inner = nn.Linear(a, a)
class Unknown(nn.Module):
    def __init__(self, a):
        super().__init__()
        self.inner = Foreign(a)
"""
    assert found("DEV109", classes + module(*lines)) == [severity]


REPLACED = """
def main(model, loader):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    {}
    for x in loader:
        optimizer.zero_grad(); model(x).sum().backward(); optimizer.step()
"""


@pytest.mark.parametrize(
    ("line", "severities"),
    [
        ("from fairscale.nn import FullyShardedDataParallel as FSDP; model = FSDP(model)", []),
        ("from fairscale.nn import FullyShardedDataParallel; model = FullyShardedDataParallel(model)", []),
        ("from mine import FSDP; model = FSDP(model)", []),
        (
            "from torch.distributed.fsdp import FullyShardedDataParallel; model = FullyShardedDataParallel(model)",
            ["error"],
        ),
        ("from torch.distributed.fsdp import FullyShardedDataParallel as FSDP; model = FSDP(model)", ["error"]),
        ("import torch.distributed.fsdp as fsdp; model = fsdp.FullyShardedDataParallel(model)", ["error"]),
        ("model = copy.deepcopy(model)", ["error"]),
        ("model.load_state_dict(torch.load('a.pt', 'cpu'), assign=True)", ["error"]),
        ("model.to_empty(device='cuda')", ["warning"]),
        ("model.resize_token_embeddings(100)", ["warning"]),
    ],
)
def test_only_what_surely_replaces_parameters_is_an_error(line: str, severities: list[str]) -> None:
    assert found("DEV103", REPLACED.format(line)) == severities


@pytest.mark.parametrize(("device", "severity"), [("device", "warning"), ("'cuda'", "error")])
def test_a_leaf_is_surely_copied_only_to_a_gpu(device: str, severity: str) -> None:
    text = f"""
def main(device, loader):
    x = torch.zeros(3, requires_grad=True)
    optimizer = torch.optim.SGD([x], lr=0.1)
    x = x.to({device})
    for y in loader:
        optimizer.zero_grad(); (x * y).sum().backward(); optimizer.step()
"""
    assert found("DEV103", text) == [severity]


@pytest.mark.parametrize(
    ("text", "severity"),
    [
        ("def f(): return torch.randn(2, 3, 4).permute(0, 2, 1).view(2, 12)", "error"),
        ("def f(b): return torch.randn(b, 3, 4).permute(0, 2, 1).view(b, 12)", "warning"),
        ("def f(q, k): return torch.stack([q, k], 2).permute(2, 0, 3, 1, 4).view([3, -1, 7, 8])", "warning"),
        ("def f(x, a):\n    y = x + a\n    return y.permute(1, 0, 2).view(4, -1)", "info"),
    ],
)
def test_a_view_surely_fails_only_where_the_sizes_are_known(text: str, severity: str) -> None:
    assert found("OPS209", text) == [severity]


REGION = """
def main(loader):
    model = {}
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with torch.autocast("cuda"):
        for x in loader:
            optimizer.zero_grad()
            loss = model(x).mean()
            loss.backward()
            optimizer.step()
        print(model(x))
"""


@pytest.mark.parametrize(("made", "severity"), [("nn.Linear(4, 4)", "error"), ("get_peft_model('a')", "warning")])
def test_weights_of_an_unknown_dtype_may_have_no_half_copies(made: str, severity: str) -> None:
    assert found("AMP203", REGION.format(made)) == [severity]
    assert found("AMP204", REGION.format(made)) == []


def test_a_step_between_two_passes_is_a_fault_of_its_own() -> None:
    text = """
def main(x):
    model = nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with torch.autocast("cuda"):
        model(x).sum().backward()
        optimizer.step()
        print(model(x))
"""
    assert found("AMP204", text) == ["error"]


@pytest.mark.parametrize(
    ("device", "severity"),
    [
        ("os.environ.get('DEVICE', 'cpu')", "warning"),
        ("args.device", "warning"),
        ("'cuda' if torch.cuda.is_available() else 'cpu'", "error"),
        ("torch.device('cuda')", "error"),
    ],
)
def test_a_device_may_be_the_cpu_where_no_gpu_is_named(device: str, severity: str) -> None:
    text = f"""
DEVICE = {device}
def main():
    model = nn.Linear(4, 4)
    model.to(DEVICE)
    model.eval()
    return model(torch.randn(2, 4))
"""
    assert found("DEV101", text) == [severity]


@pytest.mark.parametrize(
    ("made", "severity"), [("torch.optim.SGD(model.parameters(), 1)", "error"), ("prepared(model)", "warning")]
)
def test_an_optimizer_from_elsewhere_may_take_the_scale_off(made: str, severity: str) -> None:
    text = f"""
def main(model, loader):
    optimizer = {made}
    scaler = torch.amp.GradScaler("cuda")
    for x in loader:
        optimizer.zero_grad()
        scaler.scale(model(x).sum()).backward()
        optimizer.step()
"""
    assert found("AMP106", text) == [severity]

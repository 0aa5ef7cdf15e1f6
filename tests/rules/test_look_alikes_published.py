"""Further look-alikes met in published code: each beside the fault that it was taken for, by rule."""

from __future__ import annotations

import pytest

from torchvet.rules import rule
from torchvet.source.model import SourceFile

HEAD = "import torch\nimport torch.nn.functional as F\nfrom torch import nn\n"


def severities(code: str, text: str, path: str = "t.py") -> list[str]:
    return [one.severity for one in rule(code).in_source(SourceFile(path, HEAD + text))]


LOWERED = [
    # A maximum was taken off before, under another name, in place, or behind a factor.
    ("peak, _ = torch.max(x, -1, keepdim=True)\n    y = x - peak\n    return torch.log(torch.exp(y / t).sum(-1))", []),
    ("top, _ = torch.max(x, -1, keepdim=True)\n    y = x - top\n    return torch.log(torch.exp(0.5 * y).sum(-1))", []),
    ("x.sub_(x.max())\n    return torch.log(x.exp().sum(-1))", []),
    ("x -= x.max()\n    return torch.log(x.exp().sum(-1))", []),
    ("e = torch.exp(x / t)\n    return torch.log(e.sum(-1))", ["warning"]),
    ("x.sub_(shift)\n    return torch.log(x.exp().sum(-1))", ["warning"]),
    ("x -= 1\n    return torch.log(x.exp().sum(-1))", ["warning"]),
    ("z.sub_(x.max())\n    return torch.log(x.exp().sum(-1))", ["warning"]),
    ("if t > 1:\n        x.sub_(x.max())\n    return torch.log(x.exp().sum(-1))", ["warning"]),
    ("s = x.exp().sum(-1)\n    x.sub_(x.max())\n    return torch.log(s)", ["warning"]),
]


@pytest.mark.parametrize(("body", "expected"), LOWERED)
def test_what_had_its_maximum_taken_off_does_not_overflow(body: str, expected: list[str]) -> None:
    assert severities("NUM110", f"def f(x, z, t, shift):\n    {body}\n") == expected


OWN = "def logit(p, eps=1e-8):\n    return torch.log(p + eps) - torch.log(1 - p + eps)\n"
LOGITS = [
    ("", "torch.logit(p)", []),
    (OWN, "logit(p)", []),
    ("", "self.logit(p)", ["warning"]),
    ("def logit(p):\n    return layer(p)\n", "logit(p)", ["warning"]),
    ("", "logit", ["warning"]),
]


@pytest.mark.parametrize(("above", "value", "expected"), LOGITS)
def test_the_logit_of_a_probability_does_not_overflow(above: str, value: str, expected: list[str]) -> None:
    text = f"{above}def f(self, p, logit_, layer):\n    z = {value}\n    return torch.log1p(torch.exp(z))\n"
    assert severities("NUM110", text) == expected


CHOSEN = [
    ("best, ids = x.max(1)", "F.softmax(x, 1)[rows, ids].log()", []),
    ("ids = x.argmax(1)", "F.softmax(x, 1).gather(1, ids[:, None]).log()", []),
    ("best, flat = x.view(-1).topk(4)\n    ids = flat % n", "torch.log(F.softmax(x, 1)[rows, ids])", []),
    ("p = F.softmax(x, 1)\n    ids = torch.multinomial(p, 1)", "p.gather(1, ids).log()", []),
    ("ids = y", "F.softmax(x, 1)[rows, ids].log()", ["warning"]),
    ("best, ids = x.max(1)", "F.softmax(x, 1)[rows, y].log()", ["warning"]),
    ("ids = x.argmax(1)", "F.softmax(x, 1).log()", ["warning"]),
]


@pytest.mark.parametrize(("above", "value", "expected"), CHOSEN)
def test_what_was_chosen_by_its_probability_does_not_underflow(above: str, value: str, expected: list[str]) -> None:
    assert severities("NUM110", f"def f(x, y, rows, n):\n    {above}\n    return {value}\n") == expected


@pytest.mark.parametrize(
    ("name", "end", "expected"),
    [
        ("test_loss", "assert torch.allclose(loss, other)", ["info"]),
        ("test_loss", "return loss", ["warning"]),
        ("loss_of", "assert torch.isfinite(loss)", ["warning"]),
    ],
)
def test_a_test_asserts_what_it_computes_of_its_own_numbers(name: str, end: str, expected: list[str]) -> None:
    text = f"def {name}(x, y, other):\n    loss = -F.softmax(x, 1)[0, y].log()\n    {end}\n"
    assert severities("NUM110", text) == expected


CHOSEN_DEVICE = "device = 'cuda' if torch.cuda.is_available() else 'cpu'\n"
TRIED = [
    ("except Exception:\n    print('one device')", []),
    ("except:\n    pass", []),
    ("except RuntimeError as error:\n    print(error)", []),
    ("except Exception:\n    print('no GPU')\n    raise", ["warning"]),
    ("except KeyboardInterrupt:\n    pass", ["warning"]),
    ("finally:\n    print('done')", ["warning"]),
]


@pytest.mark.parametrize(("handler", "expected"), TRIED)
def test_a_device_that_is_only_tried_may_be_written_out(handler: str, expected: list[str]) -> None:
    text = f"{CHOSEN_DEVICE}try:\n    model = nn.DataParallel(model.to('cuda'))\n{handler}\nmodel.to(device)\n"
    assert severities("DEV107", text) == expected


SHAPES = [
    ("(n, -1, heads) + q.size()[1:]", []),
    ("[n, -1] + list(q.shape[1:])", []),
    ("b * heads * n", ["warning"]),
    ("b, n * heads", ["warning"]),
]


@pytest.mark.parametrize(("shape", "expected"), SHAPES)
def test_sizes_that_are_joined_are_not_counted(shape: str, expected: list[str]) -> None:
    body = f"    q = x.contiguous().view(b, heads, n).transpose(1, 2)\n    return q.view({shape})\n"
    text = f"def f(x, b, n, heads):\n{body}"
    assert severities("OPS209", text) == expected


WRAPPED = """
def check(wrapper):
    model = nn.Sequential(nn.Linear(2, 2))
    {wrap}
    model.eval()
    x = torch.rand(42, 2)
    return model(x)
"""
WRAPS = [
    ("model = wrapper(model, [1, 1]).cuda()", []),
    ("model = pipes.Pipe(model).to('cuda')", []),
    ("model = model.cuda()", ["error"]),
    ("model = nn.SyncBatchNorm.convert(model).cuda()", ["error"]),
    ("model = filled(model).cuda()", ["error"]),
]


@pytest.mark.parametrize(("wrap", "expected"), WRAPS)
def test_a_wrapper_from_elsewhere_may_move_inputs(wrap: str, expected: list[str]) -> None:
    own = "def filled(model):\n    nn.init.zeros_(model[0].bias)\n    return model\n"
    assert severities("DEV101", own + WRAPPED.format(wrap=wrap)) == expected


CACHED = """
from functools import lru_cache

class Guide(nn.Module):
    def __init__(self, given):
        super().__init__()
        self.given = given

    @staticmethod
    @lru_cache(maxsize=8)
    def weight(n, given):
        return torch.arange(n) * given

    def forward(self, n):
        return self.weight(n, self.given)

guide = Guide(options.{name})
"""


@pytest.mark.parametrize(
    ("name", "expected"),
    [("guided_loss_sigma", []), ("ctc_loss_weight", []), ("loss_type", []), ("total_loss", ["warning"])],
)
def test_a_setting_of_a_loss_is_no_loss(name: str, expected: list[str]) -> None:
    assert severities("MEM111", CACHED.format(name=name)) == expected


FALLS_BACK = "device = torch.device('cuda' if torch.cuda.is_available() else 'cpu')\n"
OWN_FILE = FALLS_BACK + "class Model:\n{save}\n    def load(self, path):\n        return torch.load(path)\n"
SAVED = [
    ("    def save(self, path):\n        self.to(torch.device('cpu'))\n        torch.save(self, path)", ["info"]),
    ("    def save(self, path):\n        state = {k: v.cpu() for k, v in self.w.items()}\n"
     "        torch.save(state, path)", ["info"]),
    ("    def save(self, state_cpu, path):\n        torch.save(state_cpu, path)", ["info"]),
    ("    def save(self, path):\n        torch.save(self, path)", ["warning"]),
    (
        "    def save(self, x, path):\n        print(self.net(x).cpu())\n"
        "        state = {'net': self.net.state_dict()}\n        torch.save(state, path)",
        ["warning"],
    ),
    ("    def save(self, path):\n        torch.save(self, path)\n        self.to('cpu')", ["warning"]),
    ("    def save(self, path):\n        w = torch.load(path, map_location='cpu')\n        torch.save(w, path)",
     ["warning"]),
    ("    def save(self, path):\n        self.cpu()\n        torch.save(self, path)\n"
     "    def keep(self, path):\n        torch.save(self, path)", ["warning"]),
]  # fmt: skip


@pytest.mark.parametrize(("save", "expected"), SAVED)
def test_what_the_file_saves_from_the_host_loads_everywhere(save: str, expected: list[str]) -> None:
    assert severities("DEV108", OWN_FILE.format(save=save)) == expected


RANKS = """
import torch.distributed as dist
def run(rank, path, model):
    dist.init_process_group({group})
    {before}
    return torch.load(path)
"""
GROUPS = [
    ("'nccl', rank=rank, world_size=1", "pass", ["info"]),
    ("'gloo', rank=rank, world_size=4", "pass", ["info"]),
    ("'nccl', rank=rank, world_size=4", "if rank > 0: return None", ["info"]),
    ("'nccl', rank=rank, world_size=4", "pass", ["warning"]),
    ("'gloo', rank=rank, world_size=4", "model.cuda()", ["warning"]),
    ("'nccl', rank=rank, world_size=4", "if path is None: return None", ["warning"]),
]


@pytest.mark.parametrize(("group", "before", "expected"), GROUPS)
def test_one_rank_or_ranks_without_gpus_fill_no_gpu(group: str, before: str, expected: list[str]) -> None:
    assert severities("DEV108", RANKS.format(group=group, before=before)) == expected


EVALUATED = """
def check(model, x, loader):
    model.eval()
    {loop}:
        {inner}
    return out

if __name__ == "__main__":
    check(nn.Linear(2, 2), torch.ones(2), DataLoader([1]))
"""
LOOPS = [
    ("for _ in range(5)", "out = model(x)", ["info"]),
    ("for _ in range(3, 9)", "out = model(x)", ["info"]),
    ("for _ in range(500)", "out = model(x)", ["warning"]),
    ("for x in loader", "out = model(x)", ["warning"]),
    ("for x in loader", "for _ in range(5): out = model(x)", ["warning"]),
]


@pytest.mark.parametrize(("loop", "inner", "expected"), LOOPS)
def test_a_few_passes_with_gradients_are_no_warning(loop: str, inner: str, expected: list[str]) -> None:
    text = "from torch.utils.data import DataLoader\n" + EVALUATED.format(loop=loop, inner=inner)
    assert severities("MEM104", text) == expected


@pytest.mark.parametrize(
    ("over", "expected"),
    [("images_batch", ["info"]), ("batch", ["info"]), ("batches", ["warning"]), ("batch_files", ["warning"])],
)
def test_the_samples_of_one_batch_are_few(over: str, expected: list[str]) -> None:
    body = f"    for one in {over}:\n        out = torch.cat([out, one], 0)\n    return out\n"
    text = f"def f({over}):\n    out = torch.zeros(0)\n{body}"
    assert severities("OPS204", text) == expected


UNSCALED = """
def step(model, optimizer, x):
    with torch.autocast("cuda", dtype=torch.float16):
        loss = model(x).sum()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("path", "expected"),
    [("tests/nn/test_wrapped.py", ["info"]), ("train.py", ["warning"]), ("latest.py", ["warning"])],
)
def test_a_step_of_a_test_suite_trains_nothing_that_underflow_harms(path: str, expected: list[str]) -> None:
    assert severities("AMP115", UNSCALED, path) == expected


UPDATE = """
def update(self, x, limit):
    for batch in x:
        self.optimizer.zero_grad()
        self.net(batch).sum().backward()
        norm = nn.utils.clip_grad_norm_(self.net.parameters(), limit)
        {between}
        self.optimizer.step()
"""
SKIP = "if norm > limit:\n            self.optimizer.zero_grad()\n            {step}"
CLEARS = [
    (SKIP.format(step="self.optimizer.step()\n            continue"), []),
    (SKIP.format(step="self.optimizer.step()\n            break"), []),
    ("self.optimizer.zero_grad()", ["error"]),
]


@pytest.mark.parametrize(("between", "expected"), CLEARS)
def test_an_update_that_is_left_out_on_purpose(between: str, expected: list[str]) -> None:
    text = UPDATE.format(between=between)
    assert severities("TRN102", text) == expected


REPLACED = [
    ("torch.where(y == float('inf'), x, y)", ["info"]),
    ("torch.where(torch.isinf(y), x, y)", ["info"]),
    ("torch.where(y.isfinite(), y, x)", ["info"]),
    ("torch.where(x == float('inf'), x, y)", ["warning"]),
    ("torch.where(y > 3, x, y)", ["warning"]),
    ("y if torch.isfinite(y).all() else None", ["warning"]),
]


@pytest.mark.parametrize(("value", "expected"), REPLACED)
def test_an_infinity_that_is_asked_for_is_replaced(value: str, expected: list[str]) -> None:
    assert severities("NUM110", f"def f(x):\n    y = (1 + x.exp()).log()\n    return {value}\n") == expected


MOVED_LATER = """
def check(n):
    model = nn.Linear(2, 2)
    x = torch.randn(3, 2)
    {first}
    y = model(x)
    y.sum().backward()
    {then}
"""
MOVES = [
    ("pass", "model = model.to('cuda')", []),
    ("model = model.to('cuda')", "pass", ["error"]),
    ("model.to('cuda')", "model = model.half()", ["error"]),
]


@pytest.mark.parametrize(("first", "then", "expected"), MOVES)
def test_a_module_that_is_moved_later_is_on_the_host_before(first: str, then: str, expected: list[str]) -> None:
    assert severities("DEV101", MOVED_LATER.format(first=first, then=then)) == expected


SCALED_LATER = """
def check(model, pairs):
    {first}
    model(x).sum().backward()
    optimizer = torch.optim.Adam(model.parameters())
    {then}
    for x, y in pairs:
        loss = (model(x) - y).mean()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()

check(nn.Linear(2, 2), [])
"""


@pytest.mark.parametrize(
    ("first", "then", "expected"),
    [
        ("pass", "scaler = torch.amp.GradScaler('cuda')", []),
        ("scaler = torch.amp.GradScaler('cuda')", "pass", ["error"]),
    ],
)
def test_a_backward_before_there_is_a_scaler(first: str, then: str, expected: list[str]) -> None:
    assert severities("AMP107", SCALED_LATER.format(first=first, then=then)) == expected


RUNNER = """
class Runner:
    def evaluate(self, split):
        torch.cuda.empty_cache()
        return split

    def train(self, model, optimizer, loader):
        for n, x in enumerate(loader):
            loss = model(x).mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            {call}
"""
CALLS = [
    ("if n % 100 == 0:\n                for split in self.splits:\n                    self.evaluate(split)", []),
    ("if n % 100 == 0:\n                self.evaluate('dev')", []),
    ("self.evaluate('dev')", ["warning"]),
    ("for split in self.splits:\n                self.evaluate(split)", ["warning"]),
]


@pytest.mark.parametrize(("call", "expected"), CALLS)
def test_a_cache_that_is_emptied_at_an_interval(call: str, expected: list[str]) -> None:
    assert severities("MEM302", RUNNER.format(call=call)) == expected

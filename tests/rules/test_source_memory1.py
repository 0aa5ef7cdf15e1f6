"""What rules of growing memory tell from source, and the look-alikes that they leave alone."""

from __future__ import annotations

import pytest

from torchvet.finding import Finding
from torchvet.rules import rule
from torchvet.source.model import SourceFile

HEAD = """\
import collections
import functools
import torch
from torch import nn
import torch.nn.functional as F
model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
kept = []
"""

TRAIN = """\
for x, y in batches:
    output = model(x)
    loss = F.cross_entropy(output, y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def found(code: str, text: str) -> list[Finding]:
    return list(rule(code).in_source(SourceFile("train.py", HEAD + text)))


SILENT = {
    "MEM101": {
        "sent backward later": (
            "for x, y in batches:\n    kept.append(F.cross_entropy(model(x), y))\n"
            "sum(kept).backward()\n"
        ),
        "sent backward by a function": (
            "def finish(losses):\n    torch.stack(losses).sum().backward()\n    losses.clear()\n"
            "for x, y in batches:\n    kept.append(F.cross_entropy(model(x), y))\nfinish(kept)\n"
        ),
        "given to code from elsewhere": (
            "from other import finish\nfor x, y in batches:\n    kept.append(F.cross_entropy(model(x), y))\n"
            "finish(kept)\nloss.backward()\n"
        ),
        "kept after its own backward": TRAIN + "    kept.append(loss)\n",
        "a term of what went backward": TRAIN.replace("loss = F.", "part = F.").replace(
            "    optimizer.zero_grad()", "    loss = part + 1\n    optimizer.zero_grad()"
        ) + "    kept.append(part)\n",
        "indices": TRAIN + "    kept.append(output.max(1)[1])\n    _, best = output.max(1)\n    kept.append(best)\n",
        "a window": "last = collections.deque(maxlen=9)\n" + TRAIN + "    last.append((output - y).pow(2).mean())\n",
        "windows by name": (
            "last = collections.defaultdict(lambda: collections.deque(maxlen=9))\n" + TRAIN
            + "    last['loss'].append((output - y).pow(2).mean())\n"
        ),
        "windows by name, made of a part": (
            "from functools import partial\nlast = collections.defaultdict(partial(collections.deque, maxlen=9))\n"
            + TRAIN + "    last['loss'].append((output - y).pow(2).mean())\n"
        ),
        "a window for each": (
            "last = {n: collections.deque(maxlen=9) for n in names}\n" + TRAIN
            + "    last[n].append((output - y).pow(2).mean())\n"
        ),
        "emptied in the loop": TRAIN + "    kept.append((output - y).pow(2).mean())\n    kept.clear()\n",
        "a decorated function": (
            "@torch.no_grad()\ndef check():\n    total = 0\n    for x, y in batches:\n"
            "        total += F.cross_entropy(model(x), y)\n    print(total)\n" + TRAIN + "check()\n"
        ),
        "a caller that switches gradients off": (
            "def check():\n    total = 0\n    for x, y in batches:\n        total += F.cross_entropy(model(x), y)\n"
            "    print(total)\nwith torch.no_grad():\n    check()\n" + TRAIN
        ),
        "layers without parameters": (
            "pool = nn.AvgPool2d(2)\nmodel.eval()\n"
            "for x, y in batches:\n    kept.append(pool(x))\n"
        ),
        "a frozen model": (
            "model.requires_grad_(False)\nmodel.eval()\n"
            "for x, y in batches:\n    kept.append(model(x).mean())\n"
        ),
        "accumulated over time steps": (
            "for xs, ys in batches:\n    loss = 0\n    for x, y in zip(xs, ys):\n"
            "        loss += F.cross_entropy(model(x), y)\n    loss.backward()\n    optimizer.step()\n"
        ),
    },
    "MEM102": {
        "predictions of one evaluation": (
            TRAIN + "outputs = []\nwith torch.no_grad():\n    for x, y in batches:\n        outputs.append(model(x))\n"
        ),
        "emptied each epoch": (
            "for epoch in range(9):\n" + "".join(f"    {line}\n" for line in TRAIN.splitlines())
            + "        kept.append(output.detach())\n    kept.clear()\n"
        ),
        "scalars": TRAIN + "    kept.append(loss.detach())\n",
    },
    "MEM103": {
        "backpropagation through time": (
            "cell = nn.GRUCell(8, 8)\nfor xs in batches:\n    h = torch.zeros(1, 8)\n    for x in xs:\n"
            "        h = cell(x, h)\n    loss = h.sum()\n    loss.backward()\n"
        ),
        "a helper that detaches": (
            "rnn = nn.LSTM(8, 8)\nh = None\nfor x in batches:\n    h = repackage_hidden(h)\n    out, h = rnn(x, h)\n"
            "    out.sum().backward()\n"
        ),
    },
    "MEM104": {
        "adversarial examples": (
            "model.eval()\nfor x, y in batches:\n    x.requires_grad_(True)\n"
            "    F.cross_entropy(model(x), y).backward()\n"
        ),
        "loading only": (
            "def load(path):\n    model.load_state_dict(torch.load(path))\n"
            "    model.eval()\n    return model\n"
        ),
        "training mode again": "model.eval()\nmodel.train()\n" + TRAIN,
        "frozen layers while training": "model.eval()\n" + TRAIN,
        "called from elsewhere": (
            "def score(net: nn.Module, batches):\n    net.eval()\n"
            "    return [net(x) for x in batches]\n"
        ),
    },
    "MEM106": {
        "removed": "handle = model[0].register_forward_hook(lambda m, i, o: kept.append(o))\nhandle.remove()\n" + TRAIN,
        "the last value": (
            "last = {}\ndef keep(m, i, o):\n    last['x'] = o.detach()\nmodel[0].register_forward_hook(keep)\n" + TRAIN
        ),
        "on a tensor of the step": TRAIN.replace(
            "    loss = ", "    output.register_hook(lambda g: g * 2)\n    loss = "
        ),
    },
    "MEM107": {
        "no tensors": (
            "class Scale(torch.autograd.Function):\n    @staticmethod\n    def forward(ctx, x, factor):\n"
            "        ctx.factor = factor\n        ctx.shape = x.shape\n        y = x * factor\n        return y\n"
        ),
    },
    "MEM108": {
        "text": (
            "for x, y in batches:\n    try:\n        model(x)\n    except RuntimeError as error:\n"
            "        kept.append(str(error))\n"
        ),
        "nothing but files": (
            "for path in paths:\n    try:\n        open(path)\n"
            "    except OSError as error:\n        kept.append(error)\n"
        ),
    },
    "MEM111": {
        "sizes": "@functools.lru_cache(None)\ndef mask(length: int):\n    return torch.ones(length, length).tril()\n",
        "a method of a plain class": (
            "class Vocabulary:\n    @functools.cache\n    def index(self, word):\n        return self.words[word]\n"
        ),
        "keys that are no tensors": "cache = {}\nfor i, x in enumerate(batches):\n    cache[i] = model(x)\n",
    },
}  # fmt: skip


@pytest.mark.parametrize(("code", "case"), [(code, case) for code, cases in SILENT.items() for case in cases])
def test_look_alikes_stay_silent(code: str, case: str) -> None:
    assert [f.message for f in found(code, SILENT[code][case])] == []


def test_a_metric_beside_the_loss_owns_its_graph() -> None:
    (one,) = found("MEM101", TRAIN + "    kept.append((output - y).pow(2).mean())\nprint(sum(kept))\n")
    assert one.severity == "error"
    assert [edit.text for edit in one.remedy.edits] == ["(output - y).pow(2).mean().detach()"]


@pytest.mark.parametrize(
    ("test", "stepping", "told"),
    [("mode == 'train'", "", True), ("number % 2 == 0", "", True), ("number % 8 == 0", "optimizer.step()", True),
     ("number % 8 == 0", "", False), ("number == 0", "", False), ("not number % 500", "", False)],
)  # fmt: skip
def test_what_is_stored_under_a_test_is_rare_or_not(test: str, stepping: str, told: bool) -> None:
    text = TRAIN.replace("for x, y in batches:", "for number, (x, y) in enumerate(batches):")
    body = "".join(f"        {line}\n" for line in (stepping, "kept.append(output.detach())") if line)
    assert bool(found("MEM102", f"{text}    if {test}:\n{body}")) is told


def test_once_an_epoch_is_a_warning() -> None:
    text = "for epoch in range(9):\n" + "".join(f"    {line}\n" for line in TRAIN.splitlines())
    (one,) = found("MEM101", text + "    kept.append(F.cross_entropy(model(test_x), test_y))\n")
    assert one.severity == "warning"


@pytest.mark.parametrize("stored", ["(number, {0})", "[number, {0}]", "(1, (2, {0}))"])
def test_advice_is_about_what_has_the_graph_in_what_is_stored(stored: str) -> None:
    """A tuple has no `.item()`."""
    text = TRAIN.replace("for x, y in batches:", "for number, (x, y) in enumerate(batches):")
    kept = f"    again = model(x)\n    kept.append({stored.format('again.mean()')})\nprint(len(kept))\n"
    (one,) = found("MEM101", text + kept)
    assert one.remedy.summary.startswith("keep `again.mean().item()` in it if it is a scalar")


def test_what_may_be_a_tuple_is_not_detached() -> None:
    (one,) = found("MEM101", TRAIN + "    kept.append(model(x + 1))\nprint(len(kept))\n")
    assert not one.remedy.edits


def test_a_function_that_hands_its_model_on_is_not_decorated() -> None:
    text = (
        "from other import finetune\ndef run(net):\n    net.eval()\n    for x, y in batches:\n"
        "        print(net(x).sum().item())\n    finetune(net)\n" + TRAIN + "run(model)\n"
    )
    (one,) = found("MEM104", text)
    assert not one.remedy.edits


def test_a_state_that_a_backward_goes_through_twice_is_an_error() -> None:
    text = "rnn = nn.GRU(8, 8)\nh = None\nfor x in batches:\n    out, h = rnn(x, h)\n    out.sum().backward()\n"
    (one,) = found("MEM103", text)
    assert one.severity == "error" and one.related[0].role == "backward"


def test_an_input_on_ctx_is_only_worth_knowing() -> None:
    text = (
        "class Square(torch.autograd.Function):\n    @staticmethod\n    def forward(ctx, x):\n        ctx.x = x\n"
        "        return x.pow(2)\n"
    )
    assert [f.severity for f in found("MEM107", text)] == ["info"]


SCORES = """\
class Scores:
    def __init__(self):
        self.outputs = []

    def update(self, output):
        self.outputs.append(output)

    def compute(self):
        return torch.cat(self.outputs).mean().item()


@torch.no_grad()
def evaluate():
    scores = Scores()
    for x, y in held_out:
        scores.update(model(x))
    return scores.compute()


def train_epoch():
    for x, y in batches:
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()


for epoch in range(9):
    train_epoch()
    print(evaluate())
"""


def test_what_an_evaluation_collects_in_an_object_of_its_own_goes_with_it() -> None:
    assert found("MEM102", SCORES) == []
    # The object is made once, or is kept.
    outside = SCORES.replace("    scores = Scores()\n", "").replace(
        "@torch.no_grad()", "scores = Scores()\n\n\n@torch.no_grad()"
    )
    assert [one.severity for one in found("MEM102", outside)] == ["warning"]
    given = SCORES.replace("    return scores.compute()", "    kept.append(scores)\n    return scores.compute()")
    assert [one.severity for one in found("MEM102", given)] == ["warning"]

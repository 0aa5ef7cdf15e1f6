"""MEM104 in source: runs whose results are used without their graphs alone, and the look-alikes."""

from __future__ import annotations

import pytest

from torchvet.finding import Finding
from torchvet.rules import rule
from torchvet.source.model import SourceFile

HEAD = "import torch\nfrom torch import nn\nimport torch.nn.functional as F\n"

WRAPPER = """\
class Wrapper(nn.Module):
    def __init__(self, big, small):
        super().__init__()
        self.big_model = big
        self.small_model = small

    def forward(self, x, y):
        soft = self.big_model(x)
        out = self.small_model(x)
        hard = F.cross_entropy(out, y)
        return hard + F.kl_div(F.log_softmax(out, -1), F.softmax(soft, -1).detach())
"""

ACT = """\
def act(policy: nn.Module, state):
    scores = policy(state)
    return scores.argmax(-1).item()
"""

VECTORS = """\
from other import Network, trim

class Embedder:
    def __init__(self, path, device):
        self.net_of_words = Network(path)
        self.net_of_words = self.net_of_words.to(device)

    def rows(self, batch):
        out = self.net_of_words(batch)
        return trim(out['rows'], out['mask'])

    def vectors(self, batches):
        for batch in batches:
            yield self.rows(batch).data.cpu().numpy()
"""


def found(text: str, path: str = "train.py") -> list[Finding]:
    return [f for f in rule("MEM104").in_source(SourceFile(path, HEAD + text)) if f.severity == "info"]


FOUND = {
    "a teacher whose output is detached": (WRAPPER, "self.big_model(x)"),
    "an action": (ACT, "policy(state)"),
    "a module that calls its own forward by name": (
        "class Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.last = nn.Linear(4, 2)\n"
        "    def forward(self, x):\n        return self.last(x)\n"
        "    def act(self, x):\n        out = self.forward(x)\n        return out.argmax().item()\n",
        "self.forward(x)",
    ),
    "a target computed at once": (
        "def loss(model, target_model, x, y):\n    best = target_model(x).max(1)[0].detach()\n"
        "    return F.mse_loss(model(x), best + y)\n",
        "target_model(x)",
    ),
    "vectors that another file's function cuts to length": (VECTORS, "self.net_of_words(batch)"),
    "indices": (
        "def classes(model: nn.Module, x):\n    out = model(x)\n    _, best = out.max(1)\n    return best.tolist()\n",
        "model(x)",
    ),
    "a helper that also gets what has no graph": (
        "def rows(model: nn.Module, x):\n    def flat(t):\n        return t.view(-1, 4)\n    out = model(x)\n"
        "    kept = flat(out.data)\n    print(flat(out).detach())\n    return kept\n",
        "model(x)",
    ),
    "an encoder that the module has": (
        "class Siamese(nn.Module):\n    def __init__(self, encoder):\n        super().__init__()\n"
        "        self.encoder = encoder\n    def rows(self, x):\n        return self.encoder(x).detach()\n",
        "self.encoder(x)",
    ),
    "what is moved and called by one name": (
        "class Rows:\n    def __init__(self, path):\n        self.words = load(path).to('cuda')\n"
        "        self.words.eval()\n    def rows(self, x):\n        return self.words(x).detach()\n",
        "self.words(x)",
    ),
    "each turn of a comprehension": (
        "net = nn.Linear(2, 2)\nbatches = [torch.ones(2)]\nrows = [net(x).data for x in batches]\n",
        "net(x)",
    ),
    "a weight is read, and the backward is over": (
        "def step(model: nn.Module, x):\n    model(x).sum().backward()\n    best = model(x).argmax()\n"
        "    return best, model.weight.norm()\n",
        "best = model(x)",
    ),
}


@pytest.mark.parametrize("text, run", FOUND.values(), ids=FOUND)
def test_a_graph_that_nobody_uses(text: str, run: str) -> None:
    (one,) = found(text)
    assert one.location is not None
    assert run in (HEAD + text).splitlines()[one.location.line - 1]


SILENT = {
    "the graph goes on beside the detached value": WRAPPER.replace("return hard", "return soft.mean() + hard"),
    "under no_grad": ACT.replace("    scores =", "    with torch.no_grad():\n        scores ="),
    "decorated": "@torch.no_grad()\n" + ACT,
    "frozen": ACT + "def freeze(policy):\n    for p in policy.parameters():\n        p.requires_grad = False\n",
    "returned": "def scores(model: nn.Module, x):\n    out = model(x)\n    print(out.detach())\n    return out\n",
    "logged and sent backward": (
        "def step(model: nn.Module, x, y):\n    out = model(x)\n    print(out.detach())\n"
        "    F.cross_entropy(out, y).backward()\n"
    ),
    "kept on an object": (
        "class Run(Base):\n    def step(self, x, y):\n        loss = F.cross_entropy(self.model(x), y)\n"
        "        self.numbers['loss'] = loss\n        print(loss.item())\n"
    ),
    "given to code from elsewhere, in a file that trains": (
        "from other import score\ndef step(model: nn.Module, x):\n    out = model(x)\n    score(out)\n"
        "    print(out.detach())\nloss.backward()\n"
    ),
    "put into a dict that is returned": VECTORS.replace(
        "        return trim(out['rows'], out['mask'])",
        "        found = {}\n        found.update(out)\n        print(out['rows'].data)\n        return found",
    ).replace(".data.cpu().numpy()", ""),
    "once": "model = nn.Linear(2, 2)\nprint(model(torch.ones(2)).argmax().item())\n",
    "a saliency map": (
        "def saliency(model: nn.Module, x):\n    x.requires_grad_()\n    out = model(x)\n    print(out.detach())\n"
        "    return torch.autograd.grad(out.max(), x)\n"
    ),
    "a function that makes a model": (
        "def main(factory):\n    model = factory.make_model(3)\n    print(model.weight.detach())\n"
    ),
    "layers without parameters": (
        "class Gate(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.soft_net = nn.Softmax(-1)\n"
        "    def pick(self, x):\n        return self.soft_net(x).argmax(-1)\n"
    ),
    "forward of what is no module": (
        "class Mail:\n    def forward(self, x):\n        return x + 1\n"
        "    def send(self, x):\n        return self.forward(x).item()\n"
    ),
    "a function of torch that is called like a variable": (
        "def gathered(gather, rows):\n    found = gather(torch.tensor(rows))\n"
        "    return [row.tolist() for row in found]\ndef moved(tensor):\n    return tensor.to('cuda')\n"
    ),
    "a method that is called like a tensor": (
        "def labels(store, n):\n    batch = store.batch(n)\n    batch = batch.to('cuda')\n    return batch.argmax(-1)\n"
    ),
    "a function that is called like another one's tensor": (
        "from other import *\ndef rows(masks, n):\n    return masks(n).tolist()\n"
        "def moved(masks):\n    return masks.to('cuda')\n"
    ),
    "a constructor": (
        "class Prompt(nn.Module):\n    def __init__(self, encoder: nn.Module, ids):\n        super().__init__()\n"
        "        self.weight = nn.Parameter(encoder(ids).detach().clone())\n"
    ),
    "what a comprehension goes through": (
        "net = nn.Linear(2, 2)\nx = torch.ones(2, 2)\nrows = [row.sum() for row in net(x).data]\n"
    ),
    "a module without an input": (
        "def shifts(model: nn.Module, n):\n    return [model().clone().detach() for i in range(n)]\n"
    ),
    "the model keeps a loss": (
        "def step(model: nn.Module, x):\n    best = model(x).argmax(-1)\n    loss = model.last_penalty + 1\n"
        "    loss.backward()\n    return best.tolist()\n"
    ),
    "forward keeps a state that a loss is made of": (
        "class Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.last = nn.Linear(4, 2)\n        self.logs = []\n"
        "    def forward(self, x):\n        out = self.last(x)\n        self.logs.append(out)\n        return out\n"
        "net = Net()\nfor x in batches:\n    print(net(x).argmax().item())\n"
        "loss = torch.stack(net.logs).sum()\nloss.backward()\n"
    ),
    "a generator of Python": "def rows(generator, n):\n    return [row.tolist() for row in generator(n)]\n",
    "a tokenizer": "def ids(encoder, text):\n    return torch.tensor(encoder(text).tolist())\n",
    "a rule written by hand": "def act(policy, state):\n    return policy(state).item()\n",
    "NumPy's arrays: a graph would stop the program": (
        "def frames(model, path):\n    return torch.from_numpy(model(path).numpy())\n"
    ),
    "given to `map` with gradients off": (
        "class Agent:\n    def act(self, x):\n        return self.model(x).argmax(-1)\n"
        "    def run(self, xs):\n        with torch.no_grad():\n            return list(map(self.act, xs))\n"
    ),
    "hooks that Lightning calls with gradients off": (
        "import pytorch_lightning as pl\nclass Task(pl.LightningModule):\n"
        "    def forward(self, x):\n        return self.model(x).argmax(-1)\n"
        "    def on_predict_batch_start(self, x):\n        self.best = self.model(x).argmax(-1)\n"
    ),
    "a loss kept by another name": (
        "def total(model: nn.Module, batches):\n    rows = []\n    for x in batches:\n        out = model(x)\n"
        "        print(out.detach())\n        rows.append(out)\n    return rows\n"
    ),
}


@pytest.mark.parametrize("text", SILENT.values(), ids=SILENT)
def test_look_alikes(text: str) -> None:
    assert not found(text)


def test_models_of_other_frameworks_record_nothing() -> None:
    text = "def classes(model, x):\n    return model(x).argmax(-1)\n"
    assert not [f for f in rule("MEM104").in_source(SourceFile("eval.py", "import mxnet as mx\n" + text)) if f]
    assert found(text, "eval.py")


def test_the_larger_of_two_tensors_keeps_both_graphs() -> None:
    text = "def worst(critic: nn.Module, x, y):\n    low = torch.min(critic(x), y)\n    return (low * 2).detach()\n"
    assert [r.message for r in found(text)[0].related] == ["(low * 2).detach()"]


def test_a_test_may_look_at_what_a_module_gives() -> None:
    assert found(ACT) and not found(ACT, "tests/test_policy.py")


def test_only_a_run_alone_in_its_statement_is_wrapped() -> None:
    assert found(WRAPPER)[0].remedy.edits
    assert not found(ACT.replace("scores = policy(state)", "scores = policy(state) + 1"))[0].remedy.edits

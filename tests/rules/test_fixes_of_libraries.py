"""What edits do where a fault lies between a program and a library that it is built on."""

from __future__ import annotations

import pytest
import torch
from observed_fixes import FILE, HEAD, fixed_lines

from torchvet.finding import About, Holder, Related

TRAINER = """\
from transformers import Trainer
class Weighted(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        return model(**inputs).loss * 2  # HERE
"""
MADE = """\
from transformers import Trainer
class Weighted(Trainer):
    def __init__(self, *args, alpha=1, **kwargs):
        super().__init__(*args, **kwargs)
        self.alpha = alpha

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        return model(**inputs).loss * self.alpha  # HERE
"""


def test_a_trainer_divides_a_loss_again() -> None:
    assert fixed_lines("TRN107", MADE, "# HERE") == ([], ["        self.model_accepts_loss_kwargs = False"])


def test_a_trainer_without_init_gets_one() -> None:
    _, new = fixed_lines("TRN107", TRAINER, "# HERE")
    assert new == [
        "    def __init__(self, *args, **kwargs):",
        "        super().__init__(*args, **kwargs)",
        "        self.model_accepts_loss_kwargs = False",
        "",
    ]


@pytest.mark.parametrize(
    "text",
    [
        MADE.replace("self.alpha = alpha", "self.model_accepts_loss_kwargs = True"),
        MADE.replace("compute_loss", "loss_of"),
        MADE.replace("from transformers", "from mine"),
        MADE.replace("super().__init__(*args, **kwargs)", "Trainer.__init__(self, *args, **kwargs)"),
        "def loss_of(outputs, labels, num_items_in_batch=None):\n    return outputs.loss  # HERE\n",
    ],
)
def test_what_is_no_plain_trainer_is_left_alone(text: str) -> None:
    assert fixed_lines("TRN107", text, "# HERE") == ([], [])


METRIC = """\
from torchmetrics import Metric

class Distance(Metric):
    "How far apart."
    higher_is_better = False

    def __init__(self):
        super().__init__()
        self.add_state("total", default=torch.tensor(0.0), dist_reduce_fx="sum")
        self.add_state("rows", default=[], dist_reduce_fx="cat")

    def features(self, x):
        return self.net(x)  # HERE

    def update(self, preds, target):
        self.total += (self.features(preds) - target).sum()
        self.rows.append(preds)
"""


def test_a_metric_is_updated_once() -> None:
    old, new = fixed_lines("OPS312", METRIC, "# HERE")
    assert (old, new) == ([], ["    full_state_update = False"])
    assert fixed_lines("OPS312", METRIC.replace("    higher_is_better = False\n", ""), "# HERE")[1] == new
    assert fixed_lines("OPS312", METRIC.replace('    "How far apart."\n', ""), "# HERE")[1] == new


@pytest.mark.parametrize(
    ("was", "now"),
    [
        ("higher_is_better = False", "full_state_update = True"),
        ("(Metric)", "(torch.nn.Module)"),
        ("def update", "def measure"),
        ("import Metric", "import MaxMetric as Metric"),
        ('dist_reduce_fx="sum"', 'dist_reduce_fx="mean"'),
        (', dist_reduce_fx="cat"', ""),
        ("self.total += (", "self.total = 0.9 * self.total + ("),
        ("self.rows.append(preds)", "self.total += len(self.rows)"),
    ],
)
def test_what_says_how_it_is_updated_or_is_no_metric_is_left_alone(was: str, now: str) -> None:
    assert fixed_lines("OPS312", METRIC.replace(was, now), "# HERE") == ([], [])


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("trainer.train()", 'trainer.train(ignore_keys_for_eval=["hidden_states", "attentions"])'),
        ("trainer.evaluate(test)", 'trainer.evaluate(test, ignore_keys=["hidden_states", "attentions"])'),
        ("trainer.train(**options)", ""),
        ("trainer.train(ignore_keys_for_eval=[])", ""),
        ("run()", ""),
    ],
)
def test_an_evaluation_keeps_less(line: str, expected: str) -> None:
    text = f"from transformers import Trainer\n{line}\n"
    assert fixed_lines("MEM117", text, line)[1] == ([expected] if expected else [])
    assert fixed_lines("MEM117", f"import lightning\n{text}", line)[1] == []
    assert fixed_lines("MEM117", line, line)[1] == []


FOLDS = """\
def fold(accelerator, data):
    "One fold."
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.AdamW(model.parameters())  # HERE
    model, optimizer = accelerator.prepare(model, optimizer)
"""


def freed(text: str) -> list[str]:
    holder = Holder(name="accelerator._optimizers", kind="attribute")
    return fixed_lines("MEM102", text, "# HERE", holder=holder)[1]


def test_an_accelerator_is_emptied_before_it_prepares_the_next() -> None:
    assert freed(FOLDS) == ["    accelerator.free_memory()"]


@pytest.mark.parametrize(
    "text",
    [
        FOLDS.replace("accelerator.prepare", "store.prepare"),
        FOLDS + "    accelerator.free_memory()\n",
        FOLDS + "    accelerator.save_state('here')\n",
        FOLDS + "    data = accelerator.prepare(data)\n",
        FOLDS.replace("accelerator, data", "data").replace("    model =", "    accelerator = make()\n    model ="),
        FOLDS.replace("    model, optimizer =", "    for _ in data:\n        model, optimizer ="),
    ],
)  # fmt: skip
def test_what_an_accelerator_may_need_again_is_not_forgotten(text: str) -> None:
    assert freed(text) == []


def test_a_dict_that_is_spread_into_another_is_detached_item_by_item() -> None:
    line = 'rows.append({"loss": loss.detach(), **scores})'
    found = fixed_lines("MEM101", f"{line}\n", line, holder=Holder(name="rows", kind="global"))[1]
    each = "**{k: v.detach() if torch.is_tensor(v) else v for k, v in scores.items()}"
    assert found == [f'rows.append({{"loss": loss.detach(), {each}}})']


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("tokenizer.pad_token = tokenizer.eos_token", 'tokenizer.add_special_tokens({"pad_token": "<pad>"})'),
        ("self.tok.pad_token = self.tok.eos_token", 'self.tok.add_special_tokens({"pad_token": "<pad>"})'),
        ("make().pad_token = tokenizer.eos_token", ""),
        ("tokenizer.pad_token_id = tokenizer.eos_token_id", ""),
    ],
)
def test_a_tokenizer_pads_with_a_token_of_its_own(line: str, expected: str) -> None:
    assert fixed_lines("TRN127", line, line)[1] == ([expected] if expected else [])


def spread(line: str) -> list[str]:
    return fixed_lines("NUM110", line, line, about=About(variant="single-sample", operands=("std",)))[1]


@pytest.mark.parametrize(
    ("line", "was", "now"),
    [
        ("z = (x - x.mean()) / (x.std() + 1e-8)", "std()", "std(correction=min(1, x.numel() - 1))"),
        ("z = x / x.std(0)", "std(0)", "std(0, correction=min(1, x.size(0) - 1))"),
        ("z = x / x.std(dim=-1)", "std(dim=-1)", "std(dim=-1, correction=min(1, x.size(-1) - 1))"),
        ("z = self.x.std()", "std()", "std(correction=min(1, self.x.numel() - 1))"),
    ],
)
def test_the_spread_of_a_single_sample_is_zero(line: str, was: str, now: str) -> None:
    assert spread(line) == [line.replace(was, now)]


@pytest.mark.parametrize(
    "of",
    [
        "x.std((0, 1))",
        "x.std(unbiased=True)",
        "x.std(0, True)",
        "torch.std(x)",
        "x.std() / y.std()",
        "x.var()",
        "x.std(True)",
        "x.std(None)",
        "score(x).std()",
        "(x * 2).std()",
        "rows.pop().std()",
    ],
)
def test_a_spread_that_is_not_plain_is_left_alone(of: str) -> None:
    assert spread(f"z = x / {of}") == []


def test_the_spread_of_several_samples_stays_the_same() -> None:
    x = torch.randn(7, 5)
    assert torch.equal(x.std(), x.std(correction=min(1, x.numel() - 1)))
    assert torch.equal(x.std(0), x.std(0, correction=min(1, x.size(0) - 1)))
    assert x[:1].std(0, correction=min(1, x[:1].size(0) - 1)).eq(0).all()


def cached(text: str, *lines: int) -> list[str]:
    off = [Related(role="turned-off", message="", path=FILE, line=len(HEAD.splitlines()) + n) for n in lines]
    return fixed_lines("OPS317", text, "generate", related=off)[1]


def test_a_cache_is_left_on() -> None:
    text = "model.config.use_cache = False\nout = model.generate(x)\nconfig = Config(use_cache=False, bias=False)\n"
    assert cached(text, 1) == ["model.config.use_cache = True"]
    assert cached(text, 3) == ["config = Config(use_cache=True, bias=False)"]
    assert cached(text) == cached(text, 1, 3) == []


COLLATE = """\
import numpy as np
def pad(row):
    return np.pad(row, 2)
def collate(batch):
    mels = [pad(row[0]) for row in batch]
    weights = [row["weight"] for row in batch]
    return (  # HERE
        torch.tensor(mels),
        torch.tensor(weights),
        torch.tensor([row[0].shape[-1] for row in batch]),
    )
"""


@pytest.mark.parametrize(
    ("was", "now", "made"),
    [
        ("mels = ", "mels = ", ["        torch.tensor(np.array(mels)),"]),
        ("[pad(row[0])", "[np.pad(row[0], 2)", ["        torch.tensor(np.array(mels)),"]),
        ("[pad(row[0]) for row in batch]", "batch", []),
        ("[pad(row[0])", "[float(row[0])", []),
        ("    return np.pad(row, 2)", "    return row + [0, 0]", []),
        ("import numpy as np\ndef pad(row):", "def pad(row):\n    import numpy as np", []),
    ],
)
def test_arrays_are_put_together_before_they_become_a_tensor(was: str, now: str, made: list[str]) -> None:
    assert was in COLLATE
    assert fixed_lines("OPS301", COLLATE.replace(was, now), "# HERE")[1] == made


TASK = """\
class Task(nn.Module):
    def __init__(self):
        self.outputs = []

    def validation_step(self, batch):
        self.outputs.append(self(batch))  # HERE

    def on_validation_epoch_end(self):
        outs = self.outputs
        self.score = torch.cat(outs).mean().item()
"""


def emptied(text: str) -> list[str]:
    return fixed_lines("MEM117", text, "# HERE", holder=Holder(name="task.outputs", kind="attribute"))[1]


def test_what_an_epoch_gathers_is_emptied_by_the_method_that_reads_it() -> None:
    assert emptied(TASK) == ["        self.outputs.clear()"]
    assert emptied(TASK + "        return {'score': self.score}\n") == ["        self.outputs.clear()"]


@pytest.mark.parametrize(
    "more",
    [
        "        return outs\n",
        "        return {'rows': self.outputs}\n",
        "        if self.score:\n            return 1\n        print(self.score)\n",
        "\n    def last(self):\n        return self.outputs[-1]\n",
        "\ndef show(task):\n    print(len(task.outputs))\n",
        "        self.outputs = []\n",
        "        self.kept.append(outs)\n",
        "        self.last = outs[-1]\n",
        "        if (old := self.outputs):\n            print(old)\n",
        "        raise RuntimeError\n",
    ],
)
def test_a_list_that_others_may_need_is_left_alone(more: str) -> None:
    assert emptied(TASK + more) == []


def test_a_list_that_is_read_again_and_again_is_left_alone() -> None:
    assert emptied(TASK.replace("on_validation_epoch_end", "report")) == []
    assert emptied(TASK.replace("validation_step", "push")) == []
    assert emptied(TASK.replace("    def on_validation", "    @staticmethod\n    def on_validation")) == []


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("w = F.softmax(scores, dim=-1)", "w = F.softmax(scores, dim=1)"),
        ("w = scores.softmax(2)", "w = scores.softmax(1)"),
        ("w = scores.softmax(axis)", ""),
        ("w = a.softmax(2) + b.softmax(2)", ""),
    ],
)
def test_a_softmax_of_one_value_goes_over_the_dimension_that_has_more(line: str, expected: str) -> None:
    seen = About(variant="softmax of one value", operands=("1",))
    assert fixed_lines("TRN104", line, line, about=seen)[1] == ([expected] if expected else [])
    assert fixed_lines("TRN104", line, line, about=About(variant="softmax of one value"))[1] == []


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("loss.backward()", "(loss / 4).backward()"),
        ("(a + b).backward()", "((a + b) / 4).backward()"),
        ("loss.backward(gradient)", ""),
        ("engine.run(loss)", ""),
    ],
)
def test_a_loss_is_divided_by_the_passes_that_were_counted(line: str, expected: str) -> None:
    assert fixed_lines("TRN107", line, line, about=About(operands=("4",)))[1] == ([expected] if expected else [])


ENCODER = """\
class Encoder(nn.Module):
    def __init__(self, n, dim):
        super().__init__()
        self.n = n
        self.project = nn.Linear(n, dim{bias})

    def forward(self, items):
        x = F.one_hot(items, self.n).float()  # HERE
        return {use}
"""


def encoder(bias: str = "", use: str = "self.project(x)", was: str = "", now: str = "") -> list[str]:
    text = ENCODER.format(bias=bias, use=use)
    assert was in text
    return fixed_lines("MEM207", text.replace(was, now) if was else text, "# HERE")[1]


def test_rows_of_a_weight_are_looked_up() -> None:
    row = "F.embedding(items, self.project.weight.t())"
    assert encoder(bias=", bias=False") == [f"        return {row}"]
    assert encoder() == [f"        return ({row} + self.project.bias)"]
    assert encoder(use="torch.relu(self.project(x))") == [f"        return torch.relu(({row} + self.project.bias))"]


@pytest.mark.parametrize(
    "told",
    [
        {"use": "self.project(x) + x.sum()"},
        {"use": "self.project(x, items)"},
        {"bias": ", bias=given"},
        {"was": "nn.Linear", "now": "nn.Bilinear"},
        {"was": "F.one_hot", "now": "one_hot"},
        {"was": "x = F", "now": "items = items + 1; x = F"},
    ],
)
def test_one_hot_rows_that_are_not_only_multiplied_are_left_alone(told: dict[str, str]) -> None:
    assert encoder(**told) == []


def test_a_row_that_is_looked_up_is_what_the_layer_gives() -> None:
    layer, items = torch.nn.Linear(9, 4), torch.tensor([[3, 8], [0, 3]])
    rows = torch.nn.functional.embedding(items, layer.weight.t()) + layer.bias
    assert torch.allclose(rows, layer(torch.nn.functional.one_hot(items, 9).float()))

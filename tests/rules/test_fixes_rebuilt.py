"""Edits that build an optimizer once: where it goes, and where what it is given forbids them."""

from __future__ import annotations

import textwrap

import pytest
from source_fixes import FILE, HEAD, fixed

from torchvet.rules import rule
from torchvet.source.model import SourceFile

LOOP = """
    def train(model, batch, passes):
        for epoch in range(passes):
            for step in range(100):
                {made}
                x, y = batch()
                adam.zero_grad()
                F.mse_loss(model(x), y).backward()
                adam.step()
                {after}
    """


def test_it_is_built_before_all_the_loops_that_go_over_passes() -> None:
    made = "adam = optim.Adam(model.parameters())  # fresh"
    text = LOOP.format(made=made, after="pass")
    assert fixed("TRN111", text) == ([f"            {made}"], [f"    {made}"])


def test_a_call_over_several_lines_keeps_them() -> None:
    made = "adam = optim.Adam([\n    {'params': model.parameters()},  # all\n], lr=0.1)"
    text = textwrap.dedent(LOOP).replace("{made}", textwrap.indent(made, " " * 12).strip()).replace("{after}", "pass")
    assert fixed("TRN111", text)[1] == ["    " + line for line in made.splitlines()]


@pytest.mark.parametrize(
    ("made", "after"),
    [
        ("adam = optim.Adam(model.parameters()); y = 1", "pass"),
        ("rate = 0.1\n            adam = optim.Adam(model.parameters(), lr=rate)", "pass"),
        ("prepare(model)\n            adam = optim.Adam(model.parameters())", "pass"),
        ("adam = optim.Adam(model.parameters())", "model.head = nn.Linear(3, 3)"),
        ("adam = optim.Adam(model.parameters())", "plan = optim.lr_scheduler.StepLR(adam, 3)"),
        ("adam = optim.Adam(model.parameters())", "adam = optim.SGD(model.parameters(), lr=0.1)"),
        ("adam = other = optim.Adam(model.parameters())", "pass"),
        ("with region:\n                adam = optim.Adam(model.parameters())", "pass"),
    ],
)
def test_it_stays_where_the_loop_may_decide_what_it_is_given(made: str, after: str) -> None:
    text = textwrap.dedent(LOOP).replace("{made}", made).replace("{after}", after)
    assert fixed("TRN111", text) == ([], [])


EXPERIMENT = """
    class Experiment:
        def __init__(self, model, rate):
            self.model, self.rate = model, rate
            {more}

        def epoch(self, loader):
            adam = optim.Adam(self.model.parameters(), lr={rate})
            for x, y in loader:
                adam.zero_grad()
                F.mse_loss(self.model(x), y).backward()
                adam.step()

    experiment = Experiment(nn.Linear(3, 3), 0.1)
    for epoch in range(9):
        experiment.epoch(loader)
    """


def test_a_method_s_own_is_built_with_the_object() -> None:
    out, put = fixed("TRN111", EXPERIMENT.format(more="self.curve = []", rate="self.rate"))
    assert [one.strip() for one in out] == ["adam = optim.Adam(self.model.parameters(), lr=self.rate)"]
    assert [one.strip() for one in put] == [
        "self.adam = optim.Adam(self.model.parameters(), lr=self.rate)", "adam = self.adam",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("more", "rate"),
    [
        ("self.adam = None", "self.rate"),
        ("self.curve = []\n            return", "self.rate"),
        ("if rate:\n                self.fast = 1", "self.fast"),
        ("self.later()\n\n        def later(self):\n            self.model.head = nn.Linear(3, 3)", "self.rate"),
        ("pass; self.curve = []", "self.rate"),
    ],
)
def test_a_method_s_own_stays_where_the_object_may_be_another_by_then(more: str, rate: str) -> None:
    assert fixed("TRN111", EXPERIMENT.format(more=more, rate=rate)) == ([], [])


FUNCTION = """
    def train_epoch(net, batches, lr=0.1):
        adam = optim.Adam(net.parameters(), lr=lr)
        for x, y in batches:
            adam.zero_grad()
            F.mse_loss(net(x), y).backward()
            adam.step()

    def main(model, loader, rate):
        for _ in range(9):
            {call}
    """


def test_a_function_s_own_is_passed_by_its_only_caller() -> None:
    _, put = fixed("TRN111", FUNCTION.format(call="train_epoch(model, loader, lr=rate)"))
    assert put == [
        "def train_epoch(net, batches, lr=0.1, adam=None):", "    if adam is None:",
        "        adam = optim.Adam(net.parameters(), lr=lr)", "    adam = optim.Adam(model.parameters(), lr=rate)",
        "        train_epoch(model, loader, lr=rate, adam=adam)",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "call",
    ["train_epoch(model, loader)", "train_epoch(*given)", "train_epoch(wrap(model), loader, lr=rate)",
     "train_epoch(model, (loader), rate), train_epoch(model, loader, rate)"],
)  # fmt: skip
def test_a_function_s_own_stays_where_its_callers_are_not_plain(call: str) -> None:
    assert fixed("TRN111", FUNCTION.format(call=call)) == ([], [])


@pytest.mark.parametrize(
    ("header", "put"),
    [
        ("net, batches, lr=(0.1)", []),
        ("net, batches, lr: (float)", ["adam=None"]),
        ("net, batches, lr=0.1,", ["adam=None,"]),
    ],
)
def test_a_parameter_is_put_behind_the_last_one_s_own_bracket_or_nowhere(header: str, put: list[str]) -> None:
    text = FUNCTION.format(call="train_epoch(model, loader, lr=rate)").replace("net, batches, lr=0.1", header)
    _, lines = fixed("TRN111", text)
    assert [line.rpartition(" ")[2].removesuffix("):") for line in lines[:1]] == put


AGAIN = """
    class Trainer:
        def __init__(self, model):
            self.model = model
            self.adam = optim.Adam(self.model.parameters(), lr=0.1)

        def epoch(self, loader):
            self.adam = optim.Adam(self.model.parameters(), lr={rate})
            for x, y in loader:
                self.adam.zero_grad()
                F.mse_loss(self.model(x), y).backward()
                self.adam.step()

    trainer = Trainer(nn.Linear(3, 3))
    for epoch in range(9):
        trainer.epoch(loader)
    """


def test_a_second_one_like_the_first_is_taken_out() -> None:
    text = AGAIN.format(rate="0.1")
    found = list(rule("TRN111").in_source(SourceFile(FILE, HEAD + textwrap.dedent(text))))
    assert len(found) == 1 and [e.start[0] for e in found[0].remedy.edits] == [11]
    assert fixed("TRN111", AGAIN.format(rate="0.01")) == ([], [])

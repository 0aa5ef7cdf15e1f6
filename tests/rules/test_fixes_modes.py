"""Edits that put a model into eval mode for its evaluation, and back."""

from __future__ import annotations

import textwrap

import pytest
from handmade import FILE as PATH
from handmade import program, recording
from source_fixes import HEAD, fixed

from torchvet.recording.records.base import Place, Source
from torchvet.recording.records.training import EvalModeSteps, LeftInEvalMode, TrainModePass
from torchvet.rules import rule

NET = """
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5))

        def forward(self, x):
            return self.layers(x)

    """
LOOP = """
    def main(train_loader, val_loader):
        model = Net()
        adam = optim.Adam(model.parameters())
        for epoch in range(9):
            model.train(True)
            for x, y in train_loader:
                adam.zero_grad()
                F.mse_loss(model(x), y).backward()
                adam.step()
            {evaluation}
    """


def switches(evaluation: str) -> list[str]:
    out, put = fixed("TRN103", NET + LOOP.format(evaluation=evaluation.replace("\n", "\n            ")))
    assert not out
    return put


@pytest.mark.parametrize(
    ("evaluation", "margin"),
    [
        ("with torch.no_grad():\n    for x, y in val_loader:\n        total = F.mse_loss(model(x), y).item()", 12),
        ("for x, y in val_loader:\n    with torch.no_grad():\n        total = F.mse_loss(model(x), y).item()", 8),
        ("with torch.no_grad():\n    scores = [F.mse_loss(model(x), y).item() for x, y in val_loader]", 12),
    ],
)
def test_the_model_is_switched_around_the_loop(evaluation: str, margin: int) -> None:
    assert switches(evaluation) == [" " * margin + "model.eval()", " " * margin + "model.train()"]


@pytest.mark.parametrize(
    "evaluation",
    [
        "with torch.no_grad():\n    for x, y in val_loader:\n        yield model(x)",
        "with torch.no_grad():\n    for x, y in val_loader: total = F.mse_loss(model(x), y).item()\n"
        "model.layers.eval()",
        "with torch.no_grad():\n    for x, y in val_loader:\n        hits = model(x)\n        return hits",
        "with torch.no_grad(): scores = [F.mse_loss(model(x), y).item() for x, y in val_loader]",
    ],
)
def test_nothing_where_the_switch_back_may_be_missed_or_be_too_much(evaluation: str) -> None:
    assert switches(evaluation) == []


RUN = """
    class Run:
        def __init__(self, net):
            self.net = net
            self.adam = optim.Adam(net.parameters())

        def loss(self, batch):
            return F.mse_loss(self.net(batch[0]), batch[1])

        def fit(self, batches):
            for batch in batches:
                self.adam.zero_grad()
                self.loss(batch).backward()
                self.adam.step()

        @torch.no_grad()
        def validate(self, batches):
            total = 0.0
            for batch in batches:
                total += self.loss(batch).item()
            return total

    run = Run(Net())
    for epoch in range(9):
        run.fit(loader)
        run.validate(val_loader)
    """


def test_a_method_that_another_runs_the_model_for_switches_the_object_s() -> None:
    assert fixed("TRN103", NET + RUN) == ([], ["        self.net.eval()", "        self.net.train()"])


def test_a_function_that_is_given_the_model_switches_what_it_was_given() -> None:
    text = RUN.replace("def loss(self, batch):", "def unused(self, net, batch):").replace("self.net(", "net(")
    text = text.replace("self.loss(batch)", "loss_of(self.net, batch)")
    text = "\n    def loss_of(net, batch):\n        return F.mse_loss(net(batch[0]), batch[1])\n" + text
    assert fixed("TRN103", NET + text)[1] == ["        self.net.eval()", "        self.net.train()"]


def test_a_run_that_saw_the_layers_at_work_says_so_once_at_the_line_that_source_suspects() -> None:
    text = HEAD + textwrap.dedent(NET + RUN)
    rows = text.splitlines()
    within, loss, called = (n for word in ("self.layers(x)", "F.mse_loss(self.net", "total += self.loss")
                            for n, row in enumerate(rows, start=1) if word in row)  # fmt: skip
    places = [Place(PATH, n, "f") for n in (within, loss, called)]
    records = [
        TrainModePass(place=places[0], layer=layer, around=places[1:], passes=3) for layer in ("Dropout", "Dropout")
    ]
    found = list(rule("TRN103").in_recording(recording(program(), Source(path=PATH, text=text), *records)))
    assert [(f.evidence, f.location.line) for f in found if f.location] == [("observed", called)]
    assert "Dropout ran so in 3 sampled passes" in found[0].message and len(found[0].remedy.edits) == 2
    elsewhere = TrainModePass(place=places[0], layer="Dropout", around=places[1:2], passes=3)
    assert not list(rule("TRN103").in_recording(recording(program(), Source(path=PATH, text=text), elsewhere)))


STUCK = """
    model = Net()
    adam = optim.Adam(model.parameters())
    {before}
    for epoch in range(9):
        for x, y in train_loader:
            adam.zero_grad()
            F.mse_loss(model(x), y).backward()
            adam.step()
        model.eval()
        with torch.no_grad():
            for x, y in val_loader:
                total = F.mse_loss(model(x), y).item()
    """
WITHIN = """
    model = Net()
    adam = optim.Adam(model.parameters())
    for step, (x, y) in enumerate(train_loader):
        adam.zero_grad()
        F.mse_loss(model(x), y).backward()
        adam.step()
        if step % 10 == 9:
            model.eval()
            with torch.no_grad():
                for x, y in val_loader:
                    total = F.mse_loss(model(x), y).item()
    """
BY_A_FUNCTION = """
    model = Net()
    adam = optim.Adam(model.parameters())

    @torch.no_grad()
    def validate():
        model.eval()
        return sum(F.mse_loss(model(x), y).item() for x, y in val_loader)

    for step, (x, y) in enumerate(train_loader):
        adam.zero_grad()
        F.mse_loss(model(x), y).backward()
        adam.step()
        if step % 10 == 9:
            print(validate())
    """
METHODS = """
    class Run:
        def __init__(self, net):
            self.net = net
            self.adam = optim.Adam(net.parameters())

        def train_epoch(self):
            {doc}for x, y in train_loader:
                self.adam.zero_grad()
                F.mse_loss(self.net(x), y).backward()
                self.adam.step()

        @torch.no_grad()
        def validate(self):
            self.net.eval()
            return sum(F.mse_loss(self.net(x), y).item() for x, y in val_loader)

        def fit(self):
            for epoch in range(9):
                self.train_epoch()
                self.validate()

    Run(Net()).fit()
    """


@pytest.mark.parametrize(
    ("text", "put"),
    [
        (STUCK.format(before=""), "    model.train()"),
        (STUCK.format(before="model.train()"), "    model.train()"),
        (WITHIN, "    model.train()"),
        (BY_A_FUNCTION, "    model.train()"),
        (METHODS.format(doc=""), "        self.net.train()"),
    ],
    ids=[
        "before the loop over batches",
        "once before all",
        "each pass of a loop that evaluates",
        "a loop that calls what evaluates",
        "another method",
    ],
)
def test_training_that_goes_on_in_eval_mode_is_switched_back_where_a_pass_begins(text: str, put: str) -> None:
    assert fixed("TRN103", NET + text) == ([], [put])


def test_a_model_that_is_not_known_there_is_left_alone() -> None:
    text = METHODS.format(doc="").replace("self.net(x), y).backward()", "self.other(x), y).backward()")
    text = text.replace("self.net.eval()", "net = self.net\n            net.eval()")
    assert fixed("TRN103", NET + text)[1] == []


@pytest.mark.parametrize(("models", "found"), [(["Net"], ["observed"]), ([], []), (["Net", "Critic"], [])])
def test_a_run_shows_that_it_is_so_where_only_one_model_was(models: list[str], found: list[str]) -> None:
    text = HEAD + textwrap.dedent(NET + STUCK.format(before=""))
    seen = [EvalModeSteps(model=m, layer="Dropout", since=21, steps=3) for m in models]
    told = list(rule("TRN103").in_recording(recording(program(), Source(path=PATH, text=text), *seen)))
    assert [f.evidence for f in told] == found
    assert all("Dropout was in eval mode in 3 checked training steps" in f.message for f in told)


@pytest.mark.parametrize(("steps", "found"), [(1, []), (2, ["warning"])])
def test_a_part_that_a_library_leaves_in_eval_mode_is_told_at_the_call(steps: int, found: list[str]) -> None:
    left = LeftInEvalMode(part="BertModel", layers=10, place=Place(PATH, 4, "main"), since=1, steps=steps)
    told = list(rule("TRN103").in_recording(recording(program(), Source(path=PATH, text=HEAD), left)))
    assert [f.severity for f in told] == found
    assert all(f.location and f.location.line == 4 and "10 dropout layers" in f.message for f in told)


APART = """
    def train(args, net, loader, adam):
        for x, y in loader:
            adam.zero_grad()
            F.mse_loss(net(x), y).backward()
            adam.step()


    def test(args, model, loader):
        model.eval()
        with torch.no_grad():
            return sum(F.mse_loss(model(x), y).item() for x, y in loader)


    def main(args, loader):
        model = Net()
        adam = optim.Adam(model.parameters())
        for epoch in range(9):
            train(args, {given}, loader, adam)
            test(args, model, loader)
    """


@pytest.mark.parametrize(("given", "put"), [("model", ["    net.train()"]), ("model.layers", []), ("Net()", [])])
def test_training_and_evaluation_in_functions_that_are_given_one_model(given: str, put: list[str]) -> None:
    assert fixed("TRN103", NET + APART.format(given=given)) == ([], put)

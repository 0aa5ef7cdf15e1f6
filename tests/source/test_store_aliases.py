"""A holder under its other names: parameters, local names, attributes, imports."""

from __future__ import annotations

import pytest
from programs import MAIN, program


def test_a_parameter() -> None:
    text = """
    def log(buf, x):
        buf.append(x)  # <-
    def main():
        losses = []
        for x in xs:
            log(losses, x)
    """
    found = program(text).first("losses", "__main__.main")
    assert (found.function, found.in_loop) == ("log", True)


@pytest.mark.parametrize(
    "call",
    [
        "log(x, buf=losses)", "log(x, losses)", "partial(log, buf=losses)(x)", "partial(log, x)(losses)",
        "Thread(target=log, args=(x, losses)).start()", "log(x, losses or [])", "log(x, *[1]) or log(x, losses)",
    ],
)  # fmt: skip
def test_ways_to_pass_it(call: str) -> None:
    text = f"def log(x, buf):\n    buf.append(x)  # <-\nlosses = []\nfor x in xs:\n    {call}\n"
    if call.startswith("partial(log, x)"):
        program(text).none("losses")  # the call of a call's result is not followed
    else:
        program(text).first("losses")


def test_three_calls_deep_and_no_deeper() -> None:
    text = """
    def one(a, x): two(a, x)
    def two(b, x): three(b, x)
    def three(c, x):
        c.append(x)  # <- three
        four(c, x)
    def four(d, x): d.append(x)  # <- four
    for x in xs: one(losses, x)
    """
    asked = program(text)
    assert [(s.path, s.line) for s in asked.stores("losses")] == asked.marked("<- three")
    assert asked.marked("<- four")


def test_recursion_ends() -> None:
    text = """
    def walk(rows, node):
        rows.append(node)  # <-
        for child in node:
            walk(rows, child)
    walk(found, tree)
    """
    program(text).first("found")


def test_a_method_of_a_known_class_in_another_file() -> None:
    log = """
    class Log:
        def note(self, rows, x):
            rows.append(x)  # <-
    class Other:
        def note(self, rows, x):
            pass
    """
    asked = program("from log import Log\nlog = Log()\nfor x in xs:\n    log.note(losses, x)\n", log=log)
    asked.first("losses")


def test_a_function_in_another_file() -> None:
    asked = program(
        "import tools.log\nfor x in xs:\n    tools.log.note(losses, x)\n",
        tools__log="def note(rows, x):\n    rows.append(x)  # <-\n",
    )
    asked.first("losses")


def test_the_forward_of_a_called_module() -> None:
    text = """
    class Net(nn.Module):
        def forward(self, x, cache):
            cache.append(x)  # <-
            return x
    net = Net().to(device)
    for x in xs:
        net(x, past)
    """
    program(text).first("past")


def test_local_names() -> None:
    text = """
    class Trainer:
        def step(self, loss):
            h = self.history["train"]
            h.append(loss)  # <-
    """
    program(text).first("trainer.history", "__main__.main")
    program("append = losses.append\nfor x in xs:\n    append(x)  # <-\n").first("losses")


def test_a_bound_method_on_an_object() -> None:
    text = """
    class Log:
        def __init__(self):
            self.rows = []
            self.note = self.rows.append
        def step(self, x):
            self.note(x)  # <-
    """
    program(text).first("log.rows")


def test_elements_that_are_looped_over() -> None:
    text = """
    for x in xs:
        for name, values in records.items():
            values.append(x)  # <-
    """
    program(text).first("records")


def test_rebinding_another_name_is_no_store() -> None:
    text = """
    def smooth(values):
        values = torch.stack(values)
        last = values[-1]
        last = last + 1
        return last
    for x in xs:
        recent = losses
        recent = f(x)
        smooth(losses)
        losses.append(x)  # <-
    """
    assert len(program(text).stores("losses")) == 1
    program(text).first("losses")


def test_a_constructor_that_got_the_callers_list() -> None:
    text = """
    class Trainer:
        def __init__(self, model, history):
            self.history = history
        def step(self, loss):
            self.history.append(loss)  # <-
    def main():
        history = []
        trainer = Trainer(net, history)
        for x in xs:
            trainer.step(x)
    """
    program(text).first("history", "__main__.main")
    program(text).first("trainer.history", "__main__.main")


def test_a_list_that_an_object_got_and_the_caller_fills() -> None:
    text = """
    class Trainer:
        def __init__(self, model, history):
            self.history = history
    def main():
        rows = []
        trainer = Trainer(net, history=rows)
        for x in xs:
            rows.append(x)  # <-
    """
    program(text).first("trainer.history", "__main__.main")


def test_a_base_class_gets_it_through_super() -> None:
    text = """
    class Base:
        def __init__(self, rows):
            self.rows = rows
        def note(self, x):
            self.rows.append(x)  # <-
    class Log(Base):
        def __init__(self, rows):
            super().__init__(rows)
    losses = []
    log = Log(losses)
    """
    program(text).first("losses")


def test_a_field_of_a_dataclass() -> None:
    text = """
    @dataclass
    class Log:
        name: str
        rows: list
        def note(self, x):
            self.rows.append(x)  # <-
    losses = []
    log = Log("train", losses)
    """
    program(text).first("losses")


@pytest.mark.parametrize(
    ("head", "use"),
    [
        ("from pkg.shared import losses", "losses"), ("from .shared import losses as kept", "kept"),
        ("import pkg.shared as shared", "shared.losses"), ("from pkg import shared", "shared.losses"),
    ],
)  # fmt: skip
def test_a_global_of_another_file(head: str, use: str) -> None:
    asked = program(
        f"{head}\ndef main():\n    for x in xs:\n        {use}.append(x)  # <-\n", pkg__shared="losses = []\n"
    )
    asked.first("losses", "pkg.shared", "/proj/pkg/shared.py")


def test_a_name_alike_in_another_file_is_another_name() -> None:
    asked = program("for x in xs:\n    rows.append(x)  # <-\n", other="rows = []\nfor x in xs:\n    rows.append(x)\n")
    assert len(asked.stores("rows")) == 1
    asked.first("rows", "__main__", MAIN)


def test_a_parameter_that_the_callers_fill() -> None:
    text = """
    def train(rows, model):
        model.run()
    def main():
        kept = []
        for x in xs:
            kept.append(x)  # <-
        train(kept, net)
    """
    program(text).first("rows", "__main__.train")


def test_the_call_that_hands_in_what_is_stored() -> None:
    text = """
    class Replay:
        def __init__(self):
            self.rows = []
        def push(self, item, weight):
            self.rows.append(item)
            self.weights.append(weight + 1)
    class Agent:
        def act(self, x):
            self.memory.push(Transition(x, self.value), 1)  # <-
    """
    asked = program(text)
    index = asked.index()
    stored = asked.stores("agent.memory.rows")
    found = index.passed_by(stored[0])
    assert [(s.path, s.line) for s in found] == asked.marked()
    assert (found[0].value, found[0].kind, found[0].function) == ("Transition(x, self.value)", "call", "Agent.act")
    assert index.passed_by(asked.stores("agent.memory.weights")[0]) == []

"""Units, names, roles and gradients of one file."""

from __future__ import annotations

import ast
from textwrap import dedent

import pytest

from torchvet.source.model import Event, SourceFile, edits


def read(text: str) -> SourceFile:
    return SourceFile("train.py", dedent(text))


def call(file: SourceFile, name: str, number: int = 0) -> Event:
    return list(file.calls(name))[number]


# Names ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("imported", "written"),
    [
        ("import torch", "torch.nn.Linear"),
        ("import torch as t", "t.nn.Linear"),
        ("from torch import nn as n", "n.Linear"),
        ("import torch.nn as nn", "nn.Linear"),
        ("from torch.nn import Linear as L", "L"),
    ],
)
def test_imports_are_seen_through(imported: str, written: str) -> None:
    file = read(f"{imported}\nlayer = {written}(2, 2)\n")
    assert file.dotted(ast.parse(written, mode="eval").body) == "torch.nn.Linear"


def test_torchs_own_modules_are_one_name() -> None:
    file = read("from torch.cuda.amp.grad_scaler import GradScaler\nscaler = GradScaler()\n")
    assert file.dotted(call(file, "GradScaler").call.func) == "torch.cuda.amp.GradScaler"


def test_words_and_units() -> None:
    file = read("""
        def outer():
            def inner():
                return loss.backward()
            return inner

        class A:
            def run(self):
                self.loss.backward()
        backward_hook = 1
    """)
    assert [u.qualname for u in file.units_with("backward")] == ["outer.<locals>.inner", "A.run"]
    assert file.unit_at(5).name == "outer" and file.unit_at(10).is_module


def test_a_name_belongs_to_the_scope_that_binds_it() -> None:
    file = read("""
        total = 0
        def f():
            global total
            total = 1
            total.item()
        def g(total):
            total.item()
        def h():
            total.item()
    """)
    homes = [e.unit.home("total") for e in file.calls("item")]
    assert [h.name for h in homes if h] == ["", "g", ""]


# Events --------------------------------------------------------------------------------------------------------------


def test_events_come_in_the_order_of_evaluation() -> None:
    file = read("""
        for x in first():
            a = second(third(x))
        else:
            fourth()
        with fifth() as f:
            sixth() if seventh() else eighth()
    """)
    calls = [e.call.func.id for e in file.top.events if isinstance(e.node, ast.Call)]  # type: ignore[attr-defined]
    assert calls == ["first", "third", "second", "fourth", "fifth", "seventh", "sixth", "eighth"]


def test_branches_exclude_and_imply() -> None:
    file = read("""
        if a:
            one()
        else:
            two()
        three()
    """)
    one, two, three = call(file, "one"), call(file, "two"), call(file, "three")
    assert one.excludes(two) and not one.excludes(three)
    assert one.sure_after(three) and not three.sure_after(one)


# Roles ---------------------------------------------------------------------------------------------------------------


def test_what_follows_a_continue_is_past_its_test() -> None:
    """Through a `with`, not out of an arm; an `if` that has an `else`, or goes on, guards nothing."""
    file = read("""
        def train(batches):
            for batch in batches:
                first()
                with context():
                    if batch.empty:
                        continue
                    second()
                if batch.odd:
                    if batch.small:
                        continue
                    third()
                else:
                    pass
                fourth()
    """)
    guards = {n: [ast.unparse(b.test) for b, _ in call(file, n).context.guards] for n in ("first", "second", "third")}
    assert guards == {"first": [], "second": ["batch.empty"], "third": ["batch.empty", "batch.small"]}
    assert [ast.unparse(b.test) for b, arm in call(file, "fourth").context.guards if arm == 1] == ["batch.empty"]


def test_roles_by_what_made_them() -> None:
    file = read("""
        import torch
        from torch import nn
        from torch.optim import AdamW

        class Net(nn.Module):
            pass

        class Agent:
            def __init__(self, device):
                self.brain = Net().to(device)
                self.o = AdamW(self.brain.parameters())
                self.measure = nn.MSELoss()

            def learn(self, batch, guide: torch.optim.Optimizer):
                prediction = self.brain(batch)
                error = self.measure(prediction, batch)
                use(self.brain, self.o, prediction, error, guide, error.item(), error / 2)
    """)
    event = call(file, "use")
    found = [set(file.roles.of(a, event.unit)) for a in event.call.args]
    assert found == [
        {"module"}, {"optimizer"}, {"output", "tensor"}, {"loss", "tensor"}, {"optimizer"}, {"number"},
        {"loss", "tensor"},
    ]  # fmt: skip


def test_roles_by_what_callers_pass_and_by_name() -> None:
    file = read("""
        import torch
        def train(m, unknown, optimizer):
            use(m, unknown, optimizer)
        train(torch.nn.Linear(2, 2), load(), load())
    """)
    event = call(file, "use")
    m, unknown, optimizer = event.call.args
    assert "module" in file.roles.of(m, event.unit)
    assert not file.roles.of(unknown, event.unit)
    assert file.roles.is_a("optimizer", optimizer, event.unit) and not file.roles.is_a("module", unknown, event.unit)


def test_what_a_framework_prepares_keeps_its_role() -> None:
    file = read("""
        from accelerate import Accelerator
        import torch
        accelerator = Accelerator()
        net, opt = torch.nn.Linear(2, 2), torch.optim.SGD(p)
        a, b = accelerator.prepare(net, opt)
        use(a, b)
    """)
    event = call(file, "use")
    assert [set(file.roles.of(a, event.unit)) for a in event.call.args] == [{"module"}, {"optimizer"}]


# Gradients -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("around", "answer"),
    [
        ("with torch.no_grad():", "no"),
        ("with torch.inference_mode():", "no"),
        ("with torch.enable_grad():", "yes"),
        ("with torch.set_grad_enabled(training):", "unknown"),
        ("with torch.autocast('cpu'):", "yes"),
        ("with maybe_no_grad(flag):", "unknown"),
        ("if True:", "yes"),
    ],
)
def test_gradients_by_context(around: str, answer: str) -> None:
    file = read(f"import torch\n{around}\n    model(x)\n")
    assert file.gradients.enabled(call(file, "model")) == answer


@pytest.mark.parametrize(
    ("decorator", "answer"),
    [("@torch.no_grad()", "no"), ("@torch.inference_mode()", "no"), ("@eval_decorator", "unknown"), ("@cached", "yes")],
)
def test_gradients_by_decorator(decorator: str, answer: str) -> None:
    file = read(f"import torch\n{decorator}\ndef evaluate():\n    model(x)\n")
    assert file.gradients.enabled(call(file, "model")) == answer


def test_gradients_by_caller() -> None:
    file = read("""
        import torch
        def predict():
            return model(x)
        with torch.no_grad():
            predict()
    """)
    assert file.gradients.enabled(call(file, "model")) == "no"


@pytest.mark.parametrize(
    ("expression", "answer"),
    [
        ("loss", "yes"),
        ("loss.item()", "no"),
        ("loss.detach().cpu()", "no"),
        ("loss / 2 + 1", "yes"),
        ("float(loss)", "no"),
        ("output[0].mean()", "yes"),
        ("y", "unknown"),
        ("torch.zeros(3)", "no"),
        ("output.argmax(1)", "no"),
        ("(loss, y)", "yes"),
    ],
)
def test_which_expressions_carry_a_graph(expression: str, answer: str) -> None:
    file = read(f"""
        import torch
        net = torch.nn.Linear(2, 2)
        def run(x, y):
            output = net(x)
            loss = torch.nn.functional.mse_loss(output, y)
            keep({expression})
    """)
    event = call(file, "keep")
    assert file.gradients.carries(event.call.args[0], event) == answer


# Calls and edits -----------------------------------------------------------------------------------------------------


def test_calls_are_followed_through_super_and_instances() -> None:
    file = read("""
        class Base:
            def step(self):
                pass

        class Trainer(Base):
            def step(self):
                super().step()

        trainer = Trainer()
        trainer.step()
    """)
    first, second = file.calls("step")
    assert [u.qualname for e in (first, second) if (u := file.callee(e))] == ["Base.step", "Trainer.step"]


def test_edits_keep_what_is_around_them() -> None:
    file = SourceFile("train.py", "if x:\r\n\tü = f(a, b=1, c=2)  # why\r\n")
    (event,) = file.calls("f")
    (gone,) = edits.without_argument(file, event.call, "b")
    assert (gone.start, gone.end) == ((2, 9), (2, 14))
    (line,) = edits.before(file, event.statement, "g()")
    assert (line.start, line.text) == ((2, 1), "\tg()\r\n")
    (line,) = edits.after(file, event.statement, "g()")
    assert (line.start, line.text) == ((2, 27), "\r\n\tg()")


def test_statements_that_share_a_line_get_no_edit() -> None:
    file = SourceFile("train.py", "if x: f(1)\ng(); f(2)\n")
    assert not any(edits.before(file, e.statement, "h()") for e in file.calls("f"))


@pytest.mark.parametrize(
    ("written", "joined"),
    [
        ('x = f("a  b")', 'f("a  b")'),
        ("x = f(\n    a,  # the (first\n    b,\n)", "f(a, b)"),
        ("x = f(a, \\\n      b)", "f(a, b)"),
        ("x = f(\n    a,\n    b,\n)", "f( a, b, )"),
    ],
)
def test_a_segment_on_one_line_means_what_was_written(written: str, joined: str) -> None:
    file = SourceFile("a.py", written)
    (event,) = file.calls("f")
    assert file.segment(event.node) == joined


@pytest.mark.parametrize(
    ("call", "left"),
    [
        ("f(b=1)", "f()"),
        ("f(\n    b=1,\n)", "f(\n    \n)"),
        ("f(a, b=1)", "f(a)"),
        ("f((a), b=1)", None),
        ("f(b=1, c=2)", "f(c=2)"),
    ],
)
def test_an_argument_is_taken_out_with_its_comma(call: str, left: str | None) -> None:
    file = SourceFile("a.py", call)
    (event,) = file.calls("f")
    found = edits.without_argument(file, event.call, "b")
    if left is None:
        assert found == []
    else:
        (edit,) = found
        lines = call.split("\n")
        row = edit.start[0] - 1
        lines[row] = lines[row][: edit.start[1] - 1] + lines[row][edit.end[1] - 1 :]
        assert "\n".join(lines) == left

"""Training steps read as one sequence, however they are spread over functions, methods and branches."""

from __future__ import annotations

from textwrap import dedent

from torchvet.source.model import SourceFile
from torchvet.source.model.steps import Step

HEAD = "import torch\nfrom torch import nn\n"


def steps(text: str) -> list[Step]:
    return SourceFile("train.py", HEAD + dedent(text)).steps


def told(step: Step) -> list[tuple[str, str]]:
    return [(e.kind, e.subject) for e in step.effects]


def test_a_flat_loop() -> None:
    (step,) = steps("""
        model = nn.Linear(2, 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for x, y in batches:
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
    """)
    assert told(step) == [("zero_grad", "optimizer"), ("backward", "loss"), ("step", "optimizer")]
    assert step.loop is not None and step.unit.is_module


def test_methods_of_a_class_are_followed() -> None:
    (step,) = steps("""
        class Trainer:
            def __init__(self, net):
                self.net = net
                self.opt = torch.optim.Adam(net.parameters())

            def clear(self):
                self.opt.zero_grad()

            def update(self, value):
                value.backward()
                self.opt.step()

            def fit(self, data):
                for x in data:
                    self.clear()
                    error = self.net(x).mean()
                    self.update(error)
    """)
    assert told(step) == [("zero_grad", "self.opt"), ("backward", "error"), ("step", "self.opt")]
    assert step.unit.qualname == "Trainer.fit"


def test_parameters_have_the_callers_names() -> None:
    (step,) = steps("""
        def optimise(o, value):
            o.zero_grad()
            value.backward()
            o.step()

        def main(optimizer, data):
            for x in data:
                optimise(optimizer, loss_fn(x))
    """)
    assert told(step) == [("zero_grad", "optimizer"), ("backward", "loss_fn(x)"), ("step", "optimizer")]


def test_a_scaler_and_an_accumulation() -> None:
    (step,) = steps("""
        scaler = torch.amp.GradScaler("cuda")
        for i, x in enumerate(data):
            scaled = scaler.scale(criterion(model(x)) / 4)
            scaled.backward()
            if (i + 1) % 4 == 0:
                scaler.unscale_(optimizer)
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                scaler.step(optimizer)
                scaler.update()
                optimizer.zero_grad()
    """)
    assert [e.kind for e in step.effects] == ["backward", "unscale", "clip", "scaler_step", "update", "zero_grad"]
    assert step.effects[0].scaled and step.effects[3].through == "scaler"
    assert step.effects[1].arms and not step.effects[0].arms


def test_arms_of_one_branch_exclude_each_other() -> None:
    (step,) = steps("""
        for x in data:
            if scaler is not None:
                scaler.scale(loss).backward()
                scaler.step(optimizer)
            else:
                loss.backward()
                optimizer.step()
    """)
    scaled, applied, plain, stepped = step.effects
    assert scaled.excludes(plain) and applied.excludes(stepped) and not scaled.excludes(applied)


def test_micro_batches_within_a_step() -> None:
    """The loop that steps is the step, not the one around a single backward."""
    (step,) = steps("""
        while True:
            for micro in range(4):
                loss = model(batch()).mean()
                loss.backward()
            optimizer.step()
            optimizer.zero_grad()
    """)
    assert step.loop is not None and step.loop.node.__class__.__name__ == "While"


def test_two_optimizers() -> None:
    (step,) = steps("""
        for real in data:
            optimizer_d.zero_grad()
            d_loss.backward()
            optimizer_d.step()
            optimizer_g.zero_grad()
            g_loss.backward()
            optimizer_g.step()
    """)
    assert step.optimizers == {"optimizer_d", "optimizer_g"}


def test_a_step_function_that_is_called_from_elsewhere() -> None:
    (step,) = steps("""
        def train_step(model, optimizer, x):
            optimizer.zero_grad()
            model(x).mean().backward()
            optimizer.step()
    """)
    assert step.loop is None and step.unit.name == "train_step"


def test_environments_and_schedulers_are_no_optimizers() -> None:
    (step,) = steps("""
        for t in range(100):
            state = env.step(action)
            loss.backward()
            optimizer.step()
            scheduler.step()
            profiler.step()
    """)
    assert [e.kind for e in step.effects] == ["backward", "step", "scheduler"]


def test_what_is_handed_out_is_opaque() -> None:
    (step,) = steps("""
        from elsewhere import finish
        for x in data:
            loss = criterion(x)
            loss.backward()
            finish(optimizer)
    """)
    assert [e.call.func.id for e in step.opaque] == ["finish"]  # type: ignore[attr-defined]


def test_recursion_ends() -> None:
    assert steps("""
        def walk(loss, depth):
            loss.backward()
            walk(loss, depth - 1)

        for x in data:
            walk(loss, 3)
            optimizer.step()
    """)


def test_an_instance_that_is_called_is_followed() -> None:
    (step,) = steps("""
        class Update:
            def __init__(self, model, optimizer):
                self.model, self.optimizer = model, optimizer

            def __call__(self, x):
                self.optimizer.zero_grad()
                self.model(x).sum().backward()
                self.optimizer.step()

        def main(model, optimizer, data):
            update = Update(model, optimizer)
            for x in data:
                update(x)
    """)
    assert [e for e in told(step) if e[0] != "backward"] == [
        ("zero_grad", "update.optimizer"),
        ("step", "update.optimizer"),
    ]
    assert step.unit.name == "main" and step.loop is not None

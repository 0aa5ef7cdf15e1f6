"""What stacks say: the part of a step, the user's line, the operator, the module."""

from __future__ import annotations

import pytest

from torchvet.readers.snapshot import Frame
from torchvet.snapshots.places import StackFacts, facts_of

TORCH = "/opt/venv/lib/python3.11/site-packages/torch/"
CALL = Frame(TORCH + "nn/modules/module.py", 1790, "_call_impl")
MAIN = [Frame("/home/me/train.py", 80, "train"), Frame("/home/me/train.py", 99, "<module>")]
FORWARD = [Frame(TORCH + "nn/modules/linear.py", 125, "forward"), CALL, Frame("/home/me/model.py", 41, "forward"), CALL]
WRAPPER = Frame(TORCH + "optim/optimizer.py", 533, "wrapper")
ADAMW = [Frame(TORCH + "optim/adamw.py", 220, "step"), WRAPPER]
TRAINER = [Frame("/opt/venv/lib/python3.11/site-packages/lightning/module.py", 12, "closure")]
STEP = [Frame("/home/me/module.py", 30, "training_step")]

KINDS = {
    "a module": ("forward", [*FORWARD, *MAIN]),
    "the loop itself": ("user", MAIN),
    "an optimizer": ("optimizer", [*ADAMW, *MAIN]),
    "an optimizer of one's own": ("optimizer", [Frame("/home/me/adam.py", 5, "step"), WRAPPER, *MAIN]),
    "a model within a closure": ("forward", [*FORWARD, *STEP, *TRAINER, *ADAMW, *MAIN]),
    "a loss within a closure": ("user", [Frame(TORCH + "nn/functional.py", 1, "relu"), *STEP, *TRAINER, *ADAMW, *MAIN]),
    "no Python": ("backward", []),
    "the loss's own gradient": ("backward", [Frame(TORCH + "autograd/__init__.py", 231, "_make_grads"), *MAIN]),
    "a backward of one's own": (
        "backward", [Frame("/home/me/f.py", 9, "backward"), Frame(TORCH + "autograd/function.py", 311, "apply")],
    ),
    "a function of one's own, forward": (
        "forward", [Frame("/home/me/f.py", 5, "forward"), Frame(TORCH + "autograd/function.py", 575, "apply"), *MAIN],
    ),
    "a checkpoint's recomputation": ("backward", [*FORWARD, Frame(TORCH + "utils/checkpoint.py", 1122, "unpack_hook")]),
    "the engine's thread in C++": ("backward", [Frame("??", 0, "torch::autograd::Engine::thread_main(x)"), *FORWARD]),
}  # fmt: skip


def facts(*frames: Frame) -> StackFacts:
    return facts_of(frames, with_python=True)


@pytest.mark.parametrize("what", KINDS)
def test_the_part_of_a_step(what: str) -> None:
    kind, frames = KINDS[what]
    assert facts(*frames).kind == kind


def test_without_python_stacks_nothing_is_backward() -> None:
    assert facts_of([], with_python=False).kind == "unknown"
    assert facts_of([Frame("??", 0, "malloc")], with_python=False).kind == "unknown"


def test_the_line_is_the_users_and_the_module_is_named_by_its_call() -> None:
    found = facts(*FORWARD, *MAIN)
    assert found.place is not None and (found.place.path, found.place.line) == ("/home/me/model.py", 41)
    assert found.module == "model.py:41 forward"
    assert facts(*MAIN).module == ""


def test_the_operator_is_the_one_that_the_program_called() -> None:
    inner, outer = Frame("", 0, "at::_ops::bmm::call(at::Tensor)"), Frame("", 0, "at::_ops::einsum::call(x)")
    assert facts(inner, outer, *MAIN, Frame("", 0, "at::_ops::other::call(x)")).operator == "einsum"
    assert facts(Frame("", 0, "at::_ops::div_Tensor::call(x)"), *MAIN).operator == "div"


def test_paths_of_other_systems() -> None:
    frames = [
        Frame("D:\\lib\\site-packages\\torch\\nn\\modules\\module.py", 3, "_call_impl"),
        Frame("D:\\me\\a.py", 7, "f"),
    ]
    found = facts(*frames)
    assert found.kind == "forward" and found.place is not None and found.place.text == "a.py:7 f"


@pytest.mark.parametrize(("name", "path", "loading"), [
    ("_apply", TORCH + "nn/modules/module.py", True), ("__init__", TORCH + "nn/modules/linear.py", True),
    ("__init__", "/home/me/data.py", False), ("to", "/home/me/a.py", False),
])  # fmt: skip
def test_where_models_are_built(name: str, path: str, loading: bool) -> None:
    assert facts(Frame(path, 3, name), *MAIN).loading == loading

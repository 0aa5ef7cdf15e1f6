"""What stands at a line, and whether a local can outlive a loop."""

from __future__ import annotations

import pytest
from programs import MAIN, program

from torchvet.source.stores import FunctionSpan, SourceIndex

TEXT = """import torch


@torch.no_grad()
def train(model, loader):
    total = 0
    for epoch in range(
        9
    ):
        rows = []
        for x in loader:
            loss = model(x).square().mean(); loss.backward()
            rows.append(
                loss.item(),
            )
            def inner():
                return [f(y) for y in x]
        else:
            done = True
    return total


class Trainer:
    def fit(self):
        while self.more():
            with torch.no_grad():
                try:
                    self.step(g(h(1)))
                except ValueError as error:
                    print(error)
"""


@pytest.fixture
def index() -> SourceIndex:
    return program(TEXT).index()


@pytest.mark.parametrize(
    ("line", "expected"),
    [(1, None), (4, ("train", 5, 20)), (5, ("train", 5, 20)), (12, ("train", 5, 20)),
     (17, ("train.<locals>.inner", 16, 17)), (21, None), (24, ("Trainer.fit", 24, 30)), (99, None), (0, None)],
)  # fmt: skip
def test_function_at(index: SourceIndex, line: int, expected: tuple[str, int, int] | None) -> None:
    assert index.function_at(MAIN, line) == (FunctionSpan(*expected) if expected else None)


@pytest.mark.parametrize(
    ("line", "expected"),
    [(6, None), (7, (7, 19)), (10, (7, 19)), (11, (11, 17)), (14, (11, 17)), (17, None), (16, None), (19, (7, 19)),
     (20, None), (25, (25, 30)), (28, (25, 30))],
)  # fmt: skip
def test_enclosing_loop(index: SourceIndex, line: int, expected: tuple[int, int] | None) -> None:
    assert index.enclosing_loop(MAIN, line) == expected


def test_files_that_are_not_there(index: SourceIndex) -> None:
    for path in ("/nowhere.py", ""):
        assert index.function_at(path, 1) is index.enclosing_loop(path, 1) is None
        assert not index.loop_bound("f", path, "x", 1)


BOUND = """
def evaluate(loader, given):
    single = []
    for x in loader:
        single.append(x)
        local = []
        local.append(x)

def nested():
    outside = []
    for epoch in range(9):
        inside = []
        result = compute()
        for x in xs:
            inside.append(x)
            outside.append(x)
            result = result + x
    late = []

def shared():
    global everywhere
    everywhere = []
    for x in xs:
        everywhere.append(x)

rows = []
for x in xs:
    rows.append(x)
"""


@pytest.mark.parametrize(
    ("function", "name", "line", "expected"),
    [
        ("evaluate", "single", 4, True), ("evaluate", "single", 5, True), ("evaluate", "local", 7, True),
        ("__main__.evaluate", "single", 4, True), ("evaluate", "given", 5, False), ("evaluate", "unknown", 5, False),
        ("nested", "inside", 14, True), ("nested", "inside", 15, True), ("nested", "outside", 15, False),
        ("nested", "outside", 11, True), ("nested", "result", 15, True), ("nested", "late", 15, False),
        ("shared", "everywhere", 23, False), ("", "rows", 27, True), ("<module>", "rows", 27, True),
        ("evaluate", "single", 1, False), ("evaluate", "single", 999, False),
    ],
)  # fmt: skip
def test_loop_bound(function: str, name: str, line: int, expected: bool) -> None:
    assert program(BOUND).index().loop_bound(function, MAIN, name, line) is expected

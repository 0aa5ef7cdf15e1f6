"""What stands at a line, and whether a local can outlive a loop."""

from __future__ import annotations

import pytest
from programs import MAIN, program

from torchvet.source.stores import FunctionSpan, SourceIndex, Statement

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


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (14, Statement(13, 15, "rows.append(\n    loss.item(),\n)")),
        (8, Statement(7, 9, "for epoch in range(\n    9\n):")),
        (26, Statement(26, 26, "with torch.no_grad():")), (2, None), (99, None),
        (12, Statement(12, 12, "loss = model(x).square().mean(); loss.backward()")),
    ],
)  # fmt: skip
def test_statement_at(index: SourceIndex, line: int, expected: Statement | None) -> None:
    assert index.statement_at(MAIN, line) == expected


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (12, ["model", "model().square", "model().square().mean", "loss.backward"]), (15, ["rows.append", "loss.item"]),
        (7, ["range"]), (25, ["self.more"]), (26, ["torch.no_grad"]), (28, ["self.step", "g", "h"]), (6, []), (99, []),
        (17, ["f"]), (4, ["torch.no_grad"]),
    ],
)  # fmt: skip
def test_calls_in(index: SourceIndex, line: int, expected: list[str]) -> None:
    assert index.calls_in(MAIN, line) == expected


def test_files_that_are_not_there(index: SourceIndex) -> None:
    for path in ("/nowhere.py", ""):
        assert index.function_at(path, 1) is index.enclosing_loop(path, 1) is index.statement_at(path, 1) is None
        assert index.calls_in(path, 1) == [] and not index.loop_bound("f", path, "x", 1)


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

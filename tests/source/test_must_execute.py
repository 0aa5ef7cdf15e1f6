"""A line that must have run, from lines that were seen running."""

from __future__ import annotations

import ast

import pytest

from torchvet.source.running import reached

PROGRAM = """\
import torch

def train(loader):
    losses = []
    for x in loader:
        loss = model(x)
        losses.append(loss)
        if debug:
            kept.append(x)
        else:
            loss.backward()
        if bad(loss):
            continue
        history.append(loss)
    try:
        save(losses)
    except OSError:
        print(losses)
        return losses
    def later():
        return [*losses]
    return later

@decorated
def evaluate():
    pass
"""
LINES = PROGRAM.split("\n")


def line(text: str) -> int:
    return next(n for n, found in enumerate(LINES, start=1) if text in found)


@pytest.mark.parametrize(
    ("seen", "asked", "answer"),
    [
        ("loss = model", "losses.append", True),  # the next in its block
        ("loss = model", "losses = []", True),  # a later one of the outer block ran
        ("losses = []", "loss = model", False),  # the loop may have had no batch
        ("losses = []", "for x in loader", True),
        ("loss.backward", "if debug", True),  # the branch's own head
        ("loss.backward", "kept.append", False),  # the other branch
        ("loss.backward", "losses.append", True),
        ("loss = model", "history.append", False),  # it may have gone on with the next batch
        ("loss = model", "if bad(loss)", True),
        ("save(losses)", "print(losses)", False),  # a handler is a block of its own
        ("save(losses)", "def later", False),  # the handler may have left
        ("return [*losses]", "def later", True),
        ("def later", "loss = model", False),
        ("loss = model", "def train", True),  # a function that ran was defined
        ("loss = model", "import torch", True),
        ("loss = model", "pass", False),
        ("import torch", "@decorated", True),
    ],
)  # fmt: skip
def test_what_ran_tells_what_else_did(seen: str, asked: str, answer: bool) -> None:
    assert reached(ast.parse(PROGRAM), {line(seen)}, line(asked)) is answer


def test_a_line_outside_the_program_did_not_run() -> None:
    assert not reached(ast.parse(PROGRAM), {1}, 400)
    assert not reached(ast.parse(""), {1}, 1)


@pytest.mark.parametrize("head", ["if flag(x):", "while next(x):", "for y in (\n        x):"])
def test_the_head_alone_may_have_run_of_a_statement_on_its_line(head: str) -> None:
    text = f"for x in loader:\n    {head} kept.append(x)\n    done(x)\n"
    shared = text.count("\n") - 1
    assert not reached(ast.parse(text), {shared}, shared)
    assert reached(ast.parse(f"for x in loader:\n    {head}\n        kept.append(x)\n"), {shared + 1}, shared + 1)

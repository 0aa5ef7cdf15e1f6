"""What the edits for several backward passes of one step do to a text."""

from __future__ import annotations

import pytest
from observed_fixes import FILE, HEAD, fixed_lines

from torchvet.finding import Related

LINES_BEFORE = len(HEAD.splitlines())


def summed(text: str, *lines: int, at: str = "backward", kept: bool = False) -> tuple[list[str], list[str]]:
    """`lines` are those of the text, counted from 1, whose passes the finding is about beside the first."""
    related = [Related(role="backward", message="", path=FILE, line=LINES_BEFORE + line) for line in lines]
    related += [Related(role="kept", message="")] if kept else []
    return fixed_lines("OPS319", text, at, related=related)


LOOP = """\
def step(losses, more, optimizer):
    for loss in losses:
        loss.backward(retain_graph=True)
    optimizer.step()
"""
TWO = """\
def step(first, second, optimizer):
    first.backward(retain_graph=True)
    second.backward()
    optimizer.step()
"""


def test_a_loop_over_losses_becomes_one_pass_from_their_sum() -> None:
    old, new = summed(LOOP)
    assert old == ["    for loss in losses:", "        loss.backward(retain_graph=True)"]
    assert new == ["    sum(losses).backward()"]


@pytest.mark.parametrize(
    ("loop", "one"),
    [
        ("for loss in losses.values()", "sum(losses.values())"),
        ("for loss in [losses[0], losses[1]]", "sum([losses[0], losses[1]])"),
        ("for name, loss in losses.items()", "sum(loss for name, loss in losses.items())"),
        ("for loss, _ in zip(losses, more)", "sum(loss for loss, _ in zip(losses, more))"),
    ],
)
def test_what_the_loop_goes_over_is_summed(loop: str, one: str) -> None:
    assert summed(LOOP.replace("for loss in losses", loop))[1] == [f"    {one}.backward()"]


def test_the_weight_of_each_loss_goes_into_the_sum() -> None:
    weighted = LOOP.replace("loss in losses", "w, loss in zip(more, losses)").replace("loss.b", "(w * loss).b")
    assert summed(weighted)[1] == ["    sum(w * loss for w, loss in zip(more, losses)).backward()"]


def test_another_loop_that_binds_the_name_anew_reads_its_own() -> None:
    assert summed(LOOP + "    print([loss.item() for loss in losses])\n")[1]
    assert summed(LOOP + "    for loss in more:\n        print(loss)\n")[1]


@pytest.mark.parametrize(
    "text",
    [
        LOOP + "    print(loss.item())\n",
        LOOP.replace("retain_graph=True)", "retain_graph=True)\n        clip(optimizer)"),
        LOOP.replace("(retain", "(loss, retain"),
        LOOP.replace("retain_graph=True", "retain_graph=True, inputs=more"),
        LOOP.replace("loss.backward", "criterion(loss).backward"),
        LOOP.replace("losses:", "losses:  # one by one"),
        LOOP.replace("    optimizer.step()", "    else:\n        print()\n    optimizer.step()"),
        LOOP.replace("loss.backward", "more.backward"),
    ],
)
def test_a_loop_that_does_more_is_left_to_the_reader(text: str) -> None:
    assert summed(text) == ([], [])


EMPTY = """\
def step(heads, x, optimizer):
    losses = [head(x) for head in heads if head.on]
    for loss in losses:
        loss.backward(retain_graph=True)
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("made", "guarded"),
    [
        ("[head(x) for head in heads if head.on]", True),
        ("[]\n    losses += [head(x) for head in heads]", True),
        ("[head(x) for head in [one for one in heads if one.on]]", True),
        ("[head(x) for head in heads]", False),
        ("[heads[0](x), heads[1](x)]", False),
    ],
)
def test_a_list_that_may_have_no_losses_is_asked_first(made: str, guarded: bool) -> None:
    new = summed(EMPTY.replace("[head(x) for head in heads if head.on]", made))[1]
    line = "sum(losses).backward()"
    assert new == (["    if losses:", f"        {line}"] if guarded else [f"    {line}"])


def test_what_cannot_be_asked_is_left_to_the_reader() -> None:
    pairs = EMPTY.replace("for loss in losses:", "for at, loss in enumerate(losses):")
    assert summed(pairs) == ([], []) and summed(pairs.replace(" if head.on", ""))[1]
    each = EMPTY.replace("    for loss in losses:", "    for loss in losses.values():")
    each = each.replace("[head(x) for head in heads if head.on]", "{}")
    assert summed(each)[1] == ["    if losses:", "        sum(losses.values()).backward()"]


def test_a_graph_that_another_pass_needs_is_not_freed() -> None:
    after = LOOP.replace("    optimizer", "    more.backward()\n    optimizer")
    assert summed(after, 4) == ([], []) and summed(LOOP)[1]
    asked = "    if step_at % 50 == 0:\n        torch.autograd.grad(first, second)\n    optimizer"
    assert summed("import torch\n" + TWO.replace("    optimizer", asked), 4) == ([], [])


def test_statements_one_after_the_other_become_one() -> None:
    old, new = summed(TWO, 3)
    assert old == ["    first.backward(retain_graph=True)", "    second.backward()"]
    assert new == ["    (first + second).backward()"]


def test_three_statements_with_weights_and_a_scaler() -> None:
    text = TWO.replace("first.b", "(0.5 * first).b").replace("second.b", "scaler.scale(second).b")
    text = text.replace("    optimizer", "    losses[2].backward()\n    optimizer").replace(
        "backward()", "backward(retain_graph=True)", 1
    )
    assert summed(text, 3, 4)[1] == ["    (0.5 * first + scaler.scale(second) + losses[2]).backward()"]


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        (TWO.replace("    second", "    optimizer.zero_grad()\n    second"), (4,)),
        (TWO.replace("    second", "    # the second\n    second"), (4,)),
        (TWO.replace("second.b", "loss_of(second).b"), (3,)),
        (TWO.replace("    second", "    if second is not None:\n        second"), (4,)),
        (TWO, ()),
    ],
)
def test_statements_with_anything_between_stay(text: str, lines: tuple[int, ...]) -> None:
    assert summed(text, *lines) == ([], [])


def test_a_graph_that_a_later_step_needs_is_not_freed() -> None:
    assert summed(TWO, 3, kept=True) == ([], [])

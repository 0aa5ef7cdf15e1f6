"""Edits for a part of a model that came after its optimizer."""

from __future__ import annotations

import pytest
from observed_fixes import fixed_lines

from torchvet.finding import About, Holder

HEAD = Holder(name="head.weight", kind="attribute", path=["head.weight", "head.bias"])


def lines(text: str, at: str = ".head =", holder: Holder = HEAD) -> tuple[list[str], list[str]]:
    return fixed_lines("TRN105", text, at, holder=holder)


BLOCK = """
    def main(model, loader):
        {first}
        adam = optim.Adam(model.parameters())
        {between}
        model.head = nn.Linear(64, 4)
        model.eval()
        for x in loader:
            adam.step()
    """


@pytest.mark.parametrize("between", ["model.train()", "model.norm = None", "count = 3  # classes"])
def test_the_optimizer_is_built_below_the_last_part(between: str) -> None:
    text = BLOCK.format(first="pass", between=between)
    whole = fixed_lines("TRN105", text, ".head =", holder=HEAD, whole=True)[1]
    order = [one for one in whole if "head" in one or "Adam" in one]
    assert order == ["    model.head = nn.Linear(64, 4)", "    adam = optim.Adam(model.parameters())"]


@pytest.mark.parametrize("between", ["plan = make_plan(adam)", "adam.load_state_dict(kept)"])
def test_an_optimizer_that_is_asked_for_before_is_given_the_part(between: str) -> None:
    added = ['    adam.add_param_group({"params": model.head.parameters()})']
    assert lines(BLOCK.format(first="pass", between=between)) == ([], added)


@pytest.mark.parametrize(
    ("first", "between"),
    [
        ("sgd = optim.SGD(model.parameters(), lr=0.1)", "pass"),
        ("pass", "scheduler = optim.lr_scheduler.StepLR(adam, 3)"),
        ("other = Net()", "adam = optim.Adam(other.parameters())"),
    ],
)
def test_nothing_where_it_is_not_sure_whose_the_part_is(first: str, between: str) -> None:
    assert lines(BLOCK.format(first=first, between=between)) == ([], [])


def test_two_parts_come_before_it_together() -> None:
    text = BLOCK.format(first="pass", between="model.neck = nn.Linear(64, 64)")
    both = Holder(name="neck.weight", kind="attribute", path=["neck.weight", "head.weight"])
    whole = fixed_lines("TRN105", text, ".head =", holder=both, whole=True)[1]
    assert [w.split()[0] for w in whole if "=" in w and "import" not in w] == ["model.neck", "model.head", "adam"]


TUNING = """
    class Tuning:
        def __init__(self, model):
            self.model = model
            self.adam = optim.Adam(model.parameters())

        def change(self, classes):
            if classes:
                self.model.head = {made}
            {after}
    """


@pytest.mark.parametrize(
    ("made", "given"),
    [
        ("nn.Linear(64, classes)", "self.model.head.parameters()"),
        ("nn.Parameter(torch.zeros(classes))", "[self.model.head]"),
    ],
)
def test_another_method_gives_the_part_to_the_object_s_optimizer(made: str, given: str) -> None:
    added = [f'            self.adam.add_param_group({{"params": {given}}})']
    assert lines(TUNING.format(made=made, after="pass")) == ([], added)


@pytest.mark.parametrize(
    ("made", "after"),
    [
        ("build(classes)", "pass"),
        ("nn.Linear(64, classes)", "self.adam = optim.Adam(self.model.parameters())"),
        ("nn.Linear(64, classes); print(classes)", "pass"),
    ],
)
def test_nothing_where_another_optimizer_or_part_may_be_meant(made: str, after: str) -> None:
    assert lines(TUNING.format(made=made, after=after)) == ([], [])


def test_a_part_that_is_left_out_on_the_optimizer_s_line_is_a_person_s_choice() -> None:
    text = "class N(nn.Module):\n    def __init__(self):\n        self.head = nn.Linear(3, 3)\n\nmodel = N()\n"
    text += "adam = optim.Adam(model.body.parameters())\n"
    assert lines(text, "adam =") == ([], [])


BESIDE = """
    def main(trunk, loader, optimizer):
        {first}
        criterion = ArcFace(64, 10)
        {then}
        for x in loader:
            criterion(trunk(x)).backward()
            adam.step()
    """
ADAM = "adam = optim.Adam(trunk.parameters())"


def beside(text: str, *paths: str) -> list[str]:
    holder = Holder(name=paths[0], kind="attribute", path=list(paths))
    made = About(operands=("ArcFace",))
    return [one.strip() for one in fixed_lines("TRN105", text, "ArcFace(64", holder=holder, about=made)[1]]


def test_what_was_made_beside_the_optimizer_is_given_to_it() -> None:
    given = ['adam.add_param_group({"params": criterion.parameters()})']
    assert beside(BESIDE.format(first=ADAM, then="pass"), "weight", "scale") == given
    assert beside(BESIDE.format(first="pass", then=ADAM), "weight") == given
    within = ['adam.add_param_group({"params": criterion.head.parameters()})']
    assert beside(BESIDE.format(first=ADAM, then="pass"), "head.fc.weight", "head.scale") == within


def test_an_optimizer_that_a_trainer_was_given_takes_it() -> None:
    text = """
        class Trainer:
            def __init__(self, trunk, optimizer):
                self.steps = optimizer
                self.criterion = ArcFace(64, 10)
        """
    assert beside(text, "weight") == ['self.steps.add_param_group({"params": self.criterion.parameters()})']


@pytest.mark.parametrize(
    ("first", "then"),
    [
        ("pass", "pass"),
        (ADAM, "other = optim.SGD(trunk.parameters(), 0.1)"),
        (ADAM, "schedule = optim.lr_scheduler.StepLR(adam, 9)"),
        (ADAM, "second = ArcFace(64, 10)"),
        (f"if trunk: {ADAM}", "pass"),
        (ADAM, "schedule = get_cosine_schedule_with_warmup(adam, 10)"),
    ],
)
def test_where_it_is_not_sure_which_takes_it_nothing_is_changed(first: str, then: str) -> None:
    assert beside(BESIDE.format(first=first, then=then), "weight") == []


@pytest.mark.parametrize(
    ("was", "now", "path"),
    [
        ("ArcFace(64, 10)", "ArcFace(64, 10)", "0.weight"),
        ("ArcFace(64, 10)", "ArcFace(64, 10)(1).mean()", "weight"),
    ],
)
def test_what_has_no_such_name_is_left_alone(was: str, now: str, path: str) -> None:
    text = BESIDE.format(first=ADAM, then="pass")
    assert beside(text.replace(was, now), path) == []


def test_a_name_is_no_optimizer() -> None:
    text = """
        class Trainer:
            def __init__(self, trunk, optim_name):
                self.name = optim_name
                self.criterion = ArcFace(64, 10)
        """
    assert beside(text, "weight") == []


HEAD_ALONE = """
    def main(model):
        adam = optim.Adam({given}, lr=0.1)
"""
BODY = Holder(name="body.0.weight", kind="attribute", path=["body.0.weight", "body.1.bias"])


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("model.head.parameters()", "model.body.requires_grad_(False)"),
        ("list(model.head.parameters())", "model.body.requires_grad_(False)"),
        ("model.parameters()", ""),
        ("model.body.parameters()", ""),
        ("[*model.head.parameters(), *model.neck.parameters()]", ""),
        ("head.parameters()", ""),
    ],
)
def test_a_part_that_rests_is_frozen_before_the_optimizer_is_made(given: str, expected: str) -> None:
    text = HEAD_ALONE.format(given=given)
    rests = {"holder": BODY, "about": About("rests", ("Net",))}
    out, put = fixed_lines("TRN105", text, "adam =", **rests)
    assert [line.strip() for line in put] == ([expected] if expected else []) and not out
    # One that trains may have been forgotten.
    assert fixed_lines("TRN105", text, "adam =", holder=BODY, about=About("", ("Net",))) == ([], [])


def test_parts_with_several_names_and_items_of_a_sequential_are_not_frozen() -> None:
    text = HEAD_ALONE.format(given="model.head.parameters()")
    for path in (["body.weight", "neck.weight"], ["0.weight"]):
        rests = {"holder": Holder(name=path[0], kind="attribute", path=path), "about": About("rests", ("Net",))}
        assert fixed_lines("TRN105", text, "adam =", **rests) == ([], [])


@pytest.mark.parametrize(
    "later",
    [
        'adam.add_param_group({"params": model.body.parameters()})',
        "model.body.train()",
        "for p in model.body.parameters(): p.requires_grad = True",
        "other = optim.SGD(model.body.parameters(), lr=0.1)",
        "unfreeze(model)",
    ],
)
def test_a_part_that_may_learn_later_is_not_frozen(later: str) -> None:
    text = HEAD_ALONE.format(given="model.head.parameters()") + f"        {later}\n"
    assert fixed_lines("TRN105", text, "adam =", holder=BODY, about=About("rests", ("Net",))) == ([], [])

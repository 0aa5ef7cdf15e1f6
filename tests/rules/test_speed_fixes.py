"""What the edits of rules about a step's time do to a text."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from observed_fixes import FILE, HEAD, fixed_lines
from torch.utils.data import TensorDataset

from torchvet.finding import About, Related

LINES_BEFORE = len(HEAD.splitlines())


def thrown_away(text: str, at: str, backward: int) -> tuple[list[str], list[str]]:
    """`backward` is the line of the text that calls it, counted from 1."""
    related = [Related(role="backward", message="", path=FILE, line=LINES_BEFORE + backward)]
    return fixed_lines("OPS313", text, at, related=related)


CRITIC = """\
def critic_step(G, D, real, steps):
    fake = G(torch.randn(8, 16))
    loss = D(real).mean() - D(fake).mean()
    loss.backward()
    steps.step()
"""


def test_what_only_the_critic_reads_is_detached_where_it_is_made() -> None:
    old, new = thrown_away(CRITIC, "fake = G", 4)
    assert (old, new) == (["    fake = G(torch.randn(8, 16))"], ["    fake = G(torch.randn(8, 16)).detach()"])


def test_what_the_generator_reads_later_is_detached_for_the_critic_alone() -> None:
    old, new = thrown_away(CRITIC + "    (-D(fake).mean()).backward()\n", "fake = G", 4)
    assert old == ["    loss = D(real).mean() - D(fake).mean()"]
    assert new == ["    loss = D(real).mean() - D(fake.detach()).mean()"]


def test_what_a_loop_reads_above_counts_as_read_later() -> None:
    text = """\
    for real in data:
        if step:
            (-D(fake).mean()).backward()
        fake = G(noise) * 2
        loss = D(fake).mean()
        loss.backward()
    """
    _, new = thrown_away(text, "fake = G", 6)
    assert new == ["    loss = D(fake.detach()).mean()"]


def test_what_another_pass_of_the_function_needs_is_left_to_the_reader() -> None:
    text = """\
    def step(encoder, critic, actor, x):
        features = encoder(x)
        first = critic(features).mean()
        second = actor(features).mean()
        first.backward(retain_graph=True)
        optimizer.zero_grad()
        second.backward()
    """
    assert thrown_away(text, "features = encoder", 5) == ([], [])


@pytest.mark.parametrize("made", ["fake, code = G(real)", "self.fake = G(real)", "D(G(real)).mean().backward()"])
def test_other_lines_are_left_to_the_reader(made: str) -> None:
    assert thrown_away(CRITIC.replace("fake = G(torch.randn(8, 16))", made), made, 4) == ([], [])


def test_a_pass_that_another_function_calls_is_left_to_the_reader() -> None:
    assert thrown_away(CRITIC + "def run(loss):\n    loss.backward()\n", "fake = G", 7) == ([], [])


IMPORT = "from torch.utils.data import DataLoader, TensorDataset"


def row_by_row(text: str, **more: Any) -> tuple[list[str], list[str]]:
    """Of a loop whose rows are read one by one."""
    return fixed_lines("OPS301", f"{IMPORT}\n{text}", "in loader", about=About(variant="row by row"), **more)


@pytest.mark.parametrize(
    ("arguments", "fixed"),
    [
        ("rows, batch_size=64", "SequentialSampler(rows), 64, False), batch_size=None"),
        ("rows, batch_size=n, shuffle=True", "RandomSampler(rows), n, False), batch_size=None"),
        ("rows, 64, True", "RandomSampler(rows), 64, False), batch_size=None"),
        ("rows,\n    batch_size=64,\n", "SequentialSampler(rows), 64, False), batch_size=None"),
        ("dataset=rows, shuffle=False, batch_size=64", "SequentialSampler(rows), 64, False), batch_size=None"),
        (
            "rows, batch_size=64, shuffle=True, drop_last=last, num_workers=0",
            "RandomSampler(rows), 64, last), batch_size=None, num_workers=0",
        ),
        (
            "rows, batch_size=64, shuffle=train",
            "RandomSampler(rows) if train else SequentialSampler(rows), 64, False), batch_size=None",
        ),
    ],
)
def test_batches_are_read_by_one_index_in_the_same_order(arguments: str, fixed: str) -> None:
    _, new = row_by_row(f"loader = DataLoader({arguments})\nfor x, y in loader:\n    pass\n")
    assert new[1] == f"loader = DataLoader(rows, sampler=BatchSampler({fixed})"
    assert new[0].startswith(f"{IMPORT}, BatchSampler, ")


def test_names_are_those_of_the_file() -> None:
    loop = "\nfor x, y in loader:\n    pass\n"
    row = About(variant="row by row")
    loader = "loader = data.DataLoader(rows, batch_size=8)"
    _, new = fixed_lines("OPS301", f"from torch.utils import data\n{loader}{loop}", "in loader", about=row)
    made = "data.BatchSampler(data.SequentialSampler(rows), 8, False)"
    assert new == [f"loader = data.DataLoader(rows, sampler={made}, batch_size=None)"]
    imported = f"{IMPORT}, SequentialSampler\nloader = DataLoader(rows, batch_size=8){loop}"
    assert fixed_lines("OPS301", imported, "in loader", about=row)[1][0] == f"{IMPORT}, SequentialSampler, BatchSampler"
    # The program's own sampler of that name, and a loader that is none of torch's.
    own = f"from mine import BatchSampler\nloader = DataLoader(rows, batch_size=8){loop}"
    assert row_by_row(own) == ([], [])
    other = f"from mine import DataLoader\nloader = DataLoader(rows, batch_size=8){loop}"
    assert fixed_lines("OPS301", other, "in loader", about=row) == ([], [])


@pytest.mark.parametrize(
    "arguments",
    [
        "rows, 64, True, order",
        "rows, batch_sampler=order",
        "rows, batch_size=64, sampler=order",
        "rows, batch_size=64, collate_fn=joined",
        "TensorDataset(x, y), batch_size=64",
        "rows, batch_size=64, **options",
        "rows, *options",
    ],
)
def test_loaders_of_which_more_would_change_are_left_alone(arguments: str) -> None:
    assert row_by_row(f"loader = DataLoader({arguments})\nfor x, y in loader:\n    pass\n") == ([], [])


def test_of_several_loaders_the_one_that_the_run_saw_is_changed() -> None:
    tests = "tests = DataLoader(held, batch_size=64)\n"
    text = f"{tests}loader = DataLoader(rows, batch_size=64)\nfor x, y in loader:\n    pass\n"
    assert row_by_row(text) == ([], [])
    made = [Related(role="made", message="", path=FILE, line=LINES_BEFORE + 3)]
    old, _ = row_by_row(text, related=made)
    assert old[1:] == ["loader = DataLoader(rows, batch_size=64)"]


def test_a_loader_of_another_file_or_whose_size_is_read_is_left_alone() -> None:
    text = "loader = DataLoader(rows, batch_size=64)\nfor x, y in loader:\n    pass\n"
    elsewhere = [Related(role="made", message="", path="data.py", line=3)]
    assert row_by_row(text, related=elsewhere) == ([], [])
    assert row_by_row(f"{text}seen = len(loader) * loader.batch_size\n") == ([], [])
    assert row_by_row(f"{text}seen = config.batch_size\n") != ([], [])


def test_a_slow_dataset_of_the_programs_own_has_no_such_edit() -> None:
    text = "loader = torch.utils.data.DataLoader(rows, batch_size=64)\nfor x, y in loader:\n    pass\n"
    assert fixed_lines("OPS301", text, "in loader") == ([], [])


def test_denormal_numbers_are_taken_for_zero_after_the_imports() -> None:
    old, new = fixed_lines("OPS315", "import math\n\noptimizer.step()\n", "optimizer.step", whole=True)
    place = old.index("import math") + 1
    assert new == [*old[:place], "", "torch.set_flush_denormal(True)", *old[place:]]


def test_both_loaders_give_the_same_batches_and_draw_the_same_numbers() -> None:
    given = {"rows": TensorDataset(torch.arange(50), torch.arange(50) * 2.0)}
    old, new = row_by_row("loader = DataLoader(rows, 8, shuffle=True)\nfor x, y in loader:\n    pass\n")
    read = []
    for lines in (old, new):
        torch.manual_seed(3)
        made: dict[str, Any] = dict(given)
        exec("\n".join(lines), made)
        read.append(([[one.tolist() for one in batch] for batch in made["loader"]], torch.rand(1).item()))
    assert len(read) == 2 and read[0] == read[1] and len(read[0][0]) == 7


IGNORED = """\
def forward(self, x, y):
    h = self.body(x)
    out = {out}
    return {loss}
"""


@pytest.mark.parametrize(
    ("out", "loss", "expected"),
    [
        ("self.head(h.flatten(0, 1))", "F.cross_entropy(out, y.flatten(), ignore_index=0)",
         ["counted = y.flatten() != 0", "out = self.head(h.flatten(0, 1)[counted])",
          "return F.cross_entropy(out, y.flatten()[counted], ignore_index=0)"]),
        ("self.head(h)", "F.cross_entropy(out.view(-1, 9), y.view(-1))",
         ["counted = y != -100", "out = self.head(h[counted])", "return F.cross_entropy(out, y[counted])"]),
        ("self.head(h)", "F.cross_entropy(out.view(-1, 9), y)", []),  # rows of one are not those of the other
        ("self.head(h)", "F.cross_entropy(out, y, weight=w)", []),
        ("self.head(h)", "F.cross_entropy(out, y, reduction='sum', ignore_index=0)", []),
        ("self.head(h)", "F.cross_entropy(out, y), out", []),  # somebody wants all of them
        ("self.head(h, x)", "F.cross_entropy(out, y)", []),
        ("self.head(h)", "self.loss(out, y)", []),
        ("self.head(h)", "F.cross_entropy(out, queue.get())", []),
        ("self.head(h) if x else h", "F.cross_entropy(out, y)", []),
        ("self.head(h); y = y.clone()", "F.cross_entropy(out, y)", []),  # bound anew in between
    ],
)  # fmt: skip
def test_rows_that_count_are_selected_before_the_last_layer(out: str, loss: str, expected: list[str]) -> None:
    _, new = fixed_lines("OPS309", IGNORED.format(out=out, loss=loss), "return")
    assert [line.strip() for line in new] == expected


def test_the_loss_of_selected_rows_is_the_same() -> None:
    head, h, y = torch.nn.Linear(6, 9), torch.randn(4, 5, 6), torch.randint(0, 9, (4, 5))
    y[torch.rand(4, 5) < 0.7] = -100
    one = torch.nn.functional.cross_entropy(head(h).view(-1, 9), y.view(-1))
    other = torch.nn.functional.cross_entropy(head(h[y != -100]), y[y != -100])
    torch.testing.assert_close(one, other)


SELDOM = """\
class Quality:
    def compute(self):
        rows = np.sort(self.rows[: self.n])
        return float(rows.mean()), self.spread(rows)

    def spread(self, rows):
        {body}

def train(self, loader):
    for x in loader:
        self.count += 1
        score = {work}
        {between}
        if {test}:
            print({read})
        {after}
"""


@pytest.mark.parametrize(
    ("changed", "moves"),
    [
        ({}, True),
        ({"between": "rest = self.count % 7"}, True),
        ({"between": "self.quality.update(x)"}, False),  # it would see what the next step adds
        ({"between": "self = other"}, False),
        ({"test": "self.is_due()"}, False),
        ({"test": "score > 0.5"}, False),
        ({"after": "self.best = max(self.best, score)"}, False),
        ({"read": "self.count", "after": "pass"}, False),  # nobody reads it: it is there for what it does
        ({"between": "buffer[0] = 5"}, False),
        ({"between": "self.quality.n += 1"}, False),
        ({"between": "del self.rows"}, False),
        ({"body": "self.rows.clear(); return 0"}, False),
        ({"body": "self.seen = rows; return 0"}, False),
        ({"body": "return self.model(rows)"}, False),
        ({"body": "rows[0] = 1; return rows"}, False),
        ({"work": "next(self.batches)"}, False),
        ({"work": "nn.utils.clip_grad_norm_(self.weights, 1.0)"}, False),
        ({"work": "self.tracker.update(x)"}, False),
    ],
)
def test_what_a_rare_branch_alone_reads_is_worked_out_there(changed: dict[str, str], moves: bool) -> None:
    work = {"work": "self.quality.compute()", "body": "return rows.max() - rows.min()"}
    parts = {**work, "between": "pass", "test": "self.count % 20 == 0", "read": "score", "after": "pass", **changed}
    related = [Related(role="called-from", message="", path=FILE, line=LINES_BEFORE + 12)]
    _, new = fixed_lines("OPS304", SELDOM.format(**parts), "def train", related=related, whole=True)
    text = [line.strip() for line in new]
    below = text.index(f"score = {parts['work']}") > text.index(f"if {parts['test']}:")
    assert below is moves and text.count(f"score = {parts['work']}") == 1

"""Where a batch comes from that is not finite: the line that made its values, and programs where none is to blame."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import torchvet
from torchvet.finding import Finding
from torchvet.probes.objects import held_values
from torchvet.probes.objects.held_values import HeldValues
from torchvet.probes.replay import generators
from torchvet.recording import read
from torchvet.recording.records.nonfinite import DataOrigin, NonFinite

HEAD = """import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset, Subset, ConcatDataset, random_split

torch.manual_seed(0)
"""
TAIL = """

def main():
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loader = make()
    for epoch in range(3):
        for inputs, target in loader:
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(inputs).squeeze(1), target)
            loss.backward()
            optimizer.step()


main()
"""
MADE = {
    "numpy_div": r"""
class Ratios(Dataset):
    def __init__(self, n):
        rng = np.random.default_rng(0)
        top = rng.normal(size=(n, 4))
        bottom = rng.normal(size=(n, 4))
        bottom[11, 2] = 0.0
        self.ratios = (top / bottom).astype(np.float32)  # SAID
        self.target = rng.normal(size=n).astype(np.float32)

    def __len__(self):
        return len(self.target)

    def __getitem__(self, index):
        return torch.from_numpy(self.ratios[index]), self.target[index]


def make():
    return DataLoader(Ratios(64), batch_size=8, shuffle=True)
""",
    "log_zero": r"""
def prepare(counts):
    return torch.log(counts)  # SAID


class Counts(Dataset):
    def __init__(self, counts):
        scaled = prepare(counts)
        self.rows = scaled
        self.target = torch.randn(len(counts))

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return self.rows[index], self.target[index]


def make():
    counts = torch.rand(64, 4) + 0.5
    counts[17, 1] = 0.0
    train, _ = random_split(Counts(counts), [56, 8])
    return DataLoader(train, batch_size=8)
""",
    "from_csv": r"""
import io
TEXT = "\n".join(f"{i * 0.37:.3f},{'' if i == 9 else i * 0.11},{1 - i * 0.013:.3f},0.25,{i * 0.5}" for i in range(64))


def make():
    table = np.genfromtxt(io.StringIO(TEXT), delimiter=",")  # SAID
    table = table.astype(np.float32)
    data = TensorDataset(torch.from_numpy(table[:, :4]), torch.from_numpy(table[:, 4]))
    return DataLoader(data, batch_size=8)
""",
    "constant_column": r"""
class Scaled(Dataset):
    def __init__(self, table, target):
        self.table = (table - table.mean(0)) / table.std(0)  # SAID
        self.target = target

    def __len__(self):
        return len(self.table)

    def __getitem__(self, index):
        return self.table[index], self.target[index]


def make():
    table = torch.randn(64, 4)
    table[:, 3] = 1.0
    return DataLoader(Scaled(table, torch.randn(64)), batch_size=8)
""",
    "collate": r"""
class Texts(Dataset):
    def __init__(self, n):
        self.items = [torch.randn(i % 5, 4) for i in range(7, 7 + n)]
        self.target = torch.randn(n)

    def __len__(self):
        return len(self.items)

    def __getitem__(self, index):
        return self.items[index], self.target[index]


def pool(samples):
    lengths = torch.tensor([len(x) for x, _ in samples])
    sums = torch.stack([x.sum(0) for x, _ in samples])
    means = sums / lengths.unsqueeze(1)  # SAID
    return means, torch.stack([y for _, y in samples])


def make():
    return DataLoader(Texts(64), batch_size=8, collate_fn=pool)
""",
    "tensor_dataset": r"""
def make():
    x = torch.rand(64, 4) + 0.1
    x[5] = 0.0
    data = TensorDataset(torch.log(x), torch.randn(64))  # SAID
    train = Subset(data, range(60))
    return DataLoader(train, batch_size=8, shuffle=True)
""",
    "list_of_dicts": r"""
def collect(n):
    rows = []
    for i in range(n):
        weight = float(i % 13)
        volume = torch.rand(4) + 0.1
        rows.append({"x": volume / weight, "y": torch.tensor(float(i))})  # SAID
    return rows


class Rows(Dataset):
    def __init__(self, rows):
        self.rows = rows

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        row = self.rows[index]
        return row["x"], row["y"]


def make():
    return DataLoader(Rows(collect(64)), batch_size=8)
""",
    "plain_list": r"""
def make():
    samples = []
    for i in range(64):
        x = torch.randn(4) * i
        samples.append((x.sqrt(), torch.tensor(float(i))))  # SAID
    return DataLoader(samples, batch_size=8)
""",
    "getitem": r"""
class Live(Dataset):
    def __init__(self, n):
        self.x = torch.randn(n, 4)
        self.scale = torch.arange(n).float()[:, None] % 20
        self.target = torch.randn(n)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        return self.x[index] / self.scale[index], self.target[index]  # SAID


def make():
    return DataLoader(Live(64), batch_size=8, shuffle=True, num_workers=2)
""",
    "target_scalar": r"""
class Prices(Dataset):
    def __init__(self, prices):
        self.x = torch.randn(len(prices), 4)
        self.change = np.log(prices).astype(np.float32)  # SAID

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        return self.x[index], self.change[index]


def make():
    prices = np.random.default_rng(0).uniform(1, 9, 64)
    prices[21] = 0.0
    return DataLoader(Prices(prices), batch_size=8)
""",
    "no_loader": r"""
def make():
    table = torch.randn(64, 4)
    spread = table.abs()
    spread[3, 3] = 0.0
    features = table / spread  # SAID
    target = torch.randn(64)
    for start in range(0, 64, 8):
        yield features[start : start + 8], target[start : start + 8]
""",
    "concat": r"""
class Part(Dataset):
    def __init__(self, n, bad):
        depth = torch.rand(n, 4) + 0.5
        if bad:
            depth[7, 0] = 0.0
        self.disparity = 1.0 / depth  # SAID
        self.target = torch.randn(n)

    def __len__(self):
        return len(self.target)

    def __getitem__(self, index):
        return self.disparity[index], self.target[index]


def make():
    return DataLoader(ConcatDataset([Part(32, False), Part(32, True)]), batch_size=8, shuffle=True)
""",
}
"""By what goes wrong: how the batches are made. The line that is to be named is marked."""


@pytest.fixture(autouse=True)
def no_other_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    """Modules of other tests, which the same worker has run, would be files of the program: they make datasets, too."""
    for name, module in list(sys.modules.items()):
        if (getattr(module, "__file__", None) or "").startswith(str(Path(__file__).parents[1])):
            monkeypatch.delitem(sys.modules, name)


def run(body: str, folder: Path) -> tuple[list[Finding], list[DataOrigin | None], str]:
    """What is said of a program, what was found of its data, and its text."""
    text = HEAD + body + TAIL
    path = folder / "program.py"
    path.write_text(text, "utf-8")
    with torchvet.watch(record=folder / "run.vet") as watch:
        runpy.run_path(str(path), run_name="__main__")
    (rank,) = read(folder / "run.vet").ranks
    assert watch.report is not None
    findings = [f for f in watch.report.findings if f.code == "NUM101"]
    return findings, [r.origin for r in rank.all(NonFinite)], text


def line_of(text: str, mark: str) -> int:
    """The line that holds a mark."""
    return next(n for n, line in enumerate(text.splitlines(), 1) if mark in line)


@pytest.mark.parametrize("name", MADE)
def test_the_line_that_makes_it_is_named(name: str, tmp_path: Path) -> None:
    (finding, *_), _, text = run(MADE[name], tmp_path)
    assert finding.location is not None and finding.location.line == line_of(text, "# SAID"), finding
    used = [r.line for r in finding.related if r.role == "used"]
    assert used == [line_of(text, "mse_loss(")], "where it is used is said as well"


def test_the_rows_and_the_columns_are_said(tmp_path: Path) -> None:
    (finding, *_), (origin, *_), _ = run(MADE["numpy_div"], tmp_path)
    assert origin is not None and origin.complete
    (held,) = origin.held
    assert (held.owner, held.name, held.rows, held.of, held.columns) == ("Ratios", "ratios", [11], 64, [2])
    assert (held.operand.nans, held.operand.infinities, held.same) == (0, 1, True)
    assert "Ratios.ratios has 1 infinite element (row 11 of 64, column 2)" in (finding.cause or "")


def test_items_of_a_list_are_rows(tmp_path: Path) -> None:
    _, (origin, *_), _ = run(MADE["list_of_dicts"], tmp_path)
    assert origin is not None
    (held,) = origin.held
    assert (held.name, held.rows, held.of) == ("rows[0]['x']", [0, 13, 26, 39, 52], 64)


@pytest.mark.parametrize("first", ["Clean", "Bad"])
def test_of_several_kinds_of_datasets_none_is_blamed(first: str, tmp_path: Path) -> None:
    body = """
class Clean(Dataset):
    def __init__(self, n):
        self.x, self.y = torch.rand(n, 4), torch.randn(n)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        return self.x[index], self.y[index]


class Bad(Clean):
    def __getitem__(self, index):
        return (self.x[index] - self.x[index]).log(), self.y[index]


def make():
    other = {"Clean": Bad, "Bad": Clean}["FIRST"]
    return DataLoader(ConcatDataset([FIRST(32), other(32)]), batch_size=8, shuffle=True)
"""
    (finding, *_), (origin, *_), text = run(body.replace("FIRST", first), tmp_path)
    assert origin is not None and (origin.read, origin.complete) == (None, False)
    makers = [line_of(text, "return self.x[index]"), line_of(text, "return (self.x[index]")]
    assert finding.location is not None and finding.location.line not in makers


# What is not to blame ------------------------------------------------------------------------------------------------

ROWS = """
class Rows(Dataset):
    def __init__(self, n):
        self.table = torch.rand(n, 6) + 0.5
        self.table[:, 5] = float("nan")
        self.target = torch.randn(n)
        CHANGED

    def __len__(self):
        return len(self.table)

    def __getitem__(self, index):
        return GIVEN, self.target[index]


def make():
    return DataLoader(Rows(64), batch_size=8, shuffle=True)
"""


MANY = """
class Many(Dataset):
    def __init__(self):
        self.parts = [torch.randn(3, 4) for _ in range(200)]
        for part in self.parts[::5]:
            part[2, 1] = float("nan")

    def __len__(self):
        return len(self.parts)

    def __getitem__(self, index):
        return self.parts[index][2], self.parts[index][0, 0]


def make():
    return DataLoader(Many(), batch_size=8, sampler=range(121, 200))
"""


def rows(given: str, changed: str = "pass") -> str:
    """A dataset with a column of NaN that no batch takes."""
    return ROWS.replace("GIVEN", given).replace("CHANGED", changed)


def test_a_column_that_no_batch_takes_is_no_origin(tmp_path: Path) -> None:
    (finding, *_), (origin, *_), text = run(rows("(self.table[index, :4] - 1).log()"), tmp_path)
    assert origin is not None and not any(one.same for one in origin.held)
    # Only a guess: the finding stays where the batch is used.
    assert finding.location is not None and finding.location.line == line_of(text, "mse_loss(")
    assert {r.role for r in finding.related} >= {"held", "made in"}


def test_nan_makes_no_infinity(tmp_path: Path) -> None:
    body = rows("self.table[index, :4] / (index % 9)")
    (finding, *_), (origin, *_), text = run(body, tmp_path)
    assert origin is not None and origin.held == []
    assert finding.location is not None and finding.location.line == line_of(text, "index % 9")


def test_values_that_the_batch_leaves_out_are_no_matter(tmp_path: Path) -> None:
    assert run(rows("self.table[index, :4]"), tmp_path)[:2] == ([], [])
    assert run(rows("torch.nan_to_num(self.table[index, 2:])"), tmp_path)[:2] == ([], [])


def test_rows_that_are_cleaned_are_no_origin(tmp_path: Path) -> None:
    # The numbers of the bad sample are the table's, and they stand in a row of it that is finite.
    given = "torch.cat([torch.nan_to_num(self.table[index, 3:]), (self.target[index : index + 1]).sqrt()])"
    changed = (
        "self.table[:, 5] = torch.rand(n); self.table[::3, 5] = torch.nan; self.target[:] = 1; self.target[4] = -1"
    )
    _, (origin, *_), _ = run(rows(given, changed), tmp_path)
    assert origin is not None and not any(one.same for one in origin.held)


def test_an_item_of_a_list_is_found_among_many_bad_ones(tmp_path: Path) -> None:
    _, (origin, *_), _ = run(MANY, tmp_path)
    assert origin is not None and [one.same for one in origin.held] == [True]


def test_a_guarded_division_is_not_what_made_it(tmp_path: Path) -> None:
    body = MADE["from_csv"].replace(
        "    table = table.ast", "    table = table / (table.std(0) + 1e-6)\n    table = table.ast"
    )
    (finding, *_), _, text = run(body, tmp_path)
    assert finding.location is not None and finding.location.line == line_of(text, "# SAID")


def test_of_two_that_may_have_made_it_none_is_picked(tmp_path: Path) -> None:
    body = MADE["log_zero"].replace("prepare(counts)\n", "prepare(counts) / counts\n")
    (finding, *_), _, text = run(body, tmp_path)
    assert finding.location is not None and finding.location.line == line_of(text, "self.rows = scaled")
    both = {line_of(text, "# SAID"), line_of(text, "/ counts")}
    assert {r.line for r in finding.related if r.role == "may make it"} == both


def test_a_dataset_that_is_too_large_to_be_read_is_not_called_finite(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(held_values, "_MOST_BYTES", 64)
    (finding, *_), (origin, *_), text = run(MADE["getitem"], tmp_path)
    assert origin is not None and not origin.complete
    assert finding.location is not None and finding.location.line == line_of(text, "mse_loss(")


class Guarded:
    """Counts whether any of its code is run."""

    ran = 0

    def __init__(self) -> None:
        self.numbers = torch.tensor([1.0, torch.nan])
        self.itself = self

    @property
    def __class__(self) -> type:
        Guarded.ran += 1
        return dict

    def values(self) -> list[Any]:
        Guarded.ran += 1
        raise RuntimeError

    @property
    def computed(self) -> torch.Tensor:
        Guarded.ran += 1
        raise RuntimeError

    def __getitem__(self, index: int) -> torch.Tensor:
        Guarded.ran += 1
        return self.numbers[index]

    def __iter__(self) -> Iterator[torch.Tensor]:
        Guarded.ran += 1
        return iter(self.numbers)

    def __getattr__(self, name: str) -> Any:
        Guarded.ran += 1
        raise AttributeError(name)

    def __len__(self) -> int:
        Guarded.ran += 1
        return 2


class Slotted:
    __slots__ = ("values",)

    def __init__(self) -> None:
        self.values = [0.5, float("inf")]


def test_no_code_of_an_object_is_run() -> None:
    state = torch.get_rng_state()
    (leaf,) = HeldValues().of(Guarded())
    assert (leaf.owner, leaf.attribute, Guarded.ran) == ("Guarded", "numbers", 0)
    assert torch.equal(torch.get_rng_state(), state)


def test_no_code_of_an_object_is_run_to_find_generators() -> None:
    Guarded.ran = 0
    own = torch.Generator()
    holder = Guarded()
    holder.itself = own  # type: ignore[assignment]
    found = [one for one, _ in generators._among([{"guarded": holder, "list": [Guarded()]}])]
    assert (found, Guarded.ran) == ([own], 0)


def test_no_code_of_arrays_and_tensors_is_run() -> None:
    ran = []

    class Counted(np.ndarray):
        def __array_finalize__(self, obj: Any) -> None:
            ran.append("array")

        @property
        def nbytes(self) -> int:
            ran.append("nbytes")
            raise RuntimeError

    class Own(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            ran.append("tensor")
            raise RuntimeError

    both = [np.array([1.0, np.nan]).view(Counted), torch.tensor([2.0, np.inf]).as_subclass(Own)]
    ran.clear()
    values = HeldValues()
    found = [leaf.values.isfinite().tolist() for leaf in values.of(both)]
    assert (found, values.complete, ran) == ([[True, False]] * 2, True, [])


def test_what_has_no_plain_numbers_hides_nothing_else() -> None:
    values = HeldValues()
    held = {"sparse": torch.eye(3).to_sparse(), "large": [0.5, 10**400], "bad": torch.tensor([np.nan])}
    found = [leaf.path for leaf in values.of(held) if not leaf.values.isfinite().all()]
    assert found == ["['bad']"] and not values.complete, "a sparse tensor was not read"


def test_slots_and_containers_are_read() -> None:
    values = HeldValues()
    found = list(values.of({"a": [Slotted(), {"b": 2.5}], "c": (1, 2), "d": ["x"] * 9}))
    assert [leaf.path + leaf.attribute for leaf in found if leaf.values.numel() > 1] == ["values"]
    assert values.complete


def test_a_table_of_pandas_is_read_by_its_columns() -> None:
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame({"price": [1.0, None, 3.0], "name": ["a", "b", "c"], "count": [1, 2, 3]})
    (leaf,) = HeldValues().of(table)
    assert leaf.names == ["price", "count"] and leaf.values.isnan().nonzero().tolist() == [[1, 0]]
    (leaf,) = HeldValues().of([table["price"]])
    assert leaf.values.isnan().tolist() == [False, True, False]

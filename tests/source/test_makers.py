"""The lines that can make NaN or an infinity of what a value is computed from, by the text alone."""

from __future__ import annotations

import textwrap

import pytest

from torchvet.source.stores import Made, SourceIndex, Wrong


def made(text: str, wrong: Wrong | None = None, owner: str = "Rows", attribute: str = "x") -> tuple[Made, list[int]]:
    """What is found for an attribute, and the lines that are marked."""
    text = textwrap.dedent(text)
    marked = [n for n, line in enumerate(text.splitlines(), 1) if line.endswith("# HERE")]
    return SourceIndex({"a.py": text}).makers(wrong or Wrong()).of_attribute(owner, attribute), marked


CLASS = """
class Rows:
    def __init__(self, table):
        self.x = table
"""

FOUND = {
    "through a function's argument": """
        def scaled(a, b):
            return a / b  # HERE
        rows = Rows(scaled(load_all(), counts()))
    """,
    "of a tuple the own part": """
        def both(a, b):
            return a / b, a.log()  # HERE
        ratio, logs = both(load_all(), counts())
        rows = Rows(ratio)
    """,
    "through a list that is filled": """
        rows = []
        for a, b in pairs():
            rows.append(a.sqrt())  # HERE
        rows = Rows(torch.stack(rows))
    """,
    "through a method of an object of the program's": """
        class Scaler:
            def fit(self, table):
                self.width = table.std(0)
                return self
            def transform(self, table):
                return table / self.width  # HERE
        rows = Rows(Scaler().fit(table).transform(table))
    """,
    "in place": """
        table = raw()
        table /= spread()  # HERE
        rows = Rows(table)
    """,
    "by a method in place": """
        table = raw()
        table.div_(spread())  # HERE
        rows = Rows(table)
    """,
    "by an item": """
        table = raw()
        table[:, 2] = table[:, 1] / table[:, 0]  # HERE
        rows = Rows(table)
    """,
    "written": """
        table = raw()
        table[table < 0] = float("nan")  # HERE
        rows = Rows(table)
    """,
    "read": """
        table = np.genfromtxt("a.csv")  # HERE
        rows = Rows(torch.from_numpy(table))
    """,
}


@pytest.mark.parametrize("name", FOUND)
def test_the_line_is_found(name: str) -> None:
    found, marked = made(CLASS + textwrap.dedent(FOUND[name]))
    assert [one.line for one in found.makers] == marked, found.makers
    assert [one.line for one in found.assigned] == [4]


NONE = {
    "a guard in the divisor": "rows = Rows(raw() / (spread() + 1e-6))",
    "a guarded divisor by its name": "width = raw().std(0).clamp(min=1e-6)\nrows = Rows(raw() / width)",
    "a divisor whose zeros are replaced": "width = raw().std(0)\nwidth[width == 0] = 1.0\nrows = Rows(raw() / width)",
    "a constant": "rows = Rows(raw() / 255.0)",
    "a constant by its name": "WIDTH = 255.0\nrows = Rows(raw() / WIDTH)",
    "what cleans": "rows = Rows(torch.nan_to_num(a / b))",
    "an index": "rows = Rows(raw()[: n // 2, int(a / b)])",
    "what runs later": "x = raw()\nrows = Rows(x)\nx = a / b",
    "another variable": "y = a / b\nrows = Rows(raw())",
    "log1p of what has a guard": "rows = Rows(torch.log(raw() + 1))",
}


@pytest.mark.parametrize("name", NONE)
def test_what_cannot_make_it_is_not_named(name: str) -> None:
    found, _ = made(CLASS + NONE[name])
    assert found.makers == []


SPREAD = (
    CLASS
    + """
def scaled(t):
    width = np.quantile(t, 0.75, axis=0) - np.quantile(t, 0.25, axis=0)
    return t / width

table = np.stack([a.log(), a / b, a], axis=2)
rows = Rows(scaled(table))
"""
)


def test_a_spread_of_zero_spoils_a_whole_column() -> None:
    alone, _ = made(SPREAD, Wrong(fills=False))
    whole, _ = made(SPREAD)
    assert {one.line for one in alone.makers} == {10}
    assert {one.line for one in whole.makers} == {8, 10}


def test_the_column_picks_among_those_that_are_put_side_by_side() -> None:
    for column, does in ((0, "takes log of a"), (1, "divides by b")):
        found, _ = made(SPREAD, Wrong(fills=False, columns=[column], width=3))
        assert [one.does for one in found.makers] == [does]
    found, _ = made(SPREAD, Wrong(fills=False, columns=[2], width=3))
    assert found.makers == []


def test_the_kind_decides() -> None:
    text = CLASS + "rows = Rows(torch.sqrt(a))"
    assert made(text, Wrong(nans=False))[0].makers == [] and len(made(text)[0].makers) == 1
    text = CLASS + "rows = Rows(torch.exp(a))"
    assert made(text, Wrong(infinities=False))[0].makers == [] and len(made(text)[0].makers) == 1
    text = CLASS + "a = torch.full((3,), torch.nan)\nrows = Rows(a)"
    assert made(text, Wrong(nans=False))[0].makers == [] and len(made(text)[0].makers) == 1


def test_the_key_picks_among_the_values_of_a_dict() -> None:
    text = CLASS + 'rows = Rows([{"a": x / y, "b": x.log()}\n])'
    found, _ = made(text, Wrong(keys=["b"]))
    assert [one.does for one in found.makers] == ["takes log of x"]


def test_a_field_of_a_dataclass_is_what_the_constructor_is_given() -> None:
    text = "@dataclass\nclass Rows:\n    y: object\n    x: object\n\nrows = Rows(raw(), a / b)\n"
    found, _ = made(text)
    assert [one.line for one in found.makers] == [6] and [one.line for one in found.assigned] == [6]


def test_functions_that_call_each_other_end() -> None:
    text = CLASS + "def f(a):\n    return g(a)\ndef g(a):\n    return f(a / a)\nrows = Rows(f(1))\n"
    assert made(text)[0].makers == []


def test_what_is_not_known_gives_nothing() -> None:
    search = SourceIndex({"a.py": "x = 1\n"}).makers(Wrong())
    nothing = Made(assigned=[], makers=[])
    assert search.of_attribute("Unknown", "x") == nothing
    assert search.of_function("b.py", "f", 3) == search.of_function("a.py", "f", 3) == nothing
    assert search.of_variable("b.py", 1, "x") == nothing
    assert search.of_argument("TensorDataset", 0, "") == nothing


def test_one_of_more_callers_than_are_gone_back_to_is_not_the_only_line() -> None:
    text = CLASS + "".join(f"rows{n} = Rows(part({n}) + 1)\n" for n in range(9)) + "def part(n):\n    return {} / n\n"
    few = SourceIndex({"a.py": CLASS + "rows = Rows(load() / n)\n"}).makers(Wrong()).of_attribute("Rows", "x")
    assert few.complete and few.alone is not None
    many = SourceIndex({"a.py": text.format("load()")}).makers(Wrong()).of_attribute("Rows", "x")
    assert len(many.makers) == 1 and not many.complete and many.alone is None


def test_what_is_added_keeps_a_divisor_from_0_only_if_it_is_a_number() -> None:
    found, _ = made(CLASS + "rows = Rows(a() / (b() + c()))\n")
    assert [one.line for one in found.makers] == [5]
    assert made(CLASS + "rows = Rows(a() / (b() + 1e-6))\n")[0].makers == []

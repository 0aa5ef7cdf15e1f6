"""Variants do what their programs do, and the expected line is followed through each rewriting."""

from __future__ import annotations

import ast
import re
import subprocess
from pathlib import Path

import pytest
from warm_interpreters import python

from casebook import run
from casebook.case import Case, Expectation, load_all
from casebook.program import Program
from casebook.variants import KINDS, Variant, variants
from casebook.variants.scopes import scopes
from casebook.variants.text import Edit, Line, Module

PROGRAM = '''"""Counts what it keeps."""

import argparse
from dataclasses import dataclass

LIMIT = 3
total = 0


@dataclass
class Row:
    weight: int
    note: str = "a # b"


class Store:
    def __init__(self, size):
        self.size = size
        self.rows = []

    def push(self, row, times=1):
        for _ in range(times):
            self.rows.append(row)
        return len(self.rows)


def weigh(rows):
    global total
    total = sum(row.weight for row in rows)
    return {name: total for name in ("sum",)}


def tell(store, steps):
    print(f"{steps:2d} steps, {len(store.rows)} of {store.size} rows, {weigh(store.rows)['sum']!r} {total}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=4)
    args = parser.parse_args()
    store = Store(size=LIMIT)
    for step in range(args.steps):
        store.push(Row(weight=step), times=2)
    tell(store, steps=args.steps)


if __name__ == "__main__":
    main()
'''

FLAT = """import sys

kept = []
rule = len(sys.argv)


def squared(x):
    return x * x * rule


for step in range(5):
    value = squared(step)
    kept.append(value)
    if step == 4:
        print(f"{step}: {kept[-1]}", sum(kept))
"""


def case_of(folder: Path, text: str, line: str, holder: str, *lines: str) -> Case:
    (folder / "faulty.py").write_text(text, encoding="utf-8")
    return Case(folder, Expectation("MEM102", "error", line, lines=list(lines), holder=[holder], argv=["--steps", "3"]))


@pytest.fixture
def case(tmp_path: Path) -> Case:
    return case_of(tmp_path, PROGRAM, "self.rows.append(row)", "store.rows", "def push(self")


def made(case: Case) -> dict[str, Variant]:
    return {variant.name: variant for variant in variants(case, case.folder / "made")}


def pointed_at(variant: Variant) -> list[str]:
    """The texts of the lines that a finding may point at."""
    lines = (variant.program.folder / variant.expect.file).read_text(encoding="utf-8").splitlines()
    return [lines[number - 1].strip() for number in sorted(variant.case.line_numbers())]


def test_each_kind_prints_what_the_program_prints(case: Case) -> None:
    expected = run.bare(case.faulty, case.expect.argv)
    assert expected.stdout == " 3 steps, 6 of 3 rows, 6 6\n"
    found = made(case)
    assert tuple(found) == KINDS
    assert {run.bare(v.program, v.expect.argv).stdout for v in found.values()} == {expected.stdout}


def test_a_script_without_functions_prints_the_same_in_each_kind(tmp_path: Path) -> None:
    case = case_of(tmp_path, FLAT, "kept.append(value)", "kept")
    found = made(case)
    assert tuple(found) == KINDS
    assert {run.bare(v.program, v.expect.argv).stdout for v in found.values()} == {"4: 48 90\n"}
    assert pointed_at(found["class"]) == ["self.kept.append(value)"]
    assert "rows" not in found["split"].expect.file and "preparation" in _files(found["split"])


def test_lines_are_followed(case: Case) -> None:
    found = made(case)
    for kind in ("closure", "class", "split", "framework", "believed"):
        assert pointed_at(found[kind]) == ["def push(self, row, times=1):", "self.rows.append(row)"]
    assert found["split"].expect.file == "faulty/work.py"
    defined, stored = pointed_at(found["renamed"])
    assert re.fullmatch(r"def \w+\(self, (\w+), \w+=1\):", defined) and re.fullmatch(
        r"self\.\w+\.append\(\w+\)", stored
    )


def test_chosen_names_are_gone_and_all_others_stay(case: Case) -> None:
    renamed = made(case)["renamed"]
    text = (renamed.program.folder / "faulty.py").read_text(encoding="utf-8")
    nodes = list(ast.walk(ast.parse(text)))
    fields = ("id", "attr", "arg", "name")
    words = {getattr(node, name) for node in nodes for name in fields if isinstance(getattr(node, name, None), str)}
    assert not words & {"Row", "Store", "rows", "push", "times", "weigh", "tell", "total", "LIMIT", "main"}
    assert "size" in words, "tensors have one too: whose `store.size` is cannot be told"
    assert words >= {"add_argument", "steps", "append", "self", "dataclass", "range"}
    assert '"a # b"' in text
    (holder,) = renamed.expect.holder
    store, rows = holder.split(".")
    assert re.search(rf"{store} = \w+\(", text) and f"self.{rows}.append" in text


def test_names_that_a_program_prints_are_kept(tmp_path: Path) -> None:
    text = (
        "from torch import nn\n\n\nclass Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.first = nn.Linear(1, 1)\n\n\nkept = [name for name, _ in Net().named_children()]\n"
    )
    found = made(case_of(tmp_path, text, "kept = ", "kept"))
    renamed = (found["renamed"].program.folder / "faulty.py").read_text(encoding="utf-8")
    assert "self.first" in renamed and "Net" not in renamed and "kept" not in renamed


def test_a_false_belief_stands_at_the_line_and_a_second_fault_elsewhere(tmp_path: Path) -> None:
    text = "import torch\n\n\ndef step(scaler, loss):\n    scaler.scale(loss).backward()\n    scaler.update()\n"
    case = case_of(tmp_path, text, "scaler.update()", "")
    other = made(Case(case.folder, Expectation("AMP104", "error", "update()")))["believed"]
    lines = (other.program.folder / "faulty.py").read_text(encoding="utf-8").splitlines()
    at = lines.index("    scaler.update()")
    assert lines[at - 1].startswith("    # ") and lines[at - 2] == "    losses_so_far.append(loss)"
    assert "losses_so_far = []" in lines and other.second == ("MEM101", "MEM112", "MEM113")
    assert set(other.second) <= set(other.expect.also_allowed)
    assert "losses_so_far.append(loss.detach())" in _files(made(case)["believed"])["faulty"]


def test_a_leak_is_mixed_with_gradients_zeroed_in_place(tmp_path: Path) -> None:
    text = "def step(optimizer, loss, kept):\n    optimizer.zero_grad()\n    loss.backward()\n    kept.append(loss)\n"
    believed = made(case_of(tmp_path, text, "kept.append", "kept"))["believed"]
    assert "optimizer.zero_grad(set_to_none=False)" in (believed.program.folder / "faulty.py").read_text(
        encoding="utf-8"
    )
    assert believed.second == ("MEM203",) and not believed.expect.count


CASES = [pytest.param(case, id=case.name) for case in load_all()]


@pytest.mark.parametrize("case", CASES)
def test_every_case_has_variants_whose_lines_are_known(case: Case, tmp_path: Path) -> None:
    found = variants(case, tmp_path / "made")
    assert len(found) >= 3
    for variant in found:
        assert len(variant.case.line_numbers()) == len(case.line_numbers())
        assert variant.expect.code == case.expect.code and len(variant.expect.holder) == len(case.expect.holder)
        for text in _files(variant).values():
            compile(text, variant.name, "exec")


def test_the_same_case_gives_the_same_text(tmp_path: Path) -> None:
    case = next(load_all("mem101_trainer_stats"))
    first, second = (variants(case, tmp_path / name) for name in ("a", "b"))
    assert [_files(v) for v in first] == [_files(v) for v in second]
    assert [v.expect for v in first] == [v.expect for v in second]


REAL = ["mem101_history/class", "mem101_replay_buffer/split"]


def printed_by(program: Program) -> str:
    ran = subprocess.run(
        [python(), *program.target, "--steps", "20"],
        cwd=program.folder,
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    return ran.stdout


@pytest.mark.parametrize("name", REAL)
def test_a_real_case_prints_the_same(name: str, tmp_path: Path) -> None:
    case = next(load_all(name.partition("/")[0]))
    (variant,) = (v for v in variants(case, tmp_path) if v.name == name.partition("/")[2])
    expected = printed_by(case.faulty)
    assert expected and printed_by(variant.program) == expected


def test_names_are_bound_where_python_binds_them() -> None:
    text = "x = 1\ndef f(a):\n    y = a\n    return [x for x in y], lambda z: z + x\nclass C:\n    x = 2\n    w = x\n"
    found = scopes(ast.parse(text))
    kinds = [(name.id, name.lineno, scope.of(name.id)) for name, scope in found.uses]
    bound = {(name, line, scope.kind) for name, line, scope in kinds if scope is not None}
    assert {("x", 1, "module"), ("x", 4, "function"), ("x", 4, "module"), ("x", 6, "class"), ("x", 7, "class")} <= bound
    assert ("y", 4, "function") in bound and ("y", 4, "module") not in bound


def test_edits_over_lines_keep_the_first_lines_origin() -> None:
    module = Module((Line("a = (1 +", ("faulty.py", 1)), Line("2)", ("faulty.py", 2)), Line("é = a", ("faulty.py", 3))))
    edited = module.edited([Edit(1, 4, 2, 2, "3"), Edit(3, 4, 3, 5, "b")])
    assert [(line.text, line.origin) for line in edited.lines] == [
        ("a = 3", ("faulty.py", 1)),
        ("é = b", ("faulty.py", 3)),
    ]


def _files(variant: Variant) -> dict[str, str]:
    return {path.stem: path.read_text(encoding="utf-8") for path in sorted(variant.program.folder.rglob("*.py"))}

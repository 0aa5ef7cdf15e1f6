"""A rule's texts and examples are files beside it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from torchvet.docgen import documents as docs
from torchvet.patches import applied
from torchvet.rules import Rule, all_rules, rule
from torchvet.rules.core import documents

RULES = Path(__file__).parents[2] / docs.RULES
FOLDER = "memory/mem101_graph_retained"


def test_every_rules_folder_has_the_files_of_a_rule_and_nothing_else() -> None:
    for folder in (file.parent for file in RULES.glob("*/*/rule.py")):
        names = {path.name for path in folder.iterdir() if path.name != "__pycache__"}
        assert names - {"good.patch", "good.py", "proof.py"} == {"rule.py", "bad.py", "details.md"}, folder
        assert len(names - {"proof.py"}) == 4, folder


def test_the_texts_stand_under_fixed_headings_in_their_order() -> None:
    for subject in all_rules():
        folder = RULES / "/".join(type(subject).__module__.split(".")[2:-1])
        lines = (folder / "details.md").read_text("utf-8").splitlines()
        assert [line[3:] for line in lines if line.startswith("#")] == list(documents.SECTIONS.values()), folder


def test_an_attribute_is_what_its_file_says() -> None:
    subject = rule("MEM101")
    assert (RULES / FOLDER / "bad.py").read_text("utf-8") == type(subject).BAD == subject.BAD
    assert applied(subject.BAD, (RULES / FOLDER / "good.patch").read_text("utf-8")) == subject.GOOD
    assert subject.what.startswith("A tensor computed with gradients on refers through `grad_fn` to its autograd graph")


def test_a_class_without_a_folder_has_neither_texts_nor_examples() -> None:
    class Bare(Rule):
        """A rule of a test."""

    class Heir(type(rule("MEM101"))):  # type: ignore[misc]
        """Of a rule that has a folder."""

    assert [name for name in (*documents.SECTIONS, "BAD", "GOOD") if hasattr(Bare(), name)] == []
    assert Heir.BAD == rule("MEM101").BAD and Heir().proof == rule("MEM101").proof


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A repository with the folder of one rule."""
    shutil.copytree(RULES / FOLDER, tmp_path / docs.RULES / FOLDER)
    return tmp_path


def test_a_good_program_is_kept_as_a_patch_and_make_docs_is_named_until_it_is(root: Path) -> None:
    good = root / docs.RULES / FOLDER / "good.py"
    assert docs.patches(root) == {}
    good.write_text(rule("MEM101").GOOD, "utf-8")
    assert docs.patches(root) == {good: good.with_suffix(".patch").read_text("utf-8")}
    assert f"{docs.RULES}/{FOLDER}/good.py: is not yet a patch; run `make docs`" in docs.unpatched(root)


def test_a_good_program_that_shares_little_stays_a_program(root: Path) -> None:
    (root / docs.RULES / FOLDER / "good.py").write_text("print()\n" * 30, "utf-8")
    assert docs.patches(root) == {}

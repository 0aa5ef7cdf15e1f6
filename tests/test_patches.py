"""torchvet.patches: a patch gives the edited text back exactly, or an error that says where it does not fit."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from torchvet.patches import PatchError, applied, made

BEFORE = "".join(f"line {number}\n" for number in range(1, 21))
AFTER = BEFORE.replace("line 2\n", "").replace("line 18\n", "line 18\n-- more\n++ more\n")
PATCH = made(BEFORE, AFTER, "train.py")

TEXTS = st.lists(st.sampled_from(["", "a", "b", "-- c", "++ d", " e", "@@", "f\x0cg", "h\r", "\\"]), max_size=12).map(
    "\n".join
)


@given(TEXTS, TEXTS)
@example("a", "a\n")
@example("", "a")
def test_an_applied_patch_gives_the_other_text(before: str, after: str) -> None:
    assert applied(before, made(before, after, "train.py")) == after


def test_a_patch_is_a_unified_diff() -> None:
    lines = PATCH.splitlines()
    assert lines[:2] == ["--- train.py", "+++ train.py"]
    assert [line for line in lines if line.startswith("@@")] == ["@@ -1,5 +1,4 @@", "@@ -16,5 +15,7 @@"]
    assert made(BEFORE, BEFORE, "train.py") == ""


def test_an_editor_may_strip_the_space_of_empty_context_lines() -> None:
    patch = made("a\n\nb\n", "a\n\nc\n", "train.py")
    assert applied("a\n\nb\n", patch.replace("\n \n", "\n\n")) == "a\n\nc\n"


def test_a_changed_text_names_the_file_and_the_hunk() -> None:
    with pytest.raises(PatchError, match=r"^train\.py: hunk 2 \(@@ -16,5 \+15,7 @@\) does not match the text$"):
        applied(BEFORE.replace("line 17", "line seventeen"), PATCH)


def test_a_hunk_is_not_searched_for_at_other_lines() -> None:
    with pytest.raises(PatchError, match="hunk 1"):
        applied(f"new\n{BEFORE}", PATCH)


@pytest.mark.parametrize(
    ("patch", "words"),
    [
        ("line 1\n", "not a unified diff"),
        (PATCH.replace("@@ -16,5", "@@ -16,6"), r"train\.py: hunk 2 .* is malformed"),
        (PATCH.replace("+++ more", "?++ more"), r"train\.py: hunk 2 .* is malformed"),
        (PATCH.removesuffix("\n"), r"train\.py: hunk 2 .* is malformed"),
        (PATCH.replace("@@ -1,5", "@@ -one"), r"train\.py: hunk 1 .* is malformed"),
        (PATCH.replace("@@ -16,5", "@@ -2,5"), r"train\.py: hunk 2 .* does not match"),
    ],
)
def test_a_damaged_patch_is_refused(patch: str, words: str) -> None:
    with pytest.raises(PatchError, match=words):
        applied(BEFORE, patch)

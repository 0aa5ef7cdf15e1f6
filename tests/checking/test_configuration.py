"""Where options come from, which wins, and that a mistake is named."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from word_rules import WordRule

from torchvet.checking.checker import Checker
from torchvet.configuration import Configuration, Layer, codes_in, read_configuration
from torchvet.errors import BadInput

CODES = ("MEM101", "MEM102", "MEM201", "TRN101", "AMP101", "AMP201")


def write(folder: Path, text: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "pyproject.toml").write_text(text)
    return folder


def test_the_nearest_file_with_a_section_counts(tmp_path: Path) -> None:
    write(tmp_path, '[tool.torchvet]\nselect = ["MEM"]\n')
    write(tmp_path / "a", "[tool.other]\nx = 1\n")
    write(
        tmp_path / "b",
        '[tool.torchvet]\nselect = ["TRN"]\nfail-on = "error"\nexclude = ["gen"]\nbaseline = "known.json"\n',
    )
    (tmp_path / "b/c").mkdir()
    (tmp_path / "b/c/x.py").write_text("")
    assert read_configuration(tmp_path / "a", {}).root == tmp_path
    found = read_configuration(tmp_path / "b/c/x.py", {})
    assert (found.root, found.fail_on, found.exclude) == (tmp_path / "b", "error", ("gen",))
    assert found.baseline == tmp_path / "b/known.json"
    assert found.selected(CODES) == {"TRN101"}


def test_without_a_file_the_repository_is_the_root(tmp_path: Path) -> None:
    (tmp_path / "repo/.git").mkdir(parents=True)
    (tmp_path / "repo/src").mkdir()
    assert read_configuration(tmp_path / "repo/src", {}).root == tmp_path / "repo"


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("[tool.torchvet]\nselekt = []\n", "unknown key 'selekt'"),
        ('[tool.torchvet]\nselect = "MEM"\n', "select: expected a list of strings, not 'MEM'"),
        ("[tool.torchvet]\nignore = [1]\n", "ignore: expected a list"),
        ('[tool.torchvet]\nfail-on = "fatal"\n', "fail-on: expected one of error, warning, info, never, not 'fatal'"),
        ("[tool.torchvet]\nbaseline = 3\n", "baseline: expected a path"),
        ("[tool.torchvet]\nper-file-ignores = []\n", "per-file-ignores: expected a table"),
        ('[tool.torchvet.per-file-ignores]\n"a.py" = "MEM"\n', "per-file-ignores: a.py: expected a list"),
        ("[tool]\ntorchvet = 3\n", "is to be a table"),
        ("[tool.torchvet\n", "no valid TOML"),
        ("x = '\xff' # torchvet", "no valid TOML"),
    ],
)
def test_a_mistake_is_named(tmp_path: Path, text: str, named: str) -> None:
    (tmp_path / "pyproject.toml").write_bytes(text.encode("latin-1"))
    with pytest.raises(BadInput) as caught:
        read_configuration(tmp_path, {})
    assert named in str(caught.value) and "pyproject.toml" in str(caught.value)


def test_the_environment_goes_over_the_file_and_flags_over_both(tmp_path: Path) -> None:
    write(tmp_path, '[tool.torchvet]\nselect = ["MEM", "TRN"]\nignore = ["MEM101"]\nexclude = ["a"]\n')
    known = read_configuration(
        tmp_path, {"TORCHVET_EXCLUDE": "b,c", "TORCHVET_FAIL_ON": "info", "TORCHVET_BASELINE": "x.json"}
    )
    assert known.selected(CODES) == {"MEM102", "MEM201", "TRN101"}
    assert (known.exclude, known.fail_on, known.baseline) == (("a", "b", "c"), "info", Path("x.json"))
    known = read_configuration(tmp_path, {"TORCHVET_EXTEND_SELECT": "amp2"})
    assert known.selected(CODES) == {"MEM102", "MEM201", "TRN101", "AMP201"}
    known = known.with_layer(Layer("the command line", select=("MEM101",)))
    assert known.selected(CODES) == {"MEM101"}
    with pytest.raises(BadInput, match="TORCHVET_FAIL_ON"):
        read_configuration(tmp_path, {"TORCHVET_FAIL_ON": "x"})


@pytest.mark.parametrize(
    ("layer", "expected"),
    [
        (Layer(""), set(CODES)),
        (Layer("", select=("MEM",)), {"MEM101", "MEM102", "MEM201"}),
        (Layer("", select=("MEM",), ignore=("MEM1",)), {"MEM201"}),
        (Layer("", select=("MEM102",), ignore=("MEM1",)), {"MEM102"}),
        (Layer("", ignore=("MEM", "AMP1")), {"TRN101", "AMP201"}),
        (Layer("", select=("MEM1",), extend_select=("AMP2",), extend_ignore=("MEM102",)), {"MEM101", "AMP201"}),
        (Layer("", select=("MEM1",), ignore=("MEM1",)), set()),
    ],
)
def test_the_longer_prefix_wins(layer: Layer, expected: set[str]) -> None:
    assert Configuration(Path(), (layer,)).selected(CODES) == expected


def test_a_prefix_that_no_code_has_is_refused() -> None:
    with pytest.raises(BadInput, match="the command line: XYZ: no rule's code starts so"):
        Configuration(Path(), (Layer("the command line", ignore=("XYZ",)),)).selected(CODES)
    checker = Checker(Configuration(Path(), per_file_ignores={"a.py": ("XYZ",)}), (WordRule("AAA101", "apple"),))
    with pytest.raises(BadInput, match=r"per-file-ignores: a\.py: XYZ"):
        checker.check_bytes("b.py", b"import torch\n")


@pytest.mark.parametrize(
    ("pattern", "path", "found"),
    [
        ("tests/*", "tests/a.py", False),
        ("tests", "tests/deep/a.py", False),
        ("tests/**", "tests/deep/a.py", False),
        ("a.py", "src/a.py", False),
        ("/a.py", "src/a.py", True),
        ("tests/*", "src/a.py", True),
    ],
)
def test_per_file_ignores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pattern: str, path: str, found: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    rules = (WordRule("AAA101", "apple"), WordRule("BBB101", "beech"))
    checker = Checker(Configuration(tmp_path, per_file_ignores={pattern: ("AAA",)}), rules)
    codes = [f.code for f in checker.check_bytes(path, b"import torch\napple = beech\n").findings]
    assert codes == (["AAA101", "BBB101"] if found else ["BBB101"])


def test_syntax_errors_are_told_whatever_was_selected() -> None:
    for layer, told in ((Layer("", select=("AAA",)), True), (Layer("", ignore=("SYN",)), False)):
        checker = Checker(Configuration(Path(), (layer,)), (WordRule("AAA101", "apple"),))
        assert bool(checker.check_bytes("a.py", b"torch (").findings) is told


@given(st.lists(st.text(alphabet="abM1, ", max_size=8), max_size=3))
def test_codes_are_taken_apart_at_commas(given_codes: list[str]) -> None:
    assert all(code and code == code.upper().strip() and "," not in code for code in codes_in(given_codes))

"""Healthy programs are stored as patches, and what is built from them is what was packed."""

from __future__ import annotations

from pathlib import Path

import pytest

from casebook import twins
from casebook.case import load
from casebook.twins import LEAST_SHARED, PLANTED, built, folders, main, shared, texts, unpack
from torchvet.patches import PatchError

FOLDERS = list(folders())
FAULTY = "".join(f"line_{number} = {number}\n" for number in range(8))
FIXED = FAULTY.replace("line_4 = 4\n", "line_4 = 5\n")
OTHER = "print('another program')\n"


def programs(folder: Path) -> dict[str, str]:
    """The Python files that lie below a folder."""
    return {path.relative_to(folder).as_posix(): path.read_text() for path in sorted(folder.rglob("*.py"))}


@pytest.fixture
def script(tmp_path: Path) -> Path:
    """A case of three scripts, of which one resembles nothing."""
    folder = tmp_path / "cases" / "mem101_script"
    folder.mkdir(parents=True)
    for name, text in (("faulty", FAULTY), ("fixed", FIXED), ("lookalike_other", OTHER)):
        (folder / f"{name}.py").write_text(text)
    (folder / "case.toml").write_text('code = "MEM101"\nseverity = "error"\nline = "line_4"\n')
    return folder


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A case of two packages that differ in one of their files."""
    folder = tmp_path / "cases" / "mem101_package"
    for name, text in (("faulty", FAULTY), ("fixed", FIXED)):
        (folder / name).mkdir(parents=True)
        (folder / name / "__init__.py").touch()
        (folder / name / "work.py").write_text(text)
    return folder


@pytest.fixture
def pair(tmp_path: Path) -> Path:
    """A flat folder with a pair of programs."""
    folder = tmp_path / "planted"
    folder.mkdir()
    (folder / "mem101_loop_bad.py").write_text(FAULTY)
    (folder / "mem101_loop_good.py").write_text(FIXED)
    return folder


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_every_patch_applies_and_nothing_is_stored_twice(folder: Path) -> None:
    stored = {path.relative_to(folder).with_suffix("").as_posix() for path in folder.rglob("*.py")}
    patches = {path.relative_to(folder).with_suffix("").as_posix() for path in folder.rglob("*.patch")}
    assert patches and not stored & patches
    assert texts(folder).keys() >= {f"{name}.py" for name in patches}


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_what_is_stored_whole_resembles_no_faulty_program(folder: Path) -> None:
    for path in folder.rglob("*.py"):
        base = twins.base(path)
        assert base is None or shared(base.read_text(), path.read_text()) < LEAST_SHARED, f"pack {path}"


def test_every_planted_program_has_a_twin() -> None:
    names = {path.stem for path in built(PLANTED).glob("*.py")}
    assert {name.replace("_good", "_bad") for name in names if name.endswith("_good")} <= names


@pytest.mark.parametrize("kind", ["script", "package", "pair"])
def test_what_is_packed_is_built_and_unpacked_again(kind: str, request: pytest.FixtureRequest) -> None:
    folder: Path = request.getfixturevalue(kind)
    before = programs(folder)
    assert built(folder) == folder
    main([str(folder)])
    assert len(programs(folder)) < len(before)
    home = built(folder)
    assert (home.name, home.parent.name) == (folder.name, "built")
    assert programs(home) == texts(folder) == before
    main([str(folder), "--unpack"])
    assert programs(folder) == before and not list(folder.rglob("*.patch"))


def test_only_what_resembles_the_faulty_program_is_a_patch(script: Path) -> None:
    main([str(script)])
    assert {path.name for path in script.iterdir()} == {"case.toml", "faulty.py", "lookalike_other.py", "fixed.patch"}
    case = load(script)
    assert [program.name for program in case.programs] == ["faulty", "fixed", "lookalike_other"]
    assert case.fixed.files[0].read_text() == FIXED and case.line_numbers() == {5}


def test_what_is_built_follows_what_is_stored(script: Path) -> None:
    main([str(script)])
    home = built(script)
    (script / "lookalike_other.py").rename(script / "lookalike_renamed.py")
    before = (home / "fixed.py").stat()
    assert programs(built(script)).keys() == {"faulty.py", "lookalike_renamed.py", "fixed.py"}
    assert (home / "fixed.py").stat() == before, "not written again"


def test_a_patch_that_does_not_fit_is_named(script: Path) -> None:
    main([str(script)])
    (script / "faulty.py").write_text(FAULTY.replace("line_3", "line_three"))
    with pytest.raises(PatchError, match=r"fixed\.patch: faulty\.py: hunk 1 .* does not match the text"):
        built(script)
    (script / "faulty.py").unlink()
    with pytest.raises(PatchError, match=r"fixed\.patch: there is no faulty\.py to apply it to"):
        unpack(script)

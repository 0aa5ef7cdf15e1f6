"""Healthy programs, stored as patches of the faulty ones: ``python -m casebook.twins [--unpack] [FOLDER ...]``.

Without an option, replace each healthy program of the folders (all by default) by a patch of its faulty program:
``fixed.py`` by ``fixed.patch``, ``amp101_engine_good.py`` by ``amp101_engine_good.patch``. A program that shares less
than half of its lines with the faulty one stays as it is. A package stores only the files that differ. ``--unpack``
does the reverse: it writes the programs beside the faulty one and removes the patches. Edit them there, then run the
command without the option.

Everything that reads or runs programs asks `built` for a folder that has them all.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from pathlib import Path

from torchvet.patches import PatchError, applied, made

HERE = Path(__file__).resolve().parent

PLANTED = HERE / "planted"
"""A flat folder of pairs. In the other folders each case has a folder of its own."""

BUILT = "built"
"""The folder, beside the stored ones, where whole programs are written. Git ignores it."""

LEAST_SHARED = 0.5
"""The share of a program's lines that it must have in common with the faulty one to be stored as a patch."""


def built(folder: Path) -> Path:
    """A folder with all programs of this one as files of the same names: itself if it has no patches.

    Raises PatchError if a patch does not fit its faulty program.
    """
    if next(folder.rglob("*.patch"), None) is None:
        return folder
    home = folder.parent / BUILT / folder.name
    programs = texts(folder)
    for name, text in programs.items():
        _write(home / name, text)
    for path in home.rglob("*.py"):
        if path.relative_to(home).as_posix() not in programs:
            path.unlink(missing_ok=True)
    return home


def texts(folder: Path) -> dict[str, str]:
    """The text of every file of the folder's programs, by its path relative to the folder. Raises PatchError."""
    found = {_name(path, folder): path.read_text("utf-8") for path in sorted(folder.rglob("*.py"))}
    for path in sorted(folder.rglob("*.patch")):
        found[_name(path.with_suffix(".py"), folder)] = _patched(path)
    for sibling in sorted(folder.iterdir()):
        if sibling.is_dir() and sibling.name != "__pycache__":
            for path in (folder / "faulty").glob("*.py"):
                found.setdefault(f"{sibling.name}/{path.name}", path.read_text("utf-8"))
    return found


def _name(path: Path, folder: Path) -> str:
    return path.relative_to(folder).as_posix()


def _patched(path: Path) -> str:
    """What a patch makes of the file that its header names, relative to its own folder."""
    patch = path.read_text("utf-8")
    faulty = patch.partition("\n")[0].removeprefix("--- ")
    try:
        return applied((path.parent / faulty).read_text("utf-8"), patch)
    except PatchError as error:
        raise PatchError(f"{path}: {error}") from None
    except OSError:
        raise PatchError(f"{path}: there is no {faulty} to apply it to") from None


def _write(path: Path, text: str) -> None:
    if path.is_file() and path.read_text("utf-8") == text:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    # Several processes may build the same program at once: none may read half of it.
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=path.parent, delete=False) as new:
        new.write(text)
    os.replace(new.name, path)


def unpack(folder: Path) -> list[Path]:
    """Replace the folder's patches by programs. Returns the programs written."""
    written = {folder / name: text for name, text in texts(folder).items() if not (folder / name).exists()}
    for path, text in written.items():
        path.write_text(text, "utf-8")
    for patch in folder.rglob("*.patch"):
        patch.unlink()
    return list(written)


def pack(folder: Path) -> list[Path]:
    """Replace the folder's healthy programs by patches, where they share enough. Returns the programs replaced."""
    replaced = [path for path in sorted(folder.rglob("*.py")) if _packed(path)]
    for path in replaced:
        path.unlink()
    return replaced


def _packed(path: Path) -> bool:
    """Whether the program can be removed: it has a patch now, or it is the same file of a package."""
    faulty = base(path)
    if faulty is None:
        return False
    before, after = faulty.read_text("utf-8"), path.read_text("utf-8")
    if before == after:
        return faulty.name == path.name
    if shared(before, after) < LEAST_SHARED:
        return False
    path.with_suffix(".patch").write_text(made(before, after, os.path.relpath(faulty, path.parent)), "utf-8")
    return True


def base(path: Path) -> Path | None:
    """The faulty program's file that a healthy program's file resembles; None for a faulty program."""
    candidates = (
        path.with_name("faulty.py"),
        path.parent.with_name("faulty") / path.name,
        path.with_name(path.name.replace("_good.py", "_bad.py")),
    )
    found = next(each for each in (*candidates, path) if each.exists())
    return None if found == path else found


def shared(before: str, after: str) -> float:
    """The share of the second text's lines that are also in the first, in the same order."""
    old, new = before.splitlines(), after.splitlines()
    same = SequenceMatcher(None, old, new, autojunk=False).get_matching_blocks()
    return sum(block.size for block in same) / max(1, len(new))


def folders() -> Iterator[Path]:
    """All folders that hold programs."""
    yield PLANTED
    for kind in ("cases", "pending", "field"):
        yield from (path.parent for path in sorted((HERE / kind).glob("*/case.toml")))


def main(argv: Sequence[str] | None = None) -> None:
    """Pack or unpack, and print what was written or replaced."""
    parser = argparse.ArgumentParser(
        prog="casebook.twins", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", nargs="*", type=Path, help="a case's folder, or casebook/planted (default: all)")
    parser.add_argument("--unpack", action="store_true", help="write the programs and remove the patches")
    options = parser.parse_args(argv)
    for folder in options.folder or folders():
        for path in (unpack if options.unpack else pack)(folder):
            print(path)


if __name__ == "__main__":
    main()

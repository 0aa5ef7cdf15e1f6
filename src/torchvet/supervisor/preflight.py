"""Looks at the program before it is started: what cannot run is said at once, and nothing is run."""

from __future__ import annotations

import difflib
import os
import re
import stat
import sys
import warnings
from dataclasses import dataclass
from importlib.machinery import ModuleSpec, PathFinder
from importlib.metadata import PackageNotFoundError, version
from importlib.util import MAGIC_NUMBER, find_spec
from pathlib import Path

import click

from torchvet.errors import BadInput, MissingExtra

SIMULATES = (2, 13)
"""The first torch whose backends in Python can do what a simulated GPU needs."""


@dataclass(frozen=True)
class Program:
    """What to run: a script's path, a module's name or the code itself, and the program's own arguments."""

    path: str | None
    module: str | None
    arguments: tuple[str, ...]
    code: str | None = None

    @property
    def folder(self) -> str:
        """The folder that the program's imports start from."""
        return os.getcwd() if self.path is None else os.path.dirname(os.path.realpath(self.path))


def check(program: Program) -> None:
    """Raises `BadInput` for what is not there or cannot be read or parsed, `MissingExtra` without torch."""
    if program.code is not None:
        _check_syntax("-c", program.code.encode("utf-8", "surrogateescape"))
    elif program.path is None:
        _spec_of(program.module or "")
    else:
        _check_path(program.path)
    # By its spec alone: the supervisor never imports torch.
    if not _is_importable("torch", [program.folder]):
        raise MissingExtra(
            f"torch is not installed for {sys.executable}; torchvet runs programs that use it: "
            "install torchvet into the program's own environment, or `pip install torch` here"
        )


def check_card(text: str) -> None:
    """Refuse a card that is not known, and a torch that cannot carry one. Raises `click.BadParameter`, `BadInput`."""
    from torchvet.simulate.cards import card_of

    try:
        card_of(text)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--simulate-gpu") from error
    check_simulation()


def check_simulation() -> None:
    """Raises `BadInput` where torch is too old to carry a simulated GPU. A torch without metadata is left to try."""
    try:
        found = version("torch")
    except PackageNotFoundError:
        return
    if tuple(int(part) for part in re.findall(r"\d+", found)[:2]) < SIMULATES:
        raise BadInput(
            f"--simulate-gpu: torch {found} is installed for {sys.executable}; simulating a GPU takes "
            f"{'.'.join(map(str, SIMULATES))} or newer. Without the option torchvet observes this torch as it is"
        )


def _check_path(path: str) -> None:
    if not os.path.exists(path):
        raise BadInput(f"{path}: no such file{_nearest(path)}")
    if os.path.isdir(path):
        if not os.path.exists(os.path.join(path, "__main__.py")):
            raise BadInput(f"{path}: is a folder without a __main__.py; give the script to run")
        path = os.path.join(path, "__main__.py")
    kind = os.stat(path).st_mode
    if stat.S_ISBLK(kind) or (stat.S_ISCHR(kind) and not _is_terminal(path)):
        # Reading from one might never end.
        raise BadInput(f"{path}: is a device; give the script to run")
    if not stat.S_ISREG(kind):
        return  # a pipe can be read only once, and not here
    try:
        text = Path(path).read_bytes()
    except OSError as error:
        raise BadInput(f"{path}: cannot be read: {error.strerror}") from error
    if not _is_binary(path, text):
        _check_syntax(path, text)


def _is_terminal(path: str) -> bool:
    """Whether a device is a terminal, at which somebody types the program."""
    try:
        with open(path, "rb", buffering=0) as stream:
            return stream.isatty()
    except OSError:
        return False


def _is_binary(path: str, text: bytes) -> bool:
    """A compiled file or an archive."""
    # Also without the ending, as Python runs it.
    if path.endswith(".pyc") or text[:4] == MAGIC_NUMBER:
        return True
    import zipfile

    return zipfile.is_zipfile(path)


def _check_syntax(path: str, text: bytes) -> None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the program's own start shows them
            compile(text, path, "exec", dont_inherit=True)
    except SyntaxError as error:
        where = f"{path}, line {error.lineno}" if error.lineno else path
        raise BadInput(f"{where}: {type(error).__name__}: {error.msg}{_excerpt(error)}") from error
    except ValueError as error:
        raise BadInput(f"{path}: not Python source: {error}") from error
    except (RecursionError, MemoryError):
        pass  # for the program's own start to say


def _excerpt(error: SyntaxError) -> str:
    """The line at fault with a caret below the column, as the interpreter shows it."""
    if not error.text:
        return ""
    line = error.text.rstrip("\n")
    indent = len(line) - len(line.lstrip())
    column = max((error.offset or 1) - 1 - indent, 0)
    return f"\n    {line.strip()}\n    {' ' * column}^"


def _nearest(path: str) -> str:
    folder = os.path.dirname(path)
    try:
        names = [n for n in os.listdir(folder or ".") if n.endswith(".py")]
    except OSError:
        return f"; the folder {folder} cannot be read"
    close = difflib.get_close_matches(os.path.basename(path), names, 1)
    if close:
        return f"; did you mean {os.path.join(folder, close[0])}?"
    return "; the program's path comes first, its own arguments after it"


def source_of(module: str) -> str:
    """The file that `-m MODULE` would run, relative to the working directory where it lies below it; none of its
    packages is run to find it. Raises `BadInput` where there is none."""
    spec = _spec_of(module)
    if spec.submodule_search_locations is not None:
        spec = _spec_of(f"{module}.__main__")
    if not spec.has_location or spec.origin is None:
        raise BadInput(f"-m {module}: has no source file")
    path = os.path.relpath(spec.origin)
    return spec.origin if path.startswith(os.pardir) else path


def _spec_of(name: str) -> ModuleSpec:
    if os.path.isfile(name):
        raise BadInput(f"-m {name}: is a file, -m takes a module's name; run the file instead: torchvet run {name}")
    top, *rest = name.split(".")
    found, full = _is_importable(top, [os.getcwd()]), top
    for part in rest:
        if found is None:
            break
        full = f"{full}.{part}"
        # Part by part, because `importlib.util.find_spec` of a dotted name imports the packages above it.
        found = PathFinder.find_spec(full, list(found.submodule_search_locations or []))
    if found is None:
        raise BadInput(f"-m {name}: no module named {full} in {os.getcwd()} or the installed packages")
    return found


def _is_importable(name: str, first: list[str]) -> ModuleSpec | None:
    """The spec of a top-level module as a program that starts in these folders would find it."""
    try:
        # The program's own folder first, as it will be in its `sys.path`.
        return PathFinder.find_spec(name, first) or find_spec(name)
    except (ImportError, ValueError):
        return None

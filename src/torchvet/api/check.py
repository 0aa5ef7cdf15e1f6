"""`torchvet.check()`: what `torchvet check` finds, as a report, from one's own program."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torchvet.finding import Report


def check(
    *paths: str | PathLike[str], select: Sequence[str] = (), ignore: Sequence[str] = (), jobs: int | None = None
) -> Report:
    """Check files and folders (the working directory where none is given); nothing of them is run or imported.

    `select` and `ignore` are beginnings of codes, on top of [tool.torchvet] in the nearest pyproject.toml; `jobs` is
    the number of processes. Raises `BadInput` for a path that does not exist and a code that no rule has.
    """
    from torchvet.checking.checker import Checker
    from torchvet.checking.discovery import discover
    from torchvet.checking.project import check_files, report_on
    from torchvet.configuration import Layer, read_configuration

    given = tuple(str(path) for path in paths) or (".",)
    configuration = read_configuration(Path(given[0]))
    if select or ignore:
        configuration = configuration.with_layer(Layer("check()", tuple(select), tuple(ignore), (), ()))
    targets = discover(given, configuration.exclude, configuration.root)
    return report_on(check_files(targets, Checker(configuration), None, jobs), given)

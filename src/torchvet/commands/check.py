"""`torchvet check`: report faults in source files, and fix them. Runs nothing, needs no torch."""

from __future__ import annotations

from typing import Any

import click

from torchvet.commands.completion import codes
from torchvet.commands.options import FAIL_ON, reporting, verb

EPILOG = """\b
Examples:
  torchvet check src
  torchvet check train.py --select AMP,MEM1 --diff
  torchvet check . --fix
  torchvet check . --format github -o report.sarif
  torchvet check - --stdin-filename train.py < train.py

\b
`# torchvet: ignore[AMP101]` on a line hides a finding there. [tool.torchvet]
in pyproject.toml takes select, ignore, extend-select, extend-ignore, exclude,
per-file-ignores, fail-on and baseline.

Exit status: 0 clean, 1 findings, 2 usage or tool error, 3 undetermined.
"""


@verb("check", "Check source files, and fix them.", EPILOG)
@click.argument("paths", nargs=-1, type=click.Path(), metavar="[PATH]...")
@reporting
@click.option("--extend-select", metavar="CODES", multiple=True, shell_complete=codes, help="Also run these rules.")
@click.option("--extend-ignore", metavar="CODES", multiple=True, shell_complete=codes, help="Also skip these rules.")
@FAIL_ON
@click.option("--fix", is_flag=True, help="Apply fixes that keep the program's results.")
@click.option("--unsafe-fixes", is_flag=True, help="With --fix or --diff: include fixes that may change results.")
@click.option("--diff", is_flag=True, help="Show the fixes as a diff and write nothing, also with --fix.")
@click.option("--statistics", is_flag=True, help="Count the findings by code instead of listing them.")
@click.option("--exclude", metavar="PATTERN", multiple=True, help="Skip files that match, as in .gitignore.")
@click.option("--baseline", metavar="FILE", type=click.Path(), help="Hide the findings that are in FILE.")
@click.option("--write-baseline", metavar="FILE", type=click.Path(), help="Save the findings to FILE as the baseline.")
@click.option("--stdin-filename", metavar="NAME", help="File name for text from stdin (PATH `-`).")
@click.option("--jobs", type=click.IntRange(min=1), metavar="N", help="Processes to use.  [default: up to all cores]")
@click.option("--no-cache", is_flag=True, help="Check every file again and write no cache.")
@click.option(
    "--cache-dir",
    metavar="DIR",
    type=click.Path(),
    help="Cache folder.  [default: .torchvet_cache in the project]",
)
def command(paths: tuple[str, ...], **asked: Any) -> int:
    """Read Python files and notebooks, and report faults of training code. Runs nothing and needs no torch.

    PATH is a file, a folder (files in .gitignore are skipped), or `-` for stdin. The default is the working directory.
    """
    from torchvet.workflows.check import run
    from torchvet.workflows.check_options import Asked

    return run(Asked(paths=paths or (".",), **asked))

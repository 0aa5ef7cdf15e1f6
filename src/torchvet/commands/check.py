"""`torchvet check`: read source, find what is wrong with it, mend what can be mended. Runs nothing, needs no torch."""

from __future__ import annotations

from typing import Any

import click

from torchvet.commands.options import reporting

EPILOG = """\b
Examples:
  torchvet check src
  torchvet check train.py --select AMP,MEM1 --diff
  torchvet check . --fix
  torchvet check . --format github -o report.sarif
  torchvet check - --stdin-filename train.py < train.py

\b
`# torchvet: ignore[AMP101]` on a line silences a finding there; [tool.torchvet]
of pyproject.toml takes select, ignore, extend-select, extend-ignore, exclude,
per-file-ignores, fail-on and baseline.

Exit status: 0 clean, 1 findings, 2 usage or tool error, 3 nothing could be judged.
"""


@click.command(
    "check",
    short_help="Read source files and say what is wrong with them.",
    epilog=EPILOG,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.argument("paths", nargs=-1, type=click.Path(), metavar="[PATH]...")
@reporting
@click.option("--extend-select", metavar="CODES", multiple=True, help="These rules too.")
@click.option("--extend-ignore", metavar="CODES", multiple=True, help="Not these rules either.")
@click.option("--fail-on", type=click.Choice(["error", "warning", "info", "never"]),
              help="The mildest finding that makes the exit status 1.  [default: warning]")  # fmt: skip
@click.option("--fix", is_flag=True, help="Make the edits that leave the program's results as they are.")
@click.option("--unsafe-fixes", is_flag=True, help="With --fix or --diff: the edits that change results too.")
@click.option("--diff", is_flag=True, help="Show the edits and write nothing, also with --fix.")
@click.option("--statistics", is_flag=True, help="Count the findings by code instead of listing them.")
@click.option("--exclude", metavar="PATTERN", multiple=True, help="Leave files out, as a line of .gitignore would.")
@click.option("--baseline", metavar="FILE", type=click.Path(), help="Leave out the findings that FILE knows.")
@click.option("--write-baseline", metavar="FILE", type=click.Path(), help="Write what is found down as known.")
@click.option("--stdin-filename", metavar="NAME", help="What the text from stdin (PATH `-`) is called.")
@click.option("--jobs", type=click.IntRange(min=1), metavar="N", help="Processes.  [default: all cores where it pays]")
@click.option("--no-cache", is_flag=True, help="Read every file anew and remember nothing.")
@click.option("--cache-dir", metavar="DIR", type=click.Path(),
              help="Where to remember files.  [default: .torchvet_cache in the project's root]")  # fmt: skip
def command(paths: tuple[str, ...], **asked: Any) -> int:
    """Read Python files and notebooks and say what training code gets wrong. Imports nothing of them, needs no torch.

    PATH is a file, a folder (searched, but for what .gitignore leaves out) or `-` for stdin; without one the working
    directory.
    """
    from torchvet.workflows.check import run
    from torchvet.workflows.check_options import Asked

    return run(Asked(paths=paths or (".",), **asked))

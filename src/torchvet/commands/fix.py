"""`torchvet fix`: fix a program's source; with --verify prove, by running it, that the fixes help."""

from __future__ import annotations

from typing import Any

import click

from torchvet.commands.completion import script_then_codes
from torchvet.commands.options import GPUS, shared, verb

EPILOG = """\b
Examples:
  torchvet fix train.py
  torchvet fix train.py MEM101 --apply --keep-original
  torchvet fix train.py --verify --steps 200
  torchvet fix train.py MEM --verify --apply -- --epochs 1 --lr 0.1
  torchvet fix -m package.train --verify -- --epochs 1

\b
--verify runs the program as it is and with fixes, each time in a new process
with the same arguments, folder and environment. The random generators of
Python, NumPy and torch start from one seed unless the program seeds them. The
fixed source exists in memory only: nothing but --apply changes a file.

\b
Exit status: 0 nothing to fix, or fixed (with --verify: proven); 1 fixes not
applied or refused, or findings without a fix; 2 usage or tool error; 3 could
not judge: the program failed, or ran too few steps.
"""


class FixCommand(click.Command):
    """Passes everything after the first `--` to the program."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        end = args.index("--") if "--" in args else len(args)
        ctx.meta["torchvet.arguments"] = tuple(args[end + 1 :])
        try:
            return super().parse_args(ctx, args[:end])
        except click.NoSuchOption as error:
            hint = f"Arguments of the program go after --: torchvet fix train.py -- {error.option_name}"
            raise click.UsageError(f"{error.format_message()} {hint}", ctx) from None


@verb("fix", "Fix a program, and prove by running it that the fixes help.", EPILOG, FixCommand)
@click.argument("words", nargs=-1, metavar="SCRIPT [CODE]...", shell_complete=script_then_codes)
@click.option("-m", "module", metavar="MODULE", help="Fix a module, and run it as `python -m` does.")
@click.option("--apply", is_flag=True, help="Write the fixes to the files; with --verify only proven ones.")
@click.option("--keep-original", is_flag=True, help="With --apply: keep the original as FILE.orig.")
@click.option("--diff", is_flag=True, help="Print the fixes as a diff and nothing else.")
@click.option("--unsafe-fixes", is_flag=True, help="Include fixes that may change the program's results.")
@click.option("--verify", is_flag=True, help="Run the program with and without fixes; keep those proven to help.")
@click.option(
    "--steps",
    type=click.IntRange(min=1),
    help="With --verify: the steps of each run.  [default: 100, and those of ten seconds more]",
)
@click.option(
    "--tolerance",
    type=click.FloatRange(min=0),
    default=1e-4,
    show_default=True,
    help="With --verify: losses with at most this relative difference count as equal.",
)
@click.option("--show-output", is_flag=True, help="With --verify: show the program's own output on stderr.")
@click.option("--simulate-gpu", metavar="CARD", help="With --verify: run on a simulated GPU, as `run` does.")
@GPUS
@shared
@click.pass_context
def command(context: click.Context, /, words: tuple[str, ...], module: str | None, **asked: Any) -> int:
    """Show torchvet's fixes for SCRIPT; write them with --apply, prove them with --verify.

    CODE selects the faults to fix, by code or family (MEM101, AMP). Everything after -- is passed to the program.
    """
    from torchvet.supervisor.preflight import source_of
    from torchvet.workflows.fix import run
    from torchvet.workflows.fix_options import Asked

    if module is None and not words:
        raise click.UsageError("no program given: name a script (torchvet fix train.py) or -m MODULE.")
    script, codes = (words[0], words[1:]) if module is None else (source_of(module), words)
    arguments = context.meta["torchvet.arguments"]
    return run(Asked(script=script, module=module, codes=codes, arguments=arguments, **asked))

"""`torchvet fix`: mend a program's source; with --verify prove, by running it, that the mends help."""

from __future__ import annotations

from typing import Any

import click

from torchvet.commands.options import shared

EPILOG = """\b
Examples:
  torchvet fix train.py
  torchvet fix train.py MEM101 --apply --keep-original
  torchvet fix train.py --verify --steps 200
  torchvet fix train.py MEM --verify --apply -- --epochs 1 --lr 0.1
  torchvet fix -m package.train --verify -- --epochs 1

\b
--verify runs the program as it is and mended, each in a process of its own,
with the same arguments, folder and environment; the generators of Python,
NumPy and torch start from one seed unless the program seeds them. The mended
text stands in for the files in memory: no file is changed but by --apply.

\b
Exit status: 0 nothing to mend, or mended (with --verify: proven); 1 mends not
made, refused, or findings without a mend; 2 usage or tool error; 3 could not
judge: the program failed, or ran too few steps.
"""


class FixCommand(click.Command):
    """Leaves everything after the first `--` to the program."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        end = args.index("--") if "--" in args else len(args)
        ctx.meta["torchvet.arguments"] = tuple(args[end + 1 :])
        try:
            return super().parse_args(ctx, args[:end])
        except click.NoSuchOption as error:
            hint = f"What belongs to the program comes after --, as in: torchvet fix train.py -- {error.option_name}"
            raise click.UsageError(f"{error.format_message()} {hint}", ctx) from None


@click.command(
    "fix",
    cls=FixCommand,
    epilog=EPILOG,
    short_help="Mend a program, and prove by running it that the mend helps.",
    context_settings={"help_option_names": ["-h", "--help"]},
    options_metavar="[OPTIONS]",
)
@click.argument("words", nargs=-1, metavar="SCRIPT [CODE]...")
@click.option("-m", "module", metavar="MODULE", help="Mend a module, and run it as `python -m` does, not a script.")
@click.option("--apply", is_flag=True, help="Write the mended files; with --verify only what was proven.")
@click.option("--keep-original", is_flag=True, help="With --apply: leave the file as it was beside it, as FILE.orig.")
@click.option("--diff", is_flag=True, help="Print the mends as a diff and nothing else.")
@click.option("--unsafe-fixes", is_flag=True, help="Mends too after which results may differ, be it on purpose.")
@click.option("--verify", is_flag=True, help="Run the program before and after, and keep what is proven to help.")
@click.option("--steps", type=click.IntRange(min=1), default=100, show_default=True,
              help="With --verify: the steps of each run.")  # fmt: skip
@click.option("--tolerance", type=click.FloatRange(min=0), default=1e-4, show_default=True,
              help="With --verify: the relative difference of two losses that still counts as equal.")  # fmt: skip
@click.option("--show-output", is_flag=True, help="With --verify: let the program's own output through, on stderr.")
@click.option("--simulate-gpu", metavar="CARD", help="With --verify: run on a GPU that is not there, as `run` does.")
@click.option("--gpus", type=click.IntRange(1, 64), default=1, show_default=True, help="How many GPUs to simulate.")
@shared
@click.pass_context
def command(context: click.Context, /, words: tuple[str, ...], module: str | None, **asked: Any) -> int:
    """Show the mends that torchvet has for SCRIPT; write them with --apply, prove them with --verify.

    CODE picks the faults to mend, by code or family (MEM101, AMP). What stands after -- are the program's arguments.
    """
    from torchvet.supervisor.preflight import source_of
    from torchvet.workflows.fix import run
    from torchvet.workflows.fix_options import Asked

    if module is None and not words:
        raise click.UsageError("which program? Give a script (torchvet fix train.py) or -m MODULE.")
    script, codes = (words[0], words[1:]) if module is None else (source_of(module), words)
    arguments = context.meta["torchvet.arguments"]
    return run(Asked(script=script, module=module, codes=codes, arguments=arguments, **asked))

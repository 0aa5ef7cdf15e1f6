"""The command line: one verb a file, loaded when it is asked for. Nothing here imports torch."""

from __future__ import annotations

import errno
import importlib
import os
import signal
import sys
from collections.abc import Sequence

import click

from torchvet._version import __version__
from torchvet.errors import BadInput, TorchvetError

VERBS = (
    "run",
    "amp",
    "check",
    "fix",
    "inspect",
    "report",
    "compare",
    "whatif",
    "explain",
    "doctor",
    "server",
    "mcp",
    "skill",
)

EXAMPLES = """\b
Examples:
  torchvet run train.py --epochs 3
  torchvet run --steps 200 -o report.json -m project.train
  torchvet check src
  torchvet fix train.py --verify --steps 200
  torchvet inspect snapshot.pickle
  torchvet explain MEM101

Exit status: 0 clean, 1 findings, 2 usage or tool error, 3 undetermined. A program that fails keeps its own status.
"""


class _Verbs(click.Group):
    """Finds verbs by name in this package, so that `--help` and each verb load only what they need."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        command: click.Command = importlib.import_module(f"{__name__}.{cmd_name}").command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The verb that was asked for. Raises `BadInput` where the working directory has been removed."""
        try:
            os.getcwd()
        except OSError as error:
            raise BadInput("the working directory has been removed: change to one that exists") from error
        return super().resolve_command(ctx, args)


@click.command(cls=_Verbs, epilog=EXAMPLES, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="torchvet")
def cli() -> None:
    """A doctor for PyTorch programs: what leaks, which name holds it, since which line, how fast, what to change."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status. If a signal killed the observed program, die by it too.

    A usage error is one message on stderr and status 2, never a traceback.
    """
    from torchvet.workflows.streams import drop_stdout, ready

    ready()
    if "_TORCHVET_COMPLETE" in os.environ:
        from torchvet.commands.completion import mend_shells

        mend_shells()
    try:
        status = cli.main(args=arguments, prog_name="torchvet", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        status = error.exit_code
    except TorchvetError as error:
        click.echo(f"torchvet: {error}", err=True)
        status = error.status
    except (click.Abort, KeyboardInterrupt):
        status = -signal.SIGINT
    except BrokenPipeError:
        drop_stdout()
        status = 1
    except Exception as error:
        status = TorchvetError.status
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            drop_stdout()
            click.echo(f"torchvet: {error.filename or 'stdout'}: {error.strerror}", err=True)
        else:
            tell_fault()
    return die_by(-status) if isinstance(status, int) and status < 0 else int(status or 0)


def die_by(number: int) -> int:
    """End this process by a signal, as the program ended, so that a shell sees the same; 128 + number if it survives.

    No second core file is written.
    """
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            pass
    try:
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    except (ImportError, OSError, ValueError):
        pass
    try:
        if number != signal.SIGKILL:
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    except (OSError, ValueError):
        pass
    return 128 + number


def tell_fault() -> None:
    """Show the exception being handled as a bug of torchvet's."""
    import traceback

    traceback.print_exc()
    click.echo("torchvet: this is a bug in torchvet, please report it with the lines above", err=True)

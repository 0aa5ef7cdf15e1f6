"""What torchvet raises when it cannot do its work.

TorchvetError      anything torchvet says no to; carries the exit status of a command
 ├─ BadInput       the user's file or option is not what it should be
 └─ MissingExtra   something optional is not installed; says how to install it
"""

from __future__ import annotations


class TorchvetError(Exception):
    """A message for the user: what was given, what was expected, what to do. `status` is the exit status."""

    status = 2


class BadInput(TorchvetError):
    """A path, a file or an option that cannot be used."""


class MissingExtra(TorchvetError):
    """Something that an extra installs is not there."""

"""Features that cannot be simulated: the error that says so, and the list for the report."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

asked: dict[str, str] = {}
"""What the program has asked for that is not simulated, and what came of it."""


def refusal(what: str, why: str) -> RuntimeError:
    """The error for a feature that is not there."""
    asked.setdefault(what, why)
    return RuntimeError(f"{what}: not simulated. {why} (torchvet's simulated GPU; run this on a real one)")


def refusing(what: str, why: str) -> Callable[..., Any]:
    """A function that is never carried out."""

    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise refusal(what, why)

    return refuse

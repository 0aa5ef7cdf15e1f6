"""Which messages Python's loggers let through, read without asking them: `isEnabledFor` keeps its answers."""

from __future__ import annotations

import sys
from typing import Any

_MOST = 1000
_NEVER = 1000
"""A level above all."""


def lowest_levels(before: dict[str, int]) -> dict[str, int]:
    """The lowest level that each logger lets through now, or let through `before`; the root has no name."""
    logging: Any = sys.modules.get("logging")
    if logging is None:
        return before
    # A copy in one call: other threads make loggers.
    known = list(logging.root.manager.loggerDict.items())[:_MOST]
    every = [("", logging.root), *((name, one) for name, one in known if _counts(name, one, logging))]
    return {name: min(before.get(name, _NEVER), _lowest(logging, one)) for name, one in every}


def _counts(name: str, logger: Any, logging: Any) -> bool:
    # Those of torch's own are most of all, and no program's.
    return isinstance(logger, logging.Logger) and name.partition(".")[0] != "torch"


def _lowest(logging: Any, logger: Any) -> int:
    # A class of the program's may decide by itself.
    if type(logger).isEnabledFor is not logging.Logger.isEnabledFor:
        return 0
    if logger.disabled:
        return _NEVER
    return max(int(logging.Logger.getEffectiveLevel(logger)), int(logger.manager.disable) + 1)

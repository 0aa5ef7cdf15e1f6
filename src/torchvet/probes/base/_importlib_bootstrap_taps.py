"""Wraps functions of torch's own so that their warnings still point at the program's line.

As in `_importlib_bootstrap`, the name matters: `warnings` skips frames whose file name contains both "importlib" and
"_bootstrap", so a `stacklevel` counts as if the frame below were not there.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

After = Callable[[Any, "BaseException | None"], None]
Before = Callable[[tuple[Any, ...], dict[str, Any]], "tuple[tuple[Any, ...], After] | None"]


def around(original: Callable[..., Any], before: Before, compiling: Callable[[], bool]) -> Callable[..., Any]:
    """`original`, with `before` asked at each call: None lets it pass, else it gives the positional arguments to call
    with and what to tell of the result or exception. While `compiling()` nothing but the call is left to trace."""

    @functools.wraps(original)
    def tapped(*args: Any, **kwargs: Any) -> Any:
        if compiling():
            return original(*args, **kwargs)
        watched = before(args, kwargs)
        if watched is None:
            return original(*args, **kwargs)
        given, after = watched
        try:
            result = original(*given, **kwargs)
        except BaseException as error:
            after(None, error)
            raise
        after(result, None)
        return result

    return tapped

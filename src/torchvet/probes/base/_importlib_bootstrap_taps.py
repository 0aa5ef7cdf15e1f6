"""Wraps functions of torch's own so that their warnings still point at the program's line.

As in `_importlib_bootstrap`, the name matters: `warnings` skips frames whose file name contains both "importlib" and
"_bootstrap", so a `stacklevel` counts as if the frame below were not there.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch

from torchvet.probes.base.watcher import Host

After = Callable[[Any, "BaseException | None"], None]
Before = Callable[[tuple[Any, ...], dict[str, Any]], "tuple[tuple[Any, ...], After] | None"]


def around(original: Callable[..., Any], before: Before) -> Callable[..., Any]:
    """`original`, with `before` asked at each call: None lets it pass, else it gives the positional arguments to call
    with and what to tell of the result or exception. While a graph is compiled only the call is left to trace."""

    @functools.wraps(original)
    def tapped(*args: Any, **kwargs: Any) -> Any:
        # Dynamo traces this wrapper together with the program. It must meet nothing but the call, or it
        # breaks the graph.
        watched = None if torch.compiler.is_compiling() else before(args, kwargs)
        if watched is None:
            return original(*args, **kwargs)
        given, after = watched
        try:
            result = original(*given, **kwargs)
        # Also KeyboardInterrupt and GeneratorExit: whoever counts what is under way must hear its end,
        # however it ends.
        except BaseException as error:
            after(None, error)
            raise
        after(result, None)
        return result

    return tapped


def tap(
    host: Host, what: str | None, before: Callable[..., None] | None = None, after: Callable[..., None] | None = None
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """For `Watcher.replace`: a wrapper that calls `before` with the call's own arguments, and `after` with its result
    and the arguments. Their signatures name what they need, as torch does: arguments may come by keyword.

    What they do is a look: guarded (`what` is then unchecked), timed, and unseen by the ledger. Without `what` it is
    none, for what is too small to fail and may run on many threads at once. Nothing is called while the host is not
    active.
    """

    # Positional only, because the program's own keywords may be called `handler` as well.
    def call(handler: Callable[..., None] | None, /, *args: Any, **kwargs: Any) -> None:
        if handler is not None:
            # `looking` keeps one stack of looks for all threads. Calls on many threads at once would wait
            # in each other's sums.
            with host.looking(what) if what is not None else nullcontext():
                handler(*args, **kwargs)

    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def tapped(*args: Any, **kwargs: Any) -> Any:
            if torch.compiler.is_compiling() or not host.active:
                return original(*args, **kwargs)
            # No arguments are changed here. Who has to replace one uses `around`.
            call(before, *args, **kwargs)
            result = original(*args, **kwargs)
            call(after, result, *args, **kwargs)
            return result

        return tapped

    return wrap

"""Dispatch modes of torchvet's own: where they may be switched, and taken out from wherever they stand."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode_stack


class OwnMode(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """What looks at operators without changing them. Several may stand above each other, but above none of others."""

    supports_higher_order_operators = True

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # The default wraps the handler so that its first call imports torch._dynamo: seconds of the program's time.
        return False

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        # Compiled regions stay compiled while the mode is on: falling back to eager would change the program's numbers.
        return True

    @property
    def can_leave(self) -> bool:
        """Whether the mode can be switched here, on or off.

        `inference_mode` and the autograd engine put the dispatch keys back on exit as they found them on entry: a mode
        taken out in between would leave its key behind, and the program's next operator would fail.
        """
        return not torch.is_inference_mode_enabled() and torch._C._current_graph_task_id() == -1

    def enter(self) -> bool:
        """Switch on. False where that is not safe, or others' modes are on: theirs must be left before ours."""
        if not self.can_leave or any(not isinstance(m, OwnMode) for m in _get_current_dispatch_mode_stack()):
            return False
        self.__enter__()  # type: ignore[no-untyped-call]
        return True

    def leave(self) -> None:
        """Switch off, wherever in the stack of modes this one stands by now."""
        stack: list[Any] = _get_current_dispatch_mode_stack()
        if not any(mode is self for mode in stack):
            return
        above = []
        while (top := _get_current_dispatch_mode_stack()[-1]) is not self:
            above.append(top)
            torch.utils._python_dispatch._pop_mode()
        self.__exit__(None, None, None)  # type: ignore[no-untyped-call]
        for mode in reversed(above):
            torch.utils._python_dispatch._push_mode(mode)

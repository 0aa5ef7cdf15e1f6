"""Pickles from strangers: only builtin types are made, nothing of theirs is called.

`Plain` refuses every global and every persistent id; that is all there is to code in a pickle. What is left is harm by
size: a 5-byte opcode may ask for a memo of 32 GiB, nested tuples overflow the stack where they are hashed, keys can be
made to collide. The C unpickler has no hook for any of these and a scan of opcodes in Python takes longer than the
loading, so a file is read in a process of its own whose memory and time are limited (`isolated.py`).
"""

from __future__ import annotations

import pickle
from typing import IO, Any

from torchvet.errors import BadInput
from torchvet.gc_pause import collector_off

_CUT = "this pickle ends in the middle: was it cut off while being copied or written?"


class Plain(pickle.Unpickler):
    """An unpickler for builtin types alone, at the speed of C."""

    def find_class(self, module_name: str, global_name: str, /) -> Any:
        """Refuse: a snapshot names no class and no function."""
        raise BadInput(
            f"this pickle asks for {str(module_name)[:80]}.{str(global_name)[:80]}, which could run code; a CUDA "
            "memory snapshot holds only plain values (save it with torch.cuda.memory._dump_snapshot)"
        )

    def persistent_load(self, pid: Any) -> Any:
        """Refuse: a snapshot refers to nothing outside itself."""
        raise BadInput("this pickle refers to objects outside the file (is it a checkpoint?): no CUDA memory snapshot")


def load_plain(file: IO[bytes]) -> Any:
    """What a pickle holds, builtin types only. Raises `BadInput` for anything that cannot be read.

    Run this where memory is limited: see the module's text.
    """
    try:
        with collector_off():
            return Plain(file).load()
    except BadInput:
        raise
    except MemoryError:
        raise BadInput("this pickle asks for far more memory than a snapshot of its size needs") from None
    except EOFError:
        raise BadInput(_CUT) from None
    except Exception as error:
        if "truncated" in str(error):
            raise BadInput(_CUT) from None
        # The unpickler raises nearly any type on hostile input: UnpicklingError, ValueError, KeyError, OverflowError...
        raise BadInput(f"this pickle cannot be read: {type(error).__name__}: {str(error)[:200]}") from None

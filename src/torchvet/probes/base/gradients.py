"""Reads gradients, and only those that no other thread may be writing.

torch accumulates into `.grad`, and frees it, with the interpreter unlocked. A thread that reads another's gradient
meanwhile ends the process (a segmentation fault within seconds, seen in torch 2.13). So once several threads have begun
backward passes, each reads the gradients of those parameters alone that its own optimizers stepped on.
"""

from __future__ import annotations

import threading
import weakref

import torch
from torch.optim.optimizer import Optimizer

_TRAINING: dict[int, weakref.ref[threading.Thread]] = {}
"""The threads that have begun a backward pass, by identity."""
_STEPPED: weakref.WeakKeyDictionary[Optimizer, tuple[int, int]] = weakref.WeakKeyDictionary()
"""The thread on which an optimizer stepped last, and how many parameters it had."""
_OWNERS: dict[int, tuple[weakref.ref[torch.Tensor], int]] = {}
"""By identity: a parameter, and the thread whose optimizer stepped on it last."""


def backward_begins() -> None:
    """Note that the calling thread trains. To be called before the pass, whether or not anybody listens."""
    mine = threading.get_ident()
    # A thread of autograd's own runs a pass within a pass, which waits for it: Python knows it by a stand-in, which
    # lives on when the thread has ended.
    if mine not in _TRAINING and type(threading.current_thread()).__name__ != "_DummyThread":
        # Weak: a thread that has ended must not count, and its ident is given to the next one.
        _TRAINING[mine] = weakref.ref(threading.current_thread())


def stepped(optimizer: Optimizer) -> None:
    """Note whose parameters these are, where several threads train."""
    # A thread that trains alone may read every gradient, so that owners need not be known.
    if len(_TRAINING) < 2:
        return
    # The number tells of `add_param_group`: the new parameters need an owner as well.
    now = threading.get_ident(), sum(len(group["params"]) for group in optimizer.param_groups)
    if _STEPPED.get(optimizer) == now:
        return
    _STEPPED[optimizer] = now
    # Other threads write to the table meanwhile: a copy is one turn of the interpreter.
    for gone in [key for key, (ref, _) in _OWNERS.copy().items() if ref() is None]:
        # Another thread may have removed it in between.
        _OWNERS.pop(gone, None)
    _OWNERS.update((id(p), (weakref.ref(p), now[0])) for group in optimizer.param_groups for p in group["params"])


def is_readable(tensor: torch.Tensor) -> bool:
    """Whether the calling thread may read this leaf's gradient now."""
    return _is_own(tensor) or is_alone()


def gradient_of(tensor: torch.Tensor) -> torch.Tensor | None:
    """A leaf's gradient; None where there is none, where the tensor is no leaf, and where another thread trains it."""
    if not tensor.is_leaf:
        return None
    mine = {threading.get_ident()}
    # The comparison and the read are one turn of the interpreter: no call comes between in which another thread could
    # begin its first pass.
    # Not through `is_alone`: see the comment above, one function call is enough for a switch of threads.
    if _TRAINING.keys() <= mine:
        return tensor.grad
    if _is_own(tensor):
        return tensor.grad
    is_alone()  # forgets threads that have ended
    return tensor.grad if _TRAINING.keys() <= mine else None


def _is_own(tensor: torch.Tensor) -> bool:
    ref, owner = _OWNERS.get(id(tensor), (None, 0))
    # By identity and reference: the id of a dead parameter may be another tensor's now.
    return ref is not None and ref() is tensor and owner == threading.get_ident()


def is_alone() -> bool:
    """Whether no other thread that lives has begun a backward pass."""
    mine = {threading.get_ident()}
    if not _TRAINING.keys() <= mine:
        for ident, ref in [*_TRAINING.items()]:
            thread = ref()
            # Idents are used again: one that has ended must go before another thread gets its number.
            if thread is None or not thread.is_alive():
                _TRAINING.pop(ident, None)
    return _TRAINING.keys() <= mine

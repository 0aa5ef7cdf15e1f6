"""Processes that a program starts while it has a simulated GPU."""

from __future__ import annotations

import multiprocessing
import pickle
from typing import Any

import torch


def _use(queue: Any) -> None:
    try:
        queue.put(str(torch.ones(1, device="cuda").device))
    except RuntimeError as error:
        queue.put(str(error))


def _asked_in(process: str) -> str:
    context: Any = multiprocessing.get_context(process)
    queue = context.SimpleQueue()
    child = context.Process(target=_use, args=(queue,))
    child.start()
    found: str = queue.get()
    child.join()
    return found


def test_a_fork_after_first_use_is_refused_as_by_cuda() -> None:
    assert _asked_in("fork") == "cuda:0", "nothing was on a device before the fork"
    torch.ones(1, device="cuda")
    assert _asked_in("fork").startswith("Cannot re-initialize CUDA in forked subprocess")


def test_what_a_spawned_process_is_told_starts_the_gpu_there() -> None:
    from multiprocessing import spawn

    told = spawn.get_preparation_data("child")["torchvet"]
    assert "start_in_child(Card(" in told.source and ", 2)" in told.source
    pickle.loads(pickle.dumps(told))  # does nothing where it has been started


def test_a_tensor_crosses_to_another_process_with_its_device() -> None:
    from multiprocessing.reduction import ForkingPickler

    x = torch.arange(3.0, device="cuda:1")
    again = ForkingPickler.loads(ForkingPickler.dumps(x))
    assert again.device == x.device and again.tolist() == x.tolist()

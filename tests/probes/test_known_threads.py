"""Gradients are asked for on the thread that trains, and on no other: another may be freeing them."""

from __future__ import annotations

import threading

import torch

from torchvet.probes.base.persistent_state import KnownMemory


def test_gradients_are_looked_at_where_training_goes_on() -> None:
    model = torch.nn.Linear(2, 2)
    model(torch.ones(1, 2)).sum().backward()
    known = KnownMemory()
    known.add_root(model)
    seen: list[tuple[int, set[str]]] = []

    def look() -> None:
        seen.append((len(known.gradients()), {c for c, _ in known.storages().values()}))

    def train() -> None:
        known.trained_here()
        look()

    look()
    for work in (look, train):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    look()
    both = {"parameters", "gradients"}
    assert seen == [(2, both), (0, {"parameters"}), (2, both), (0, {"parameters"})]

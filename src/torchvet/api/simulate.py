"""`torchvet.simulate_gpu()`: a GPU that is not there, in one's own process."""

from __future__ import annotations

import importlib.util

from torchvet.errors import BadInput, MissingExtra, TorchvetError


def simulate_gpu(card: str, count: int = 1) -> None:
    """Make `cuda` mean `count` simulated cards for the rest of this process; needs torch's CPU build.

    `card` is a name (`l4`, `h100`) or a size (`24GiB`). Call it before anything asks for `torch.cuda.is_available()`.
    Raises `BadInput` for a card that is not known, and `TorchvetError` where the process has another already or its
    torch cannot carry it.
    """
    if importlib.util.find_spec("torch") is None:
        raise MissingExtra("simulate_gpu() needs torch: pip install 'torchvet[run]'")
    from torchvet.simulate.cards import card_of

    try:
        wanted = card_of(card)
    except ValueError as error:
        raise BadInput(str(error)) from None
    from torchvet.simulate import start

    known = start.card()
    if known is not None and known != wanted:
        raise TorchvetError(
            f"this process simulates another GPU already ({known.name}); a process has one kind of card"
        )
    if known is None:
        try:
            start.start(wanted, count)
        except Exception as error:
            message = f"this torch cannot carry a simulated GPU ({type(error).__name__}: {error})"
            raise TorchvetError(f"{message}; torchvet was made for torch 2.13") from error

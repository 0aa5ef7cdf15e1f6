"""Python's cyclic collector, out of the way of work that makes millions of objects and no cycles."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collector_off() -> Iterator[None]:
    """No collection within: what it walks again and again takes up to four fifths of the time (FACTS: parsing and
    unpickling are 1.5 to 5 times faster)."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()

"""The record types of a recording, one module per subject. Old recordings stay readable: new fields have defaults.

A subject is loaded when it is first asked for: rules name record types, and `check` reads no recording.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torchvet.recording.records import (
        amp,
        attempt,
        autocast,
        base,
        columns,
        crossing,
        device,
        distributions,
        dry,
        forecast,
        labels,
        layers,
        memory,
        nonfinite,
        numeric,
        optimizers,
        passes,
        precision,
        ranks,
        reading,
        scaling,
        timing,
        training,
        verify,
    )

__all__ = [
    "amp",
    "attempt",
    "autocast",
    "base",
    "columns",
    "crossing",
    "device",
    "distributions",
    "dry",
    "forecast",
    "labels",
    "layers",
    "memory",
    "nonfinite",
    "numeric",
    "optimizers",
    "passes",
    "precision",
    "ranks",
    "reading",
    "scaling",
    "timing",
    "training",
    "verify",
]


if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module

        return import_module(f"{__name__}.{name}")

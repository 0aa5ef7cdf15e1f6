"""What shortcuts do to one program that leaks: the step at which each runs out of memory, measured.

The program is the block `leak` of templates/references/shortcuts.md, on a simulated GPU; a test measures it again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

LAST_STEP = 200
"""Where the program ends by itself."""


@dataclass(frozen=True)
class Shortcut:
    """`said` is what is tried; the program gets `argument`, the card has `card` memory; `step` is the last step that
    was completed before memory ran out, or `LAST_STEP`."""

    said: str
    argument: str
    card: str
    step: int

    @property
    def epoch(self) -> int:
        """The epoch, from 1, in which it dies: 1,280 samples in batches of 128, or of 64."""
        return -(-(self.step + 1) // (20 if self.argument == "half" else 10))


SHORTCUTS = (
    Shortcut("as it is", "", "64MiB", 79),
    Shortcut("half the batch", "half", "64MiB", 159),
    Shortcut("twice the memory", "", "128MiB", 164),
    Shortcut("empty_cache() at every step", "empty_cache", "64MiB", 79),
    Shortcut("bfloat16 autocast", "bfloat16", "64MiB", 59),
    Shortcut("the fix: `norm.item()`", "fixed", "64MiB", LAST_STEP),
)


def steps() -> dict[str, str]:
    """The step of each shortcut, by what is said."""
    return {shortcut.said: str(shortcut.step) for shortcut in SHORTCUTS}


def table() -> str:
    """All of them, as Markdown."""
    return "\n".join(["| what is tried | out of memory after step | in epoch |", "|---|---|---|", *_rows()])


def _rows() -> Iterator[str]:
    for shortcut in SHORTCUTS:
        dies = shortcut.step < LAST_STEP
        ends = f"{shortcut.step} | {shortcut.epoch}" if dies else f"never: all {LAST_STEP} steps ran |"
        yield f"| {shortcut.said} | {ends} |"

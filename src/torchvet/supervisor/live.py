"""The view of `--live`: a page on the terminal that is drawn again while the program runs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, TextIO

from torchvet.formatting import ms, percent, size
from torchvet.supervisor.progress import Find, SoFar
from torchvet.supervisor.tail import Tail, Tails

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import RenderableType

_BARS = "▁▂▃▄▅▆▇█"
_WIDTH = 60


class LiveView:
    """Draws a run's state in place; `tick` reads and draws, `clear` takes the page away."""

    def __init__(self, directory: Path, stream: TextIO, find: Find) -> None:
        from rich.console import Console
        from rich.live import Live

        self.tails = Tails(directory)
        self.so_far = SoFar(find)
        self._live = Live(console=Console(file=stream), auto_refresh=False, transient=True)
        self._live.start()

    def tick(self) -> None:
        """Read what is new and draw the page."""
        tail = self.tails.read()
        self.so_far.tick()
        self._live.update(page(tail, self.so_far.found), refresh=True)

    def clear(self) -> None:
        """Take the page away: the report comes next."""
        self.so_far.end()
        self._live.stop()


def page(tail: Tail, found: list[str]) -> RenderableType:
    """All that is known of a run that goes on."""
    from rich.panel import Panel
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2))
    for label, value in _rows(tail, found):
        # `Text`, because names of the program are no markup.
        table.add_row(Text(label, style="bold"), Text(value))
    return Panel(table, title=Text("torchvet: " + " ".join(tail.argv)), title_align="left")


def _rows(tail: Tail, found: list[str]) -> Iterable[tuple[str, str]]:
    step = tail.step_seconds
    took = f", {ms(step)} each" if step else ""
    yield "steps", f"{tail.step:,} in {tail.seconds:.0f} s{took}" if tail.step else "none yet"
    if tail.memories:
        yield "memory", f"{sparkline(tail.memories)}  {size(tail.memory)}"
    if tail.growth is not None:
        yield "growth", f"{size(tail.growth)} per step still alive"
    total = sum(tail.phases.values())
    if total:
        shares = sorted(tail.phases.items(), key=lambda item: -item[1])
        yield "time", ", ".join(f"{name} {percent(seconds / total)}" for name, seconds in shares[:5])
    if tail.bad_since is not None:
        yield "numbers", f"not finite in step {tail.bad_since:,}"
    yield "so far", "\n".join(found) if found else "no finding; the report comes when the program ends"


def sparkline(values: Iterable[int]) -> str:
    """The latest values as bars, from the lowest to the highest of them."""
    latest = list(values)[-_WIDTH:]
    low, high = min(latest), max(latest)
    return "".join(_BARS[(v - low) * (len(_BARS) - 1) // (high - low) if high > low else 0] for v in latest)

"""DEV106: nn.DataParallel, which is slower than one process per device and loses autocast's dtype."""

from __future__ import annotations

import ast

from torchvet.rules.kit import Finding, Iterator, Rule, SourceFile
from torchvet.source.model import Event, terminal


class DataParallel(Rule):
    """nn.DataParallel, which is slower than one process per device and loses autocast's dtype."""

    code = "DEV106"
    name = "data-parallel"
    summary = "nn.DataParallel copies the model at every step and loses autocast's dtype"
    severity = "info"
    words = ("DataParallel(",)

    def in_file(self, file: SourceFile) -> Iterator[Finding]:
        """Wrapping in `nn.DataParallel`; a warning where a forward runs under autocast in bfloat16."""
        for event in file.calls("DataParallel"):
            dotted = file.dotted(event.call.func)
            if dotted in ("torch.nn.DataParallel", "torch.nn.parallel.DataParallel") and event.call.args:
                yield self._finding(file, event, self._under_bfloat16(file))

    @staticmethod
    def _under_bfloat16(file: SourceFile) -> Event | None:
        """An autocast region in bfloat16 outside the modules' own methods."""
        if not file.mentions("autocast") or not file.mentions("bfloat16"):
            return None
        for event in file.calls("autocast"):
            given = [k.value for k in event.call.keywords if k.arg == "dtype"]
            outside = event.unit.owner is None or "module" not in file.roles.of_class(event.unit.owner)
            if outside and isinstance(event.statement, ast.With) and any(terminal(g) == "bfloat16" for g in given):
                return event
        return None

    def _finding(self, file: SourceFile, event: Event, autocast: Event | None) -> Finding:
        model = file.segment(event.call.args[0])
        lost = f"; its replicas run in float16, not in the bfloat16 of line {autocast.line}" if autocast else ""
        cause = "DataParallel works in threads of one process and gathers everything on the first device"
        if autocast is not None:
            cause = "DataParallel's threads are given autocast's flag without its dtype"
        message = f"nn.DataParallel copies {model} to every device at each step{lost}"
        advice = "use DistributedDataParallel, one process per device"
        return self.suspect(
            file, event, message, cause=cause, advice=advice, severity="warning" if autocast else "info"
        )

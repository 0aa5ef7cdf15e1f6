"""The file that a watch writes its report to."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torchvet.charts import Drawing
    from torchvet.finding import Report
    from torchvet.recording import Recording


class Output:
    """A report in the format that a file's extension picks. Raises `BadInput` for an extension that is no format's."""

    def __init__(self, path: str | Path) -> None:
        from torchvet.renderers import renderer_for_path

        self.path = Path(path)
        self._renderer = renderer_for_path(self.path)

    def drawing(self, report: Report, recording: Recording) -> Drawing:
        """The charts of a recording, where the format has any."""
        from torchvet.charts import NOTHING, Drawing, guarded

        if self._renderer.format != "html":
            return NOTHING
        from torchvet.drawing.run import drawing_of

        missing: list[str] = []
        return guarded("all charts", partial(drawing_of, recording, report), missing) or Drawing(missing=missing)

    def write(self, report: Report, drawing: Drawing) -> None:
        """Write it. A file that cannot be written is said on stderr: it is no reason to end a training."""
        from torchvet.renderers.files import write_whole

        try:
            write_whole(self.path, self._renderer.render(report, drawing=drawing))
        except OSError as problem:
            print(f"torchvet: the report was not written: {problem}", file=sys.stderr)

"""What the example keeps outside of tensors, by Python's own account of its memory."""

import contextlib
import io
import runpy
import tracemalloc
from pathlib import Path

BAD = Path(__file__).with_name("bad.py")
tracemalloc.start()
with contextlib.redirect_stdout(io.StringIO()):
    held = runpy.run_path(str(BAD))
steps = len(held["packed"])
mine = tracemalloc.take_snapshot().filter_traces([tracemalloc.Filter(True, str(BAD))])
kept = max(line.size for line in mine.statistics("lineno"))
print(f"The example keeps {kept / steps:,.0f} bytes per step outside tensors (tracemalloc).")

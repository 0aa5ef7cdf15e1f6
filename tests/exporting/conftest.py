"""The snapshots and traces that are exported here are made with what the tests of their readers make."""

import sys
from pathlib import Path

for folder in ("snapshots", "traces"):
    sys.path.insert(0, str(Path(__file__).parent.parent / folder))

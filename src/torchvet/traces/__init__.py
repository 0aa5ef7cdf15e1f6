"""What profiler traces say: analyses of one file each, digests, and the report on one or many.

file ──readers.kineto──▶ `timeline` ──`steps`, `phases`, `device`, `idle`, `waiting`, ...──▶ `digest` ──rules──▶ report
"""

from __future__ import annotations

from torchvet.readers.kineto import looks_like
from torchvet.traces.report import report_on

__all__ = ["looks_like", "report_on"]

"""What files say, in the forms of tools that people already use: speedscope, Perfetto, tables for DuckDB and pandas.

snapshot ─▶ `snapshot_stacks`, `snapshot_timeline`, `block_rows` ─┐
digest   ─▶ `trace_stacks`,    `trace_timeline`,    `cost_rows`  ─┴▶ `speedscope`, `perfetto`, `tables` ─▶ `targets`

`exports` is shown what an inspection reads and hands it to the forms that were asked for.
"""

from torchvet.exporting.exports import Exports

__all__ = ["Exports"]

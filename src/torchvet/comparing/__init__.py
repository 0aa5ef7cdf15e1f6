"""Two recordings, snapshots or traces side by side: what changed, by how much, and where."""

from torchvet.comparing.tables import Change, Comparison, Side, Table, compare

__all__ = ["Change", "Comparison", "Side", "Table", "compare"]

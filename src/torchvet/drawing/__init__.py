"""What can be drawn of recordings, snapshots and traces: their series as charts. Arithmetic, no judgment and no colors."""

"""What can be drawn of recordings, snapshots and traces, as charts. Arithmetic, no judgment and no colors."""

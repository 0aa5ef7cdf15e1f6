"""What the backward passes of one step have in common."""

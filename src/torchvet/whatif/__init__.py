"""What shortcuts and real remedies would buy, in numbers, from what a run recorded. Needs no torch."""

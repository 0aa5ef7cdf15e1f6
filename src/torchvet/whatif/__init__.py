"""What shortcuts and fixes would save, in numbers, by what a run recorded. Needs no torch."""

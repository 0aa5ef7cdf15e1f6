"""What is sorted in steps, and how much of the order is used."""

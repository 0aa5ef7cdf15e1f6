"""What the layers of a network are to each other."""

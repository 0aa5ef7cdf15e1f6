"""What the text of a program says of its lines, by names alone."""

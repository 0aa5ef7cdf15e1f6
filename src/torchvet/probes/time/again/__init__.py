"""What is computed again from the same operands."""

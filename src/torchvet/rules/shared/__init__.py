"""What rules of several families are written with."""

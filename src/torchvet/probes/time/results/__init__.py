"""What operators give in steps, and how much of it is used."""

"""What a program writes to files while it trains."""

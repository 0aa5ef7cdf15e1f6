"""What loaders cost beside the making of items."""

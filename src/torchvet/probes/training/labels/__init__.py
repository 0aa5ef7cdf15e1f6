"""What the labels of batches teach."""

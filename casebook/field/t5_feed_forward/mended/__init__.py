"""Fine-tuning of a small encoder with gated-less feed-forward layers in half precision."""

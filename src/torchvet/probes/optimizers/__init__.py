"""Probe for what optimizers step on: whose gradients they find, and which parameters they leave behind."""

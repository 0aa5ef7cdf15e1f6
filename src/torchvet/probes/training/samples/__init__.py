"""What samples of data sets go through."""

"""Gradients of several passes that one step uses together: whether anything averages them."""

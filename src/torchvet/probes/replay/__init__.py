"""A failed step done again in a forked child: which statements, in what isolation, watched by what, told how."""

"""Programs of several ranks. Nothing here communicates: ranks are compared when their records are read."""

"""Where the time goes: a thread of torchvet's own that looks at the lines of the threads that train."""

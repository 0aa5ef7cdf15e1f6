"""How Python's objects are read without running the program's code: frames' variables, containers, names."""

"""All of a program's files: their scopes, and what their statements do to names."""

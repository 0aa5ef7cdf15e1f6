"""The record types of a recording, one module per subject. Old recordings stay readable: new fields have defaults."""

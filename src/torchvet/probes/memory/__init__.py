"""Probes for memory: windows of storages, the census of names, the heap, what no name reaches."""

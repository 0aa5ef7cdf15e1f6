"""Memory of simulated devices: each storage is a block of a simulated caching allocator."""

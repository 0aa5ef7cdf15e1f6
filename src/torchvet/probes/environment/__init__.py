"""What torch says of itself and of this machine, asked by `torchvet doctor` in a process of its own."""

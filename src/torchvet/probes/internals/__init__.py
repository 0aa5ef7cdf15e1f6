"""What torchvet knows of torch's internals: private names, saved tensors, modes, compiled regions."""

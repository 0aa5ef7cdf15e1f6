"""torch's API where it meets a device, apart from `torch.cuda`: names, checkpoints, autocast, processes."""

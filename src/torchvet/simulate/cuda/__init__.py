"""`torch.cuda` as a program finds it where there is a GPU."""

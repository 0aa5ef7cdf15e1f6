"""The parent of the observed program: starts it, forwards signals, shows progress, undoes a trial's changes."""

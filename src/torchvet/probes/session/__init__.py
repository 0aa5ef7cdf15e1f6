"""One observed program: start, options, the observer that asks the probes, and what is left unchecked."""

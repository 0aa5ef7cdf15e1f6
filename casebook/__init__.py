"""The casebook: faulty programs, their fixes and their look-alikes, and how torchvet fares on them."""

"""The casebook: faulty programs, their mends and their look-alikes, and how torchvet fares on them."""

"""torchvet where people already work: pytest, notebooks, and what callbacks of training frameworks share."""

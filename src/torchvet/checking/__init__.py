"""`torchvet check`: source text in, findings out. Which files, which rules, what is suppressed, what is remembered."""

"""For coding agents: what torchvet reads, as tools of a server that changes nothing and runs nothing."""

"""Foreign artefacts, read safely: files that a cluster left behind become typed facts. Nothing here imports torch."""

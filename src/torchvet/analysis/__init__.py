"""What recordings mean as numbers: growth of names, steps, memory limits, costs, facts. Arithmetic, no judgment."""

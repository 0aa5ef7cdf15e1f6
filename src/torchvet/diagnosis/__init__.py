"""From findings to a report: asks the rules, correlates source with runs, and decides the verdict."""

"""What a rule is, the manifest that lists all rules, and how a rule's texts and examples are read."""

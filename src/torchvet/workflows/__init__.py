"""What several verbs do alike: run a check, apply and verify fixes, write the report."""

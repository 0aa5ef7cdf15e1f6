"""The generated documents: the rules' pages and manifest, the report's schema, README's demonstration."""

"""The language server: what `check` finds in the text of an editor's buffer, and its fixes as code actions."""

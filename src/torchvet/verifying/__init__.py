"""Whether a fix helps: compares runs of the unchanged and of the fixed program. It runs nothing itself."""

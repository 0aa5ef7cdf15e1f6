"""Whether a mend helps: the program as it is and as mended, run side by side and compared. Arithmetic, nothing runs."""

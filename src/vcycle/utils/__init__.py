"""Files, locks and processes, for every room."""

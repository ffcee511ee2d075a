"""A folder per claim: how it was measured, the log, and what the pages of the project say of it."""

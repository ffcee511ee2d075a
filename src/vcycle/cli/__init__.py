"""The command line: commands and messages, no logic of its own."""

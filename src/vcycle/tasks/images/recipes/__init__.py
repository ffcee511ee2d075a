"""The shipped recipes."""

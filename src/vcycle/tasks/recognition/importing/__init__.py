"""Translates configurations of PySlowFast and MMAction2 into recipes."""

"""Weights in and out: files read without running them, recognised by their names, loaded whole or refused."""

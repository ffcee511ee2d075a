"""Shared by commands: options, messages, progress, figures."""

"""Adapters for training frameworks: ``lightning`` and ``transformers``.

Each module imports its framework, and nothing in vcycle imports them. They use public names of vcycle only, so each is
also an example for another framework.
"""

__all__: list[str] = []

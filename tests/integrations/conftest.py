"""The tests of integrations share a yardstick, which their script under torchrun imports too."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(scope="session")
def reference():
    """The plain loop's training, which every other must equal."""
    import setups

    return setups.plain()


@pytest.fixture
def trace():
    """An empty trace."""
    import yardstick

    return yardstick.Trace()

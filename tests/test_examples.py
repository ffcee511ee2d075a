"""Examples in docstrings give what they say."""

import doctest
from importlib import import_module
from pathlib import Path

import pytest

import vcycle

ROOT = Path(vcycle.__file__).parent


def modules_with_examples():
    """Names of the modules; found in their text, as importing every one takes seconds."""
    for file in sorted(ROOT.rglob("*.py")):
        if ">>>" in file.read_text(encoding="utf-8"):
            yield ".".join(["vcycle", *file.relative_to(ROOT).with_suffix("").parts]).removesuffix(".__init__")


@pytest.mark.parametrize("module", list(modules_with_examples()))
def test_examples_in_docstrings_give_what_they_say(module):
    failed, tried = doctest.testmod(import_module(module), optionflags=doctest.NORMALIZE_WHITESPACE)
    assert tried > 0
    assert failed == 0

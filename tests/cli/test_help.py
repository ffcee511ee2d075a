"""Every help page fits a screen of 100 × 50 characters, and nothing is cut on one of 80 columns."""

import re

import pytest
import typer

from vcycle.cli.app import app


def pages():
    """The words of every command, and of every group of commands."""

    def walk(command, words):
        yield words
        for name, below in getattr(command, "commands", {}).items():
            yield from walk(below, [*words, name])

    return list(walk(typer.main.get_command(app), []))


@pytest.mark.parametrize(("columns", "most"), [(100, 50), (80, 60)])
def test_every_help_page_fits_a_screen(vcycle, monkeypatch, columns, most):
    monkeypatch.setenv("COLUMNS", str(columns))
    found = pages()
    assert [] in found
    assert ["plan", "auto"] in found
    assert len(found) > 20
    for words in found:
        ran = vcycle(*words, "--help")
        lines = ran.out.rstrip().splitlines()
        assert ran.code == 0
        assert len(lines) <= most, words
        assert max(len(line) for line in lines) <= columns, words
        assert not [line for line in lines if re.search(r"\w-$", line)], words  # names are whole: --batch-size
        assert not [line for line in lines if line.endswith("...") and not line.startswith("Usage:")], words

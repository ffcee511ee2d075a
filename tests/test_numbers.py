"""Every number that the pages show of a measurement is that of its log, through `python -m benchmarks.pages`."""

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def pages():
    sys.path.insert(0, str(ROOT))
    try:
        from benchmarks import pages

        yield pages
    finally:
        sys.path.remove(str(ROOT))


def read(page):
    return (ROOT / page).read_text(encoding="utf-8")


def test_the_numbers_of_every_page_are_those_of_the_logs(pages):
    for page in pages.PAGES:
        assert pages.filled(page, read(page)) == read(page), f"{page}: write it anew: python -m benchmarks.pages"


def test_these_pages_have_no_measured_number_without_a_log(pages):
    for page in pages.COMPLETE:
        assert not pages.unbacked(page, read(page)), page

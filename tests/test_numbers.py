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


@pytest.mark.timeout(1200)  # fifty intervals by the bootstrap: fifteen seconds of processor time
def test_the_numbers_of_every_page_are_those_of_the_logs(pages):
    for page in pages.PAGES:
        assert pages.filled(page, read(page)) == read(page), f"{page}: write it anew: python -m benchmarks.pages"


def test_these_pages_have_no_measured_number_without_a_log(pages):
    for page in pages.COMPLETE:
        assert not pages.unbacked(page, read(page)), page


def test_the_pictures_of_the_docs_are_those_of_the_studies():
    assert (ROOT / "docs/images/demo.png").read_bytes() == (ROOT / "benchmarks/demo/comparison.png").read_bytes()


FAULTS = "benchmarks/faults/README.md"


@pytest.mark.parametrize(
    ("logged", "other"),
    [
        ("77,840 bits", "77,841 bits"),
        ("**all 27 ended", "**all 7 ended"),
        ("| one process | 50 |", "| one process | 51 |"),
    ],
    ids=["sentence", "bold", "table"],
)
def test_another_number_is_replaced_by_that_of_the_log(pages, logged, other):
    text = read(FAULTS)
    assert text.count(logged) == 1
    assert pages.filled(FAULTS, text.replace(logged, other)) == text


def test_a_sentence_with_other_words_is_missed(pages):
    text = read(FAULTS).replace("The file was refused", "It was refused")
    with pytest.raises(ValueError, match=r"stands there 0 times, not once, .*Each of the 77,840 bits"):
        pages.filled(FAULTS, text)


def test_a_table_that_no_study_has_is_refused(pages):
    text = read(FAULTS).replace("benchmarks/faults: kills", "benchmarks/faults: skills")
    with pytest.raises(ValueError, match="no table 'skills'; it has kills"):
        pages.filled(FAULTS, text)


@pytest.mark.parametrize(
    ("said", "found"),
    [
        ("It is 3.4× faster.", ["It is 3.4× faster."]),
        ("- 12 % in **5 s**", ["- 12 % in **5 s**", "- 12 % in **5 s**"]),
        ("Clips of 16×112² and 8 frames, `--margin 2 %`.", []),
        ("It is 3.4× faster (no log is kept).", []),
        ("<!-- no log: a rule -->\nAt most 95 % of it.", []),
    ],
)
def test_a_measured_number_that_comes_from_no_log_is_found(pages, said, found):
    assert pages.unbacked("CONTRIBUTING.md", f"{said}\n") == found

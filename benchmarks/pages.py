"""Writes the numbers of the logs into the README, the docs and the studies' READMEs: `python -m benchmarks.pages`.

A study says in `benchmarks/STUDY/shown.py` what the pages show of its logs, by two functions, or one of them:

- `tables()`, by name: Markdown. In a page it stands between `<!-- from benchmarks/STUDY: NAME -->` and `<!-- end -->`.
- `sentences()`, by page: parts of its sentences, or rows of its tables, with the numbers of the log. Each stands in
  the page once, but for its numbers and its line breaks.

`benchmarks/shown.py` has what several studies show together. `filled` puts the numbers of the logs in the place of
those in a page; a test asserts that this changes nothing. `unbacked` finds measured numbers that come from no log. A
paragraph, table or item of a list may have some if it says that there is "no log", in a comment such as
`<!-- no log: the papers' -->` on the line before it if need be.
"""

import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

__all__ = ["COMPLETE", "PAGES", "filled", "unbacked"]

ROOT = Path(__file__).parents[1]
PAGES = [
    "README.md",
    *sorted(file.relative_to(ROOT).as_posix() for file in ROOT.glob("docs/*.md")),
    *sorted(file.relative_to(ROOT).as_posix() for file in ROOT.glob("benchmarks/*/README.md")),
]
COMPLETE = [
    "README.md",
    "docs/expect.md",
    "docs/finetuning.md",
    "docs/images.md",
    "docs/transformers.md",
    "benchmarks/faults/README.md",
    "benchmarks/finetune/README.md",
]
"""The pages whose measured numbers all come from logs, but for those that say why not."""

_NUMBER = r"[+−]?\d[\d,]*(?:\.\d+)?"
_BLOCK = re.compile(r"(<!-- from benchmarks/(\S+): (.+?) -->\n)(.*?)(<!-- end -->)", re.DOTALL)
_MEASURED = re.compile(rf"(?<![\w.×]){_NUMBER}(?:×(?![\d*])|\*\*×| ?(?:%|dB\b|points?\b|ms\b|s\b))")
_PARAGRAPH = re.compile(r"(?:(?<=\n)|\A)\S(?:(?!\n\n|\n- ).)*", re.DOTALL)
"""A paragraph, a table, or an item of a list."""
_LEVEL = re.compile(r"(?:\(|are\s|the\s)95 %")
"""Of an interval."""
_CODE = re.compile(r"^```.*?^```$|`[^`\n]+`|<!--.*?-->|\]\([^)\s]+\)", re.DOTALL | re.MULTILINE)


def filled(page: str, text: str) -> str:
    """The text of a page with the numbers of the logs.

    Raises:
        ValueError: if the page names a table that no study has, or lacks a sentence.
    """
    text = _BLOCK.sub(lambda found: f"{found[1]}\n{_table(found[2], found[3])}\n\n{found[5]}", text)
    for sentence in _sentences(page):
        found = list(_pattern(sentence).finditer(text))
        if len(found) != 1:
            raise ValueError(f"{page}: stands there {len(found)} times, not once, with any numbers: {sentence}")
        text = text[: found[0].start()] + _renumbered(found[0][0], sentence) + text[found[0].end() :]
    return text


def unbacked(page: str, text: str) -> list[str]:
    """The measured numbers of a page that come from no log, each with what stands around it."""
    for sentence in _sentences(page):
        text = _pattern(sentence).sub(_blank, text)
    text = _PARAGRAPH.sub(lambda found: _blank(found) if "no log" in found[0].lower() else found[0], text)
    for hidden in (_BLOCK, _CODE, _LEVEL):
        text = hidden.sub(_blank, text)
    return [text[max(0, found.start() - 40) : found.end() + 20].strip() for found in _MEASURED.finditer(text)]


def _blank(found: re.Match[str]) -> str:
    return "\n" * found[0].count("\n")


def _pattern(sentence: str) -> re.Pattern[str]:
    """The sentence with any numbers and any line breaks."""
    parts = re.split(f"({_NUMBER})", sentence)
    return re.compile("".join(_NUMBER if place % 2 else _spaced(part) for place, part in enumerate(parts)))


def _spaced(text: str) -> str:
    return r"\s+".join(re.escape(word) for word in re.split(r"\s+", text))


def _renumbered(text: str, sentence: str) -> str:
    """The text with the numbers of a sentence."""
    numbers = iter(re.findall(_NUMBER, sentence))
    return re.sub(_NUMBER, lambda _: next(numbers), text)


def _table(study: str, name: str) -> str:
    tables = import_module(f"benchmarks.{study}.shown").tables()
    if name not in tables:
        raise ValueError(f"benchmarks/{study}/shown.py has no table {name!r}; it has {', '.join(tables)}")
    return str(tables[name])


def _sentences(page: str) -> Iterator[str]:
    for file in sorted([*ROOT.glob("benchmarks/*/shown.py"), ROOT / "benchmarks" / "shown.py"]):
        module = import_module(".".join(file.relative_to(ROOT).with_suffix("").parts))
        if hasattr(module, "sentences"):
            yield from module.sentences().get(page, ())


if __name__ == "__main__":
    for page in PAGES:
        file = ROOT / page
        file.write_text(filled(page, file.read_text(encoding="utf-8")), encoding="utf-8")

"""Commands, benchmarks, reports and runs serve any task: what one task alone has, it brings along itself."""

import re
from pathlib import Path

import pytest

import vcycle
from vcycle.tasks.base import tasks

ROOMS = ("cli", "bench", "report", "console", "runs")

SHIPPED = [tasks[name] for name in ("recognition", "superresolution")]
NAMES = {name for task in SHIPPED for name in (task.name, *(measure.name for measure in task.measures))}
NAMES |= {measure.reference_key for task in SHIPPED for measure in task.measures if measure.reference}

ANY_CASE = (
    *("super-?res", "bicubic", "psnr", "ssim", r"top-?[15]\b", "restor", "upscal", r"\btiles?\b", "degradation"),
    *("largest class", "confusion", "multi.label", "mixup", "cutmix", "--views"),
    *(r"(?<!\.)data\.(clips|fold|epoch|low)\b", r"evaluation\.(clips|crops|size|channels|chunk)"),
)
AS_WRITTEN = (r"\bdB\b", *(rf"\b{re.escape(name)}\b" for name in NAMES))  # mAP is no map
WORDS = re.compile(f"(?i:{'|'.join(ANY_CASE)})|{'|'.join(AS_WRITTEN)}")


def task_words(text: str) -> list[str]:
    """The lines that speak of one task."""
    return [line.strip() for line in text.splitlines() if WORDS.search(line)]


@pytest.mark.parametrize("room", ROOMS)
def test_no_task_is_named(room):
    files = sorted((Path(vcycle.__file__).parent / room).rglob("*.py"))
    assert files
    found = {str(file): lines for file in files if (lines := task_words(file.read_text(encoding="utf-8")))}
    assert found == {}


@pytest.mark.parametrize(
    "line",
    [
        'if recipe.task == "recognition":',
        "from vcycle.tasks.superres.recipe import SuperresRecipe",
        'value = evaluation["top1"]',
        "beside = evaluation.bicubic_psnr",
        '"""The PSNR of a clip, or its mAP."""',
        'shown.draw(runs, folder / "restored.png")',
        'overrides = [f"evaluation.clips={views}"]',
    ],
)
def test_a_line_that_names_one_is_found(line):
    assert task_words(line) == [line]

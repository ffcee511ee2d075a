"""README and docs are true: commands and Python blocks run, outputs are what is printed, links lead somewhere.

Blocks run as they are printed, in order, commands that train on a smaller model (`SMALL`), each page from its beginning
in a folder of its own. A `text` block right after a command is its output, in which `…` stands for anything. Of the
READMEs of benchmarks only the links are followed.
"""

import contextlib
import importlib.util
import io
import re
import shlex
import shutil
from pathlib import Path
from typing import NamedTuple

import pytest
import torch

import vcycle
from vcycle.cli.app import app
from vcycle.console import process
from vcycle.tasks.recipes import load_recipe
from vcycle.tasks.recognition.models import build_model
from vcycle.tasks.recognition.weights.keys import foreign_keys

pytestmark = pytest.mark.usefixtures("few_turns")

ROOT = Path(__file__).parents[1]
PAGES = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").glob("*.md"))
PAGES = ["README.md", "CONTRIBUTING.md", *PAGES]
LINKING = [*PAGES, *sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "benchmarks").glob("*/README.md"))]

SMALL = [
    *("model=r3d_tiny", "model.options.widths=[4, 8, 8]", "training.frames=4", "training.size=16", "training.batch=2"),
    *("training.epochs=4", "training.warmup=null", "data.workers=0", "run.device=cpu"),
]
"""What makes training with `videos/small` take a second."""

WIDTHS = {"stem_width": 4, "widths": [4, 4, 8, 8], "blocks": [1, 1, 1, 1]}
SMALL_FINETUNE = [
    *(f"model.options.{key}={value}" for key, value in WIDTHS.items()),
    *("training.frames=4", "training.size=32", "sampling.short_side=[36, 48]", "training.batch=2"),
    *("training.epochs=1", "training.min_steps=14", "training.warmup=null", "data.workers=0", "run.device=cpu"),
]
"""The same for `finetune`."""


WIDTH = {"width": 8, "blocks": [1, 1, 1, 1]}
SMALL_SWIN = [*(f"model.options.{key}={value}" for key, value in WIDTH.items()), *SMALL_FINETUNE[len(WIDTHS) :]]
"""The same for `finetune/swin3d_t`."""


class Block(NamedTuple):
    """A fenced block."""

    language: str
    text: str
    line: int
    output: str | None
    """The `text` block right after it."""


_FENCED = re.compile(
    r"^(<!-- not run: [^\n]+ -->\n)?```(\w*)\n(.*?)^```\n(?:```text\n(.*?)^```\n)?", re.MULTILINE | re.DOTALL
)


def blocks(page):
    """The blocks of a page that are to be run, in order."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return [
        Block(found[2], found[3], text.count("\n", 0, found.start()) + 1, found[4])
        for found in _FENCED.finditer(text)
        if found[1] is None and found[2] != "text"
    ]


def assert_shown(printed, expected, where):
    """Each line that a page shows was printed, in that order."""
    lines = iter(line.rstrip() for line in printed.splitlines())
    for wanted in (line.rstrip() for line in expected.splitlines() if line.strip()):
        pattern = ".*".join(map(re.escape, wanted.split("…")))
        assert any(re.fullmatch(pattern, line) for line in lines), f"{where}: not printed: {wanted}\nbut:\n{printed}"


def run_command(line, capsys):
    """Run one `vcycle` command: its exit code and all that it printed."""
    line, _, target = line.partition(" > ")
    program, *arguments = shlex.split(line)
    assert program == "vcycle", line
    if arguments[0] in ("train", "compare") and arguments[1] == "videos/small":
        arguments[2:2] = SMALL
    if arguments[:2] == ["train", "finetune"]:
        arguments[2:2] = SMALL_FINETUNE
    if arguments[:2] == ["train", "finetune/swin3d_t"]:
        arguments[2:2] = SMALL_SWIN
    arguments = [re.sub("^seeds=.*", "seeds=1", argument) for argument in arguments]
    capsys.readouterr()
    code = process.run(app, arguments)
    captured = capsys.readouterr()
    if target:
        Path(target).write_text(captured.out, encoding="utf-8")
    return code, captured.out + captured.err


@pytest.fixture
def place(tmp_path, digit_videos, monkeypatch, own_models):
    """A folder with what the pages speak of: videos, lists, an empty folder, a list that is wrong, weights,
    configurations of other tools."""
    shutil.copytree(digit_videos, tmp_path / "videos")
    (tmp_path / "empty").mkdir()
    (tmp_path / "bad-list").mkdir()
    (tmp_path / "lists").mkdir()
    first = sorted((tmp_path / "videos/train").rglob("*.mp4"))[0]
    shutil.copy(first, tmp_path / "bad-list/there.mp4")
    shutil.copy(first, tmp_path / "clip.mp4")
    weights = build_model("slow_r50", 7, **WIDTHS).state_dict()
    names = foreign_keys(weights, "pytorchvideo")
    torch.save({"model_state": {names[key]: tensor for key, tensor in weights.items()}}, tmp_path / "SLOW_8x8_R50.pyth")
    if importlib.util.find_spec("torchvision") is not None:
        torch.save(build_model("swin3d_t", 7, **WIDTH).state_dict(), tmp_path / "swin3d_t-7615ae03.pth")
    (tmp_path / "bad-list/train.csv").write_text("there.mp4 0\nmissing.mp4 1\n")
    (tmp_path / "bad-list/val.csv").write_text("there.mp4 0\n")
    for split in ("train", "val"):
        found = sorted((tmp_path / "videos" / split).rglob("*.mp4"))
        lines = [f"{path.relative_to(tmp_path / 'videos')},{path.parent.name}\n" for path in found]
        (tmp_path / f"lists/{split}.csv").write_text("".join(lines))
    configs = loaded(ROOT / "tests" / "tasks" / "importing" / "conftest.py")
    for file, name in CONFIGS.items():
        configs.write_config(tmp_path / file, name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


CONFIGS = {
    "SLOWFAST_8x8_R50_stepwise_multigrid.yaml": "kinetics",
    "slowfast_multigrid_r50_8x8x1.py": "mmaction2_0x",
    "train_BasicVSR_REDS.yml": "basicvsr",
}
"""Configurations of other tools that pages import."""


def loaded(file):
    """A Python file as a module."""
    spec = importlib.util.spec_from_file_location(file.stem, file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def names():
    """What a reader of the Python blocks has: a dataset, a model, an optimizer, a plan."""

    class Clips(torch.utils.data.Dataset):
        def __len__(self):
            return 12

        def __getitem__(self, index):
            return torch.rand(3, 10, 24, 24), index % 2

    layers = (torch.nn.Conv3d(3, 4, 3, padding=1), torch.nn.BatchNorm3d(4), torch.nn.ReLU())
    model = torch.nn.Sequential(*layers, torch.nn.AdaptiveAvgPool3d(1), torch.nn.Flatten(), torch.nn.Linear(4, 2))
    dataset = Clips()
    plan = vcycle.cascade(vcycle.Baseline(batch=2, frames=8, size=16, clips=12, epochs=4, lr=0.01))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    return {"dataset": dataset, "model": vcycle.convert_batchnorm(model), "optimizer": optimizer, "plan": plan}


def run_python(block, page, names):
    """Run a Python block of a page: what it printed."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile("\n" * block.line + block.text, page, "exec"), names)
    return printed.getvalue()


def run_commands(block, where, capsys):
    """Run the commands of a block, which end well, or are refused where its output is an error: what they printed."""
    printed = ""
    for line in block.text.splitlines():
        code, text = run_command(line, capsys)
        refused = block.output is not None and block.output.startswith("error: ")
        assert code == (2 if refused else 0), f"{where}: {line}\n{text}"
        printed += text
    return printed


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in PAGES if any(b.language in ("sh", "python") for b in blocks(page))])
def test_blocks_run_as_they_are_printed(page, place, names, capsys):
    if page == "docs/finetuning.md":
        pytest.importorskip("torchvision")
    for block in blocks(page):
        where = f"{page}, line {block.line}"
        if block.language == "python":
            printed = run_python(block, page, names)
        elif block.language == "sh":
            printed = run_commands(block, where, capsys)
        else:
            continue
        if block.output is not None:
            assert_shown(printed, block.output, where)


@pytest.mark.parametrize("page", PAGES)
def test_every_block_says_what_it_is_in(page):
    fences = re.findall(r"^```(\w*)\n.*?^```$", (ROOT / page).read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert set(fences) <= {"sh", "python", "text", "yaml"}


def anchors(page):
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", LINKING)
def test_links_lead_somewhere(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if target.startswith("https://"):
            continue
        path, _, anchor = target.partition("#")
        file = (ROOT / page).parent / path if path else ROOT / page
        assert file.exists(), f"{page}: {target}"
        assert not anchor or anchor in anchors(file), f"{page}: {target}"


def test_every_page_can_be_reached_from_the_readme():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert all(f"({page})" in readme for page in PAGES if page != "README.md")


def test_no_number_is_left_to_be_filled_in():
    assert "TBD" not in (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_keys_of_a_recipe_are_documented_as_the_schema_has_them():
    recipe_keys = loaded(ROOT / "docs" / "recipe_keys.py")
    for file, recipe in recipe_keys.PAGES.items():
        page = file.read_text(encoding="utf-8")
        assert recipe_keys.filled(page, recipe) == page, "write the tables anew: python docs/recipe_keys.py"


def test_the_first_two_commands_are_those_that_the_continuous_integration_runs():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert 'python -m venv .venv && .venv/bin/pip install -e ".[dev]" && .venv/bin/vcycle demo\n' in readme
    assert "\n.venv/bin/python -m pytest -n 2\n" in readme


def test_the_recipe_of_the_readme_is_shipped():
    assert load_recipe("videos/small").plan == "cascade"

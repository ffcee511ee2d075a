"""`vcycle demo superresolution`, with few and small clips and two steps."""

import json
from collections.abc import Sequence

import pytest

from vcycle.config.recipe import RecipeBase
from vcycle.tasks import recipes as load
from vcycle.tasks.superres.pairs import photographs

pytestmark = pytest.mark.usefixtures("few_turns")

TINY = (
    "training.steps=6",
    "training.batch=1",
    "training.frames=2",
    "training.size=8",
    "training.warmup=null",
    "plans.hierarchical={sizes: [4, 8], frames: [1, 2]}",
    "model.options={blocks: 1, channels: 4, head_channels: 4, flow: none}",
    "data.epoch=6",
    "evaluation.validation_clips=1",
)


@pytest.fixture
def tiny_demo(monkeypatch):
    """The demo's own recipe and clips, smaller."""
    load_recipe, render = load.load_recipe, photographs.render_photographs
    settings = photographs.PhotographSettings(clips={"train": 2, "val": 1, "test": 1}, frames=2, size=48)

    def smaller(name: str, overrides: Sequence[str] = ()) -> RecipeBase:
        return load_recipe(name, [*overrides, *(TINY if name == "demo/superresolution" else ())])

    monkeypatch.setattr(load, "load_recipe", smaller)
    monkeypatch.setattr(photographs, "render_photographs", lambda root, **how: render(root, settings, **how))


def test_the_demo_compares_three_plans_and_shows_a_crop(vcycle, here, tiny_demo, one_job):
    ran = vcycle("demo", "superresolution", "--seeds", "1", "--out", "shown", "--json")
    assert ran.code == 0, ran.err
    data = json.loads(ran.out)
    assert list(data["arms"]) == ["constant", "control:hierarchical", "hierarchical"]
    assert data["control"] == "control:hierarchical"
    assert data["measure"]["unit"] == "dB"
    assert (here / "shown/photographs/test/00/0001.png").is_file()
    for picture in ("comparison.png", "restored.png"):
        assert (here / "shown" / picture).read_bytes().startswith(b"\x89PNG")


def test_an_unknown_subject_is_refused_by_name(vcycle, here):
    ran = vcycle("demo", "superresolutions")
    assert (ran.code, ran.out) == (2, "")
    assert "demo 'superresolutions' is unknown (did you mean 'superresolution'?)" in ran.err

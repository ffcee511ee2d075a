"""Initial weights bring the mean and standard deviation of their training, where the recipe does not set them."""

import json
import re

import pytest
import torch
import yaml
from safetensors.torch import save_file

import vcycle
from vcycle.errors import CheckpointError, RecipeError
from vcycle.tasks.base import tasks
from vcycle.tasks.brought import Brought, brought_by, tell
from vcycle.tasks.models import models_of
from vcycle.tasks.recipes import dump_recipe, load_recipe

IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
KINETICS = ((0.43216, 0.394666, 0.37645), (0.22803, 0.22145, 0.216989))
DEFAULT = ((0.45, 0.45, 0.45), (0.225, 0.225, 0.225))
OWN = ((0.1, 0.2, 0.3), (0.4, 0.5, 0.6))


def colors(recipe):
    return recipe.sampling.mean, recipe.sampling.std


def loaded(*overrides, recipe="videos/finetune"):
    return load_recipe(recipe, [str(override) for override in overrides])


@pytest.fixture
def trained():
    """The resolved recipe of a run, as the run stores it."""
    return dump_recipe(loaded("sampling.mean=[0.1, 0.2, 0.3]", "sampling.std=[0.4, 0.5, 0.6]"))


def test_an_export_brings_those_of_its_run(trained, tmp_path):
    file = tmp_path / "x.safetensors"
    save_file({"a": torch.zeros(1)}, file, metadata={"vcycle.recipe": trained})
    recipe = loaded(f"init={file}")
    assert colors(recipe) == OWN
    assert colors(load_recipe(dumped(recipe, tmp_path))) == OWN


def dumped(recipe, folder):
    (folder / "recipe.yaml").write_text(dump_recipe(recipe), encoding="utf-8")
    return str(folder / "recipe.yaml")


@pytest.mark.parametrize("given", [".", "checkpoints/best.pt"])
def test_a_run_and_its_checkpoints_bring_those_of_its_recipe(trained, tmp_path, given):
    (tmp_path / "recipe.yaml").write_text(trained, encoding="utf-8")
    assert colors(loaded(f"init={tmp_path / given}")) == OWN


@pytest.mark.parametrize("given", [".", "model.safetensors", "pytorch_model.bin"])
@pytest.mark.parametrize("name", ["preprocessor_config.json", "video_preprocessor_config.json"])
def test_a_preprocessor_beside_weights_brings_its_own(tmp_path, given, name):
    mean, std = OWN
    (tmp_path / name).write_text(json.dumps({"do_normalize": True, "image_mean": mean, "image_std": std}))
    assert colors(loaded(f"init={tmp_path / given}", "model=videomae_b")) == OWN


def options(*overrides):
    return loaded("model=videomae_b", *overrides).model.options


def config(folder, **values):
    (folder / "model.safetensors").touch()
    (folder / "config.json").write_text(json.dumps({"model_type": "videomae"} | values))


def test_weights_bring_the_options_that_no_tensor_shows(tmp_path):
    config(tmp_path, num_frames=8, image_size=112, num_attention_heads=6)
    own = {"trained_clip": [8, 112], "heads": 6}
    for given in (".", "model.safetensors"):
        assert options(f"init={tmp_path / given}") == own
    assert options(f"init={tmp_path}", "model.options.heads=4") == own | {"heads": 4}
    assert options(f"init={tmp_path}", "model.options={dropout: 0.5}") == own | {"dropout": 0.5}
    recipe = loaded("model=videomae_b", f"init={tmp_path}")
    text = dumped(recipe, tmp_path)
    (tmp_path / "config.json").unlink()
    assert load_recipe(text).model == recipe.model  # a resume does not ask the weights
    run = tmp_path / "run"
    run.mkdir()
    dumped(recipe, run)
    assert options(f"init={run}") == own  # nor does a training that begins with the run
    assert loaded("model=videomae_l", f"init={run}").model.options == {"trained_clip": [16, 224], "heads": 16}


@pytest.mark.parametrize(
    "values",
    [{"num_frames": 16, "image_size": 224, "num_attention_heads": 12}, {"num_frames": 16}, {"image_size": "x"}],
)
def test_options_that_are_the_models_own_or_not_told_are_set_to_the_models_own(tmp_path, values):
    config(tmp_path, **values)
    recipe = loaded("model=videomae_b", f"init={tmp_path}")
    assert recipe.model.options == {"trained_clip": [16, 224], "heads": 12}
    text = dumped(recipe, tmp_path)
    config(tmp_path, num_frames=8, image_size=112, num_attention_heads=6)
    assert load_recipe(text).model == recipe.model  # what lies with the weights later does not change a run
    (tmp_path / "config.json").write_text("damaged")
    assert load_recipe(text).model == recipe.model
    assert options() == {}


def test_a_configuration_that_the_model_cannot_follow_is_refused_and_named(tmp_path):
    config(tmp_path, num_frames=7, image_size=112)
    said = (
        rf"weights {tmp_path} \(config.json\): option 'trained_clip' of model 'videomae_b' is .7, 112.; "
        r"accepted: \[frames, side\], multiples of 2 up to 512 and of 16 up to 1,024$"
    )
    with pytest.raises(CheckpointError, match=said):
        options(f"init={tmp_path}")
    with pytest.raises(RecipeError, match="did you mean 'heads'"):
        models_of("recognition").needs("videomae_b", **options(f"init={tmp_path}", "model.options.hads=2"))


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"do_normalize": False, "image_mean": [0.5] * 3, "image_std": [0.5] * 3}, ((0.0,) * 3, (1.0,) * 3)),
        ({"image_mean": 0.5, "image_std": 0.25}, ((0.5,) * 3, (0.25,) * 3)),
        ({"video_processor": {"image_mean": [0.5] * 3, "image_std": [0.25] * 3}}, ((0.5,) * 3, (0.25,) * 3)),
        # ViViT's: pixels from 0 to 255 become -1 to 1 before they are normalised, (p/127.5 - 1 - 0.5)/0.5.
        (
            {"rescale_factor": 1 / 127.5, "offset": True, "image_mean": [0.5] * 3, "image_std": [0.5] * 3},
            ((0.75,) * 3, (0.25,) * 3),
        ),
        ({"do_rescale": False, "image_mean": [127.5] * 3, "image_std": [51.0] * 3}, ((0.5,) * 3, (0.2,) * 3)),
        ({"size": 224}, IMAGENET),
    ],
)
def test_what_a_preprocessor_says_is_read_and_what_is_no_normalisation_is_left_to_the_model(tmp_path, config, expected):
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(config))
    assert colors(loaded(f"init={tmp_path}", "model=videomae_b")) == expected


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (["model=swin3d_t", "init=swin3d_t-7615ae03.pth"], IMAGENET),
        (["model=mvit_v2_s", "init=x.pth"], DEFAULT),
        (["model=r3d_18", "init=x.pth"], KINETICS),
        (["model=r3d_18", "model.options.weights=KINETICS400_V1"], KINETICS),
        (["model=videomae_b", "init=nowhere"], IMAGENET),
        (["model=r3d_18"], DEFAULT),  # from nothing
        (["init=SLOW_8x8_R50.pyth"], DEFAULT),
        (["model=swin3d_y", "init=x.pth"], DEFAULT),  # refused with the plan
    ],
)
def test_public_weights_bring_those_of_their_model(given, expected):
    assert colors(loaded(*given)) == expected


def test_a_recipes_own_values_and_those_of_its_bases_stay(tmp_path):
    (tmp_path / "base.yaml").write_text("base: finetune/swin3d_t\nsampling: {mean: [0.1, 0.2, 0.3]}\n")
    (tmp_path / "own.yaml").write_text("base: base.yaml\ninit: x.pth\n")
    assert colors(loaded(recipe=tmp_path / "own.yaml")) == (OWN[0], IMAGENET[1])
    assert colors(loaded("sampling.std=[0.4, 0.5, 0.6]", recipe=tmp_path / "own.yaml")) == OWN


def test_a_recipe_says_what_it_has_from_its_weights_and_what_contradicts_them():
    def told(*overrides):
        said = []
        recipe = loaded("model=swin3d_t", "init=x.pth", *overrides)
        tell(recipe, brought_by(recipe), said.append)
        return said

    source = "the public weights of swin3d_t"
    assert told() == [f"init: sampling.mean=[0.485, 0.456, 0.406] and sampling.std=[0.229, 0.224, 0.225] of {source}"]
    assert told("sampling.mean=[0.5, 0.5, 0.5]") == [
        f"warning: {source}: they were trained with sampling.mean=[0.485, 0.456, 0.406], this is [0.5, 0.5, 0.5]",
        f"init: sampling.std=[0.229, 0.224, 0.225] of {source}",
    ]
    recipe = loaded("model=mvit_v2_s", "init=x.pth")
    assert brought_by(recipe) == Brought(
        values=dict(zip(tasks["recognition"].brought, DEFAULT, strict=True)), source="the public weights of mvit_v2_s"
    )
    tell(recipe, brought_by(recipe), pytest.fail)  # nothing is said of the defaults


@pytest.mark.parametrize("task", ["recognition", "images"])
def test_the_values_of_torchvisions_models_are_those_of_its_transforms(task):
    models = pytest.importorskip("torchvision.models")
    listed = models_of(task)
    names = [name for name in listed.names() if listed.find(name).downloads == "weights"]
    assert len(names) > 8
    for name in names:
        brought = listed.find(name).brings
        for weights in models.get_model_weights(name):
            transforms = weights.transforms()
            assert [list(brought[key]) for key in tasks[task].brought] == [transforms.mean, transforms.std], weights


def test_timms_models_bring_those_of_their_pretrained_configuration():
    pytest.importorskip("timm")
    recipe = loaded("model=timm/vit_tiny_patch16_224", "model.options.pretrained=true", recipe="images/small")
    assert colors(recipe) == ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
    assert colors(loaded("model=timm/vit_tiny_patch16_224", recipe="images/small")) == IMAGENET


def test_a_saved_recipe_has_every_value_so_a_resume_asks_no_weights(tmp_path):
    recipe = loaded("model=swin3d_t", "init=x.pth")
    assert yaml.safe_load(dump_recipe(recipe))["sampling"]["mean"] == list(IMAGENET[0])
    assert load_recipe(dumped(recipe, tmp_path), ["model=r3d_18"]).sampling == recipe.sampling


@pytest.mark.parametrize(
    ("brings", "said"),
    [
        ({"sampling.maen": (0.5, 0.5, 0.5)}, "brings has the key 'sampling.maen' \\(did you mean 'sampling.mean'"),
        ({"sampling.mean": (0.5,)}, r"brings sampling.mean=\(0.5,\); accepted: a number per channel"),
    ],
)
def test_what_a_registered_model_cannot_bring_is_refused_where_it_is_registered(brings, said):
    with pytest.raises(RecipeError, match=said):
        vcycle.register_model("wrong-brings", brings=brings)(lambda classes: None)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"image_mean": [0.5, 0.5, 0.5], "image_std": [0, 1, 1]}', "image_std is [0, 1, 1]; accepted: three finite"),
        ('{"image_mean": [NaN, 0.5, 0.5], "image_std": 0.5}', "image_mean is [nan, 0.5, 0.5]; accepted: three finite"),
        ('{"image_mean": [0.5, 0.5, 0.5, 0.5], "image_std": 0.5}', "image_mean is [0.5, 0.5, 0.5, 0.5]; accepted"),
        ('{"image_mean": [0.5, 0.5, 0.5]}', "image_std is None; accepted: three finite numbers above 0"),
        ('{"image_mean": 0.5, "image_std": 0.5, "rescale_factor": "x"}', "rescale_factor is 'x'; accepted: a finite"),
        ("[]", "preprocessor_config.json holds a list; accepted: a JSON object"),
        ("{", "preprocessor_config.json is not JSON: Expecting property name"),
    ],
)
def test_a_damaged_preprocessor_beside_weights_is_refused(tmp_path, text, said):
    (tmp_path / "preprocessor_config.json").write_text(text)
    with pytest.raises(CheckpointError, match=re.escape(said)):
        loaded(f"init={tmp_path}", "model=videomae_b")

"""`finetune/...`: transformers from their public weights, in the layout that their libraries publish."""

import json
import shutil

import pytest
import torch

from vcycle.errors import CheckpointError, RecipeError
from vcycle.tasks.loaded_model import load_model
from vcycle.tasks.recipes import load_recipe
from vcycle.tasks.recognition.models import build_model
from vcycle.tasks.recognition.task import RECOGNITION

SIZES = {
    "finetune/videomae_b": {"width": 24, "depth": 2, "heads": 2},
    "finetune/mvit_v2_s": {"width": 8, "blocks": [1, 1, 1, 1]},
    "finetune/swin3d_t": {"width": 8, "blocks": [1, 1, 1, 1]},
}
"""Options that make a network of 3,000 to 100,000 weights."""
HEADS = {
    "finetune/videomae_b": ("fc_norm", "classifier"),
    "finetune/mvit_v2_s": ("head",),
    "finetune/swin3d_t": ("head",),
}
SMALL = [
    *("training.frames=4", "training.size=32", "sampling.short_side=[36, 48]", "training.batch=2"),
    *("training.epochs=1", "training.min_steps=null", "training.warmup=null", "data.workers=0", "run.device=cpu"),
    "run.save_every=1",
]
CLASSES = ("2-left", "2-right", "7-left", "7-right")


def options(recipe):
    return [f"model.options.{key}={value}" for key, value in SIZES[recipe].items()]


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    """Writes weights of nine classes as a library publishes them, and remembers them: the path to give as init."""
    made = {}

    def publish(recipe):
        if recipe not in made:
            made[recipe] = save(recipe, tmp_path_factory.mktemp("weights"))
        return made[recipe]

    return publish


def save(recipe, folder):
    torch.manual_seed(0)
    if recipe == "finetune/videomae_b":  # of pretraining: with a decoder, without a classifier
        transformers = pytest.importorskip("transformers")
        sizes = {f"{part}hidden_size": 24 for part in ("", "decoder_")}
        sizes |= {f"{part}num_attention_heads": 2 for part in ("", "decoder_")}
        sizes |= {"num_hidden_layers": 2, "decoder_num_hidden_layers": 1, "intermediate_size": 96}
        config = transformers.VideoMAEConfig(
            **sizes, decoder_intermediate_size=48, use_mean_pooling=False, num_frames=8, image_size=48
        )
        transformers.VideoMAEForPreTraining(config).save_pretrained(folder)
        (folder / "preprocessor_config.json").write_text(
            json.dumps({"do_normalize": True, "image_mean": [0.485, 0.456, 0.406], "image_std": [0.229, 0.224, 0.225]})
        )
        return folder
    video = pytest.importorskip("torchvision.models.video")
    name = recipe.rpartition("/")[2]
    weights = {"mvit_v2_s": video.MViT_V2_S_Weights, "swin3d_t": video.Swin3D_T_Weights}[name].DEFAULT
    file = folder / weights.url.rpartition("/")[2]
    torch.save(build_model(name, 9, **SIZES[recipe]).state_dict(), file)
    return file


def tensors(path):
    """The published tensors, by the names that the installed library gives them."""
    if path.is_file():
        return torch.load(path, weights_only=True)
    import transformers

    return transformers.VideoMAEForPreTraining.from_pretrained(path).state_dict()


@pytest.mark.parametrize("recipe", SIZES)
def test_a_folder_of_videos_is_trained_on_from_published_weights_resumed_and_evaluated(
    recipe, published, vcycle, digit_videos, tmp_path
):
    weights, folder = published(recipe), tmp_path / "run"
    code, out, err = vcycle(
        "train", recipe, *SMALL, *options(recipe), f"data={digit_videos}", f"init={weights}", "--out", folder, "--json"
    )
    assert code == 0, err
    whole = json.loads(out)
    last = whole["steps"]
    assert f"newly initialised: {', '.join(HEADS[recipe])}" in err
    sampling = load_recipe(str(folder)).sampling
    if recipe == "finetune/mvit_v2_s":  # its weights were trained with vcycle's defaults
        assert (sampling.mean, "sampling." in err) == ((0.45, 0.45, 0.45), False)
    else:
        assert (sampling.mean, sampling.std) == ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
        source = (
            "the public weights of swin3d_t" if "swin" in recipe else f"weights {weights} (preprocessor_config.json)"
        )
        assert f"init: sampling.mean=[0.485, 0.456, 0.406] and sampling.std=[0.229, 0.224, 0.225] of {source}\n" in err
    if recipe == "finetune/videomae_b":  # of other clips than the training's, and than the public ones
        assert f"model.options.trained_clip=[8, 48] of weights {weights} (config.json)\n" in err
        assert load_model(folder).model.trained_clip == (8, 48)
    # A run that is cut ends as this one did.
    cut = tmp_path / "cut"
    shutil.copytree(folder, cut)
    (cut / f"checkpoints/step-{last:09}.pt").unlink()
    code, out, err = vcycle("train", cut, "--resume", "--json")
    assert code == 0, err
    resumed = json.loads(out)
    assert (resumed["val"], resumed["steps"]) == (whole["val"], last)
    code, out, err = vcycle("eval", folder, "--json")
    assert code == 0, err
    assert json.loads(out)["samples"] == 8
    assert load_model(folder).classes == CLASSES


def test_a_cascade_drops_tokens_of_published_weights(published, vcycle, digit_videos, tmp_path):
    recipe, folder = "finetune/videomae_b", tmp_path / "run"
    shapes = "plans.cascade.shapes=[[1, 1, 0.25], [1, 1, 0.5], [1, 1]]"
    given = (*SMALL, *options(recipe), f"data={digit_videos}", f"init={published(recipe)}", "plan=cascade", shapes)
    code, _, err = vcycle("train", recipe, *given, "--out", folder)
    assert code == 0, err
    steps = [line for line in map(json.loads, (folder / "log.jsonl").open()) if line["event"] == "step"]
    assert {(step["frames"], step["size"], step.get("tokens", 1)) for step in steps} == {
        *((4, 32, 0.25), (4, 32, 0.5), (4, 32, 1))
    }


@pytest.mark.parametrize("recipe", SIZES)
def test_published_weights_are_loaded_unchanged_but_for_the_classifier(recipe, published):
    weights, said = published(recipe), []
    loaded = load_recipe(recipe, [*options(recipe), f"init={weights}"])
    model = RECOGNITION.build_model(loaded, len(CLASSES))
    RECOGNITION.init_weights(model, loaded, CLASSES, said.append)
    theirs = tensors(weights)
    own = model.state_dict()
    assert all(torch.equal(value, theirs[key]) for key, value in own.items() if not key.startswith(HEADS[recipe]))
    assert len([key for key in own if key.startswith(HEADS[recipe])]) == 2 * len(HEADS[recipe])
    if recipe == "finetune/videomae_b":
        assert said[0].endswith("; left out: decoder, encoder_to_decoder, mask_token, videomae.layernorm")


@pytest.mark.parametrize("recipe", SIZES)
def test_every_plan_and_its_control_fit_the_network(recipe):
    loaded = load_recipe(recipe)
    for name in (*RECOGNITION.plans.names(), "control:cascade", "control:long+short"):
        plan = RECOGNITION.plan(loaded, 1000, name)
        RECOGNITION.check_plan(loaded, plan)
        assert loaded.shape in [cell.shape for cell in plan.shapes]


@pytest.mark.parametrize("recipe", ["finetune/mvit_v2_s", "finetune/swin3d_t"])
def test_the_layout_is_that_of_torchvisions_own_network(recipe):
    models = pytest.importorskip("torchvision.models")
    name = recipe.rpartition("/")[2]
    with torch.device("meta"):
        theirs, ours = models.get_model(name, weights=None), build_model(name, 400)
    assert str(build_on_meta(name, width=96)) == str(ours) == str(theirs)  # the rule of other sizes gives this one
    shapes = [[(key, value.shape) for key, value in model.state_dict().items()] for model in (theirs, ours)]
    assert shapes[0] == shapes[1]


def build_on_meta(name, **options):
    with torch.device("meta"):
        return build_model(name, 400, **options)


@pytest.mark.parametrize("recipe", SIZES)
def test_weights_of_another_network_are_refused(recipe, published):
    other = next(name for name in ("finetune/swin3d_t", "finetune/mvit_v2_s") if name != recipe)
    if recipe == "finetune/videomae_b":
        pytest.importorskip("transformers")
    loaded = load_recipe(recipe, [*options(recipe), f"init={published(other)}"])
    model = RECOGNITION.build_model(loaded, len(CLASSES))
    with pytest.raises(CheckpointError, match=rf"do not fit {recipe.rpartition('/')[2]}: .*missing .*unexpected"):
        RECOGNITION.init_weights(model, loaded, CLASSES)


def test_drop_path_scales_torchvisions_own_and_weights_to_download_go_with_the_published_size():
    rates = [
        layer.p
        for layer in build_model("swin3d_t", 4, width=8, blocks=(1, 2), drop_path=0.4).modules()
        if hasattr(layer, "p") and hasattr(layer, "mode")
    ]
    assert rates == pytest.approx([0, 0.2, 0.4])
    with pytest.raises(RecipeError, match="'r3d_18' has no stochastic depth; leave drop_path out"):
        build_on_meta("r3d_18", drop_path=0.1)
    with pytest.raises(RecipeError, match="go with its own size; leave width and blocks out"):
        build_model("swin3d_t", 4, width=8, weights="KINETICS400_V1")
    with pytest.raises(RecipeError, match="'width' of model 'swin3d_t' is 65; accepted: a multiple of 32, or less"):
        build_model("swin3d_t", 4, width=65)

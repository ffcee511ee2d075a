"""VideoMAE is transformers' network, and takes its checkpoints in every layout that was published."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file

from vcycle.errors import CheckpointError, RecipeError
from vcycle.nn.weights.files import read_weights
from vcycle.tasks.recipes import load_recipe
from vcycle.tasks.recognition.models import build_model
from vcycle.tasks.recognition.task import RECOGNITION
from vcycle.tasks.recognition.weights.loading import load_pretrained
from vcycle.tasks.saved_weights import read_saved
from vcycle.utils.extras import NotInstalledError

CLASSES = 5
TINY = {"width": 24, "depth": 2, "heads": 2}


def tiny(**options):
    return build_model("videomae_b", CLASSES, **TINY | options).eval()


@pytest.fixture
def fine_tuned(tmp_path):
    """A classifier as `save_pretrained` writes it, and the model: mean pooling, five classes."""
    return saved(tmp_path / "tuned")


def saved(folder, **more):
    transformers = pytest.importorskip("transformers")
    config = transformers.VideoMAEConfig(
        hidden_size=24, num_hidden_layers=2, num_attention_heads=2, intermediate_size=96, num_labels=CLASSES, **more
    )
    torch.manual_seed(0)
    model = transformers.VideoMAEForVideoClassification(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():  # biases and norms that tell
            parameter.add_(torch.randn_like(parameter) * 0.1)
    model.save_pretrained(folder)
    return folder, model


@pytest.mark.parametrize("pooling", ["mean", "first"])
def test_the_logits_are_transformers_bit_by_bit(tmp_path, pooling):
    folder, theirs = saved(tmp_path, use_mean_pooling=pooling == "mean")
    ours = tiny(pooling=pooling)
    taken = load_pretrained(ours, read_weights(folder), name="videomae_b")
    assert (taken.new, taken.left_out, taken.warnings) == ((), (), ())
    clips = torch.randn(1, 3, 16, 224, 224)
    with torch.no_grad():
        assert torch.equal(ours(clips), theirs(clips.transpose(1, 2)).logits)
        assert ours(torch.randn(2, 3, 4, 32, 48)).shape == (2, CLASSES)


@pytest.mark.parametrize("bias", ["q_bias", "query.bias"])
@pytest.mark.parametrize("kind", ["model.safetensors", "pytorch_model.bin"])
def test_files_of_every_version_of_transformers_are_taken(fine_tuned, bias, kind):
    """The public checkpoints have `q_bias`; newer versions of transformers call it `query.bias`."""
    folder, theirs = fine_tuned
    state, value = {}, bias.replace("q", "v", 1).replace("uery", "alue")
    for key, tensor in load_file(folder / "model.safetensors").items():
        for old in ("q_bias", "query.bias", "v_bias", "value.bias"):
            if key.endswith(f"attention.attention.{old}"):
                key = key.removesuffix(old) + (bias if old.startswith("q") else value)
        state[key] = tensor
    assert sum(key.endswith((bias, value)) for key in state) == 4
    (folder / "model.safetensors").unlink()
    if kind.endswith(".bin"):
        torch.save(state, folder / kind)
    else:
        save_file(state, folder / kind, metadata={"format": "pt"})
    ours = tiny()
    for path in (folder, folder / kind):
        load_pretrained(ours, read_saved(path).weights, name="videomae_b")
        assert all(torch.equal(tensor, theirs.state_dict()[key]) for key, tensor in ours.state_dict().items())


def test_a_classifier_of_other_classes_is_refused_or_new(fine_tuned):
    folder, _ = fine_tuned
    model = build_model("videomae_b", 7, **TINY)
    with pytest.raises(CheckpointError, match=r"their classifier has 5 classes, the data has 7: init\.head=new"):
        load_pretrained(model, read_weights(folder), name="videomae_b")
    taken = load_pretrained(model, read_weights(folder), name="videomae_b", head="new")
    assert taken.new == ("classifier",)  # the norm before it is the file's


def test_heads_and_lengths_that_no_tensor_shows_are_compared_with_the_configuration(fine_tuned):
    folder, _ = fine_tuned
    config = json.loads((folder / "config.json").read_text()) | {"num_attention_heads": 3, "num_frames": 32}
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(
        CheckpointError, match="trained with heads 3, the model has 2; they were trained with trained_clip"
    ):
        load_pretrained(tiny(), read_weights(folder), name="videomae_b")
    taken = load_pretrained(tiny(), read_weights(folder), name="videomae_b", head="new")
    assert len(taken.warnings) == 2


def test_positions_are_those_of_the_clips_that_the_weights_were_trained_on(tmp_path):
    """`config.json` gives the clip: at that shape the logits are transformers', bit by bit."""
    folder, theirs = saved(tmp_path / "small", num_frames=4, image_size=48)
    given = [f"model.options.{key}={value}" for key, value in TINY.items()]
    recipe = load_recipe("finetune/videomae_b", [*given, f"init={folder}", "init.head=keep"])
    assert recipe.model.options["trained_clip"] == [4, 48]
    said, classes = [], [str(label) for label in range(CLASSES)]
    ours = RECOGNITION.build_model(recipe, CLASSES).eval()
    RECOGNITION.init_weights(ours, recipe, classes, said.append)
    taken = "model.options.heads=2 and model.options.trained_clip=[4, 48]"
    assert said[-1] == f"init: {taken} of weights {folder} (config.json)"
    clips = torch.randn(1, 3, 4, 48, 48)
    with torch.no_grad():
        assert torch.equal(ours(clips), theirs(clips.transpose(1, 2)).logits)
        assert ours(torch.randn(2, 3, 8, 32, 32)).shape == (2, CLASSES)
    # The user's own value stays, and is reported.
    other = load_recipe("finetune/videomae_b", [*given, "model.options.trained_clip=[8, 32]", f"init={folder}"])
    assert other.model.options["trained_clip"] == [8, 32]
    said.clear()
    RECOGNITION.init_weights(RECOGNITION.build_model(other, CLASSES), other, classes, said.append)
    assert said[1].endswith("they were trained with trained_clip [4, 48], the model has [8, 32]")


def test_a_classifier_is_kept_for_classes_of_the_same_names_in_the_same_order(tmp_path):
    names = ["air drumming", "Tai chi", "zumba", "a-b", "c"]
    folder, _ = saved(tmp_path, id2label=dict(enumerate(names)))
    given = [*(f"model.options.{key}={value}" for key, value in TINY.items()), f"init={folder}", "init.head=keep"]
    recipe = load_recipe("finetune/videomae_b", given)
    for classes in (["air_drumming", "tai_chi", "zumba", "a_b", "c"], ["0", "1", "2", "3", "4"]):
        assert RECOGNITION.init_weights(tiny(), recipe, classes)
    with pytest.raises(CheckpointError, match="class 1 of their classifier is 'Tai chi', but 'zumba' in the videos"):
        RECOGNITION.init_weights(tiny(), recipe, ["air_drumming", "zumba", "tai_chi", "a_b", "c"])


def test_a_larger_network_is_suggested_for_its_weights(tmp_path):
    pytest.importorskip("transformers")
    with torch.device("meta"):
        state = build_model("videomae_s", CLASSES).state_dict()
    save_file({key: torch.zeros(value.shape) for key, value in state.items()}, tmp_path / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"do not fit videomae_b: .*; they fit videomae_s$"):
        load_pretrained(tiny(), read_weights(tmp_path), name="videomae_b")


def test_a_folder_without_weights_is_refused(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(
        CheckpointError, match=r"it has no recipe\.yaml, nor weights that transformers saved in one file$"
    ):
        read_saved(tmp_path)
    (tmp_path / "model.safetensors.index.json").write_text("{}")
    with pytest.raises(
        CheckpointError, match=r"in one file \(model.safetensors.index.json lists several: save them with"
    ):
        read_saved(tmp_path)


def test_branches_are_dropped_in_training_by_rates_that_grow_with_depth():
    pytest.importorskip("transformers")
    model = tiny(depth=3, drop_path=0.4)
    layers = model.videomae.encoder.layer
    rates = [(layer.attention.output.dropout.drop_prob, layer.output.dropout.drop_prob) for layer in layers]
    assert rates == [pytest.approx((rate, rate)) for rate in (0, 0.2, 0.4)]
    clips = torch.randn(1, 3, 2, 16, 16).expand(16, -1, -1, -1, -1)
    with torch.no_grad():
        assert len(model(clips).unique(dim=0)) == 1
        assert len(model.train()(clips).unique(dim=0)) > 1


def test_options_that_do_not_go_together_are_refused():
    with pytest.raises(RecipeError, match="width 25 and heads 2; accepted: an even multiple of the heads"):
        tiny(width=25)


def test_missing_transformers_says_what_to_install(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "transformers", None)
    said = r"VideoMAE needs transformers, which is not installed: pip install 'vcycle\[transformers\]'$"
    with pytest.raises(NotInstalledError, match=said):
        tiny()

"""Weights into models: under whoever's names they are, every tensor has its place or the file is refused."""

import pytest
import torch

from vcycle.errors import CheckpointError
from vcycle.nn import convert_batchnorm
from vcycle.nn.weights.files import Weights, read_weights
from vcycle.tasks.recognition.models import build_model
from vcycle.tasks.recognition.weights.inflate import inflate
from vcycle.tasks.recognition.weights.keys import foreign_keys
from vcycle.tasks.recognition.weights.loading import load_pretrained
from vcycle.tasks.recognition.weights.record import Record, pyslowfast_record

CLASSES = 5
NARROW = {"stem_width": 8, "widths": [8, 8, 8, 8], "blocks": [1, 1, 2, 1]}
NAMED = ("slowfast_8x8_r50", "slow_r50", "i3d_r50", "c2d_r50", "i3d_nl_r50")  # pytorchvideo has not the last


def narrow(name, classes=CLASSES, seed=0, **options):
    """A model of a name's layout, narrow, with statistics and scales that are not those of the start."""
    torch.manual_seed(seed)
    model = build_model(name, classes, **NARROW, **options)
    for key, value in model.state_dict().items():
        if key.endswith(("running_mean", "running_var", "weight", "bias")):
            value.copy_(torch.rand_like(value))
    return model


def weights_of(model):
    return Weights(state=dict(model.state_dict()), source="x.pth")


def renamed(model, naming, pooled):
    state = model.state_dict()
    theirs = foreign_keys(state, naming, temporal_pool=pooled)
    assert theirs.keys() == state.keys()
    return {theirs[key]: value for key, value in state.items()}


def same(model, other, but=()):
    state = other.state_dict()
    return all(torch.equal(value, state[key]) for key, value in model.state_dict().items() if not key.startswith(but))


def refused(model, weights, **how):
    """What is said of weights that do not fit; the model keeps its own."""
    before = {key: value.clone() for key, value in model.state_dict().items()}
    with pytest.raises(CheckpointError) as caught:
        load_pretrained(model, weights, **how)
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
    assert "\n" not in str(caught.value)
    return str(caught.value)


# Whoever's names --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "naming"), [*((name, "pyslowfast") for name in NAMED), *((name, "pytorchvideo") for name in NAMED[:-1])]
)
def test_weights_under_other_names_come_back_tensor_by_tensor(tmp_path, name, naming):
    model, other = narrow(name), narrow(name, seed=1)
    pooled = name.startswith(("i3d", "c2d"))
    torch.save({"model_state": renamed(model, naming, pooled)}, tmp_path / "x.pyth")
    taken = load_pretrained(other, read_weights(tmp_path / "x.pyth"), name=name)
    assert same(model, other)
    assert taken.tensors == len(model.state_dict())
    assert taken.naming.lower() == f"{naming}'s names"
    assert taken.new == ()


@pytest.mark.parametrize("name", ["r3d_tiny", "slowfast_tiny"])
def test_a_models_own_weights_come_back(name):
    model, other = (build_model(name, CLASSES) for _ in range(2))
    load_pretrained(other, weights_of(model), name=name)
    assert same(model, other)


def test_torchvisions_own_files_are_taken_under_their_names():
    pytest.importorskip("torchvision")
    model, other = (build_model("r3d_18", CLASSES) for _ in range(2))
    assert load_pretrained(other, weights_of(model), name="r3d_18").naming == "the model's own names"
    assert same(model, other)


def test_converted_batchnorms_and_files_without_counters_make_no_difference():
    model, other = narrow("i3d_r50"), convert_batchnorm(narrow("i3d_r50", seed=1), bn_batch=4)
    state = {key: value for key, value in model.state_dict().items() if not key.endswith("num_batches_tracked")}
    taken = load_pretrained(other, Weights(state=state, source="x.pth"))
    assert (taken.tensors, taken.new) == (len(state), ())
    assert same(model, other)


def test_half_precision_is_taken_as_the_models():
    model, other = narrow("slow_r50"), narrow("slow_r50", seed=1)
    state = {key: value.half() if value.is_floating_point() else value for key, value in model.state_dict().items()}
    load_pretrained(other, Weights(state=state, source="x.pth"))
    assert other.stem[0][0].weight.dtype is torch.float32
    assert torch.equal(other.stem[0][0].weight.half(), model.stem[0][0].weight.half())


def test_on_the_meta_device_all_is_checked_and_nothing_copied():
    model = narrow("slowfast_8x8_r50")
    with torch.device("meta"):
        empty = build_model("slowfast_8x8_r50", CLASSES, **NARROW)
    assert load_pretrained(empty, weights_of(model)).tensors == len(model.state_dict())
    assert all(value.is_meta for value in empty.state_dict().values())
    with torch.device("meta"):
        empty = build_model("slowfast_8x8_r50", CLASSES + 1, **NARROW)
    with pytest.raises(CheckpointError, match=r"init\.head=new"):
        load_pretrained(empty, weights_of(model))


# The classifier ---------------------------------------------------------------------------------------------


def test_a_classifier_of_another_size_is_refused_unless_a_new_one_is_asked_for():
    model, other = narrow("slow_r50"), narrow("slow_r50", classes=7, seed=1)
    said = refused(other, weights_of(model), name="slow_r50")
    assert said == "weights x.pth: their classifier has 5 classes, the data has 7: init.head=new initialises a new one"
    head = {key: value.clone() for key, value in other.head.state_dict().items()}
    taken = load_pretrained(other, weights_of(model), head="new")
    assert taken.new == ("head",)
    assert same(model, other, but="head.")
    assert all(torch.equal(value, head[key]) for key, value in other.head.state_dict().items())


def test_a_new_classifier_is_new_even_at_the_same_size():
    model, other = narrow("slow_r50"), narrow("slow_r50", seed=1)
    load_pretrained(other, weights_of(model), head="new")
    assert not torch.equal(other.head.projection.weight, model.head.projection.weight)


def test_a_file_without_a_classifier_needs_a_new_one():
    model, other = narrow("slow_r50"), narrow("slow_r50", seed=1)
    state = {key: value for key, value in model.state_dict().items() if not key.startswith("head.")}
    weights = Weights(state=state, source="x.pth")
    assert refused(other, weights) == "weights x.pth: they have no classifier: init.head=new initialises a new one"
    assert load_pretrained(other, weights, head="new").new == ("head",)


# What does not fit ------------------------------------------------------------------------------------------


def test_what_is_missing_and_unexpected_is_counted_and_named():
    model, other = narrow("slow_r50"), narrow("slow_r50", seed=1)
    state = dict(model.state_dict()) | {"more": torch.ones(1)}
    del state["stem.0.0.weight"], state["stages.0.0.shortcut.1.bias"]
    said = refused(other, Weights(state=state, source="x.pth"))
    assert said.startswith("weights x.pth do not fit the model: ")
    assert "2 missing (stem.0.0.weight, stages.0.0.shortcut.1.bias); 1 unexpected (more)" in said


def test_names_that_nobody_has_are_refused_with_what_is_accepted():
    state = {f"backbone.{index}.w": torch.ones(1) for index in range(9)}
    said = refused(narrow("slow_r50"), Weights(state=state, source="x.pth"))
    assert "unknown tensor names (backbone.0.w, backbone.1.w, backbone.2.w, …); accepted: the names of" in said


@pytest.fixture(scope="module")
def fast_of_kernel_5():
    """SlowFast 4×16 as PySlowFast saves it, at its real width; on the meta device, as only names and shapes matter."""
    with torch.device("meta"):
        model = build_model("slowfast_4x16_r50", 400)
    return Weights(state=renamed(model, "pyslowfast", pooled=False), source="x.pyth")


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("slowfast_8x8_r50", "4 shapes differ (fusions.0.0.weight is 16×8×5×1×1, the model has 16×8×7×1×1; "),
        ("slow_r50", "unexpected (s1.pathway0_stem.conv.weight, "),
    ],
)
def test_weights_of_another_network_are_told_which_would_take_them(fast_of_kernel_5, name, fault):
    with torch.device("meta"):
        model = build_model(name, 400)
    with pytest.raises(CheckpointError) as caught:
        load_pretrained(model, fast_of_kernel_5, name=name)
    assert f"weights x.pyth do not fit {name}: " in str(caught.value)
    assert fault in str(caught.value)
    assert str(caught.value).endswith("; they fit slowfast_4x16_r50")


def test_an_alpha_that_tensors_do_not_show_is_refused_or_with_a_new_classifier_told():
    model, other = narrow("slowfast_8x8_r50"), narrow("slowfast_8x8_r50", alpha=2)
    weights, record = weights_of(model), Record(alpha=4)
    assert "they were trained with alpha 4, the model has 2" in refused(other, weights, record=record)
    assert load_pretrained(other, weights, head="new", record=record).warnings == (
        "weights x.pth: they were trained with alpha 4, the model has 2",
    )
    assert load_pretrained(narrow("slowfast_8x8_r50"), weights, record=record).warnings == ()


def test_the_form_of_non_local_blocks_is_compared_too():
    model, other = narrow("i3d_nl_r50"), narrow("i3d_nl_r50", nonlocal_form="softmax")
    said = refused(other, weights_of(model), record=Record(nonlocal_form="dot"))
    assert "they were trained with nonlocal_form dot, the model has softmax" in said


@pytest.mark.parametrize(
    ("option", "theirs", "ours", "said"),
    [
        ("temporal_strides", (1, 2, 2, 1), (1, 1, 1, 1), "temporal_strides [1, 2, 2, 1], the model has [1, 1, 1, 1]"),
        ("temporal_pool", 2, 1, "temporal_pool 2, the model has 1"),
        ("stem_pool", True, False, "stem_pool true, the model has false"),
    ],
)
def test_strides_and_poolings_are_compared_too(option, theirs, ours, said):
    model, other = narrow("slow_r50", **{option: theirs}), narrow("slow_r50", **{option: ours})
    weights, record = weights_of(model), Record(**{option: theirs})
    assert f"they were trained with {said}" in refused(other, weights, record=record)
    told = load_pretrained(other, weights, head="new", record=record)
    assert told.warnings == (f"weights x.pth: they were trained with {said}",)
    assert load_pretrained(model, weights, record=record).warnings == ()


# What a file says of its training ---------------------------------------------------------------------------

CONFIG = """
DATA: {{MEAN: [0.45, 0.45, 0.45], STD: [0.2, 0.2, 0.25], REVERSE_INPUT_CHANNEL: {reverse}}}
MODEL: {{ARCH: slowfast}}
SLOWFAST: {{ALPHA: 8}}
NONLOCAL: {{INSTANTIATION: dot_product, LOCATION: {location}}}
TRAIN: {{DATASET: {dataset}}}
"""


@pytest.mark.parametrize(
    ("dataset", "reverse", "bgr"),
    [("kinetics", False, False), ("kinetics", True, True), ("ssv2", True, False), ("charades", False, True)],
)
def test_the_order_of_colors_follows_from_the_set_and_the_switch(dataset, reverse, bgr):
    record = pyslowfast_record(CONFIG.format(dataset=dataset, reverse=reverse, location="[[[]], [[]]]"))
    assert record == Record(alpha=8, bgr=bgr, mean=(0.45, 0.45, 0.45), std=(0.2, 0.2, 0.25))


def test_the_form_of_non_local_blocks_counts_where_there_are_any():
    record = pyslowfast_record(CONFIG.format(dataset="kinetics", reverse=False, location="[[[1, 3]], [[]]]"))
    assert record.nonlocal_form == "dot"


@pytest.mark.parametrize(
    "text", ["", "a", "- 1", "DATA: 3", "{", "SLOWFAST: {ALPHA: x}", "!!python/object:os.system {}"]
)
def test_a_configuration_that_cannot_be_understood_says_nothing(text):
    assert pyslowfast_record(text) == Record()


def test_blue_before_red_is_warned_of(tmp_path):
    model, other = narrow("slowfast_8x8_r50", alpha=8), narrow("slowfast_8x8_r50", alpha=8, seed=1)
    config = CONFIG.format(dataset="ssv2", reverse=False, location="[]")
    torch.save({"model_state": renamed(model, "pyslowfast", False), "cfg": config}, tmp_path / "x.pyth")
    (warning,) = load_pretrained(other, read_weights(tmp_path / "x.pyth")).warnings
    assert "trained on BGR frames, but vcycle uses RGB" in warning


# Image networks ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def image_network():
    """A 2-D ResNet of bottlenecks, as shallow as can be, in evaluation mode."""
    resnet = pytest.importorskip("torchvision.models.resnet")
    torch.manual_seed(3)
    model = resnet.ResNet(resnet.Bottleneck, [1, 1, 1, 1], num_classes=CLASSES)
    for key, value in model.state_dict().items():
        if key.endswith(("running_mean", "running_var")):
            value.copy_(torch.rand_like(value) + 0.5)
    return model.eval()


def image_weights(model):
    return Weights(state=dict(model.state_dict()), source="resnet.pth")


def shallow(name, **options):
    return build_model(name, CLASSES, blocks=[1, 1, 1, 1], **options).eval()


def test_of_a_still_clip_an_inflated_network_says_what_it_says_of_the_picture(image_network):
    model = shallow("c2d_r50")
    assert load_pretrained(model, image_weights(image_network), head="new").new == ("head",)
    model.head.projection.load_state_dict(image_network.fc.state_dict())
    picture = torch.rand(2, 3, 48, 64)
    with torch.no_grad():
        torch.testing.assert_close(model(picture[:, :, None].expand(-1, -1, 4, -1, -1)), image_network(picture))


@pytest.mark.parametrize("name", ["i3d_r50", "slow_r50", "i3d_nl_r50"])
def test_kernels_are_repeated_in_time_and_sum_to_what_they_were(image_network, name):
    model = shallow(name, **({"nonlocal_every": [0, 1, 1, 0]} if "nl" in name else {}))
    taken = load_pretrained(model, image_weights(image_network), head="new")
    assert taken.new == (("non-local blocks", "head") if "nl" in name else ("head",))
    assert taken.naming == "a 2-D ResNet's, inflated"
    for mine, theirs in (
        (model.stem[0][0], image_network.conv1),
        (model.stages[3][0].branch[0][0], image_network.layer4[0].conv1),
        (model.stages[1][0].shortcut[0], image_network.layer2[0].downsample[0]),
    ):
        torch.testing.assert_close(mine.weight.sum(2), theirs.weight)
        assert torch.equal(mine.weight, mine.weight[:, :, :1].expand_as(mine.weight))
    assert torch.equal(model.stages[2][0].branch[1][1].running_var, image_network.layer3[0].bn2.running_var)


def test_of_a_slowfast_the_slow_pathway_is_filled_and_what_fuses_stays(image_network):
    model = shallow("slowfast_8x8_r50")
    before = {key: value.clone() for key, value in model.state_dict().items()}
    taken = load_pretrained(model, image_weights(image_network), head="new")
    assert taken.new == ("fast_stem", "fusions", "fast_stages", "head")
    first = "slow_stages.1.0.branch.0.0.weight"
    assert torch.equal(model.state_dict()[first][:, :256, 0], image_network.layer2[0].conv1.weight)
    assert torch.equal(model.state_dict()[first][:, 256:], before[first][:, 256:])
    assert all(
        torch.equal(value, before[key])
        for key, value in model.state_dict().items()
        if key.startswith(taken.new) and "num_batches" not in key
    )


def test_an_image_networks_classifier_is_refused(image_network):
    said = refused(shallow("slow_r50"), image_weights(image_network))
    assert said == (
        "weights resnet.pth: the classifier of an image model does not fit clips: init.head=new initialises a new one"
    )


def test_an_image_network_of_another_depth_is_refused(image_network):
    said = refused(build_model("slow_r50", CLASSES, blocks=[1, 1, 2, 1]), image_weights(image_network), head="new")
    assert "missing (stages.2.1.branch.0.0.weight, " in said
    state = dict(image_network.state_dict()) | {"layer3.1.conv1.weight": torch.ones(256, 1024, 1, 1)}
    said = refused(shallow("slow_r50"), Weights(state=state, source="x.pth"), head="new")
    assert "1 unexpected (layer3.1.conv1.weight)" in said


def test_a_kernel_that_cannot_be_inflated_is_left_to_be_compared():
    kernel = torch.ones(4, 8, 3, 3)
    for other in (torch.ones(4, 7, 3, 3, 3), torch.ones(5, 8, 3, 3, 3), torch.ones(4, 8, 3, 1, 1), torch.ones(4)):
        assert inflate(kernel, other) is kernel
    assert inflate(kernel, torch.zeros(4, 9, 2, 3, 3)).sum() == kernel.sum()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda value: value.to_sparse(), "is sparse_coo; accepted: dense tensors of real numbers"),
        (lambda value: value.to(torch.complex64), "is complex64; accepted: dense tensors of real numbers"),
        (lambda value: value.to(torch.int8), "is int8; accepted: dense tensors of real numbers"),
        (lambda value: value * float("nan"), "holds numbers that are not finite"),
    ],
)
@pytest.mark.parametrize("device", ["meta", "cpu"])
def test_tensors_that_cannot_be_computed_with_are_refused_even_before_anything_is_built(change, said, device):
    weights = weights_of(build_model("r3d_tiny", CLASSES))
    key = next(key for key in weights.state if key.endswith("head.projection.weight"))
    with torch.device(device):
        model = build_model("r3d_tiny", CLASSES)
    with pytest.raises(CheckpointError) as caught:
        load_pretrained(model, Weights(state={**weights.state, key: change(weights.state[key])}, source="x.pth"))
    assert str(caught.value).startswith(f"weights x.pth: {key} {said}")

"""BasicVSR takes clips of any length and size, and learns at every one of them."""

import copy

import pytest
import torch

from vcycle.errors import PlanError, RecipeError
from vcycle.tasks.superres.models import MODELS
from vcycle.tasks.superres.models.basicvsr.flow import SpyNet
from vcycle.tasks.superres.models.basicvsr.network import BasicVSR

SMALL = {"blocks": 1, "channels": 8, "head_channels": 8}


@pytest.fixture
def model():
    torch.manual_seed(0)
    return BasicVSR(**SMALL, zero_last=False)


def gradients(model, clip, **options):
    model.zero_grad()
    model(clip, **options).square().mean().backward()
    return [p.grad.clone() for p in model.parameters()]


@pytest.mark.parametrize(
    ("frames", "height", "width"), [(3, 16, 16), (2, 32, 32), (2, 33, 40), (2, 5, 70), (1, 16, 16), (2, 1, 1)]
)
def test_any_length_and_size_is_restored_and_reaches_every_parameter(model, video, frames, height, width):
    clip = video(2, frames, height, width)
    output = model(clip)
    assert output.shape == (2, frames, 3, 4 * height, 4 * width)
    assert output.isfinite().all()
    # DistributedDataParallel waits for the gradient of every parameter, at every shape.
    assert all(gradient.isfinite().all() for gradient in gradients(model, clip))


def test_without_a_flow_network_features_are_carried_as_they_are(video):
    model = BasicVSR(**SMALL, flow="none", zero_last=False)
    assert not any("flow" in name for name, _ in model.named_parameters())
    assert all(gradient.isfinite().all() for gradient in gradients(model, video(1, 3, 9, 7)))


def test_flows_of_a_mirrored_clip_are_computed_once_and_change_nothing(model, video):
    half = video(2, 3, 24, 20)
    clip = torch.cat((half, half.flip(1)), dim=1)
    calls = []
    model.flow.register_forward_hook(lambda *_: calls.append(1))
    with torch.no_grad():
        plain = model(clip)
        pairs = clip.shape[1] - 1
        assert len(calls) == 2 * pairs
        assert torch.equal(model(clip, mirrored=True), plain)
        assert len(calls) == 3 * pairs


def test_training_on_a_mirrored_clip_learns_the_same_with_shared_flows(model, video):
    half = video(1, 2, 20, 16)
    clip = torch.cat((half, half.flip(1)), dim=1)
    assert torch.equal(model(clip, mirrored=True), model(clip))
    for shared, apart in zip(gradients(model, clip, mirrored=True), gradients(model, clip), strict=True):
        assert torch.allclose(shared, apart, rtol=1e-3, atol=1e-7)


def test_a_mirrored_clip_of_odd_length_is_refused(model, video):
    with pytest.raises(PlanError, match="mirrored clip has 3 frames; accepted: an even number"):
        model(video(1, 3, 16, 16), mirrored=True)


@pytest.mark.parametrize("frames", [1, 3])
def test_checkpointing_leaves_output_and_gradients_as_they_are(model, video, frames):
    clip = video(1, frames, 16, 24)
    sparing = copy.deepcopy(model)
    sparing.checkpointing = True
    assert torch.allclose(sparing(clip), model(clip), atol=1e-6)
    for kept, recomputed in zip(gradients(model, clip), gradients(sparing, clip), strict=True):
        assert torch.allclose(kept, recomputed, rtol=1e-4, atol=1e-7)


def test_frame_by_frame_and_at_once_are_the_same(model, video):
    clip = video(2, 3, 16, 16)
    with torch.no_grad():
        alone = model(clip)
    assert torch.allclose(model(clip), alone, atol=1e-6)


def test_it_starts_as_enlargement_unless_told_otherwise(video):
    clip = video(1, 2, 16, 16)
    enlarged = torch.nn.functional.interpolate(clip[0], scale_factor=4, mode="bilinear")[None]
    assert torch.equal(BasicVSR(**SMALL)(clip), enlarged)
    assert not torch.allclose(BasicVSR(**SMALL, zero_last=False)(clip), enlarged, atol=1e-3)


def test_channels_last_gives_the_same_frames(model, video):
    clip = video(2, 3, 16, 24)
    last = clip.movedim(2, 4).contiguous().movedim(4, 2)  # as frames (B, T, H, W, C) lie
    with torch.no_grad():
        expected = model(clip)
        assert torch.allclose(model.to(memory_format=torch.channels_last)(last), expected, atol=1e-5)


def test_autocast_gives_fp32_frames_near_those_without_it(model, video):
    clip = video(1, 3, 32, 40)
    exact = model(clip)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output = model(clip)
    assert output.dtype == torch.float32
    assert torch.allclose(output, exact, atol=0.05)
    output.mean().backward()
    assert all(p.grad.isfinite().all() for p in model.parameters())


def test_flow_stays_exact_in_frames_that_bf16_cannot_count(video):
    net = SpyNet()
    frame = video(1, 1, 32, 600)[:, 0]
    with torch.no_grad():
        expected = net(frame, frame.roll(3, 3))
        with torch.autocast("cpu", dtype=torch.bfloat16):
            flow = net(frame, frame.roll(3, 3))
    assert flow.dtype == torch.float32
    assert torch.allclose(flow, expected, atol=0.05)


def test_the_flow_network_has_a_role_of_its_own(model):
    role_of = MODELS.find("basicvsr").role_of(["flow"])
    flow = {name for name, _ in model.named_parameters() if role_of(name) == "flow"}
    assert flow == {f"flow.{name}" for name, _ in model.flow.named_parameters()}
    assert role_of("module.flow.levels.0.0.bias") == "flow"


def test_roles_that_no_network_has_are_refused():
    with pytest.raises(RecipeError, match=r"role 'flwo' is unknown \(did you mean 'flow'\?\)"):
        MODELS.find("basicvsr").role_of(["flwo"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"scale": 2}, "option 'scale' of model 'BasicVSR' is unknown; accepted: blocks, channels, "),
        ({"flow": "raft"}, "option 'flow' of model 'BasicVSR' is 'raft'; accepted: spynet, none"),
    ],
)
def test_options_out_of_range_are_refused(options, message):
    with pytest.raises(RecipeError, match=message):
        BasicVSR(**options)


@pytest.mark.parametrize("shape", [(2, 3, 16, 16), (1, 3, 2, 16, 16), (1, 0, 3, 16, 16)])
def test_what_is_no_video_is_refused(model, shape):
    with pytest.raises(PlanError, match=r"accepted: \(B, T, 3, H, W\) of floats"):
        model(torch.zeros(shape))
    with pytest.raises(PlanError, match=r"torch\.uint8"):
        model(torch.zeros((1, 2, 3, 16, 16), dtype=torch.uint8))


def test_a_few_steps_get_nearer_to_the_truth_than_enlargement(video):
    torch.manual_seed(0)
    truth = video(1, 3, 64, 64)
    clip = torch.nn.functional.interpolate(truth[0], scale_factor=1 / 4, mode="area")[None]
    model = BasicVSR(**SMALL)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    losses = []
    for _ in range(12):
        loss = (model(clip) - truth).abs().mean()
        losses.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert losses[-1] < 0.8 * losses[0]


def test_brightness_says_nothing_to_a_network_that_has_not_learned():
    torch.manual_seed(0)
    model = BasicVSR(**SMALL, flow="none")
    flat = torch.full((1, 3, 6, 6), 0.7)
    for trunk in (model.backward_trunk, model.forward_trunk):
        heard = trunk.first(torch.cat((flat, torch.zeros(1, SMALL["channels"], 6, 6)), dim=1))
        assert heard[..., 1:-1, 1:-1].abs().max() < 1e-6


def test_the_last_layer_of_a_new_network_has_something_to_learn_from():
    torch.manual_seed(0)
    clip = torch.rand(1, 3, 3, 16, 16)
    model = BasicVSR(blocks=2, channels=16, head_channels=8, flow="none")
    heard = []
    model.head.last.register_forward_hook(lambda _, inputs, __: heard.append(inputs[0].std().item()))
    model(clip)
    assert heard[0] > 0.3 * clip.std().item()

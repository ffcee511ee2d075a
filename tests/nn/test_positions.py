"""Video transformers at every shape of a plan: exact at their own shape, right at the others."""

import copy
import importlib
import io
import pickle
import threading

import pytest
import torch
from torch import nn

import vcycle
from vcycle.nn import any_shape, drop_tokens, shape_constraints

FRAMES, SIZE, CLASSES = 8, 64, 5


def mvit(version):
    video = pytest.importorskip("torchvision.models.video")
    from torchvision.models.video.mvit import MSBlockConfig

    blocks = [
        MSBlockConfig(1, 12, 24, [3, 3, 3], [3, 3, 3], [1, 1, 1], [1, 4, 4]),
        MSBlockConfig(2, 24, 24, [3, 3, 3], [3, 3, 3], [1, 2, 2], [1, 2, 2]),
        MSBlockConfig(2, 24, 24, [3, 3, 3], [3, 3, 3], [1, 1, 1], [1, 2, 2]),
    ]
    if version == 1:
        for block in blocks:
            block.output_channels = 24
    own = {"rel_pos_embed": False, "residual_pool": False, "residual_with_cls_embed": True, "proj_after_attn": False}
    if version == 2:
        own = {"rel_pos_embed": True, "residual_pool": True, "residual_with_cls_embed": False, "proj_after_attn": True}
    return video.MViT(
        spatial_size=(SIZE, SIZE), temporal_size=FRAMES, block_setting=blocks, num_classes=CLASSES, dropout=0.0, **own
    )


def swin():
    video = pytest.importorskip("torchvision.models.video")
    return video.SwinTransformer3d(
        patch_size=[2, 4, 4],
        embed_dim=12,
        depths=[2, 2],
        num_heads=[2, 2],
        window_size=[4, 8, 8],
        stochastic_depth_prob=0.0,
        num_classes=CLASSES,
    )


def hugging_face(name):
    transformers = pytest.importorskip("transformers")
    sizes = {
        "hidden_size": 24,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 32,
        "num_labels": CLASSES,
        "num_frames": FRAMES,
        "image_size": SIZE,
        "patch_size": 16,
    }
    if name == "VideoMAE":
        return transformers.VideoMAEForVideoClassification(transformers.VideoMAEConfig(**sizes, tubelet_size=2))
    if name == "Vivit":
        return transformers.VivitForVideoClassification(transformers.VivitConfig(**sizes, tubelet_size=[2, 16, 16]))
    if name == "Timesformer":
        return transformers.TimesformerForVideoClassification(transformers.TimesformerConfig(**sizes))
    config = transformers.VJEPA2Config(
        hidden_size=24,
        num_hidden_layers=2,
        num_attention_heads=2,
        mlp_ratio=2,
        num_labels=CLASSES,
        frames_per_clip=FRAMES,
        crop_size=SIZE,
        patch_size=16,
        tubelet_size=2,
        num_pooler_layers=1,
        pred_hidden_size=24,
        pred_num_hidden_layers=1,
        pred_num_attention_heads=2,
    )
    return transformers.VJEPA2ForVideoClassification(config)


def hiera(name):
    """One that sees images (transformers), or clips (timm, hiera-transformer)."""
    sizes = {"embed_dim": 8, "mlp_ratio": 2.0}
    if name == "transformers":
        transformers = pytest.importorskip("transformers")
        config = transformers.HieraConfig(
            **sizes, image_size=[SIZE, SIZE], depths=[1, 1, 1, 1], num_heads=[1, 1, 2, 2], num_labels=CLASSES
        )
        return transformers.HieraForImageClassification(config)
    module = pytest.importorskip("timm.models.hiera" if name == "timm" else "hiera")
    model = module.Hiera(
        **{"img_size" if name == "timm" else "input_size": (FRAMES, SIZE, SIZE)},
        **sizes,
        num_classes=CLASSES,
        stages=(1, 1, 1, 1),
        q_stride=(1, 2, 2),
        mask_unit_size=(1, 8, 8),
        patch_kernel=(3, 7, 7),
        patch_stride=(2, 4, 4),
        patch_padding=(1, 3, 3),
        sep_pos_embed=True,
    )
    if name == "hiera":
        model.head.act_func = nn.Softmax(-1)  # its own is a lambda, which does not pickle
    return model


MODELS = {
    "mvit_v1": lambda: mvit(1),
    "mvit_v2": lambda: mvit(2),
    "swin3d": swin,
    "videomae": lambda: hugging_face("VideoMAE"),
    "vivit": lambda: hugging_face("Vivit"),
    "timesformer": lambda: hugging_face("Timesformer"),
    "vjepa2": lambda: hugging_face("VJEPA2"),
    "hiera": lambda: hiera("transformers"),
    "hiera_timm": lambda: hiera("timm"),
    "hiera_package": lambda: hiera("hiera"),
}
TABLES = ("pos", "relative", "time_embed")


@pytest.fixture(params=MODELS)
def name(request):
    return request.param


def built(name):
    """The model in eval mode, with weights large enough that every position matters."""
    torch.manual_seed(0)
    model = MODELS[name]()
    with torch.no_grad():
        for key, weight in model.named_parameters():
            if any(table in key for table in TABLES):
                weight.copy_(torch.randn_like(weight))
            elif weight.dim() > 1:
                weight.copy_(torch.randn_like(weight) * weight[0].numel() ** -0.5)
    return model.eval()


def is_hugging_face(model):
    return type(model).__module__.startswith("transformers")


def is_of_images(model):
    return "Image" in type(model).__name__


def taken(model, clips):
    """Clips (B, C, T, H, W) as the model takes them; one of images takes each frame."""
    if is_of_images(model):
        return clips.transpose(1, 2).flatten(0, 1)
    return clips.transpose(1, 2) if is_hugging_face(model) else clips


def logits(model, clips):
    """Logits of clips (B, C, T, H, W); of images, the mean over frames."""
    found = model(taken(model, clips))
    found = found.logits if is_hugging_face(model) else found
    return found.unflatten(0, (len(clips), -1)).mean(1) if is_of_images(model) else found


def test_the_models_own_shape_is_bit_equal_and_the_state_dict_unchanged(name):
    model, clips = built(name), torch.randn(2, 3, FRAMES, SIZE, SIZE)
    with torch.no_grad():
        before = logits(model, clips)
        keys = list(model.state_dict())
        assert any_shape(any_shape(model)) is model
        logits(model, torch.randn(1, 3, FRAMES // 2, SIZE // 2, SIZE // 2))
        assert torch.equal(logits(model, clips), before)
    assert list(model.state_dict()) == keys
    assert [key for key, _ in model.named_parameters()] == [key for key, _ in built(name).named_parameters()]


def test_every_shape_of_a_plan_trains_all_weights(name):
    model = any_shape(built(name))
    needs = shape_constraints(model)
    baseline = vcycle.Baseline(batch=2, frames=FRAMES, size=SIZE, clips=16, epochs=8, lr=0.1)
    for make in (vcycle.cascade, vcycle.multigrid):
        plan = make(baseline, **needs.multiples)
        plan.require(needs)
        for frames, height, width in sorted({tuple(shape.shape) for shape in plan.shapes}):
            model.zero_grad()
            out = logits(model, torch.randn(2, 3, frames, height, width))
            assert out.shape == (2, CLASSES)
            out.square().sum().backward()
            without = [key for key, weight in model.named_parameters() if weight.grad is None]
            assert not [key for key in without if "predictor" not in key and "mask_token" not in key]


def test_pictures_that_are_not_square(name):
    model = any_shape(built(name))
    if name == "vivit" and isinstance(model.vivit.embeddings.patch_embeddings.image_size, int):
        pytest.skip("ViViT of this transformers has one side, and refuses other pictures with an error")
    with torch.no_grad():
        wide = logits(model, torch.randn(1, 3, FRAMES, SIZE // 2, SIZE))
    assert wide.isfinite().all()


def test_a_copy_follows_its_own_clips_and_pickles(name):
    model = any_shape(built(name))
    small = torch.randn(1, 3, FRAMES // 2, SIZE // 2, SIZE // 2)
    with torch.no_grad():
        expected = logits(model, small)
        for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
            logits(model, torch.randn(1, 3, FRAMES, SIZE, SIZE))  # must not leave its shape on the copy
            assert torch.equal(logits(twin, small), expected)
        saved = io.BytesIO()
        torch.save(model.state_dict(), saved)
        saved.seek(0)
        fresh = any_shape(built(name))
        fresh.load_state_dict(torch.load(saved, weights_only=True))
        assert torch.equal(logits(fresh, small), expected)


def copies_on(monkeypatch, model, number):
    """The copies that nn.DataParallel makes of a model, each with weights of its own, but all on the CPU."""
    parallel = importlib.import_module("torch.nn.parallel.replicate")

    def broadcast(tensors, devices, detach=False):
        return [[tensor.clone() for tensor in tensors] for _ in devices]

    monkeypatch.setattr(parallel, "_broadcast_coalesced_reshape", broadcast)
    monkeypatch.setattr(parallel, "_get_device_index", lambda device, *_: device)
    return parallel.replicate(model, range(number))


def test_copies_of_data_parallel_use_their_own_weights_and_clips(monkeypatch, name):
    model = any_shape(built(name))
    small = torch.randn(1, 3, FRAMES // 2, SIZE // 2, SIZE // 2)
    with torch.no_grad():
        expected = logits(model, small)
        copies = copies_on(monkeypatch, model, 2)
        logits(model, torch.randn(1, 3, FRAMES, SIZE, SIZE))
        for weight in model.parameters():
            weight.zero_()
        assert all(torch.equal(logits(each, small), expected) for each in copies)


# What a model built for the small shape computes with the tables of the large one, resampled by hand.


def test_clips_may_be_given_by_name(name):
    model, clips = any_shape(built(name)), torch.randn(1, 3, FRAMES // 2, SIZE // 2, SIZE // 2)
    argument = "pixel_values_videos" if name == "vjepa2" else "pixel_values" if is_hugging_face(model) else "x"
    with torch.no_grad():
        named, given = model(**{argument: taken(model, clips)}), model(taken(model, clips))
        assert torch.equal(*(found.logits if is_hugging_face(model) else found for found in (named, given)))


def test_mvit_v1_has_the_resampled_tables():
    model, small = built("mvit_v1"), torch.randn(2, 3, FRAMES // 2, SIZE // 2, SIZE // 2)
    state = dict(model.state_dict())
    state["pos_encoding.spatial_pos"] = resampled(state["pos_encoding.spatial_pos"], (16, 16), (8, 8))
    state["pos_encoding.temporal_pos"] = resampled(state["pos_encoding.temporal_pos"], (4,), (2,))
    check_against_a_model_built_small("mvit_v1", state, model, small)


def test_videomae_has_the_resampled_table():
    model, small = built("videomae"), torch.randn(2, 3, FRAMES // 2, SIZE // 2, SIZE // 2)
    reference = built_small("videomae", model.state_dict())
    table = model.videomae.embeddings.position_embeddings
    reference.videomae.embeddings.position_embeddings = resampled(table[0], (4, 4, 4), (2, 2, 2))[None]
    with torch.no_grad():
        torch.testing.assert_close(logits(any_shape(model), small), logits(reference, small))


def test_vivit_has_the_resampled_table():
    model, small = built("vivit"), torch.randn(2, 3, FRAMES // 2, SIZE // 2, SIZE // 2)
    state, key = dict(model.state_dict()), "vivit.embeddings.position_embeddings"
    rows = state[key][0]
    state[key] = torch.cat([rows[:1], resampled(rows[1:], (4, 4, 4), (2, 2, 2))])[None]
    check_against_a_model_built_small("vivit", state, model, small)


def test_timesformer_splits_the_clips_own_frames():
    """Without any_shape it takes 4 frames for 8 of half as many rows, and nothing says so."""
    model, small = built("timesformer"), torch.randn(2, 3, FRAMES // 2, SIZE // 2, SIZE // 2)
    state, at = dict(model.state_dict()), "timesformer.embeddings."
    rows = state[at + "position_embeddings"][0]
    state[at + "position_embeddings"] = torch.cat([rows[:1], resampled(rows[1:], (4, 4), (2, 2))])[None]
    state[at + "time_embeddings"] = resampled(state[at + "time_embeddings"][0], (8,), (4,))[None]
    few = torch.randn(2, 3, FRAMES // 2, SIZE, SIZE)
    with torch.no_grad():
        wrong = logits(model, few)
        check_against_a_model_built_small("timesformer", state, model, small)
        assert (logits(model, few) - wrong).abs().max() > 0.01
    assert (model.config.num_frames, model.config.image_size) == (FRAMES, SIZE)


def test_hiera_of_images_has_the_resampled_table_and_the_features_of_the_clips_size():
    model, small = built("hiera"), torch.randn(2, 3, 1, SIZE // 2, SIZE // 2)
    state, key = dict(model.state_dict()), "hiera.embeddings.position_embeddings"
    state[key] = resampled(state[key][0], (16, 16), (8, 8))[None]
    check_against_a_model_built_small("hiera", state, model, small)
    features = model(taken(model, small), output_hidden_states=True).reshaped_hidden_states
    assert [tuple(stage.shape[1:3]) for stage in features] == [(8, 8), (8, 8), (4, 4), (2, 2), (1, 1)]


@pytest.mark.parametrize("name", ["hiera_timm", "hiera_package"])
def test_hiera_of_clips_has_the_resampled_tables(name):
    model, small = built(name), torch.randn(2, 3, FRAMES // 2, SIZE // 2, SIZE // 2)
    state = dict(model.state_dict())
    state["pos_embed_spatial"] = resampled(state["pos_embed_spatial"][0], (16, 16), (8, 8))[None]
    state["pos_embed_temporal"] = resampled(state["pos_embed_temporal"][0], (4,), (2,))[None]
    check_against_a_model_built_small(name, state, model, small)


@pytest.mark.parametrize(
    ("name", "unit"), [("hiera", "32×32"), ("hiera_timm", "2×32×32"), ("hiera_package", "2×32×32")]
)
def test_a_mask_unit_of_hiera_that_does_not_divide_the_clip_is_refused(name, unit):
    model = any_shape(built(name))
    needs = shape_constraints(model)
    assert (needs.frames_multiple, needs.size_multiple) == (1 if name == "hiera" else 2, 32)
    with pytest.raises(vcycle.PlanError, match=f"48×64 are not a multiple of Hiera.*'s mask unit {unit}, which"):
        logits(model, torch.randn(1, 3, FRAMES, 48, 64))


def test_vjepa2_has_the_positions_of_the_clips_own_rows():
    model, small = built("vjepa2"), torch.randn(2, 3, FRAMES // 2, SIZE // 2, SIZE // 2)
    with torch.no_grad():
        wrong = logits(model, small)
        check_against_a_model_built_small("vjepa2", model.state_dict(), model, small)
        assert (logits(model, small) - wrong).abs().max() > 0.01


def test_swin3d_gives_small_windows_the_biases_of_their_own_offsets():
    model = any_shape(built("swin3d"))
    attention = next(module for module in model.modules() if type(module).__name__ == "ShiftedWindowAttention3d")
    full, small = (4, 8, 8), (2, 3, 5)
    bias = attention.get_relative_position_bias(list(small))[0]
    table = attention.relative_position_bias_table.view(*(2 * side - 1 for side in full), -1)
    places = [(t, h, w) for t in range(2) for h in range(3) for w in range(5)]
    for row, there in enumerate(places):
        for column, here in enumerate(places):
            offset = [a - b + side - 1 for a, b, side in zip(there, here, full, strict=True)]
            assert torch.equal(bias[:, row, column], table[tuple(offset)])


def built_small(name, state):
    before = globals()["FRAMES"], globals()["SIZE"]
    globals().update(FRAMES=FRAMES // 2, SIZE=SIZE // 2)
    try:
        model = built(name)
    finally:
        globals().update(FRAMES=before[0], SIZE=before[1])
    model.load_state_dict({key: value for key, value in state.items() if value.shape == model.state_dict()[key].shape})
    return model


def check_against_a_model_built_small(name, state, model, small):
    reference = built_small(name, state)
    with torch.no_grad():
        torch.testing.assert_close(logits(any_shape(model), small), logits(reference, small))


def resampled(table, old, new):
    """Linear resampling of a table (N, D), one axis at a time, by its definition (half-pixel centers, edges held)."""
    lattice = table.reshape(*old, -1)
    for axis, (before, after) in enumerate(zip(old, new, strict=True)):
        rows = []
        for place in range(after):
            at = max((place + 0.5) * before / after - 0.5, 0)
            low = int(at)
            high = min(low + 1, before - 1)
            part = at - low
            rows.append((1 - part) * lattice.select(axis, low) + part * lattice.select(axis, high))
        lattice = torch.stack(rows, axis)
    return lattice.reshape(-1, table.shape[-1])


@pytest.mark.parametrize(("frames", "size", "named"), [(FRAMES, 40, "8×40×40"), (3, SIZE, "3×64×64")])
def test_a_patch_that_does_not_divide_the_clip_is_refused(frames, size, named):
    model = any_shape(built("videomae"))
    with pytest.raises(vcycle.PlanError, match=f"{named} are not a multiple of VideoMAEEmbeddings's patch 2×16×16"):
        logits(model, torch.randn(1, 3, frames, size, size))


def test_a_model_without_positions_is_refused():
    with pytest.raises(vcycle.PlanError, match="Sequential contains no transformer that any_shape can adapt"):
        any_shape(nn.Sequential(nn.Conv3d(3, 4, 3)))


def test_threads_at_several_shapes_leave_the_weights_as_they_are(monkeypatch):
    model = any_shape(built("mvit_v1"))
    before = {name: (weight, weight.clone()) for name, weight in model.named_parameters()}
    kind = type(model.pos_encoding)
    read, replaced, second_replaced, ended = (threading.Event() for _ in range(4))

    def run():
        with torch.no_grad():
            model(torch.zeros(1, 3, FRAMES // 2, SIZE, SIZE))

    second = threading.Thread(target=run)

    def interpolate(*args, own=torch.nn.functional.interpolate, **kwargs):
        if threading.current_thread() is second:  # it has read its table before the first thread replaces it
            read.set()
            replaced.wait(1)
        else:
            second.start()
            read.wait(0.2)
        return own(*args, **kwargs)

    def forward(positions, tokens, own=kind.forward):  # it replaces the table before the first thread ends
        if threading.current_thread() is second:
            second_replaced.set()
            ended.wait(1)
        else:
            replaced.set()
            second_replaced.wait(0.2)
        return own(positions, tokens)

    monkeypatch.setattr(torch.nn.functional, "interpolate", interpolate)
    monkeypatch.setattr(kind, "forward", forward)
    run()
    ended.set()
    second.join()
    after = dict(model.named_parameters())
    assert list(after) == list(before)
    assert all(after[name] is weight and torch.equal(weight, value) for name, (weight, value) in before.items())


# Token dropping.


ENCODERS = {
    "videomae": lambda model: model.videomae,
    "vivit": lambda model: model.vivit,
    "vjepa2": lambda model: model.vjepa2,
}
"""Transformers whose tokens attend to all others, and what has their blocks."""


def counted(model, name, clips):
    """Logits, and the numbers of tokens that the first block gets."""
    seen = []
    block = next(module for module in ENCODERS[name](model).modules() if isinstance(module, nn.ModuleList))[0]
    hook = block.register_forward_pre_hook(
        lambda _, args, kwargs: seen.append((args[0] if args else kwargs["hidden_states"]).shape[1]), with_kwargs=True
    )
    found = logits(model, clips)
    hook.remove()
    return found, seen


@pytest.mark.parametrize("name", ENCODERS)
def test_tokens_are_dropped_in_training_alone(name):
    model, clips = any_shape(built(name)), torch.randn(4, 3, FRAMES, SIZE, SIZE)
    before, extra = logits(model, clips), int(name == "vivit")  # a class token
    drop_tokens(model.train(), 0.25, first=0)
    found, seen = counted(model, name, clips)
    assert seen == [64 // 4 + extra]
    assert counted(model, name, torch.randn(1, 3, FRAMES // 2, SIZE // 2, SIZE))[1] == [16 // 4 + extra]
    twin = pickle.loads(pickle.dumps(model))
    assert torch.equal(logits(twin, clips), found)
    drop_tokens(model, 0.25, first=2)
    torch.testing.assert_close(logits(model, clips[2:]), found[2:])
    found.square().sum().backward()
    without = [key for key, weight in model.named_parameters() if weight.grad is None]
    assert not [key for key in without if "predictor" not in key and "mask_token" not in key]
    assert torch.equal(logits(model.eval(), clips), before)
    drop_tokens(model.train(), 1.0)
    assert torch.equal(logits(model, clips), before)


@pytest.mark.parametrize("name", ENCODERS)
def test_copies_of_data_parallel_drop_no_tokens(monkeypatch, name):
    model, clips = any_shape(built(name)).train(), torch.randn(1, 3, FRAMES, SIZE, SIZE)
    drop_tokens(model, 0.25, first=0)
    (copied,) = copies_on(monkeypatch, model, 1)
    with pytest.raises(vcycle.PlanError, match="DataParallel does not say which clips"):
        logits(copied, clips)


def test_kept_tokens_of_vjepa2_are_rotated_by_their_own_positions():
    model, clips = any_shape(built("vjepa2")).vjepa2, torch.randn(2, FRAMES, 3, SIZE, SIZE)
    drop_tokens(model.train(), 0.25, first=0)
    with torch.no_grad():
        found = model(clips, skip_predictor=True).last_hidden_state
        encoder, kept = model.encoder, model.encoder.embeddings.token_dropping.kept
        x = encoder.embeddings.eval()(clips)
        x = x.gather(1, kept.unsqueeze(-1).expand(-1, -1, x.shape[-1]))
        for layer in encoder.layer:
            x = layer(x, kept)[0]
        torch.testing.assert_close(found, encoder.layernorm(x))


def test_videomae_without_mean_pooling_keeps_the_token_that_it_classifies_by():
    transformers = pytest.importorskip("transformers")
    config = transformers.VideoMAEConfig(
        hidden_size=24,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        num_frames=FRAMES,
        image_size=SIZE,
        use_mean_pooling=False,
    )
    model = any_shape(transformers.VideoMAEModel(config)).train()
    drop_tokens(model, 0.25, first=0)
    assert model.embeddings.token_dropping.prefix == 1
    assert model(torch.randn(1, FRAMES, 3, SIZE, SIZE)).last_hidden_state.shape[1] == 1 + 16


def test_pre_training_that_masks_tokens_itself_is_refused():
    videomae, vjepa2 = any_shape(built("videomae")).videomae.train(), any_shape(built("vjepa2")).vjepa2.train()
    clips, masked = torch.randn(1, FRAMES, 3, SIZE, SIZE), torch.arange(64).unsqueeze(0) < 32
    for model, masks in ((videomae, {"bool_masked_pos": masked}), (vjepa2, {})):
        model(clips, **masks)
        drop_tokens(model, 0.5, first=0)
        with pytest.raises(vcycle.PlanError, match="masks tokens itself, as in pre-training"):
            model(clips, **masks)


@pytest.mark.parametrize("name", sorted(set(MODELS) - set(ENCODERS)))
def test_transformers_that_need_the_lattice_cannot_drop_tokens(name):
    with pytest.raises(vcycle.PlanError, match=f"model '{type(built(name)).__name__}' cannot drop tokens"):
        drop_tokens(any_shape(built(name)), 0.5, first=0)

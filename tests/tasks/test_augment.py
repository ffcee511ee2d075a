import pytest
import torch
from torchvision.transforms import v2

from vcycle.data import ClipAugment, ClipErasing, ClipJitter, GridSampler, VideoDataset, loader, read_videos
from vcycle.data.augment import chained
from vcycle.plan import Baseline, constant
from vcycle.tasks.classification.augment import Mixing

SEEDS = range(60)


def random_clip(frames=6, side=32):
    return torch.randint(0, 256, (frames, side, side, 3), dtype=torch.uint8)


def augmented(seed, clip, **options):
    torch.manual_seed(seed)
    return ClipAugment(**options)(clip)


@pytest.mark.parametrize("kind", [ClipAugment, ClipJitter])
def test_a_still_clip_stays_still_and_the_original_untouched(kind):
    torch.manual_seed(0)
    still = random_clip(frames=1).expand(6, -1, -1, -1)
    before = still.clone()
    changed = 0
    for seed in SEEDS:
        torch.manual_seed(seed)
        found = kind()(still)
        assert (found.shape, found.dtype, type(found)) == (still.shape, torch.uint8, torch.Tensor)
        assert all(torch.equal(frame, found[0]) for frame in found)
        changed += not torch.equal(found, still)
    assert torch.equal(still, before)
    assert changed > len(SEEDS) / 2


def test_what_stands_still_does_not_flicker_while_something_else_changes():
    torch.manual_seed(0)
    clip = random_clip(frames=1).expand(6, -1, -1, -1).clone() // 2 + 40
    clip[:, :, 24:] = torch.linspace(0, 255, 6, dtype=torch.uint8)[:, None, None, None]

    def flickers(transform):
        found = []
        for seed in SEEDS:
            torch.manual_seed(seed)
            left = transform(clip)[:, :, :10]  # operations move the picture by less than a seventh
            found.append(bool((left != left[0]).any()))
        return sum(found)

    assert flickers(ClipAugment()) == 0
    assert flickers(ClipJitter()) == 0
    by_frame = v2.RandAugment()
    assert flickers(lambda x: by_frame(x.permute(0, 3, 1, 2)).permute(0, 2, 3, 1)) > 5


def test_no_operation_is_left_out_and_each_is_torchvisions_where_frames_agree():
    torch.manual_seed(0)
    one = random_clip(frames=1)
    fill = [round(255 * 0.45)] * 3
    theirs = v2.RandAugment(2, 9, interpolation=v2.InterpolationMode.BILINEAR, fill=fill)
    for seed in SEEDS:
        torch.manual_seed(seed)
        expected = theirs(one[0].permute(2, 0, 1)).permute(1, 2, 0)
        assert torch.equal(augmented(seed, one)[0], expected)


def test_strength_and_number_of_operations_are_as_asked():
    torch.manual_seed(0)
    clip = random_clip()
    assert torch.equal(augmented(4, clip, ops=3, magnitude=20), augmented(4, clip, ops=3, magnitude=20))
    weak, strong = (
        sum(float((augmented(s, clip, magnitude=m).float() - clip.float()).abs().mean()) for s in SEEDS)
        for m in (2, 25)
    )
    assert weak < strong


def test_a_datasets_clips_are_augmented_alike_whatever_loads_them(digit_videos):
    plan = constant(Baseline(batch=4, frames=4, size=16, clips=24, steps=4, lr=0.1))
    videos, grids = read_videos(digit_videos, "train"), GridSampler(frames=4, size=16, span=(0.8, 1.0))

    def clips(workers, transform, spoil=0):
        torch.manual_seed(spoil)
        state = torch.get_rng_state()
        found = [
            batch.clips.clone()
            for batch in loader(VideoDataset(videos, grids, transform=transform), plan, workers=workers)
        ]
        assert torch.equal(torch.get_rng_state(), state)
        return torch.stack(found)

    augment = ClipAugment()
    here = clips(0, augment)
    every = chained([augment, ClipJitter(hue=0.1), ClipErasing(probability=0.5)])
    assert torch.equal(clips(2, every), clips(0, every))
    assert torch.equal(clips(2, augment), here)
    assert torch.equal(clips(0, augment, spoil=7), here)
    plain = clips(0, None)
    assert 0 < sum(torch.equal(a, b) for a, b in zip(here.flatten(0, 1), plain.flatten(0, 1), strict=True)) < 8


def test_color_jitter_is_torchvisions_on_a_picture_and_on_a_video_but_for_the_contrast():
    torch.manual_seed(0)
    amounts = {"brightness": 0.4, "contrast": 0.3, "saturation": 0.5, "hue": 0.1}
    picture, video = random_clip(frames=1), random_clip(frames=3)
    no_contrast = amounts | {"contrast": 0}
    for seed in SEEDS[:20]:
        torch.manual_seed(seed)
        expected = v2.ColorJitter(**amounts)(picture[0].permute(2, 0, 1)).permute(1, 2, 0)
        torch.manual_seed(seed)
        assert torch.equal(ClipJitter(**amounts)(picture)[0], expected)
        torch.manual_seed(seed)
        expected = v2.ColorJitter(**no_contrast)(video.permute(0, 3, 1, 2)).permute(0, 2, 3, 1)
        torch.manual_seed(seed)
        assert torch.equal(ClipJitter(**no_contrast)(video), expected)


def test_the_mean_erases_torchvisions_rectangle_and_noise_the_same_one_with_other_pixels_in_each_frame():
    torch.manual_seed(0)
    clip = random_clip(frames=3)
    before, color = clip.clone(), [round(255 * 0.45)] * 3
    how = {"area": (0.1, 0.4), "ratio": (0.5, 2.0)}
    theirs = v2.RandomErasing(0.5, how["area"], how["ratio"], value=color)
    erased = 0
    for seed in SEEDS:
        torch.manual_seed(seed)
        expected = theirs(clip.permute(0, 3, 1, 2)).permute(0, 2, 3, 1)
        found = {}
        for fill in ("mean", "noise"):
            torch.manual_seed(seed)
            found[fill] = ClipErasing(probability=0.5, fill=fill, **how)(clip)
            assert (found[fill].dtype, type(found[fill])) == (torch.uint8, torch.Tensor)
        assert torch.equal(found["mean"], expected)
        inside = (found["mean"] == torch.tensor(color, dtype=torch.uint8)).all(-1).all(0)
        if torch.equal(expected, clip):
            assert torch.equal(found["noise"], clip)
            continue
        erased += 1
        assert torch.equal(found["noise"][:, ~inside], clip[:, ~inside])
        first, second, _ = found["noise"][:, inside].float()
        assert (first != second).float().mean() > 0.9
    assert torch.equal(clip, before)
    assert erased == pytest.approx(0.5 * len(SEEDS), abs=0.2 * len(SEEDS))


def test_noise_is_standard_normal_after_normalisation_and_erasing_as_frequent_and_large_as_asked():
    torch.manual_seed(0)
    mean, std = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
    white = torch.full((2, 40, 40, 3), 255, dtype=torch.uint8)
    erase = ClipErasing(probability=0.25, mean=mean, std=std)
    areas, pixels = [], []
    for _ in range(800):
        found = erase(white)
        rows = (found != 255).any(0).any(-1)
        if rows.any():
            areas.append(rows.any(1).sum().item() * rows.any(0).sum().item() / 1600)
            pixels.append(found[:, rows])
    assert len(areas) / 800 == pytest.approx(0.25, abs=0.05)  # 3 standard deviations
    assert 0.01 < min(areas) < 0.08
    assert 0.25 < max(areas) < 0.36
    noise = torch.cat(pixels, dim=1).float().div(255).sub(torch.tensor(mean)).div(torch.tensor(std)).view(-1, 3)
    for value, expected in zip(noise.quantile(torch.tensor([0.16, 0.5, 0.84]), dim=0), (-1, 0, 1), strict=True):
        assert value.tolist() == pytest.approx([expected] * 3, abs=0.05)


def test_clips_to_evaluate_are_not_augmented(digit_videos):
    videos, grids = read_videos(digit_videos, "val"), GridSampler(frames=4, size=16, span=(0.8, 1.0))
    shape = constant(Baseline(batch=4, frames=4, size=16, clips=24, steps=4, lr=0.1))[0].shape
    spoiled = VideoDataset(videos, grids, transform=torch.zeros_like)
    plain = VideoDataset(videos, grids)
    assert torch.equal(spoiled.center(0, shape).clip, plain.center(0, shape).clip)


# Mixing ------------------------------------------------------------------------------------------------------


def batch_of_constants(clips=5):
    """Clips whose values tell which they are, 0, 1, 2, ..., and their labels."""
    x = torch.arange(float(clips))[:, None, None, None, None].expand(clips, 3, 4, 8, 8)
    return x.contiguous(memory_format=torch.channels_last_3d), torch.arange(clips)


@pytest.mark.parametrize("seed", range(5))
def test_mixup_blends_each_clip_and_label_with_the_one_before_by_one_share(seed):
    clips, labels = batch_of_constants()
    torch.manual_seed(seed)
    mixed, soft = Mixing(classes=5, mixup=0.8)(clips, labels, len(clips))
    share = soft[0, 0]
    assert torch.allclose(soft, share * torch.eye(5) + (1 - share) * torch.eye(5).roll(1, 0))
    assert torch.allclose(mixed, share * clips + (1 - share) * clips.roll(1, 0), atol=1e-6)
    assert mixed.is_contiguous(memory_format=torch.channels_last_3d)


@pytest.mark.parametrize("seed", range(5))
def test_cutmix_pastes_one_rectangle_through_all_frames_and_shares_the_label_by_its_area(seed):
    clips, labels = batch_of_constants()
    torch.manual_seed(seed)
    mixed, soft = Mixing(classes=5, cutmix=1.0)(clips, labels, len(clips))
    pasted = mixed != clips
    assert torch.equal(pasted, pasted[:1, :1, :1].expand_as(pasted))
    assert torch.equal(mixed[pasted], clips.roll(1, 0)[pasted])
    area = pasted[0, 0, 0]
    rows, columns = area.any(1).sum(), area.any(0).sum()
    assert int(area.sum()) == int(rows * columns)
    assert torch.allclose(soft.diagonal(), 1 - area.float().mean().expand(5))
    assert torch.allclose(soft.sum(1), torch.ones(5))


def test_labels_of_many_classes_are_mixed_as_they_are():
    clips, _ = batch_of_constants(3)
    labels = torch.tensor([[1.0, 1.0, 0.0], [0.0, 0.0, 0.0], [0.0, 0.0, 1.0]])
    torch.manual_seed(1)
    mixed, soft = Mixing(classes=3, mixup=1.0)(clips, labels, len(clips))
    share = mixed[1, 0, 0, 0, 0]
    assert torch.allclose(soft, share * labels + (1 - share) * labels.roll(1, 0))


def test_with_both_each_step_takes_one_of_them_by_its_seed():
    clips, labels = batch_of_constants()
    mixing = Mixing(classes=5, mixup=0.8, cutmix=1.0)
    blended = []
    for seed in range(20):
        torch.manual_seed(seed)
        mixed, soft = mixing(clips, labels, len(clips))
        torch.manual_seed(seed)
        again = mixing(clips, labels, len(clips))
        assert torch.equal(mixed, again[0])
        assert torch.equal(soft, again[1])
        blended.append(bool((mixed != mixed.round()).any()))
    assert {True, False} == set(blended)


def test_a_batch_of_one_clip_stays_what_it_is():
    clips, labels = batch_of_constants(1)
    mixed, soft = Mixing(classes=2, mixup=0.8, cutmix=1.0)(clips + 1, labels, len(clips))
    assert torch.allclose(mixed, clips + 1)
    assert torch.allclose(soft, torch.tensor([[1.0, 0.0]]))

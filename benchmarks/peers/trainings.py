"""One training of a comparison: the loop of a peer's user, with the same network on the same videos.

Each takes a `Job` and returns the trained network. All have the network, the optimizer's settings, the LR schedule and
the number of steps from the recipe; a peer has everything else, loading above all, in its own way.
"""

import random
import sys
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any

import torch
from benchmarks.peers.measuring import Job
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset

from vcycle.data import VideoList
from vcycle.tasks.recognition.recipe import RecognitionRecipe
from vcycle.train.optimizer import build_optimizer

__all__ = ["hugging_face", "plain", "preload", "pyslowfast"]

_IMPORTED = {
    "torchcodec": "torchcodec.decoders",
    "torchvision": "torchvision.transforms.v2.functional",
    "slowfast": "slowfast.datasets.loader",
    "transformers": "transformers.trainer",
    "pytorchvideo": "pytorchvideo.data.labeled_video_dataset",
}
"""What the trainings import, by package."""


def recipe_of(job: Job) -> RecognitionRecipe:
    """The recipe."""
    recipe = job.experiment.recipe
    if not isinstance(recipe, RecognitionRecipe):
        raise TypeError(f"a recipe of recognition is needed, not of {recipe.task}")
    return recipe


def videos_of(job: Job) -> VideoList:
    """The training videos."""
    videos: VideoList = job.experiment.splits.train
    return videos


def preload() -> None:
    """Import what the trainings need, of what is installed: forked processes need not do it again."""
    detection = ModuleType("detectron2.layers")  # slowfast only imports it: no detector is built
    vars(detection)["ROIAlign"] = None
    sys.modules |= {"detectron2": ModuleType("detectron2"), "detectron2.layers": detection}
    import_module("av")  # its libraries must be there before TorchCodec looks for them
    for package, module in _IMPORTED.items():
        if find_spec(package) is not None:
            import_module(module)


# Plain PyTorch


class Clips(Dataset[tuple[Tensor, int]]):
    """Clips as TorchCodec and torchvision make them: only the frames of a clip are converted and resized, as bytes."""

    def __init__(self, videos: VideoList, recipe: RecognitionRecipe) -> None:
        self.paths, self.labels = [str(videos.path(item)) for item in range(len(videos))], videos.labels
        self.frames, self.size = recipe.training.frames, recipe.training.size
        self.span, self.field = recipe.sampling.span or (1.0, 1.0), recipe.sampling.field or (1.0, 1.0)
        self.mean, self.std = (
            torch.tensor(each).view(3, 1, 1, 1) for each in (recipe.sampling.mean, recipe.sampling.std)
        )

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        from torchcodec.decoders import VideoDecoder
        from torchvision.transforms.v2.functional import resized_crop

        decoder = VideoDecoder(self.paths[index], num_ffmpeg_threads=1)
        length = decoder.metadata.num_frames
        if length is None:
            raise ValueError(f"{self.paths[index]}: TorchCodec finds no number of frames")
        span = random.uniform(*self.span) * length
        start = random.uniform(0, length - span)
        chosen = [min(int(start + span * (place + 0.5) / self.frames), length - 1) for place in range(self.frames)]
        clip = decoder.get_frames_at(chosen).data
        height, width = clip.shape[-2:]
        side = round(random.uniform(*self.field) * min(height, width))
        top, left = random.randint(0, height - side), random.randint(0, width - side)
        clip = resized_crop(clip, top, left, side, side, [self.size, self.size], antialias=True)
        return (clip.transpose(0, 1).float() / 255 - self.mean) / self.std, self.labels[index]


def plain(job: Job) -> nn.Module:
    """Train by a loop over a `DataLoader`, as PyTorch's tutorials do."""
    recipe, network = recipe_of(job), job.network()
    optimizer = build_optimizer(recipe.optimizer, network)
    clips = Clips(videos_of(job), recipe)
    loader = DataLoader(clips, recipe.training.batch, shuffle=True, drop_last=True, num_workers=recipe.data.workers)
    job.begin()
    loop(job, network, optimizer, epochs(loader))
    return network


def epochs(loader: Any) -> Iterator[Any]:
    """The batches of a loader, epoch by epoch, without an end."""
    while True:
        yield from loader


def loop(job: Job, network: nn.Module, optimizer: torch.optim.Optimizer, batches: Iterator[Any]) -> None:
    """A step for each of the plan's, on clips `(B, C, T, H, W)` and their classes."""
    for step, (clips, labels) in zip(job.plan, batches, strict=False):
        for group in optimizer.param_groups:
            group["lr"] = step.lr
        loss = functional.cross_entropy(network(clips), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        loss.item()  # what every loop logs
        job.after_step()


# PySlowFast


def pyslowfast(job: Job) -> nn.Module:
    """Train on the clips of PySlowFast's dataset and loader; its package has no training loop, so by a plain one.

    Its dataset flips half of the clips and has no option against it. Where the recipe does not flip, as left and right
    are classes, the flip is taken out. A clip has a fixed duration, here the nearest to the recipe's mean.
    """
    from slowfast.config.defaults import get_cfg
    from slowfast.datasets import transform
    from slowfast.datasets.loader import construct_loader

    recipe, training, videos = recipe_of(job), recipe_of(job).training, videos_of(job)
    if not recipe.sampling.flip:
        transform.horizontal_flip = lambda chance, images, boxes=None: (images, boxes)
    lines = [f"{videos.path(item)} {videos.labels[item]}\n" for item in range(len(videos))]
    job.work.mkdir(parents=True, exist_ok=True)
    (job.work / "train.csv").write_text("".join(lines), encoding="utf-8")
    low, high = recipe.sampling.field or (1.0, 1.0)
    options: dict[str, Any] = {
        "DATA.PATH_TO_DATA_DIR": str(job.work),
        "DATA.NUM_FRAMES": training.frames,
        "DATA.SAMPLING_RATE": sampling_rate(job),
        "DATA.MEAN": list(recipe.sampling.mean),
        "DATA.STD": list(recipe.sampling.std),
        "DATA.TRAIN_CROP_SIZE": training.size,
        # random_crop of 1.0 returns one value instead of two where the picture is as large as the crop, and fails.
        "DATA.TRAIN_JITTER_SCALES": [max(training.size + 1, round(training.size / high)), round(training.size / low)],
        "DATA_LOADER.NUM_WORKERS": recipe.data.workers,
        "DATA_LOADER.PIN_MEMORY": False,
        "MODEL.ARCH": "slowonly",  # of one pathway
        "TRAIN.BATCH_SIZE": training.batch,
    }
    cfg = get_cfg()
    cfg.merge_from_list([part for pair in options.items() for part in pair])
    network, loader = job.network(), construct_loader(cfg, "train")
    optimizer = build_optimizer(recipe.optimizer, network)
    job.begin()
    loop(job, network, optimizer, ((clips[0], labels) for clips, labels, *_ in epochs(loader)))
    return network


def sampling_rate(job: Job) -> int:
    """The distance between the frames of a clip that is nearest to the recipe's mean, over some videos."""
    import av

    lengths, span = [], recipe_of(job).sampling.span or (1.0, 1.0)
    for item in range(0, len(videos_of(job)), 10):
        with av.open(str(videos_of(job).path(item))) as container:
            lengths.append(container.streams.video[0].frames)
    return max(1, round(sum(span) / 2 * sum(lengths) / len(lengths) / recipe_of(job).training.frames))


# Hugging Face


class ForVideoClassification(nn.Module):
    """A network with the arguments and outputs of those of transformers."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, pixel_values: Tensor, labels: Tensor) -> dict[str, Tensor]:
        """Loss and logits of clips `(B, T, C, H, W)`."""
        logits = self.network(pixel_values.transpose(1, 2))
        return {"loss": functional.cross_entropy(logits, labels), "logits": logits}


class Transform:
    """The steps of the video example, in its order: subsample, normalise, scale the short side, crop."""

    def __init__(self, recipe: RecognitionRecipe) -> None:
        self.frames, self.size = recipe.training.frames, recipe.training.size
        low, high = recipe.sampling.field or (1.0, 1.0)
        self.sides = round(self.size / high), round(self.size / low)
        self.mean, self.std = (
            torch.tensor(each).view(3, 1, 1, 1) for each in (recipe.sampling.mean, recipe.sampling.std)
        )

    def __call__(self, sample: dict[str, Any]) -> dict[str, Any]:
        """A clip `(C, T, H, W)` from the decoded frames of its duration, floats of 0 to 255."""
        clip = sample["video"]
        clip = clip[:, torch.linspace(0, clip.shape[1] - 1, self.frames).long()]
        clip = (clip / 255 - self.mean) / self.std
        short, side = min(clip.shape[-2:]), random.randint(*self.sides)
        height, width = (max(side, each * side // short) for each in clip.shape[-2:])
        clip = functional.interpolate(clip, size=(height, width), mode="bilinear", align_corners=False)
        top, left = random.randint(0, height - self.size), random.randint(0, width - self.size)
        return sample | {"video": clip[..., top : top + self.size, left : left + self.size]}


def collate(samples: list[dict[str, Any]]) -> dict[str, Tensor]:
    """The arguments of a video model: frames come before channels."""
    return {
        "pixel_values": torch.stack([sample["video"].transpose(0, 1) for sample in samples]),
        "labels": torch.tensor([sample["label"] for sample in samples]),
    }


def hugging_face(job: Job) -> nn.Module:
    """Train by the `Trainer` of transformers on PyTorchVideo's dataset, as its video example does.

    The example's clips have a fixed duration; here it is a part of the video, as in the recipe. Its transforms are
    those of `pytorchvideo.transforms`, which no longer imports; `Transform` does the same.
    """
    from pytorchvideo.data.clip_sampling import ClipInfo, ClipSampler
    from pytorchvideo.data.labeled_video_dataset import LabeledVideoDataset
    from transformers import Trainer, TrainerCallback, TrainingArguments

    recipe, videos = recipe_of(job), videos_of(job)
    span = recipe.sampling.span or (1.0, 1.0)

    class Part(ClipSampler):  # type: ignore[misc]
        """A random part of a video, once."""

        def __call__(self, last: Any, duration: Any, annotation: Any) -> Any:
            part = random.uniform(*span) * float(duration)
            start = random.uniform(0, float(duration) - part)
            return ClipInfo(start, start + part, 0, 0, True)

    class AfterStep(TrainerCallback):  # type: ignore[misc]
        """Tells of each step."""

        def on_train_begin(self, *_: Any, **__: Any) -> None:
            job.begin()

        def on_step_end(self, *_: Any, **__: Any) -> None:
            job.after_step()

    paths = [(str(videos.path(item)), {"label": videos.labels[item]}) for item in range(len(videos))]
    dataset = LabeledVideoDataset(paths, Part(1), transform=Transform(recipe), decode_audio=False)
    network, steps = job.network(), len(job.plan)
    optimizer = build_optimizer(recipe.optimizer, network, fused=True)  # its own is fused too
    for group in optimizer.param_groups:
        group["lr"] = 1.0
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: job.plan[min(step, steps - 1)].lr)
    arguments = TrainingArguments(
        str(job.work),
        max_steps=steps,
        per_device_train_batch_size=recipe.training.batch,
        dataloader_num_workers=recipe.data.workers,
        dataloader_drop_last=True,
        dataloader_pin_memory=False,
        remove_unused_columns=False,
        max_grad_norm=0.0,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        use_cpu=True,
        seed=recipe.run.seed,
    )
    Trainer(
        ForVideoClassification(network),
        arguments,
        train_dataset=dataset,
        data_collator=collate,
        optimizers=(optimizer, schedule),
        callbacks=[AfterStep()],
    ).train()
    return network

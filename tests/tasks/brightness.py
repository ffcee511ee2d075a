"""A task of your own in one file: how bright is a clip? `docs/extending.md` explains it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

import vcycle
from vcycle.config.recipe import PlansBase, RecipeBase
from vcycle.data import Sample
from vcycle.data.config import LoadingSection
from vcycle.plan import Baseline, Plan, Shape
from vcycle.registry import Registry
from vcycle.section import Section
from vcycle.tasks.base import Evaluator, Measure, Scope, Splits, Task
from vcycle.tasks.plans import PlanSpec
from vcycle.train.config import OptimizerSection

# The recipe: every key, its type and its default.


class DataSection(LoadingSection):
    path: str | None = None
    clips: int = 32
    workers: int = 0


class InitSection(Section):
    path: str | None = None


class TrainingSection(Section):
    batch: int = 4
    frames: int = 4
    size: int = 16
    epochs: float = 16
    lr: float = 0.02
    ema: float | None = None
    clip_grad_norm: float | None = None


class BrightnessRecipe(RecipeBase):
    data: DataSection = DataSection()
    init: InitSection = InitSection()
    training: TrainingSection = TrainingSection()
    optimizer: OptimizerSection = OptimizerSection()
    plan: str = "cascade"
    plans: PlansBase = PlansBase()
    evaluation: Section = Section()


# The data: `clips[request]` is a clip at the shape that the plan asks for.


@dataclass(frozen=True)
class FlatClips:
    count: int
    source: str = "made on request"
    samples_grids = True

    def __len__(self) -> int:
        return self.count

    def digest(self) -> dict[str, Any]:
        return {"clips": self.count}

    def __getitem__(self, request: vcycle.SampleRequest) -> Sample:
        level = 37 * request.index % 256
        clip = torch.full((*request.shape, 3), level, dtype=torch.uint8)
        return Sample(clip=clip, label=torch.tensor([level / 255]), index=request.index, position=request.position)


# The objective: the loss of a batch, uint8 (B, T, H, W, 3) and (B, 1).


class BrightnessLoss:
    mixes = False

    def check(self, labels: Tensor) -> None: ...

    def noise(self, batch: int, shape: Shape, device: torch.device) -> tuple[Tensor, Tensor]:
        return torch.zeros(batch, *shape, 3, dtype=torch.uint8, device=device), torch.zeros(batch, 1, device=device)

    def predict(self, model: nn.Module, clips: Tensor) -> Tensor:
        predicted: Tensor = model(clips.movedim(-1, 1).float() / 255)
        return predicted

    def loss(self, model: nn.Module, clips: Tensor, labels: Tensor, *, block: int | None = None) -> Tensor:
        return functional.mse_loss(self.predict(model, clips), labels)


# The evaluation: a number for each clip, and what they are together.


@dataclass(frozen=True, kw_only=True)
class Result:
    value: float
    protocol: str = "flat clips"
    measure = "closeness"

    @property
    def headline(self) -> str:
        return f"closeness {self.value:.1%}"

    @property
    def numbers(self) -> dict[str, float]:
        return {"closeness": self.value}


class BrightnessEvaluator(Evaluator):
    item = "clip"

    def __init__(self, clips: FlatClips, shape: Shape) -> None:
        super().__init__()
        self.clips, self.shape = clips, shape

    @torch.inference_mode()
    def each(
        self, model: nn.Module, device: torch.device, *, rank: int = 0, world: int = 1, **_: Any
    ) -> Iterator[float]:
        for index in range(rank, len(self.clips), world):
            sample = self.clips[vcycle.SampleRequest(index, self.shape, (0, 0, index))]
            predicted = BrightnessLoss().predict(model, sample.clip[None].to(device))
            yield 1 - abs(predicted.item() - float(sample.label))

    def result(self, found: Sequence[float]) -> Result:
        return Result(value=sum(found) / len(found))

    def per_item(self, found: Sequence[float]) -> list[float | None]:
        return list(found)


# The task puts them together.


class BrightnessTask(Task[BrightnessRecipe, FlatClips]):
    name = "brightness"
    recipe = BrightnessRecipe
    plans = Registry[PlanSpec]("plan", "vcycle.plans.brightness")
    compared = ("constant", "cascade")
    measures = (
        Measure(
            name="closeness",
            key="value",
            words="closeness",
            unit="%",
            points="points",
            scale=100.0,
            digits=1,
            margin=0.01,
            samples="clips",
        ),
    )

    def find(self, recipe: BrightnessRecipe, work: Any, progress: Any = None) -> Splits[FlatClips]:
        counts = {"train": recipe.data.clips, "val": 8, "test": 8}
        return Splits(lambda split: FlatClips(counts[split]), counts, source="memory")

    def length(self, recipe: BrightnessRecipe) -> int:
        return recipe.data.clips

    def baseline(self, recipe: BrightnessRecipe, samples: int | None) -> Baseline:
        keys = ("batch", "frames", "size", "epochs", "lr")
        return Baseline(clips=samples or recipe.data.clips, **{key: getattr(recipe.training, key) for key in keys})

    def check_plan(self, recipe: BrightnessRecipe, plan: Plan) -> None: ...

    def dataset(
        self, recipe: BrightnessRecipe, splits: Splits[FlatClips], split: str, work: Any, progress: Any = None
    ) -> FlatClips:
        return splits[split]

    def build_model(self, recipe: BrightnessRecipe, classes: int, *, download: bool = True) -> nn.Module:
        torch.manual_seed(recipe.run.seed)
        return nn.Sequential(nn.AdaptiveAvgPool3d(1), nn.Flatten(), nn.Linear(3, 1))

    def objective(self, recipe: BrightnessRecipe, classes: int) -> BrightnessLoss:
        return BrightnessLoss()

    def evaluator(
        self, recipe: BrightnessRecipe, dataset: FlatClips, classes: Sequence[str], *, scope: Scope
    ) -> BrightnessEvaluator:
        return BrightnessEvaluator(dataset, Shape(recipe.training.frames, recipe.training.size, recipe.training.size))

    def result(self, **fields: Any) -> Result:
        return Result(**fields)


vcycle.register_task(BrightnessTask())


@vcycle.register_plan("constant", task="brightness")
def constant(recipe: BrightnessRecipe, baseline: Baseline, options: None, factor: float | None) -> Plan:
    return vcycle.constant(baseline, epoch_factor=factor or 1)


@vcycle.register_plan("cascade", task="brightness")
def cascade(recipe: BrightnessRecipe, baseline: Baseline, options: None, factor: float | None) -> Plan:
    return vcycle.cascade(baseline, epoch_factor=factor or 1)

"""A task of one's own, in one file: how bright a clip is. `docs/extending.md` explains it."""

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
from vcycle.tasks.base import Evaluator, Measure, Splits, Task
from vcycle.tasks.plans import PlanSpec
from vcycle.train.config import OptimizerSection


class DataSection(LoadingSection):
    path: str | None = None
    clips: int = 32
    workers: int = 0


class TrainingSection(Section):
    batch: int = 4
    frames: int = 4
    size: int = 16
    epochs: float = 2
    lr: float = 0.01
    ema: float | None = None
    clip_grad_norm: float | None = None


class InitSection(Section):
    path: str | None = None


class BrightnessRecipe(RecipeBase):
    data: DataSection = DataSection()
    init: InitSection = InitSection()
    training: TrainingSection = TrainingSection()
    optimizer: OptimizerSection = OptimizerSection()
    plan: str = "cascade"
    plans: PlansBase = PlansBase()
    evaluation: Section = Section()


@dataclass(frozen=True)
class Clips(torch.utils.data.Dataset[Sample]):
    """Flat clips: `dataset[SampleRequest]`."""

    count: int
    source: str = "drawn"
    samples_grids = True

    def __len__(self) -> int:
        return self.count

    def digest(self) -> dict[str, Any]:
        return {"videos": self.count}

    def __getitem__(self, request: vcycle.SampleRequest) -> Sample:
        level = (request.index * 37) % 256
        clip = torch.full((*request.shape, 3), level, dtype=torch.uint8)
        return Sample(clip=clip, label=torch.tensor([level / 255]), index=request.index, position=request.position)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.head = nn.BatchNorm3d(3), nn.Linear(3, 1)

    def forward(self, clips: Tensor) -> Tensor:
        out: Tensor = self.head(self.norm(clips).mean((2, 3, 4)))
        return out


class Brightness:
    """The loss."""

    mixes = False

    def check(self, labels: Tensor) -> None: ...

    def noise(self, batch: int, shape: Shape, device: torch.device) -> tuple[Tensor, Tensor]:
        return torch.zeros(batch, *shape, 3, dtype=torch.uint8, device=device), torch.zeros(batch, 1, device=device)

    def predict(self, model: nn.Module, clips: Tensor) -> Tensor:
        out: Tensor = model(clips.movedim(-1, 1).float() / 255)
        return out

    def loss(self, model: nn.Module, clips: Tensor, labels: Tensor, *, block: int | None = None) -> Tensor:
        return functional.mse_loss(self.predict(model, clips), labels)


@dataclass(frozen=True, kw_only=True)
class Result:
    """What an evaluation found."""

    value: float
    protocol: str = "flat clips"
    measure = "closeness"

    @property
    def headline(self) -> str:
        return f"closeness {self.value:.3f}"

    @property
    def numbers(self) -> dict[str, float]:
        return {"closeness": self.value}


class BrightnessEvaluator(Evaluator):
    def __init__(self, clips: Clips, shape: Shape) -> None:
        self.clips, self.shape = clips, shape

    def each(self, model: nn.Module, device: torch.device, *, rank: int = 0, world: int = 1, progress: Any = None) -> Iterator[float]:
        model.eval()
        for item in range(rank, len(self.clips), world):
            sample = self.clips[vcycle.SampleRequest(item, self.shape, (0, 0, item))]
            with torch.inference_mode():
                error = Brightness().predict(model, sample.clip[None].to(device)) - sample.label.to(device)
            yield 1 - abs(float(error))
        model.train()

    def result(self, found: Sequence[float]) -> Result:
        return Result(value=sum(found) / len(found))

    def per_item(self, found: Sequence[float]) -> list[float | None]:
        return list(found)


class BrightnessTask(Task[BrightnessRecipe, Clips]):
    name = "brightness"
    recipe = BrightnessRecipe
    plans: Registry[PlanSpec] = Registry("plan", "vcycle.plans.brightness")
    compared = ("constant", "cascade")
    measures = (Measure(name="closeness", words="closeness", unit="", points="", scale=1.0, digits=3, margin=0.01, samples="clips"),)

    def find(self, recipe: BrightnessRecipe, work: Any, progress: Any = None) -> Splits[Clips]:
        sizes = {"train": recipe.data.clips, "val": 8, "test": 8}
        return Splits(lambda split: Clips(sizes[split]), sizes, source="drawn")

    def baseline(self, recipe: BrightnessRecipe, samples: int | None) -> Baseline:
        t = recipe.training
        return Baseline(batch=t.batch, frames=t.frames, size=t.size, clips=samples or recipe.data.clips, epochs=t.epochs, lr=t.lr)

    def length(self, recipe: BrightnessRecipe) -> int:
        return recipe.data.clips

    def check_plan(self, recipe: BrightnessRecipe, plan: Plan) -> None: ...

    def dataset(self, recipe: BrightnessRecipe, splits: Splits[Clips], split: str, work: Any, progress: Any = None) -> Clips:
        return splits[split]

    def build_model(self, recipe: BrightnessRecipe, classes: int, *, download: bool = True) -> nn.Module:
        torch.manual_seed(recipe.run.seed)
        return Net()

    def objective(self, recipe: BrightnessRecipe, classes: int) -> Brightness:
        return Brightness()

    def evaluator(self, recipe: BrightnessRecipe, dataset: Clips, classes: Sequence[str], *, final: bool) -> BrightnessEvaluator:
        return BrightnessEvaluator(dataset, Shape(recipe.training.frames, recipe.training.size, recipe.training.size))

    def result(self, **fields: Any) -> Result:
        return Result(**fields)


vcycle.register_task(BrightnessTask())
vcycle.register_plan("constant", task="brightness")(lambda recipe, baseline, options, factor: vcycle.constant(baseline, epoch_factor=factor or 1))
vcycle.register_plan("cascade", task="brightness")(lambda recipe, baseline, options, factor: vcycle.cascade(baseline, epoch_factor=factor or 1))

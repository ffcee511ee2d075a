"""Write `plans.json`: what `run.py` measures, and what the papers report, from the recipes.

    python benchmarks/gpu/plans.py

It needs vcycle with all that it depends on; `run.py` then needs torch, pydantic and PyYAML.
"""

import json
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from vcycle.bench.steps.work import step_flops
from vcycle.bench.steps.workload import workload_of
from vcycle.plan import BatchShape, Plan
from vcycle.tasks.base import tasks
from vcycle.tasks.recipes import load_recipe
from vcycle.tasks.recognition.recipe import RecognitionRecipe
from vcycle.tasks.superres.recipe import SuperresRecipe

PLANS = Path(__file__).with_name("plans.json")

CLIPS, CLASSES = 240_000, 400
"""Of Kinetics. What is compared are ratios, which do not depend on them."""
_ALONE = ("training.batch=4", "training.minibatch.factor=1", "training.warmup=null")
"""The papers' four clips on a GPU, and no larger minibatch: what the schedule alone gains."""
_THREE_SIZES, _FOUR_SIZES, _FOUR_LENGTHS = "sizes=[32, 48, 64]", "sizes=[32, 40, 48, 64]", "frames=[7, 9, 11, 15]"


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A figure of wall-clock time in a paper."""

    says: str
    """Where, and of what."""
    plan: str
    reported: float
    """How many times faster than the constant shape."""
    overrides: tuple[str, ...] = ()
    recipe: str | None = None
    """Where the shapes are those of the piece, and the training is another."""


@dataclass(frozen=True, kw_only=True)
class Piece:
    """One network at every shape of some plans, on one GPU."""

    recipe: str
    overrides: tuple[str, ...]
    claims: tuple[Claim, ...]
    more: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Shapes at which it is measured in other ways, too."""
    smoke: dict[str, Any] = field(default_factory=dict)
    """Options of a network that a CPU takes through all of it."""


_NARROW = {"stem_width": 8, "widths": (8, 8, 8, 8), "blocks": (1, 1, 1, 1)}
_FEW = {"blocks": 1, "channels": 8, "head_channels": 8}
_BATCH = ("training.batch=8",)
_AS_MANY = ("plans.long.steps=2091877", "plans.long+short.steps=2091877")
"""Steps of the whole method at 8 clips: every row of Wu et al.'s table 1 runs as many, and ends with fine-tuning."""


def _table_1(row: str, reported: float, *options: str, plan: str = "long+short") -> Claim:
    """A row of Wu et al.'s table 1."""
    return Claim(says=f"Wu et al., table {row}", plan=plan, reported=reported, overrides=(*_AS_MANY, *options))


def _cascade(says: str, plan: str, total: float, *options: str) -> Claim:
    """A row of Lin et al.'s tables 1, 5 and 6: of its factor, 3.9 are four times the GPUs."""
    return Claim(says=says, plan=plan, reported=round(total / 3.9, 3), overrides=options)


PIECES = {
    "SlowFast 8×8 R50, T 32": Piece(
        recipe="kinetics/slowfast_8x8_r50",
        overrides=_BATCH,
        more={"compiled": ("8×32×224²", "64×8×158²")},
        smoke=_NARROW,
        claims=(
            Claim(says="Wu et al., Kinetics", plan="long+short", reported=4.5),
            _table_1("1a, short cycle only", 4.0, "plans.long+short.long_shapes=[[1, 1]]"),
            _table_1("1a, 2 long shapes", 4.3, "plans.long+short.long_shapes=[[0.5, 1], [1, 1]]"),
            _table_1("1a, 3 long shapes", 4.4, "plans.long+short.long_shapes=[[0.5, 0.7071], [0.5, 1], [1, 1]]"),
            _table_1("1b, long cycle only", 4.2, plan="long"),
            _table_1("1b, 2 short shapes", 4.3, "plans.long+short.short_sizes=[0.7071]"),
            Claim(says="PaddleVideo, whole training", plan="long+short", reported=1.58),
        ),
    ),
    "BasicVSR-M, REDS": Piece(
        recipe="reds/basicvsr_m",
        overrides=_ALONE,
        more={"channels last": ("4×15×64²", "4×7×32²")},
        smoke=_FEW,
        claims=(
            _cascade("Lin et al., six stages (3.9 × 1.59)", "hierarchical", 6.2),
            _cascade("Lin et al., four stages", "hierarchical", 6.3, "plans.hierarchical.frames=[7, 15]"),
            _cascade("Lin et al., 32 and 64 pixels", "spatial", 4.9),
            _cascade("Lin et al., three sizes", "spatial", 5.0, f"plans.spatial.{_THREE_SIZES}"),
            _cascade("Lin et al., four sizes", "spatial", 5.1, f"plans.spatial.{_FOUR_SIZES}"),
            _cascade("Lin et al., 7 and 15 frames", "temporal", 5.0, "plans.temporal.frames=[7, 15]"),
            _cascade("Lin et al., three lengths", "temporal", 5.0),
            _cascade("Lin et al., four lengths", "temporal", 5.2, f"plans.temporal.{_FOUR_LENGTHS}"),
            _cascade(
                "Lin et al., both at once, two stages",
                "synchronous",
                5.8,
            ),
            _cascade(
                "Lin et al., both at once, three stages",
                "synchronous",
                6.0,
                f"plans.synchronous.{_THREE_SIZES}",
            ),
        ),
    ),
    "I3D R50": Piece(
        recipe="kinetics/i3d_r50",
        overrides=_BATCH,
        more={"compiled": ("8×16×224²",)},
        smoke=_NARROW,
        claims=(Claim(says="Wu et al., Kinetics", plan="long+short", reported=3.9),),
    ),
    "I3D R50, 8 frames": Piece(
        recipe="kinetics/i3d_r50_one_gpu",
        overrides=(),
        smoke=_NARROW,
        claims=(Claim(says="Wu et al., one GPU, 6.7 to 2.0 days", plan="long+short", reported=3.35),),
    ),
    "I3D-NL R50": Piece(
        recipe="kinetics/i3d_nl_r50",
        overrides=_BATCH,
        smoke=_NARROW | {"nonlocal_every": (0, 1, 1, 0)},
        claims=(Claim(says="Wu et al., Kinetics", plan="long+short", reported=3.3),),
    ),
    "BasicVSR, REDS": Piece(
        recipe="reds/basicvsr",
        overrides=_ALONE,
        smoke=_FEW,
        claims=(
            Claim(says="Lin et al., sizes (2.4 of 1.9)", plan="spatial", reported=1.263),
            Claim(says="Lin et al., lengths (2.5 of 1.9)", plan="temporal", reported=1.316),
            Claim(says="Lin et al., six stages (3.1 of 1.9)", plan="hierarchical", reported=1.632),
        ),
    ),
    "EDVR-M, REDS": Piece(
        recipe="reds/edvr_m",
        overrides=_ALONE,
        smoke={"channels": 8, "front_blocks": 1, "back_blocks": 1, "groups": 2},
        claims=(
            Claim(says="Lin et al., sizes (2.3 of 1.9)", plan="spatial", reported=1.211),
            Claim(
                says="Lin et al., Vimeo-90K, sizes (2.3 of 1.9)",
                plan="spatial",
                reported=1.211,
                recipe="vimeo90k/edvr_m",
            ),
        ),
    ),
    "SlowFast 16×8 R50, T 64": Piece(
        recipe="kinetics/slowfast_8x8_r50_t64",
        overrides=_BATCH,
        smoke=_NARROW,
        claims=(
            Claim(says="Wu et al., Kinetics", plan="long+short", reported=5.5),
            *(
                Claim(says=f"Wu et al., {data}, {epochs}× epochs", plan=plan, reported=reported, recipe=recipe)
                for data, recipe, row in (
                    ("Something-Something V2", "ssv2/slowfast_16x8_r50", (8.3, 5.6, 4.2)),
                    ("Charades", "charades/slowfast_16x8_r50", (8.6, 5.7, 4.3)),
                )
                for epochs, plan, reported in zip(
                    ("1.0", "1.5", "2.0"), ("long+short@1", "long+short", "long+short@2"), row, strict=True
                )
            ),
        ),
    ),
    "SlowFast 8×8 R50, T 16": Piece(
        recipe="kinetics/slowfast_8x8_r50_t16",
        overrides=_BATCH,
        smoke=_NARROW,
        claims=(Claim(says="Wu et al., Kinetics", plan="long+short", reported=4.0),),
    ),
    "SlowFast 8×8 R50, 320 pixels": Piece(
        recipe="kinetics/slowfast_8x8_r50_320",
        overrides=_BATCH,
        smoke=_NARROW,
        claims=(Claim(says="Wu et al., Kinetics", plan="long+short", reported=6.5),),
    ),
    "BasicVSR, Vimeo-90K": Piece(
        recipe="vimeo90k/basicvsr",
        overrides=_ALONE,
        smoke=_FEW,
        claims=(Claim(says="Lin et al., six stages (3.2 of 1.9)", plan="hierarchical", reported=1.684),),
    ),
}
"""Most telling first."""

_SAME_NETWORK = {
    "kinetics/slowfast_8x8_r50_t64": "kinetics/slowfast_8x8_r50",
    "kinetics/slowfast_8x8_r50_320": "kinetics/slowfast_8x8_r50",
    "kinetics/i3d_r50_one_gpu": "kinetics/i3d_r50",
}
"""Recipes whose networks differ in nothing but what they are given."""


def _plan(recipe: str, overrides: tuple[str, ...], name: str) -> Plan:
    loaded = load_recipe(recipe, list(overrides))
    return tasks[loaded.task].plan(loaded, CLIPS if isinstance(loaded, RecognitionRecipe) else None, name)


def _counts(plan: Plan, shapes: list[BatchShape]) -> dict[str, int]:
    """Steps at each shape, by its place; shapes that are new are added."""
    for shape in plan.counts:
        if shape not in shapes:
            shapes.append(shape)
    return {str(shapes.index(shape)): count for shape, count in plan.counts.items()}


def described(name: str) -> dict[str, Any]:
    """A piece as plain data, without the work of its shapes."""
    piece = PIECES[name]
    recipe = load_recipe(piece.recipe, list(piece.overrides))
    superres = isinstance(recipe, SuperresRecipe)
    shapes: list[BatchShape] = []
    constant = _counts(_plan(piece.recipe, piece.overrides, "constant"), shapes)
    claims = []
    for claim in piece.claims:
        training = claim.recipe or piece.recipe
        base = constant if claim.recipe is None else _counts(_plan(training, piece.overrides, "constant"), shapes)
        counts = _counts(_plan(training, (*piece.overrides, *claim.overrides), claim.plan), shapes)
        claims.append(
            {"says": claim.says, "plan": claim.plan, "reported": claim.reported, "constant": base, "steps": counts}
        )
    cells = [
        {
            "batch": shape.batch,
            "frames": shape.frames,
            "size": shape.size,
            "bn_batch": shape.bn_batch,
            "more": [mode for mode, named in piece.more.items() if str(shape) in named],
        }
        for shape in shapes
    ]
    return {
        "name": name,
        "recipe": " ".join((piece.recipe, *piece.overrides)),
        "task": "superresolution" if superres else "recognition",
        "model": recipe.model.name,
        "options": recipe.model.options,
        "smoke": piece.smoke,
        "mirrored": isinstance(recipe, SuperresRecipe) and recipe.sampling.mirrored,
        "optimizer": recipe.optimizer.model_dump(),
        "claims": claims,
        "shapes": cells,
    }


def gflop(name: str, cell: dict[str, Any]) -> float:
    """The work of a step, in billions of operations."""
    piece = PIECES[name]
    batch: int = cell["batch"]
    return round(batch * _of_a_clip(piece.recipe, cell["frames"], cell["size"]) / 1e9, 3)


@cache
def _of_a_clip(recipe: str, frames: int, size: int) -> int:
    workload = workload_of(load_recipe(_SAME_NETWORK.get(recipe, recipe)), CLASSES)
    return step_flops(workload, BatchShape(batch=1, frames=frames, size=size, bn_batch=8))


if __name__ == "__main__":
    pieces = [described(name) for name in PIECES]
    for piece in pieces:
        for cell in piece["shapes"]:
            cell["gflop"] = gflop(piece["name"], cell)
        print(piece["name"], len(piece["shapes"]), "shapes", flush=True)
    PLANS.write_text(json.dumps(pieces, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")

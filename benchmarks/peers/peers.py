"""Trainings as three peers' users write them, beside vcycle's: the same network, videos, steps and LR schedule.

    python -m benchmarks.peers.peers turns RECIPE [KEY=VALUE...] --work FOLDER --out turns.jsonl
    python -m benchmarks.peers.peers train RECIPE [KEY=VALUE...] --work FOLDER --out trainings.jsonl

`turns` measures what an epoch costs, in turns; `train` trains each to its end, with its accuracy. See `measuring.py`.
"""

from collections.abc import Sequence

from benchmarks.peers.accounting import ffmpeg_of_pyav
from benchmarks.peers.measuring import Arm, Asked, Study, command_line
from benchmarks.peers.trainings import hugging_face, plain, preload, pyslowfast

from vcycle.tasks.recipes import load_recipe, with_absolute_paths

ARRAYS = "arrays"
ARMS = {
    "plain PyTorch": Arm(plain),
    "PySlowFast": Arm(pyslowfast),
    "Hugging Face": Arm(hugging_face),
    "vcycle, constant": Arm(),
    "vcycle, constant, prepared": Arm(data=ARRAYS),
    "vcycle, cascade, prepared": Arm(plan="cascade", data=ARRAYS),
    "vcycle, cascade of 1.5 lengths, prepared": Arm(plan="cascade@1.5", data=ARRAYS),
}
"""All arms, the peers first."""


def prepare(asked: Asked) -> Sequence[str]:
    """The arguments of `vcycle prepare` that make arrays."""
    recipe = with_absolute_paths(load_recipe(asked.recipe, asked.of(Arm())))
    return [str(recipe.data.path), str(asked.work / ARRAYS), "--recipe", asked.recipe, "--to", "array"]


def imports(asked: Asked) -> None:
    """Import what the trainings need."""
    ffmpeg_of_pyav(asked.work / "ffmpeg")
    preload()


STUDY = Study(
    arms=ARMS,
    overrides=("data.cache=null",),
    turns=(tuple(ARMS)[:-1],),  # a longer plan has the same steps
    full=(*tuple(ARMS)[:3], *tuple(ARMS)[-3:]),  # the form of the videos changes nothing but the time
    short=("training.epochs=1", "training.warmup=null"),
    part=8,
    prepare=prepare,
    preload=imports,
    packages=("torch", "torchvision", "torchcodec", "av", "slowfast", "transformers", "accelerate", "pytorchvideo"),
    scope="validation",
    measure="accuracy",
)

if __name__ == "__main__":
    command_line(STUDY, __doc__)

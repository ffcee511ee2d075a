"""What the pages show of the peers' logs."""

from functools import cache
from typing import Any

from benchmarks.logs import lines, percent, table, times
from benchmarks.turns import Turns, causes, less, range_of, spread

from vcycle.bench.timing import Spread

__all__ = ["sentences", "tables"]

CONSTANT, ARRAYS, BEST = "vcycle, constant", "vcycle, constant, prepared", "vcycle, cascade, prepared"
PEERS = ("plain PyTorch", "PySlowFast", "Hugging Face")
NAMES = {
    "plain PyTorch": "plain PyTorch, TorchCodec",
    "PySlowFast": "PySlowFast's dataset and loader",
    "Hugging Face": "Hugging Face `Trainer`, PyTorchVideo",
    CONSTANT: "vcycle, constant shape, original files",
    ARRAYS: "vcycle, constant shape, prepared arrays",
    BEST: "**vcycle, cascade, prepared arrays**",
    "vcycle, cascade of 1.5 lengths, prepared": "vcycle, cascade of 1.5 lengths, prepared arrays",
}
CAUSES = (
    "1. vcycle's loading, of original files",
    "2. prepared arrays instead",
    "3. the training process",
    "4. the plan: the cascade instead of the constant shape",
)


TURNS = Turns("peers/turns.jsonl")


def against(arm: str, other: str = BEST) -> Spread:
    """How many times the processor time of another arm, over the turns."""
    return TURNS.against(arm, other)


@cache
def tables() -> dict[str, str]:
    """What a part of each training costs, why, and every arm trained to its end."""
    head = ["per 1,000 clips, processor seconds", "loading", "training process", "both"]
    parts = (["loading"], ["main"], ["main", "loading"], ["wall"])
    rows = [
        [NAMES[arm], *(spread(Spread.of(TURNS.spent(arm, *part))) for part in parts), spread(against(arm))]
        for arm in (*PEERS, CONSTANT, ARRAYS, BEST)
    ]
    factors = zip(CAUSES, *(_causes(peer) for peer in PEERS), strict=True)
    return {
        "turns": table([*head, "wall-clock, decides nothing", "times those of vcycle"], rows),
        "causes": table(["the cause", *PEERS], factors),
        "trainings": _trainings(),
    }


def _causes(peer: str) -> list[str]:
    """The factors that make vcycle faster than a peer, and the share of each in their product.

    First the peer's loading is replaced by vcycle's from original files, then by that from arrays; then its training
    process by vcycle's; then the constant shape by the plan.
    """
    steps = TURNS.spent(peer, "main")
    loaded = ([a + b for a, b in zip(steps, TURNS.spent(arm, "loading"), strict=True)] for arm in (CONSTANT, ARRAYS))
    return causes([TURNS.total(peer), *loaded, TURNS.total(ARRAYS), TURNS.total(BEST)])


def _trained() -> dict[str, dict[str, Any]]:
    return {line["arm"]: line for line in lines("peers/trainings.jsonl") if line["kind"] == "training"}


def _seconds() -> dict[str, float]:
    """Processor seconds of every arm trained to its end."""
    return {arm: run["main"] + run["loading"] for arm, run in _trained().items()}


def _trainings() -> str:
    trained, seconds = _trained(), _seconds()
    rows = [
        [
            name,
            f"{run['steps']:,}",
            f"{seconds[arm]:.0f} s",
            times(seconds[arm] / seconds[BEST]),
            percent(run["accuracy"]),
        ]
        for arm, name in NAMES.items()
        if (run := trained.get(arm)) is not None
    ]
    return table(["training", "updates", "processor time", "times that of the cascade", "accuracy on test"], rows)


def sentences() -> dict[str, list[str]]:
    """By page."""
    plain, slowfast, face = (against(peer) for peer in PEERS)
    seconds = _seconds()
    whole = [times(seconds[peer] / seconds[BEST]) for peer in PEERS]
    arrays = [times(against(peer, ARRAYS).median) for peer in PEERS]
    return {
        "README.md": [
            f"took {times(plain.median)} less processor time than plain PyTorch with TorchCodec, "
            f"{times(slowfast.median)} less than PySlowFast's loader and {times(face.median)} less than Hugging "
            "Face's `Trainer`",
            f"Trained to the end, once each, it took {whole[0]}, {whole[1]} and {whole[2]} less",
        ],
        "benchmarks/peers/README.md": [
            f"**vcycle takes {less(plain)} less processor time than plain PyTorch with TorchCodec {range_of(plain)}, "
            f"{less(slowfast)} less than PySlowFast's dataset and loader {range_of(slowfast)},",
            f"and {less(face)} less than Hugging Face's `Trainer` on PyTorchVideo's dataset {range_of(face)}**",
            f"The plan gives {times(against(ARRAYS).median)} of each.",
            f"vcycle takes {arrays[0]}, {arrays[1]} and {arrays[2]} less than the peers, in their order.",
        ],
    }

"""What the pages show of the peers' log."""

from statistics import median
from typing import Any

from benchmarks.logs import lines, percent, table, times

__all__ = ["sentences", "tables"]

BEST = "vcycle, cascade, prepared"
TRAININGS = {
    "plain PyTorch": "plain PyTorch, TorchCodec",
    "PySlowFast": "PySlowFast's dataset and loader",
    "Hugging Face": "Hugging Face `Trainer`, PyTorchVideo",
    "vcycle, constant, prepared": "vcycle, constant shape, prepared arrays",
    BEST: "**vcycle, cascade, prepared arrays**",
    "vcycle, cascade of 1.5 lengths, prepared": "vcycle, cascade of 1.5 lengths, prepared arrays",
}


def tables() -> dict[str, str]:
    """Every arm trained to its end."""
    trained = {line["arm"]: line for line in lines("peers/trainings.jsonl") if line["kind"] == "training"}
    least = _spent(trained[BEST])
    rows = [
        [name, f"{run['steps']:,}", f"{_spent(run):.0f} s", times(_spent(run) / least), percent(run["accuracy"])]
        for name, run in ((name, trained[arm]) for arm, name in TRAININGS.items())
    ]
    head = ["training", "updates", "processor time", "times that of the cascade", "accuracy on test"]
    return {"trainings": table(head, rows)}


def _spent(run: dict[str, Any]) -> float:
    return float(run["main"] + run["loading"])


def sentences() -> dict[str, list[str]]:
    """By page."""
    plain, slowfast, face = (_ratios(arm, BEST) for arm in ("plain PyTorch", "PySlowFast", "Hugging Face"))
    plan = times(median(_ratios("vcycle, constant, prepared", BEST)))
    arrays = [times(median(_ratios(arm, "vcycle, constant, prepared"))) for arm in ("plain PyTorch", "PySlowFast")]
    arrays.append(times(median(_ratios("Hugging Face", "vcycle, constant, prepared"))))
    return {
        "README.md": [
            f"took {times(median(plain))} less processor time than plain PyTorch with TorchCodec, "
            f"{times(median(slowfast))} less than PySlowFast's loader and {times(median(face))} less than Hugging "
            "Face's `Trainer`",
        ],
        "benchmarks/peers/README.md": [
            f"**vcycle takes {_range(plain, 'less processor time than plain PyTorch with TorchCodec')}, "
            f"{times(median(slowfast))} less than PySlowFast's dataset and loader "
            f"({times(min(slowfast))} to {times(max(slowfast))}),",
            f"and {times(median(face))} less than Hugging Face's `Trainer` on PyTorchVideo's dataset "
            f"({times(min(face))} to {times(max(face))})**",
            f"The plan gives {plan} of each.",
            f"vcycle takes {arrays[0]}, {arrays[1]} and {arrays[2]} less than the peers, in their order.",
        ],
    }


def _ratios(arm: str, other: str) -> list[float]:
    """How many times the processor time of another arm, turn by turn."""
    turns = [line for line in lines("peers/turns.jsonl") if line["kind"] == "turn"]
    spent = {(line["arm"], line["turn"]): (line["main"] + line["loading"]) / line["clips"] for line in turns}
    return [spent[arm, turn] / spent[other, turn] for turn in sorted({line["turn"] for line in turns})]


def _range(ratios: list[float], than: str) -> str:
    return f"{times(median(ratios))} {than} ({times(min(ratios))} to {times(max(ratios))})"

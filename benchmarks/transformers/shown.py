"""What the pages show of the study of small transformers."""

from functools import cache

from benchmarks.logs import load, mean, times
from benchmarks.transformers.study import HERE, every_table, read

__all__ = ["sentences", "tables"]

tables = cache(every_table)


@cache
def _cells() -> dict[tuple[str, str], tuple[str, str]]:
    """What the table of differences says of a plan and another, because an interval takes long."""
    rows = [line.strip("| ").split(" | ") for line in tables()["plain: differences"].splitlines()[2:]]
    return {(name, other): (time.split()[0], found) for name, other, found, time in rows}


@cache
def sentences() -> dict[str, list[str]]:
    """By page."""
    cells = _cells()
    cascade, tokens = cells["cascade", "constant"], cells["tokens", "constant"]
    double = cells["cascade, double", "constant, half"]
    half, control = cells["tokens", "constant, half"], cells["cascade", "control"]
    work = {name: times(plan["flop_speedup"]) for name, plan in load("transformers/steps-plain.json")["plans"].items()}
    lost = cascade[1].partition(" ")[0].strip("−")
    return {
        "README.md": [f"on a small ViT smaller clips cost {float(lost):.0f} points"],
        "docs/expect.md": [
            f"| [small ViT](../benchmarks/transformers/README.md), cascade | {work['cascade']} less | {cascade[0]} "
            f"| {control[0]} | {cascade[1]} | {control[1]} |",
            f"under the cascade's LR curve | {work['tokens']} less | {tokens[0]} | {cells['tokens', 'control'][0]} "
            f"| {tokens[1]} | {cells['tokens', 'control'][1]} |",
            f"A small ViT lost {float(lost):.0f} points by a cascade of clip sizes.",
        ],
        "docs/transformers.md": [
            f"was {cascade[0]} faster than the constant shape and {_worse(cascade[1], '95 % CI ')}:",
            f"was {tokens[0]} faster and {_worse(tokens[1])}. That is {_better(half[1])} points better than a constant "
            "shape of half the length",
            f"takes about the same time ({_bounds(half[1])}, not significant)",
            f"under the cascade's LR curve, is {_above('constant', 'control')} points below the constant shape, within "
            f"the scatter of seeds, and {_better(control[1])} points above the cascade.",
            f"and is {_better(double[1])} points below it ({_bounds(double[1])}).",
            f"half the length is {_above('constant', 'constant, half')} points below the full length.",
        ],
        "benchmarks/transformers/README.md": [
            f"the cascade is {cascade[0]} faster and ends {lost} points below the constant shape (95 % CI "
            f"{_bounds(cascade[1])})",
            f"at {_better(tokens[1])} points less ({_bounds(tokens[1])}).",
            f"it has {_better(half[1])} points more ({_bounds(half[1])}).",
        ],
    }


def _above(name: str, other: str) -> str:
    """Points by which an arm is above another."""
    runs = read(HERE / "plain.jsonl")
    return f"{100 * (mean(runs[name], 'test') - mean(runs[other], 'test')):.1f}"


def _bounds(found: str) -> str:
    return found.partition("(")[2].rstrip(")")


def _better(found: str) -> str:
    return found.partition(" ")[0].strip("+−")


def _worse(found: str, before: str = "") -> str:
    return f"{_better(found)} points worse ({before}{_bounds(found)})"

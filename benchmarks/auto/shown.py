"""What the pages show of the logs of searches and of the trainings in full."""

from functools import cache

from benchmarks.logs import lines, load, mean, percent

__all__ = ["sentences"]


@cache
def _reached(name: str) -> dict[str, float]:
    """The accuracy of each plan that was trained in full, the best first."""
    runs = lines(f"auto/{name}.jsonl")
    found = {arm: mean((run for run in runs if run["arm"] == arm), "test") for arm in {run["arm"] for run in runs}}
    return dict(sorted(found.items(), key=lambda item: -item[1]))


def _row(name: str, shown: str, best: str, pilots: str) -> str:
    """The best plan, the recipe's own, and the one that the search chose, each over the best."""
    search = {row["label"]: row for row in load(f"auto/{name}.json")["candidates"]}
    reached = _reached(name)
    top = next(iter(reached.values()))
    own, chosen = (next(reached[label] for label, row in search.items() if row[key]) for key in ("own", "chosen"))
    cells = f"{percent(top)}, {best}", percent(own), f"{own / top:.2f}", f"{percent(chosen)}, {pilots}"
    return f"| {shown} | {' | '.join(cells)} | {chosen / top:.2f} |"


@cache
def sentences() -> dict[str, list[str]]:
    """By page."""
    return {
        "docs/transformers.md": [f"on these clips one reached {percent(_reached('mhad_depth')['cascade'], 0)}"],
        "benchmarks/auto/README.md": [
            _row("demo", "demo", "the recipe's own", "the same"),
            _row("mhad_depth", "`mhad_depth`", "the recipe's own", "growth 1"),
            _row("lips_phrases", "`lips_phrases`", "weights [3, 1, 1, 1]", "growth 1"),
        ],
    }

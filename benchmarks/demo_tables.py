"""Write the table and the verdicts of the demos, from their logs, into the pages that show them.

python demo_tables.py [DEMO STUDY]

DEMO is the log's folder here: demo or images. With the folder of a study, its comparison is taken first, without the
trainings, which study.jsonl has.
"""

import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
PAGES = {
    "demo": (HERE / "demo" / "README.md", HERE.parent / "README.md"),
    "images": (HERE / "images" / "README.md", HERE.parent / "docs" / "images.md"),
}
END = "<!-- /demo-table -->"


def main() -> None:
    """Take a study's comparison, if there is one, and fill all pages."""
    if sys.argv[1:]:
        demo, study = sys.argv[1:]
        found = json.loads((Path(study) / "comparison.json").read_text(encoding="utf-8"))
        del found["runs"]
        text = json.dumps(found, indent=1, ensure_ascii=False) + "\n"
        (HERE / demo / "comparison.json").write_text(text, encoding="utf-8")
    for demo, pages in PAGES.items():
        for page in pages:
            page.write_text(filled(page.read_text(encoding="utf-8"), demo), encoding="utf-8")


def begin(demo: str) -> str:
    """The line before a demo's table."""
    return f"<!-- demo-table: filled by benchmarks/demo_tables.py from benchmarks/{demo} -->"


def filled(page: str, demo: str) -> str:
    """The page with the table that the log of a demo gives."""
    found = log_of(demo)
    block = "\n".join([begin(demo), *_table(found), "", *_verdicts(found), END])
    return re.sub(f"{re.escape(begin(demo))}.*?{re.escape(END)}", lambda _: block, page, flags=re.DOTALL)


def log_of(demo: str) -> dict[str, Any]:
    """The comparison of a demo."""
    found: dict[str, Any] = json.loads((HERE / demo / "comparison.json").read_text(encoding="utf-8"))
    return found


def cells(demo: str) -> str:
    """The cells of a demo's row in docs/expect.md."""
    arms, best = (found := log_of(demo))["arms"], found["plan"]
    over = [arms[best][key] for key in ("over_constant", "over_control")]
    work = f"{arms[found['constant']]['work'] / arms[best]['work']:.1f}× less"
    differences = (f"{_points(gain['paired']['difference'])} ({_range(gain['paired'])})" for gain in over)
    return " | ".join([work, *(f"{gain['speedup']:.1f}×" for gain in over), *differences])


def _table(found: Mapping[str, Any]) -> list[str]:
    """A row per plan, with its time and speed-up by steps timed in turns."""
    name = found["measure"]["name"]
    lines = [
        f"| plan | steps | training time | {name} (test) | speed-up over constant shape | over its control |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for plan, arm in found["arms"].items():
        times = (f"{arm[over]['speedup']:.1f}×" if over in arm else "" for over in ("over_constant", "over_control"))
        value = f"{100 * arm['value']:.1f} % ± {100 * arm['value_std']:.1f}"
        row = (f"`{plan}`", f"{arm['steps']:,}", f"{arm['train_seconds']:.1f} s", value, *times)
        lines.append(f"| {' | '.join(row)} |")
    return lines


def _verdicts(found: Mapping[str, Any]) -> list[str]:
    """A line per reference: the difference, its intervals, and whether non-inferiority is shown."""
    arm, samples, lines = found["arms"][found["plan"]], found["measure"]["samples"], []
    for over, reference in (("over_constant", "the constant shape"), ("over_control", "its control")):
        gain = arm[over]
        verdict = {"shown": "shown", "not shown": "inconclusive", "shown worse": "refuted"}[gain["no_worse"]]
        lines.append(
            f"- `{found['plan']}` minus {reference}: {_points(gain['paired']['difference'])} points (95 % CI "
            f"{_range(gain['paired'])} over seeds and {samples}, {_range(gain['difference'])} over seeds alone); "
            f"non-inferiority (margin {100 * found['margin']:g} points): {verdict}."
        )
    return lines


def _range(interval: Mapping[str, float]) -> str:
    return f"{_points(interval['low'])} to {_points(interval['high'])}"


def _points(share: float) -> str:
    return f"{100 * share:+.1f}".replace("-", "−")


if __name__ == "__main__":
    main()

"""Write the table and the verdicts of the images' demo, from the log, into this folder's README and docs/images.md.

python tables.py [STUDY]

With the folder of a study, its comparison is taken first, without the trainings, which study.jsonl has.
"""

import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
PAGES = (HERE / "README.md", HERE.parents[1] / "docs" / "images.md")
BEGIN, END = "<!-- demo-table: filled by benchmarks/images/tables.py -->", "<!-- /demo-table -->"


def main() -> None:
    """Take a study's comparison, if there is one, and fill both pages."""
    for study in map(Path, sys.argv[1:]):
        found = json.loads((study / "comparison.json").read_text(encoding="utf-8"))
        del found["runs"]
        (HERE / "comparison.json").write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    for page in PAGES:
        page.write_text(filled(page.read_text(encoding="utf-8")), encoding="utf-8")


def filled(page: str) -> str:
    """The page with the table that the log gives."""
    found = json.loads((HERE / "comparison.json").read_text(encoding="utf-8"))
    block = "\n".join([BEGIN, *_table(found), "", *_verdicts(found), END])
    return re.sub(f"{re.escape(BEGIN)}.*?{re.escape(END)}", lambda _: block, page, flags=re.DOTALL)


def _table(found: Mapping[str, Any]) -> list[str]:
    """A row per plan, with its time and speed-up by steps timed in turns."""
    lines = [
        "| plan | steps | training time | top-1 (test) | speed-up over constant shape | over its control |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for name, arm in found["arms"].items():
        times = (f"{arm[over]['speedup']:.1f}×" if over in arm else "" for over in ("over_constant", "over_control"))
        value = f"{100 * arm['value']:.1f} % ± {100 * arm['value_std']:.1f}"
        row = (f"`{name}`", f"{arm['steps']:,}", f"{arm['train_seconds']:.1f} s", value, *times)
        lines.append(f"| {' | '.join(row)} |")
    return lines


def _verdicts(found: Mapping[str, Any]) -> list[str]:
    """A line per reference: the difference, its intervals, and whether non-inferiority is shown."""
    arm, lines = found["arms"][found["plan"]], []
    for over, reference in (("over_constant", "the constant shape"), ("over_control", "its control")):
        gain = arm[over]
        verdict = {"shown": "shown", "not shown": "inconclusive", "shown worse": "refuted"}[gain["no_worse"]]
        lines.append(
            f"- `{found['plan']}` minus {reference}: {_points(gain['paired']['difference'])} points (95 % CI "
            f"{_range(gain['paired'])} over seeds and images, {_range(gain['difference'])} over seeds alone); "
            f"non-inferiority (margin {100 * found['margin']:g} points): {verdict}."
        )
    return lines


def _range(interval: Mapping[str, float]) -> str:
    return f"{_points(interval['low'])} to {_points(interval['high'])}"


def _points(share: float) -> str:
    return f"{100 * share:+.1f}".replace("-", "−")


if __name__ == "__main__":
    main()

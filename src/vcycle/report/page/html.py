"""The page itself."""

import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from vcycle.report.page.figures import accuracy_svgs, loss_svgs, schedule_svgs, split_svgs
from vcycle.report.page.runs import RunData, measure, shown
from vcycle.report.spread import duration

__all__ = ["markdown_summary", "page"]

_STYLE = """
:root { color-scheme: light dark; --text: #1b1f24; --quiet: #57606a; --line: #d0d7de; --back: #ffffff; --code: #f3f5f7 }
@media (prefers-color-scheme: dark) {
  :root { --text: #e6edf3; --quiet: #9198a1; --line: #3d444d; --back: #0d1117; --code: #161b22 }
  .light { display: none }
}
@media (prefers-color-scheme: light) { .dark { display: none } }
* { box-sizing: border-box }
body { margin: 0 auto; padding: 1.5rem 1rem 4rem; max-width: 62rem; background: var(--back); color: var(--text);
  font: 15px/1.5 system-ui, sans-serif }
h1 { font-size: 1.6rem; margin: 0 0 .3rem } h2 { font-size: 1.2rem; margin: 2.5rem 0 .5rem }
h3 { font-size: 1rem; margin: 1.5rem 0 .3rem }
p.quiet, figcaption { color: var(--quiet); font-size: .9em }
.wide { overflow-x: auto } table { border-collapse: collapse; font-variant-numeric: tabular-nums }
th, td { padding: .3rem .8rem .3rem 0; text-align: right; border-bottom: 1px solid var(--line); white-space: nowrap }
th:first-child, td:first-child { text-align: left }
td.long { white-space: normal; overflow-wrap: anywhere; text-align: left }
figure { margin: .5rem 0 1rem } figure div { overflow-x: auto } svg { max-width: 100%; min-width: 32rem; height: auto }
pre { background: var(--code); padding: .7rem .9rem; overflow-x: auto; border-radius: 6px; font-size: .85em }
details summary { cursor: pointer; color: var(--quiet) }
"""
_MOST_BAD = 50


def page(runs: Sequence[RunData], *, versions: Mapping[str, str], title: str | None = None) -> str:
    """One HTML document, whole in itself.

    Args:
        runs: At least one.
        versions: Of the software here, by name.
        title: By default the runs' names.
    """
    name = title or (runs[0].name if len(runs) == 1 else f"{len(runs)} runs")
    parts = [f"<h1>{escape(name)}</h1>", _summary(runs), "<h2>Accuracy against training time</h2>"]
    parts.append(_figure(accuracy_svgs(runs), "validation at the full grid, while training"))
    for run in runs:
        parts += _about(run, alone=len(runs) == 1)
    shown_versions = ", ".join(f"{escape(key)} {escape(value)}" for key, value in versions.items())
    parts.append(f'<p class="quiet">Made with {shown_versions}.</p>')
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(name)} · vcycle</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n"
        + "\n".join(parts)
        + "\n</body>\n</html>\n"
    )


def markdown_summary(runs: Sequence[RunData]) -> str:
    """The summary as a table for a README."""
    head, *rows = _summary_rows(runs)
    lines = ["| " + " | ".join(head) + " |", "|---|" + "---:|" * (len(head) - 1)]
    return (
        "\n".join([*lines, *("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows)])
        + "\n"
    )


def _summary_rows(runs: Sequence[RunData]) -> list[list[str]]:
    rows = [["run", "plan", "steps", "samples", "training time", "validation", "evaluations", "bad samples"]]
    for run in runs:
        last = shown(*measure(run.validations[-1]["evaluation"])) if run.validations else "–"
        found = [f"{one['split']} {shown(*measure(one))} ({one['protocol']})" for one in run.evaluations]
        taken = len(run.steps)
        samples = sum(line["batch"] for line in run.steps)
        rows.append(
            [
                run.name,
                run.plan,
                f"{taken:,}" if run.finished else f"{taken:,} of {run.planned_steps:,}",
                f"{samples:,}",
                duration(run.seconds),
                last,
                "; ".join(found) or "–",
                f"{len(run.bad):,}",
            ]
        )
    return rows


def _summary(runs: Sequence[RunData]) -> str:
    head, *rows = _summary_rows(runs)
    return _table(head, rows)


def _about(run: RunData, *, alone: bool) -> list[str]:
    parts = [f"<h2>{escape('What happened' if alone else run.name)}</h2>"]
    saving = f"{run.saving['steps']:.2f}× fewer steps and {run.saving['work']:.2f}× less work than its baseline"
    parts.append(f'<p class="quiet">{escape(run.folder)} · plan {escape(run.plan)}: {saving}.</p>')
    parts.append(
        _table(
            ["stage", "steps", "frames", "side", "clips"],
            [[s["name"], f"{s['steps']:,}", f"{s['frames']}", f"{s['size']}", f"{s['batch']:,}"] for s in run.stages],
        )
    )
    parts.append(_figure(schedule_svgs(run), "shape, batch and learning rate of every step that was taken"))
    parts.append(_figure(loss_svgs(run), "training loss"))
    waited = sum(line["data_seconds"] for line in run.steps)
    share = waited / run.seconds if run.seconds else 0.0
    parts.append(_figure(split_svgs(run), f"where the time went, by batch shape: {share:.0%} of it waiting for data"))
    parts += [f"<p>{escape(note)}</p>" for note in run.notes]
    memory = max((line["memory_mib"] for line in run.steps), default=0)
    parts.append(f'<p class="quiet">Largest use of memory: {memory:,} MiB.</p>')
    if run.bad:
        parts += _bad(run)
    parts.append("<h3>Again</h3>")
    parts.append(f"<pre>{escape(_command(run))}</pre>")
    parts.append(f"<details><summary>The recipe, resolved</summary><pre>{escape(_yaml(run.recipe))}</pre></details>")
    return parts


def _bad(run: RunData) -> list[str]:
    counted = Counter((line["path"], line["cause"]) for line in run.bad)
    rows = [[path, cause, f"{count:,}"] for (path, cause), count in counted.most_common(_MOST_BAD)]
    samples = max(1, sum(line["batch"] for line in run.steps))
    more = f", {len(counted) - _MOST_BAD:,} files more" if len(counted) > _MOST_BAD else ""
    return [
        "<h3>Bad samples</h3>",
        f"<p>{len(run.bad):,} of {samples:,} samples ({len(run.bad) / samples:.2%}) were replaced.</p>",
        _table(["file", "cause", "times"], rows, long=(0, 1)) + more,
    ]


def _command(run: RunData) -> str:
    return (
        f"# the same training, from its beginning\nvcycle train {shlex.quote(run.folder + '/recipe.yaml')} --out again"
    )


def _yaml(recipe: Mapping[str, Any]) -> str:
    import yaml

    return yaml.safe_dump(dict(recipe), sort_keys=False, allow_unicode=True, width=110)


def _figure(svgs: Mapping[str, str], caption: str) -> str:
    inside = "".join(f'<div class="{theme}">{svg}</div>' for theme, svg in svgs.items())
    return f"<figure>{inside}<figcaption>{escape(caption)}</figcaption></figure>"


def _table(head: Iterable[str], rows: Iterable[Sequence[str]], long: Sequence[int] = ()) -> str:
    def cell(place: int, text: str) -> str:
        return f'<td class="long">{escape(text)}</td>' if place in long else f"<td>{escape(text)}</td>"

    top = "".join(f"<th>{escape(name)}</th>" for name in head)
    body = "\n".join("<tr>" + "".join(cell(k, text) for k, text in enumerate(row)) + "</tr>" for row in rows)
    return f'<div class="wide"><table><thead><tr>{top}</tr></thead><tbody>\n{body}\n</tbody></table></div>'

"""Renders runs as one self-contained HTML page."""

import re
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from vcycle.report.page.figures import Picture, accuracy, loss, schedule, split, svgs
from vcycle.report.page.runs import RunData, time_split
from vcycle.report.page.summary import environment_rows, protocols, summary_rows
from vcycle.report.spread import number

__all__ = ["page"]

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
th.long, td.long { white-space: normal; overflow-wrap: anywhere; text-align: left; min-width: 7rem }
code { background: var(--code); padding: 0 .25em; border-radius: 4px }
figure { margin: .5rem 0 1rem } svg { width: 100%; max-width: 44rem; height: auto }
pre { background: var(--code); padding: .7rem .9rem; border-radius: 6px; font-size: .85em; white-space: pre-wrap;
  overflow-wrap: anywhere }
details summary { cursor: pointer; color: var(--quiet) }
"""
_MOST_BAD = 50


def page(
    runs: Sequence[RunData],
    *,
    versions: Mapping[str, str],
    title: str | None = None,
    verdicts: Mapping[str, Sequence[str]] | None = None,
) -> str:
    """Render one self-contained HTML document.

    Args:
        runs: At least one run.
        versions: Software versions by name.
        title: By default the run's name, or the number of runs.
        verdicts: The statements of comparisons, by the name of the study.
    """
    name = title or (runs[0].name if len(runs) == 1 else f"{len(runs)} runs")
    parts = [f"<h1>{escape(name)}</h1>"]
    for study, said in (verdicts or {}).items():
        parts += [f"<h2>{escape(study)}</h2>", *(f"<p>{escape(line)}</p>" for line in said)]
    parts += [_summary(runs), "<h2>Validation against training time</h2>"]
    parts.append(_figure(accuracy(runs), "validation at full resolution, during training"))
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


def _summary(runs: Sequence[RunData]) -> str:
    head, *rows = summary_rows(runs)
    notes = "".join(f'<p class="quiet">{_words(line)}</p>' for line in protocols(runs))
    return _table(head, rows) + notes


def _about(run: RunData, *, alone: bool) -> list[str]:
    parts = [f"<h2>{escape('Training' if alone else run.name)}</h2>"]
    parts.append(f'<p class="quiet">{escape(run.folder)} · plan {escape(run.plan)}: {escape(run.summary)}.</p>')
    parts.append(
        _table(
            ["stage", "steps", "frames", "side", "clips"],
            [[s["name"], f"{s['steps']:,}", f"{s['frames']}", f"{s['size']}", f"{s['batch']:,}"] for s in run.stages],
        )
    )
    parts.append(_figure(schedule(run), "shape, batch size and learning rate of every completed step"))
    parts.append(_figure(loss(run), "training loss"))
    waited = sum(line["data_seconds"] for line in run.steps)
    share = waited / run.seconds if run.seconds else 0.0
    parts.append(_figure(split(run), f"training time by batch shape: {share:.0%} of it waiting for data"))
    parts.append(_shapes(run))
    parts += [f"<p>{_words(note)}</p>" for note in run.notes]
    if run.bad:
        parts += _bad(run)
    if run.environments:
        parts += _environment(run)
    parts.append("<h3>Reproduce</h3>")
    parts.append(f"<pre>{escape(_command(run))}</pre>")
    parts.append(f"<details><summary>Resolved recipe</summary><pre>{escape(_yaml(run.recipe))}</pre></details>")
    return parts


def _shapes(run: RunData) -> str:
    """The table of time and memory by batch shape."""
    head = ["batch shape", "steps", "seconds", "of it waiting", "clips/s", "peak memory so far, MiB"]
    rows = [
        [
            row.shape,
            f"{row.steps:,}",
            number(row.data + row.rest),
            f"{row.data / max(row.data + row.rest, 1e-9):.0%}",
            number(row.clips / max(row.data + row.rest, 1e-9)),
            f"{row.memory_mib:,}",
        ]
        for row in time_split(run)
    ]
    return _table(head, rows)


def _environment(run: RunData) -> list[str]:
    """The environments and commands of a run."""
    head, *rows = environment_rows(run)
    commands = "\n".join(
        f"# from step {found['step']:,}, in {found['folder']}\n{found['command']}" for found in run.environments
    )
    return [
        "<h3>Environment</h3>",
        _table(head, rows, long=range(1, len(head))),
        "<h3>Commands</h3>",
        f"<pre>{escape(commands)}</pre>",
    ]


def _bad(run: RunData) -> list[str]:
    counted = Counter((line["path"], line["cause"]) for line in run.bad)
    rows = [[path, cause, f"{count:,}"] for (path, cause), count in counted.most_common(_MOST_BAD)]
    samples = max(1, sum(line["batch"] for line in run.steps))
    more = f", {len(counted) - _MOST_BAD:,} more files" if len(counted) > _MOST_BAD else ""
    return [
        "<h3>Bad samples</h3>",
        f"<p>{len(run.bad):,} of {samples:,} samples ({len(run.bad) / samples:.2%}) were replaced.</p>",
        _table(["file", "cause", "times"], rows, long=(0, 1)) + more,
    ]


def _command(run: RunData) -> str:
    return f"# the same training from scratch\nvcycle train {shlex.quote(run.folder + '/recipe.yaml')} --out again"


def _yaml(recipe: Mapping[str, Any]) -> str:
    import yaml

    return yaml.safe_dump(dict(recipe), sort_keys=False, allow_unicode=True, width=110)


def _words(text: str) -> str:
    """Escape text for the page; text in backticks becomes code."""
    return re.sub("`([^`]*)`", r"<code>\1</code>", escape(text))


def _figure(picture: Picture, caption: str) -> str:
    inside = "".join(f'<div class="{theme}">{svg}</div>' for theme, svg in svgs(picture).items())
    return f"<figure>{inside}<figcaption>{escape(caption)}</figcaption></figure>"


_LONG = ' class="long"'


def _table(head: Iterable[str], rows: Iterable[Sequence[str]], long: Sequence[int] = ()) -> str:
    def cells(tag: str, row: Iterable[str]) -> str:
        return "".join(
            f"<{tag}{_LONG if place in long else ''}>{_words(text)}</{tag}>" for place, text in enumerate(row)
        )

    top = cells("th", head)
    body = "\n".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    return f'<div class="wide"><table><thead><tr>{top}</tr></thead><tbody>\n{body}\n</tbody></table></div>'

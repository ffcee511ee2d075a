"""Renders runs as one self-contained HTML page."""

import base64
import io
import re
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from vcycle.report.page.figures import accuracy, loss, schedule, split, svgs
from vcycle.report.page.runs import RunData, ShownEvaluation, time_split
from vcycle.report.page.studies import Study
from vcycle.report.page.summary import environment_rows, not_evaluated, protocols, summary_rows
from vcycle.report.spread import number
from vcycle.tasks.details import Detail, Strip
from vcycle.utils.extras import require

if TYPE_CHECKING:
    from numpy import uint8
    from numpy.typing import NDArray

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
th, td { padding: .3rem .55rem .3rem 0; text-align: right; border-bottom: 1px solid var(--line); white-space: nowrap }
th:first-child, td:first-child { text-align: left }
th.long, td.long { white-space: normal; overflow-wrap: anywhere; text-align: left; min-width: 7rem }
code { background: var(--code); padding: 0 .25em; border-radius: 4px }
figure { margin: .5rem 0 1rem } svg { width: 100%; max-width: 44rem; height: auto }
pre { background: var(--code); padding: .7rem .9rem; border-radius: 6px; font-size: .85em; white-space: pre-wrap;
  overflow-wrap: anywhere }
details summary { cursor: pointer; color: var(--quiet) }
details.run > summary { font-size: 1.1rem; font-weight: 600; color: var(--text); margin: 1rem 0 }
figure.strip { margin: 0 0 1rem } figure.strip img { max-width: 100%; height: auto; display: block }
"""
_MOST_BAD = 50
_LEAST_SIDE = 96
"""Height of a strip of frames in pixels, about; smaller frames are enlarged."""
_MOST_ROWS = 24
"""Rows of a table that are shown; longer ones are folded."""


def page(
    runs: Sequence[RunData],
    *,
    versions: Mapping[str, str],
    title: str | None = None,
    studies: Mapping[str, Study] | None = None,
    of_studies: Sequence[str] = (),
) -> str:
    """Render one self-contained HTML document.

    Args:
        runs: At least one run.
        versions: Software versions by name.
        title: By default the name of the run or of the study, or the number of runs.
        studies: Comparisons by name; they come first.
        of_studies: Names of the runs that belong to them: these are folded, and not drawn once more.
    """
    names = [run.name for run in runs if run.name not in of_studies] + list(studies or ())
    name = title or (names[0] if len(names) == 1 else f"{len(runs)} runs")
    parts = [f"<h1>{escape(name)}</h1>"]
    for study, found in (studies or {}).items():
        parts += _study(study, found, alone=study == name)
    parts += ["<h2>Runs</h2>"] * bool(studies) + [_summary(runs)]
    if apart := [run for run in runs if run.name not in of_studies]:
        parts += [f"<p>{_words(line)}.</p>" for line in not_evaluated(apart)]
        parts.append("<h2>Validation against training time</h2>")
        parts.append(_figure(svgs(accuracy(apart)), "validation at full resolution, during training"))
    for run in runs:
        about = _about(run, alone=len(runs) == 1)
        if run.name in of_studies:
            about = [f'<details class="run"><summary>{escape(run.name)}</summary>', *about, "</details>"]
        parts += about
    shown_versions = ", ".join(f"{escape(key)} {escape(value)}" for key, value in versions.items())
    parts.append(f'<p class="quiet">Made with {shown_versions}.</p>')
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(name)} · vcycle</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n"
        + "\n".join(parts)
        + "\n</body>\n</html>\n"
    )


def _study(name: str, study: Study, *, alone: bool) -> list[str]:
    """The verdict of a comparison, its table and its figure."""
    head, *rows = study.rows
    return [
        f"<h2>{'Verdict' if alone else escape(name)}</h2>",
        *(f"<p>{escape(line)}</p>" for line in study.said),
        _table(head, rows),
        f'<p class="quiet">{escape(study.note)}.</p>',
        _figure(study.figure, "validation against training time, and the final values"),
    ]


def _summary(runs: Sequence[RunData]) -> str:
    head, *rows = summary_rows(runs)
    notes = "".join(f'<p class="quiet">{_words(line)}</p>' for line in protocols(runs))
    return _table(head, rows) + notes


def _about(run: RunData, *, alone: bool) -> list[str]:
    parts = [f"<h2>{escape('Training' if alone else run.name)}</h2>"]
    parts.append(f'<p class="quiet">{escape(run.folder)} · plan {escape(run.plan)}: {escape(run.summary)}.</p>')
    parts.append(
        _table(
            ["stage", "steps", "frames", "size", "batch"],
            [[s["name"], f"{s['steps']:,}", f"{s['frames']}", f"{s['size']}", f"{s['batch']:,}"] for s in run.stages],
        )
    )
    for shown in run.shown:
        parts += _evaluation(shown)
    parts.append("<h3>Schedule and loss</h3>")
    parts.append(_figure(svgs(schedule(run)), "shape, batch and learning rate of every completed step"))
    parts.append(_figure(svgs(loss(run)), "training loss"))
    waited = sum(line["data_seconds"] for line in run.steps)
    share = waited / run.seconds if run.seconds else 0.0
    parts.append(_figure(svgs(split(run)), f"training time by batch shape: {share:.0%} of it waiting for data"))
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


def _evaluation(shown: ShownEvaluation) -> list[str]:
    """What the task shows of an evaluation."""
    parts = [f"<h3>Evaluation on {escape(shown.split)}</h3>", f'<p class="quiet">{_words(shown.protocol)}</p>']
    for detail in shown.details:
        parts += _detail(detail, shown)
    return parts


def _detail(detail: Detail, shown: ShownEvaluation) -> list[str]:
    parts = [] if detail.drawing is None else [_figure(svgs(detail.drawing), detail.title.lower())]
    if detail.rows:
        head, *rows = detail.rows
        table = _table(head, rows)
        if len(rows) > _MOST_ROWS:
            table = f"<details><summary>{escape(detail.title)}: {len(rows):,}</summary>{table}</details>"
        parts.append(table)
    if detail.strips:
        parts.append(f"<h4>{escape(detail.title)}</h4>")
        parts += [_strip(strip, shown.frames.get(strip.item)) for strip in detail.strips]
    return parts


def _strip(strip: Strip, frames: "NDArray[uint8] | None") -> str:
    """Frames of an item side by side, or its name alone if they could not be read."""
    name = "/".join(strip.item.rsplit("/", 2)[-2:])
    picture = "" if frames is None else f'<img alt="{escape(name)}" src="{_jpeg(frames)}">'
    caption = f"<figcaption>{escape(strip.caption)} · {escape(name)}</figcaption>"
    return f'<figure class="strip">{picture}{caption}</figure>'


def _jpeg(frames: "NDArray[uint8]") -> str:
    """Frames side by side as a data URL."""
    import numpy as np

    file = io.BytesIO()
    larger = max(1, _LEAST_SIDE // frames.shape[1])
    row = np.concatenate(list(frames), axis=1).repeat(larger, axis=0).repeat(larger, axis=1)
    require("matplotlib.image").imsave(file, row, format="jpeg", pil_kwargs={"quality": 88})
    return "data:image/jpeg;base64," + base64.b64encode(file.getvalue()).decode()


def _shapes(run: RunData) -> str:
    """The table of time and memory by batch shape."""
    head = ["batch shape", "steps", "seconds", "waiting for data", "clips/s", "peak memory so far, MiB"]
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


def _figure(pictures: Mapping[str, str], caption: str) -> str:
    """A figure from its SVG by theme."""
    inside = "".join(f'<div class="{theme}">{svg}</div>' for theme, svg in pictures.items())
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

"""`vcycle demo`: plans compared on small sets that are made here, in minutes and without a network."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from vcycle.console.arguments import Json, Out
from vcycle.console.output import message
from vcycle.errors import RecipeError, did_you_mean

__all__ = ["demo"]

SUBJECTS = ("recognition", "superresolution")

_DIGITS_PLANS = ("constant", "control:cascade", "long+short", "cascade")
"""The constant shape, the best plan's control, and two plans."""
_PHOTOGRAPHS_PLANS = ("constant", "control:hierarchical", "hierarchical")
_NETWORKS = {"constant": "constant shape", "hierarchical": "hierarchical"}
"""Those that are shown in the picture, and what they are called there."""


def demo(
    subject: Annotated[
        str, typer.Argument(metavar="[SUBJECT]", help="recognition (digits in motion) or superresolution.")
    ] = "recognition",
    out: Out = None,
    seeds: Annotated[
        int | None, typer.Option(min=1, help="Seeds per plan, by default 2 of recognition, 1 of superresolution.")
    ] = None,
    json: Json = False,
) -> None:
    """Compare plans on small videos made here, in minutes.

    It needs no network, and shows what coarse-to-fine training gains there: on digits in motion, or in enlarging
    photographs under a moving camera.
    """
    if subject not in SUBJECTS:
        raise RecipeError(f"subject {subject!r} is unknown{did_you_mean(subject, SUBJECTS)}: {', '.join(SUBJECTS)}")
    if subject == "recognition":
        _digits(out or Path("vcycle-demo"), seeds or 2, json)
    else:
        _photographs(out or Path("vcycle-demo-superresolution"), seeds or 1, json)


def _digits(folder: Path, seeds: int, json: bool) -> None:
    from vcycle.cli.studies import demo_data, study
    from vcycle.tasks import recipes as load

    recipe = load.load_recipe("demo/digits")
    title = "vcycle demo: digits in motion"
    study(recipe, _DIGITS_PLANS, range(seeds), folder, title=title, json=json, as_data=demo_data)


def _photographs(folder: Path, seeds: int, json: bool) -> None:
    from vcycle.cli.studies import study
    from vcycle.console.progress import progress
    from vcycle.tasks import recipes as load
    from vcycle.tasks.superres.pairs import photographs
    from vcycle.tasks.superres.pairs.prepare import prepare_frames
    from vcycle.tasks.superres.pairs.store import is_store

    clips, tiles = folder / "photographs", folder / "tiles"
    with progress() as shown:
        photographs.render_photographs(clips, progress=lambda *done: shown.count("making clips", *done))
        for split in photographs.SPLITS:
            if not is_store(tiles / split):
                prepare_frames(clips / split, tiles / split, progress=lambda *done: shown.count("preparing", *done))
    message(f"clips: {clips}, and what is read in training: {tiles}")
    recipe = load.load_any("demo/superresolution", [f"data.path={tiles}"])
    title = "vcycle demo: photographs under a moving camera, enlarged four times"
    found = study(recipe, _PHOTOGRAPHS_PLANS, range(seeds), folder, title=title, json=json)
    _show(folder, found)


def _show(folder: Path, found: Mapping[str, Any]) -> None:
    """Draw one place as the networks of the first seed restore it."""
    from vcycle.bench.study import run_folder
    from vcycle.console.figures import save_figure
    from vcycle.report.restored import restored_figure
    from vcycle.tasks.superres.showing import restored_crops

    first: dict[str, Path] = {}
    for run in found["runs"]:
        if run["arm"] in _NETWORKS:
            first.setdefault(_NETWORKS[run["arm"]], run_folder(folder, run["arm"], run["seed"], run["key"]))
    if first:
        save_figure(restored_figure(restored_crops(first)), folder / "restored.png")

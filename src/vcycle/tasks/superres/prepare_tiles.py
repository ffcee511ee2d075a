"""Implements `vcycle prepare --to tiles`, which stores frames in tiles for fast random crops in super-resolution."""

from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from vcycle.console import process
from vcycle.console.output import message, print_json, result
from vcycle.console.progress import progress
from vcycle.data.locations import local_path
from vcycle.errors import DataError
from vcycle.tasks.base import SPLITS, PrepareOptions
from vcycle.utils.folders import free_bytes
from vcycle.utils.reading import resolved
from vcycle.utils.units import as_size, duration

__all__ = ["prepare_tiles"]

_SHOWN = 20


def prepare_tiles(
    given: PrepareOptions,
    *,
    scale: Annotated[
        int | None, typer.Option("--scale", help="Tiles: the super-resolution scale, by default 4.")
    ] = None,
    degradation: Annotated[
        str | None,
        typer.Option(
            "--degradation",
            metavar="bicubic|bd|none",
            help="Tiles: how low-resolution frames are made, by default bicubic.",
        ),
    ] = None,
    low: Annotated[Path | None, typer.Option("--low", help="Tiles: a folder of existing low-resolution clips.")] = None,
    resize: Annotated[
        str | None,
        typer.Option("--resize", metavar="FACTOR", help="Tiles: downscale all frames first, such as 1/2."),
    ] = None,
) -> float:
    """Write the clips of a folder, or of each split, into a tile store with their low-resolution frames.

    Returns:
        The share of clips that cannot be read.

    Raises:
        DataError: as in `vcycle.tasks.superres.pairs.prepare.write_store`, or if an option is out of range.
    """
    from vcycle.data.layouts.splits import folders_of_splits
    from vcycle.tasks.superres.pairs.degrade import Degradation
    from vcycle.tasks.superres.pairs.layouts import read_pairs, splits_in
    from vcycle.tasks.superres.pairs.prepare import store_needs, write_store
    from vcycle.tasks.superres.pairs.resized import resized_pairs
    from vcycle.tasks.superres.pairs.store import is_store

    data, out = local_path(given.data, "data").expanduser(), local_path(str(given.out), "the output")
    workers = given.workers
    scale, degradation = 4 if scale is None else scale, degradation or "bicubic"
    dry_run, json = given.dry_run, given.json
    if degradation not in ("bicubic", "bd", "none"):
        raise DataError(f"--degradation {degradation}: must be bicubic, bd or none")
    made = Degradation(kind="bicubic" if degradation == "none" else degradation, scale=scale)
    places = splits_in(data)
    lower = {} if low is None or not places else folders_of_splits(low)
    stores = {
        out / split: read_pairs(place, low=None if low is None else lower.get(split, low / split), degradation=made)
        for split, place in (places or {"": data}).items()
    }
    if any(resolved(out).is_relative_to(resolved(place)) for place in (data, low) if place is not None):
        raise DataError(f"{out} is the dataset itself or a folder in it: choose a folder outside")
    for other in (out,) if list(stores) != [out] else [out / split for split in SPLITS]:
        if is_store(other):
            raise DataError(
                f"{other} is the store of another dataset: a dataset with splits has one store per split, a dataset "
                "without splits a single one; choose another folder"
            )
    if resize is not None:
        stores = {folder: resized_pairs(pairs, _factor(resize)) for folder, pairs in stores.items()}
    keep_low = low is not None or degradation != "none"
    needs = [store_needs(pairs, low=keep_low, workers=workers) for pairs in stores.values()]
    needed, seconds = (sum(each) for each in zip(*needs, strict=True))
    clips = sum(map(len, stores.values()))
    if dry_run and json:
        print_json({"out": str(out), "estimate": {"clips": clips, "bytes": needed, "seconds": seconds}})
        return 0
    estimated = (
        f"{clips:,} clips: {as_size(needed)} of disk ({as_size(free_bytes(out))} free) and about "
        f"{duration(seconds)}; less if some clips are done"
    )
    if dry_run:
        result(estimated)
        return 0
    message(estimated)
    with process.resumable("finished clips are kept: the same command resumes it"), progress() as shown:
        prepared, unreadable = [], list[DataError]()
        for folder, pairs in stores.items():
            try:
                tell = partial(shown.count, "preparing clips")
                prepared.append(write_store(pairs, folder, low=keep_low, workers=workers, progress=tell))
            except DataError as error:  # of one split; still write the others
                unreadable.append(error)
        if unreadable:
            raise unreadable[0]
    done = sum(len(each.store.clips) for each in prepared)
    failed = [fault for each in prepared for fault in each.failed]
    if json:
        print_json(
            {"out": str(out), "clips": done, "bytes": needed, "failed": {fault.path: fault.cause for fault in failed}}
        )
    else:
        for fault in failed[:_SHOWN]:
            message(f"failed: {fault}")
        lists = [folder / "failed.jsonl" for folder, each in zip(stores, prepared, strict=True) if each.failed]
        more = f", listed in {' and '.join(map(str, lists))}" if lists else ""
        result(f"{out}: {done:,} of {clips:,} clips, {len(failed):,} failed{more}")
    return len(failed) / clips


def _factor(text: str) -> Fraction:
    """The factor in `--resize 1/2` or `--resize 0.5`."""
    try:
        factor = Fraction(text)
    except (ValueError, ZeroDivisionError):
        factor = Fraction(0)
    if not 0 < factor < 1:
        raise DataError(f"--resize {text}: must be a factor above 0 and below 1, such as 1/2 or 0.75")
    return factor

"""`plan`, `train` and `eval` where the recipe is one of super-resolution."""

from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vcycle.cli.carrying import carry_out
from vcycle.console.arguments import load_any, names_recipe, refuse_raw
from vcycle.console.distributed import shared
from vcycle.console.messages import warn_of_precision
from vcycle.console.output import message, message_of_rank, plain, print_json, result
from vcycle.console.progress import progress

if TYPE_CHECKING:
    from vcycle.console.progress import Progress
    from vcycle.plan import Plan
    from vcycle.tasks.superres import Quality
    from vcycle.tasks.superres.recipe import SuperresRecipe
    from vcycle.train.outcome import Evaluation, Fitted, Point
    from vcycle.train.ranks import Ranks
    from vcycle.train.run import RunFolder

__all__ = ["evaluate", "is_restoration", "planned", "train"]


def is_restoration(model: Path) -> bool:
    """Whether a trained model, or a recipe, is one of super-resolution."""
    if names_recipe(model):
        return load_any(str(model), None).task == "superresolution"
    from vcycle.runs.loaded_model import task_of

    return task_of(model) == "superresolution"


def planned(recipe: "SuperresRecipe") -> "Plan":
    """The plan of a recipe, for the clips that it names. Needs no torch where it names none."""
    if recipe.data.path is None:
        return _planned(recipe, None)
    from vcycle.tasks.superres.data import split_of

    return _planned(recipe, len(split_of(recipe, "train")))


def train(recipe: "SuperresRecipe", run: "RunFolder", ranks: "Ranks", *, resume: bool, json: bool) -> None:
    """Train a recipe in a run's folder."""
    from vcycle.runs.resume_guard import enter
    from vcycle.tasks.recipes import dump_recipe
    from vcycle.tasks.superres.build import train as train_recipe
    from vcycle.tasks.superres.data import find_clips
    from vcycle.tasks.superres.init_weights import check_init
    from vcycle.tasks.superres.notices import check_clips, described, never_learning, notices

    text = dump_recipe(recipe)
    clips = find_clips(recipe)
    scheduled = _planned(recipe, len(clips.train))
    warnings = notices(clips)
    if not run.started:
        warnings += [*never_learning(recipe, scheduled), *check_clips(recipe, clips)]
        check_init(recipe)
    found = {"train": clips.train, "val": clips.val}
    ranks.from_first(lambda: enter(run, recipe, scheduled, found, text=text, resume=resume))
    message(f"{len(clips.train):,} clips, {described(clips.train)}; {len(clips.val):,} more for validation")
    for note in warnings:
        message(f"warning: {note}")

    def train_clips(shown: "Progress", on_point: "Callable[[Point], None]") -> "Fitted":
        shown.begin(scheduled.name, scheduled)
        return train_recipe(
            recipe,
            scheduled,
            clips,
            run,
            text=text,
            resume=resume,
            ranks=ranks,
            on_step=shown.step,
            on_point=on_point,
            on_message=message_of_rank,
            on_progress=shown.count,
        )

    carry_out(recipe, scheduled, run, train_clips, lambda found: _line(found, "val"), json=json)


def evaluate(name: Path, overrides: Sequence[str], split: str, *, raw: bool, out: Path | None, json: bool) -> None:
    """Measure a network on the whole clips of a split, on any number of ranks."""
    from vcycle.cli.evaluating import changed, result_file
    from vcycle.data import Replacement
    from vcycle.tasks.recognition.eval_report import write_data
    from vcycle.tasks.superres import quality_of
    from vcycle.tasks.superres.build import dataset_of
    from vcycle.tasks.superres.data import split_of
    from vcycle.tasks.superres.evaluate import measured, measuring_of, open_initial, open_run

    with shared() as ranks:
        if names_recipe(name):
            refuse_raw(name, raw)
            opened = open_initial(load_any(str(name), overrides), message)
            recipe = opened.recipe
        else:
            opened = open_run(name, message, raw=raw)
            recipe = changed(opened.recipe, overrides, str(name))
        dataset = dataset_of(recipe, split_of(recipe, split))
        device = ranks.device(recipe.run.device, message)
        warn_of_precision(recipe, device)
        model = opened.model.to(device)
        with progress() as shown:
            tell = partial(shown.count, "restoring frames")
            own = list(measured(recipe, dataset, model, device, rank=ranks.rank, world=ranks.world, progress=tell))
        shares = ranks.gather(own)
    if shares is None:
        return
    everything = [found for share in shares for found in share]
    rows: list[dict[str, Any]] = []
    for found in everything:
        if isinstance(found, Replacement):
            message(f"bad clip {found.path}: {found.cause}; left out of the evaluation")
        else:
            rows.append({"clip": dataset.pairs.high.names[found.clip], **asdict(found.quality)})
    quality: Quality = quality_of(everything, measuring_of(recipe))
    file = result_file(name, f"eval-{split}", out, raw=raw)
    made_by = dataset.pairs.degradation
    low = f"{made_by.kind} ×{made_by.scale}"
    about = {"model": str(name), "weights": opened.origin, "step": opened.step, "split": split, "low_resolution": low}
    if json:
        print_json(about | asdict(quality) | {"file": str(file)})
    else:
        which = f"after step {opened.step:,}" if opened.step else f"weights {opened.origin}"
        result(f"{_line(quality, split)}, low resolution {low}, {which}")
    write_data(file, plain({**about, **asdict(quality), "clips": rows}))
    message(f"each clip: {file}")


def _line(evaluation: "Evaluation", split: str) -> str:
    """PSNR and SSIM, over how many clips and frames, and the protocol."""
    found = asdict(evaluation)
    equal = f", {found['identical']:,} of them equal to the truth" if found["identical"] else ""
    unread = f"; {found['unreadable']} more cannot be read" if found["unreadable"] else ""
    return (
        f"PSNR {found['psnr']:.2f} dB, SSIM {found['ssim']:.4f} on {found['samples']:,} {split} clips "
        f"({found['frames']:,} frames{equal}; {found['protocol']}{unread})"
    )


def _planned(recipe: "SuperresRecipe", clips: int | None) -> "Plan":
    from vcycle.tasks.superres.plans import check_plan, plan_of

    found = plan_of(recipe, clips)
    check_plan(recipe, found)
    return found

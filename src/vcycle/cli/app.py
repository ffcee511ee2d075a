"""The commands. Those that only plan import no torch, so that they answer at once."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from vcycle.cli.output import message, plan_data, print_json, result, steps_bar
from vcycle.errors import RecipeError, VcycleError

__all__ = ["app", "main"]

app = typer.Typer(
    name="vcycle",
    help="Train video models several times faster at the same accuracy, on a schedule of coarse-to-fine grids.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

RecipeArgument = Annotated[
    str, typer.Argument(metavar="RECIPE", help="A shipped recipe (see `vcycle recipes`), a YAML file, or the folder of a run.")
]
Overrides = Annotated[
    list[str] | None,
    typer.Argument(metavar="[KEY=VALUE]...", help="Changes to the recipe, such as training.batch=16 or data=videos/."),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")]
Out = Annotated[Path | None, typer.Option("--out", help="Folder for everything that is written.")]

_debug = False


@app.callback()
def _root(
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    global _debug  # noqa: PLW0603 -- one flag of one process
    _debug = debug


@app.command()
def plan(
    recipe: RecipeArgument,
    overrides: Overrides = None,
    json: Json = False,
    figure: Annotated[Path | None, typer.Option("--figure", help="Save shapes, batch and LR as a picture.")] = None,
) -> None:
    """Show the plan of a recipe: stages, shapes, batches, LR, and what it saves."""
    from vcycle.recipes.build import check_plan, find_videos
    from vcycle.recipes.load import load_recipe
    from vcycle.recipes.plans import plan_of

    loaded = load_recipe(recipe, overrides or ())
    clips = loaded.data.clips
    if clips is None and loaded.data.digits is not None:
        clips = loaded.data.digits.train_clips
    if clips is None:
        clips = len(find_videos(loaded, Path()).train)
    planned = plan_of(loaded, clips)
    check_plan(loaded, planned)
    if figure is not None:
        _save_figure(planned.figure(), figure)
    if json:
        print_json(plan_data(planned))
    else:
        result(planned.table())


@app.command()
def train(
    recipe: RecipeArgument,
    overrides: Overrides = None,
    out: Out = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the newest checkpoint in the run's folder.")] = False,
    json: Json = False,
) -> None:
    """Train a recipe on a folder of videos."""
    from vcycle.recipes.build import check_plan, datasets_of, find_videos
    from vcycle.recipes.build import train as train_recipe
    from vcycle.recipes.load import dump_recipe, load_recipe
    from vcycle.recipes.plans import plan_of
    from vcycle.train.run import RunFolder

    loaded = load_recipe(recipe, overrides or ())
    if loaded.data.path is not None:
        data = loaded.data.model_copy(update={"path": str(Path(loaded.data.path).absolute())})
        loaded = loaded.model_copy(update={"data": data})
    folder = out or (Path(recipe) if Path(recipe).is_dir() else Path("runs") / f"{Path(recipe).stem}-{loaded.plan}")
    run = RunFolder(folder)
    with steps_bar() as bar:
        videos = find_videos(loaded, folder.parent, bar.count)
        planned = plan_of(loaded, len(videos.train))
        check_plan(loaded, planned)
        message(f"{len(videos.train):,} videos in {len(videos.train.classes)} classes, {len(videos.val):,} for validation")
        if not json:
            result(planned.table())
        splits = datasets_of(loaded, videos, folder.parent, bar.count)
        bar.begin(loaded.plan, planned)
        fitted = train_recipe(
            loaded,
            planned,
            splits,
            run,
            text=dump_recipe(loaded),
            resume=resume,
            on_step=bar.step,
            on_message=message,
        )
    last = fitted.curve[-1].evaluation
    data = {
        "run": str(folder),
        "plan": planned.name,
        "fingerprint": planned.fingerprint,
        "steps": fitted.steps,
        "samples": fitted.samples,
        "train_seconds": fitted.seconds,
        "data_seconds": fitted.data_seconds,
        "replaced": fitted.replaced,
        "val": _evaluation_data(last),
    }
    if json:
        print_json(data)
        return
    result(
        f"top-1 {last.top1:.1%}, top-5 {last.top5:.1%} on {last.samples} validation videos ({last.protocol}); "
        f"{fitted.seconds:.1f} s of training, {fitted.data_seconds / max(fitted.seconds, 1e-9):.0%} of it waiting for data; "
        f"{fitted.replaced} samples replaced; in {folder}"
    )


@app.command("eval")
def evaluate(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a run.")],
    split: Annotated[str, typer.Option(help="val or test.")] = "val",
    json: Json = False,
) -> None:
    """Evaluate the newest checkpoint of a run at the full grid."""
    import torch

    from vcycle.recipes.build import build_model, datasets_of, evaluator, find_videos
    from vcycle.recipes.load import load_recipe
    from vcycle.train.checkpoint import latest_checkpoint, load_weights
    from vcycle.train.run import RunFolder

    folder = RunFolder(run)
    if not folder.recipe.is_file():
        raise RecipeError(f"{run} is not the folder of a run: it has no {folder.recipe.name}")
    if split not in ("val", "test"):
        raise RecipeError(f"split {split!r} is unknown: val or test")
    found = latest_checkpoint(folder.checkpoints)
    if found is None:
        raise RecipeError(f"{run} has no checkpoint yet")
    checkpoint, path, passed = found
    for fault in passed:
        message(f"passed over: {fault}")
    loaded = load_recipe(str(run))
    with steps_bar() as bar:
        splits = datasets_of(loaded, find_videos(loaded, run.parent, bar.count), run.parent, bar.count)
    dataset = splits.val if split == "val" else splits.test
    if dataset is None:
        raise RecipeError(f"the data of {run} has no test split")
    model = build_model(loaded, len(splits.train.videos.classes), loaded.run.seed)
    load_weights(model, checkpoint.model, path)
    device = torch.device("cuda" if loaded.run.device != "cpu" and torch.cuda.is_available() else "cpu")
    found_out = evaluator(loaded, dataset)(model.to(device), device)
    data = {"run": str(run), "step": checkpoint.step, "split": split} | _evaluation_data(found_out)
    if json:
        print_json(data)
        return
    result(
        f"top-1 {found_out.top1:.1%}, top-5 {found_out.top5:.1%}, loss {found_out.loss:.3f} on {found_out.samples} {split} "
        f"videos ({found_out.protocol}), step {checkpoint.step:,}; {found_out.unreadable} unreadable"
    )


@app.command()
def compare(recipe: RecipeArgument, overrides: Overrides = None, out: Out = None, json: Json = False) -> None:
    """Train several plans over shared seeds: `vcycle compare RECIPE plan=constant,long+short,cascade seeds=5`.

    Each plan's LR-matched control is trained too, unless controls are named. A study that was cut short goes on.
    """
    from vcycle.recipes.load import load_recipe

    chosen = {"plan": "constant,long+short,cascade", "seeds": "2"}
    rest = []
    for override in overrides or ():
        key, equals, value = override.partition("=")
        if equals and key in chosen:
            chosen[key] = value
        else:
            rest.append(override)
    folder = out or Path("runs") / f"compare-{Path(recipe).stem}"
    plans = [p.strip() for p in chosen["plan"].split(",") if p.strip()]
    _compare(load_recipe(recipe, rest), plans, _seeds(chosen["seeds"]), folder, json=json, title=f"{recipe}")


@app.command()
def recipes(
    action: Annotated[str | None, typer.Argument(metavar="[show]", help="show: print a recipe.")] = None,
    name: Annotated[str | None, typer.Argument(metavar="[NAME]")] = None,
    json: Json = False,
) -> None:
    """List the shipped recipes, or show one."""
    from vcycle.recipes.load import load_recipe, recipe_names, recipe_text

    if action is None:
        described = {n: load_recipe(n).description for n in recipe_names()}
        if json:
            print_json({"recipes": described})
        else:
            for known, description in described.items():
                result(f"[bold]{known}[/bold]  {description}")
        return
    if action != "show" or name is None:
        raise RecipeError(f"recipes {action} {name or ''}: `vcycle recipes`, or `vcycle recipes show NAME`")
    if json:
        print_json({"name": name, "recipe": load_recipe(name).model_dump(mode="json", by_alias=True)})
    else:
        print(recipe_text(name)[0], end="")


@app.command()
def demo(
    out: Out = None,
    seeds: Annotated[int, typer.Option(min=1, help="Seeds per plan.")] = 2,
    json: Json = False,
) -> None:
    """Train four plans on small videos made here, in minutes, without network: what does multigrid gain?"""
    from vcycle.recipes.load import load_recipe

    recipe = load_recipe("demo/digits")
    plans = ["constant", "control:cascade", "long+short", "cascade"]
    folder = out or Path("vcycle-demo")
    _compare(recipe, plans, range(seeds), folder, json=json, title="vcycle demo: digits in motion", demo=True)


def _compare(
    recipe: Any, plans: list[str], seeds: Any, folder: Path, *, json: bool, title: str, demo: bool = False
) -> None:
    from json import dumps

    from vcycle.bench.study import compare_plans
    from vcycle.report.comparison import comparison_figure, comparison_table, statements

    with steps_bar() as bar:
        comparison = compare_plans(
            recipe,
            plans,
            seeds=seeds,
            out=folder,
            on_progress=bar.count,
            on_start=lambda arm, seed: bar.begin(f"{arm.name}, seed {seed}", arm.plan),
            on_step=bar.step,
            on_run=lambda run: _finished(bar, run),
            on_message=message,
        )
    data = comparison.as_data()
    if demo:
        best = data["plan"]
        data["arms"] |= {"control": data["arms"]["control:cascade"], "multigrid": data["arms"][best]}
    figure = folder / "comparison.png"
    (folder / "comparison.json").write_text(dumps(data, indent=1) + "\n", encoding="utf-8")
    if json:
        _save_figure(comparison_figure(comparison.as_data()), figure)
        print_json(data)
        return
    shown = comparison.as_data()
    _save_figure(comparison_figure(shown), figure)
    result(comparison_table(shown, title))
    for line in statements(shown):
        result(line)
    result(f"picture: {figure}")


def _finished(bar: Any, run: Any) -> None:
    bar.end()
    message(f"{run.arm}, seed {run.seed}: {run.val:.1%} on validation after {run.seconds:.1f} s")


def _save_figure(figure: Any, path: Path) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=150)
    except (OSError, ValueError) as error:
        raise VcycleError(f"picture {path} cannot be written: {error}") from error


def _seeds(text: str) -> range:
    if not text.isdecimal() or int(text) < 1:
        raise RecipeError(f"seeds={text}: a whole number of at least 1 is accepted")
    return range(int(text))


def _evaluation_data(evaluation: Any) -> dict[str, Any]:
    from dataclasses import asdict

    return asdict(evaluation)


def main() -> None:
    """Run a command; an error of the user's is one line and exit code 2."""
    try:
        app(standalone_mode=True)
    except VcycleError as error:
        if _debug:
            raise
        message(f"error: {error}")
        sys.exit(2)

"""`vcycle eval`: evaluates a trained model, on any number of ranks."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vcycle.cli.task_options import options_for, with_options
from vcycle.console.arguments import Raw, names_recipe, refuse_raw
from vcycle.console.distributed import shared
from vcycle.console.figures import check_figure, save_figure
from vcycle.console.messages import warn_of_precision, warn_of_workers
from vcycle.console.output import message, message_of_rank, plain, print_json, result
from vcycle.console.progress import progress
from vcycle.registry import import_attribute
from vcycle.tasks.base import tasks

if TYPE_CHECKING:
    from vcycle.tasks.base import Evaluator
    from vcycle.tasks.loaded_model import LoadedModel
    from vcycle.train.ranks import Ranks

__all__ = ["evaluate"]

_OVERRIDES = {
    task.name: import_attribute(task.eval_options, f"task {task.name!r}")
    for task in tasks.values()
    if task.eval_options
}
"""What makes overrides of a task's own options."""


@with_options(_OVERRIDES)
def evaluate(
    model: Annotated[
        Path,
        typer.Argument(
            metavar="MODEL",
            help="A run's folder, one of its checkpoints, a file from `vcycle export`, or a recipe with init=FILE.",
        ),
    ],
    overrides: Annotated[
        list[str] | None,
        typer.Argument(metavar="KEY=VALUE", help="Changes, such as run.device=cpu or data.workers=8."),
    ] = None,
    split: Annotated[str, typer.Option(help="val, test or train.")] = "val",
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Folder for the results; by default the run's folder.")
    ] = None,
    raw: Raw = False,
    figure: Annotated[
        Path | None, typer.Option("--figure", help="Save a figure of the results, if the task has one.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead.")] = False,
    **options: Any,
) -> None:
    """Evaluate a trained model at full resolution.

    Prints the result and its protocol, and writes both to a file in the run's folder, with the results of each item:
    eval-SPLIT-VIEWS.json, or eval-SPLIT.json if items have no views.
    `torchrun --standalone --nproc-per-node N -m vcycle eval MODEL` evaluates on N processes, with the same result.
    With run.shard=true, they share the model's weights (FSDP).
    """
    if figure is not None:
        check_figure(figure)  # fail before an evaluation that may take hours
    with shared() as ranks:
        found = _results(model, overrides or (), options, split, ranks, raw=raw, pictured=figure is not None)
        if found is not None:
            _report(found, model, split, out, figure, raw=raw, json=json)


@dataclass(frozen=True, kw_only=True)
class _Evaluated:
    """The gathered results, on the first rank."""

    loaded: "LoadedModel"
    evaluator: "Evaluator"
    found: list[Any]


def _results(
    name: Path,
    overrides: Sequence[str],
    options: Mapping[str, Any],
    split: str,
    ranks: "Ranks",
    *,
    raw: bool,
    pictured: bool,
) -> _Evaluated | None:
    """Evaluate this rank's share. Returns all results on the first rank, None on the others."""
    from vcycle.runs.evaluate import check_classes, evaluate_all
    from vcycle.runs.experiment import Experiment
    from vcycle.tasks.loaded_model import load_initial, load_model, refuse_no_init
    from vcycle.tasks.models import is_shipped
    from vcycle.tasks.recipes import load_given, override_trained
    from vcycle.tasks.saved_weights import run_of
    from vcycle.train.accelerator import check_own_gpu
    from vcycle.train.probe import outputs_at
    from vcycle.train.shards import shard
    from vcycle.train.threads import use_threads

    loaded = None
    if names_recipe(name):
        refuse_raw(name, raw)
        recipe = load_given(str(name), overrides)
        refuse_no_init(recipe)
    else:
        loaded = load_model(name, message, raw=raw)
        recipe = override_trained(loaded.recipe, overrides, str(name))
    own = options_for(recipe.task, options, _OVERRIDES, "task ")
    if own and (changes := _OVERRIDES[recipe.task](**own)):
        recipe = override_trained(recipe, changes, str(name))
    work = _folder(name).parent if names_recipe(name) else (run_of(name) or name).parent
    task = tasks[recipe.task]
    if ranks.first:
        warn_of_workers(recipe)
    # One rank at a time: the first builds the cache, the others read it.
    with progress() as shown, ranks.one_after_another():
        experiment = Experiment(recipe, work, on_progress=shown.count)
        dataset = experiment.dataset(split)
    classes = getattr(experiment.splits[split], "classes", ())
    if loaded is None:
        loaded = load_initial(recipe, classes, message)
    check_classes(classes, loaded.classes, experiment.splits[split].source, str(name))
    evaluator = task.evaluator(recipe, dataset, loaded.classes, scope="full")
    if pictured:
        evaluator.check_figure()
    device = ranks.device(recipe.run.device, message)
    warn_of_precision(recipe, device)
    use_threads(recipe.run.threads, workers=recipe.data.workers, ranks=ranks, on_message=message)
    model = loaded.model
    if recipe.run.shard and ranks.world > 1:
        recipe.run.check_torch()
        check_own_gpu(ranks, device)
        shard(model, device=device)
    else:
        model.to(device)
    if evaluator.shape is not None and not is_shipped(recipe):
        objective = task.objective(recipe, len(loaded.classes))
        outputs_at(model, objective, [evaluator.shape], device=device, precision=recipe.run.precision)
    with progress() as shown:
        evaluator.on_fault = message_of_rank
        found = evaluate_all(evaluator, model, device, ranks=ranks, on_message=message, on_progress=shown.count)
    return None if found is None else _Evaluated(loaded=loaded, evaluator=evaluator, found=found)


def _report(
    evaluated: _Evaluated, model: Path, split: str, out: Path | None, figure: Path | None, *, raw: bool, json: bool
) -> None:
    """Print the results, then write them: a full disk does not lose a long evaluation."""
    from vcycle.runs.evaluate import write_result

    loaded, evaluator, found = evaluated.loaded, evaluated.evaluator, evaluated.found
    evaluation = evaluator.result(found)
    file = _result_file(model, f"eval-{split}{evaluator.suffix}", out, raw=raw)
    about = {"model": str(model), "weights": loaded.origin, "step": loaded.step, "split": split}
    about |= evaluator.conditions()
    which = f"after step {loaded.step:,}" if loaded.step else f"weights {loaded.origin}"
    headline = evaluator.line(evaluation, split)
    if json:
        print_json(about | asdict(evaluation) | {"file": str(file)})
    else:
        result(f"{headline}, {which}")
        if (table := evaluator.table(found)) is not None:
            result(table)
    write_result(file, plain({**about, **asdict(evaluation), **evaluator.details(found)}))
    message(f"each {evaluator.item}: {file}")
    if (warning := evaluator.warning(evaluation)) is not None:
        message(f"warning: {warning}")
    if figure is not None:
        save_figure(evaluator.figure(found, headline), figure)


def _result_file(model: Path, name: str, out: Path | None, *, raw: bool) -> Path:
    """The result file of an evaluation: in the run's folder, or next to the model file.

    Args:
        model: The evaluated model.
        name: Name of the evaluation.
        out: Folder to write to instead.
        raw: Whether the raw weights are evaluated rather than their EMA; marked in the file name, as a checkpoint is.
    """
    from vcycle.tasks.saved_weights import run_of

    marks = [model.stem] if model.is_file() and run_of(model) is not None else []
    marks += ["raw"] if raw else []
    return (out or _folder(model)) / f"{'.'.join([name, *marks])}.json"


def _folder(name: Path) -> Path:
    from vcycle.tasks.saved_weights import run_of

    if names_recipe(name):
        return Path("runs") / f"{name.stem}-init"
    return run_of(name) or (name if name.is_dir() else name.parent)

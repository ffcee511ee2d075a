"""Exports a trained network as a program that runs without vcycle: by PyTorch alone (`torch.export`), or ONNX."""

import importlib.util
import io
import json
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from vcycle.errors import CheckpointError, VcycleError, summary
from vcycle.nn import revert_batchnorm
from vcycle.tasks.base import tasks
from vcycle.tasks.saved_weights import Provenance, SavedWeights
from vcycle.utils.atomic import atomic_path
from vcycle.utils.extras import require

__all__ = ["FACTS", "FORMATS", "export_program"]

FACTS = "vcycle.json"
"""The name under which a program holds the facts about it, as JSON."""
_CLOSE = 1e-3
"""The largest difference of an output from the run's, in units of its largest value: kernels may round differently."""
_BATCHES = (1, 3)
"""Batch sizes that a program is tried with. Neither is that of the example it is traced with."""


def export_program(
    saved: SavedWeights, file: Path, form: str, on_message: Callable[[str], None] = lambda _: None
) -> Mapping[str, Any]:
    """Write a network as a program with a dynamic batch size, at `Task.input_shape`, and compare its outputs.

    BatchNorm is plain, and the program is in evaluation mode. Beside it, the file holds the facts that it needs: see
    `Task.input_facts`.

    Args:
        saved: From `vcycle.tasks.saved_weights.read_saved`.
        file: The output file; replaced if it exists.
        form: One of `FORMATS`.
        on_message: Called with what could not be compared.

    Returns:
        The facts.

    Raises:
        CheckpointError: if the network cannot be traced, the program gives other outputs than it, or the file cannot
            be written.
        NotInstalledError: if a library that the form needs is missing.
    """
    trained = saved.trained
    if trained is None:
        raise CheckpointError(
            f"weights {saved.weights.source} have no record of their training; accepted: a run folder"
        )
    write = FORMATS[form]
    task, recipe = tasks[trained.recipe.task], trained.recipe
    model = task.build_model(recipe, len(trained.classes), download=False)
    task.load_weights(model, saved.weights, recipe)
    revert_batchnorm(model)
    model.eval().requires_grad_(False)
    examples = _inputs(model, trained)
    facts = {
        "input": [str(size) for size in ("batch", *examples[0].shape[1:])],
        "classes": list(trained.classes),
        "step": trained.step,
        **task.input_facts(recipe),
    }
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about PyTorch's own internals
            content, run = write(model, examples[0], json.dumps(facts))
    except VcycleError:
        raise
    except Exception as error:  # torch's own, of many kinds
        raise CheckpointError(f"model {recipe.model.name} cannot be exported as {form}: {summary(error)}") from error
    if run is None:
        on_message("onnxruntime is not installed: the outputs were not compared with the run's")
    else:
        _compare(run, model, examples[1:])
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with atomic_path(file) as partial:
            partial.write_bytes(content)
    except OSError as error:
        raise CheckpointError(f"{file} cannot be written: {error.strerror or error}") from None
    return facts


def _compare(run: "_Run", model: nn.Module, inputs: Sequence[Tensor]) -> None:
    for clips in inputs:
        with torch.no_grad():
            found, expected = run(clips), model(clips)
        if found.shape != expected.shape or not _close(found, expected):
            raise CheckpointError(f"the exported program's output on a batch of {len(clips)} differs from the run's")


def _close(found: Tensor, expected: Tensor) -> bool:
    largest = float(expected.abs().max())
    return torch.allclose(found, expected, rtol=0, atol=_CLOSE * max(largest, 1e-6), equal_nan=True)


def _inputs(model: nn.Module, trained: Provenance) -> Sequence[Tensor]:
    """What the network is called with: for a batch of 2, to trace it with, and for those it is tried with."""
    task, recipe = tasks[trained.recipe.task], trained.recipe
    objective, shape = task.objective(recipe, len(trained.classes)), task.input_shape(recipe, trained.plan)
    given: dict[int, Tensor] = {}

    def note(_: nn.Module, arguments: tuple[Any, ...]) -> None:
        given.setdefault(len(arguments[0]), arguments[0])

    hook = model.register_forward_pre_hook(note)
    try:
        with torch.no_grad():
            for clips in (2, *_BATCHES):
                noise, _ = objective.noise(clips, shape, torch.device("cpu"))
                objective.predict(model, noise)
    finally:
        hook.remove()
    return [clips.contiguous() for clips in given.values()]


_Run = Callable[[Tensor], Tensor]


def _as_torch_export(model: nn.Module, example: Tensor, facts: str) -> tuple[bytes, _Run]:
    batch = torch.export.Dim("batch", min=1)
    program = torch.export.export(model, (example,), dynamic_shapes=({0: batch},), strict=False)
    content = io.BytesIO()
    torch.export.save(program, content, extra_files={FACTS: facts})
    content.seek(0)
    loaded = torch.export.load(content).module()
    return content.getvalue(), lambda clips: loaded(clips)


def _as_onnx(model: nn.Module, example: Tensor, facts: str) -> tuple[bytes, _Run | None]:
    for library in ("onnx", "onnxscript"):
        require(library, "--format onnx needs")
    batch = torch.export.Dim("batch", min=1)
    traced = torch.export.export(model, (example,), dynamic_shapes=({0: batch},), strict=False)
    program = torch.onnx.export(traced, (), dynamo=True, input_names=["clips"], output_names=["output"], verbose=False)
    assert program is not None
    made: Any = program.model_proto
    made.metadata_props.add(key=FACTS, value=facts)
    content: bytes = made.SerializeToString()
    if importlib.util.find_spec("onnxruntime") is None:
        return content, None
    session = require("onnxruntime").InferenceSession(content, providers=["CPUExecutionProvider"])
    (name,) = (given.name for given in session.get_inputs())
    return content, lambda clips: torch.from_numpy(session.run(None, {name: clips.numpy()})[0])


FORMATS: Mapping[str, Callable[[nn.Module, Tensor, str], tuple[bytes, _Run | None]]] = {
    "torch-export": _as_torch_export,
    "onnx": _as_onnx,
}
"""Writes a network as bytes, traced with an example and with the facts about it, and returns how they are run."""

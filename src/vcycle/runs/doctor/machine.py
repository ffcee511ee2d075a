"""The machine: devices, cores, memory and limits of this process."""

import os
import resource
from pathlib import Path

from vcycle.config.recipe import RecipeBase
from vcycle.errors import VcycleError
from vcycle.runs.doctor.finding import Finding, Level
from vcycle.tasks.base import tasks
from vcycle.utils.cores import cores
from vcycle.utils.memory import free_memory
from vcycle.utils.units import as_size

__all__ = ["compute", "device", "limits", "memory"]

_LEAST_FILES = 1024
_LEAST_MEMORY = 2e9
_TIGHT_MEMORY = 8e9
_MOST_WORKERS = 8
_GPU_FILES = ("/dev/nvidia0", "/dev/nvidiactl", "/dev/kfd")
_NONE = "there is no GPU"
_THREADS = "OMP_NUM_THREADS"
_SMALL = "r3d_tiny"
_SMALL_SIDE = 64
"""The model and the side of a clip that suit a CPU."""


def device(recipe: RecipeBase | None) -> list[Finding]:
    """The device that a training takes. Imports torch, which must be importable."""
    import torch

    if torch.cuda.is_available():
        return [*_gpus(), *_precision(recipe, "cuda")]
    if recipe is not None and recipe.run.device == "cuda":
        change = "set run.device=auto to train on the CPU" if _no_gpu() == _NONE else _how_to_gpu(recipe)
        return [Finding(level="stop", about="device", found=f"run.device is cuda, but {_no_gpu()}", change=change)]
    slow = Finding(level="slow", about="device", found=f"CPU: {_no_gpu()}", change=_how_to_gpu(recipe))
    return [slow, *_precision(recipe, "cpu")]


def _no_gpu() -> str:
    """Why torch uses no GPU."""
    import torch

    hidden = os.environ.get("CUDA_VISIBLE_DEVICES")
    built = torch.version.cuda or getattr(torch.version, "hip", None)
    if hidden is not None and hidden.strip() in ("", "-1"):
        return f"CUDA_VISIBLE_DEVICES={hidden!r} hides all GPUs"
    if any(Path(file).exists() for file in _GPU_FILES):
        cause = f"its driver does not suit torch for CUDA {built}" if built else "this torch is built without CUDA"
        return f"there is a GPU which torch cannot use: {cause}"
    if torch.backends.mps.is_available():
        return "training does not use this machine's MPS device"
    return _NONE


def _how_to_gpu(recipe: RecipeBase | None) -> str:
    """How to get a GPU to work, or to train without one."""
    import torch

    if os.environ.get("CUDA_VISIBLE_DEVICES") is not None:
        return "unset CUDA_VISIBLE_DEVICES"
    if any(Path(file).exists() for file in _GPU_FILES):
        return "update the driver" if torch.version.cuda else "install the build of torch for CUDA"
    fits = "`vcycle plan auto --hours` fits the training into your time"
    smaller = _smaller(recipe)
    return f"a small network and small clips suit a CPU: {', '.join(smaller)}; {fits}" if smaller else fits


def _smaller(recipe: RecipeBase | None) -> list[str]:
    """Changes that make a recipe small; none for one that is, or whose task has no such model."""
    network, side = f"model={_SMALL}", f"training.size={_SMALL_SIDE}"
    if recipe is None:
        return [network, side]
    models = tasks[recipe.task].models
    if models is None or _SMALL not in models:
        return []
    size = getattr(recipe.training, "size", None)
    is_large = isinstance(size, int) and size > _SMALL_SIDE
    return [network] * (recipe.model.name != _SMALL) + [side] * is_large


def _gpus() -> list[Finding]:
    """Name, memory and precision of each GPU."""
    import torch

    findings = []
    for number in range(torch.cuda.device_count()):
        properties = torch.cuda.get_device_properties(number)
        try:
            free, total = torch.cuda.mem_get_info(number)
        except RuntimeError as error:
            words = f"{properties.name} cannot be used: {str(error).splitlines()[0]}"
            findings.append(Finding(level="stop", about=f"GPU {number}", found=words, change="run `nvidia-smi`"))
            continue
        bf16 = "bf16" if (properties.major, properties.minor) >= (8, 0) else "no fast bf16"
        runtime = f"CUDA {torch.version.cuda}" if torch.version.cuda else "ROCm"
        found = f"{properties.name}, {as_size(free)} of {as_size(total)} free, {bf16}, torch for {runtime}"
        if free < total / 2:
            change = "another program holds its memory: `nvidia-smi` names it"
            findings.append(Finding(level="slow", about=f"GPU {number}", found=found, change=change))
        else:
            findings.append(Finding(level="ok", about=f"GPU {number}", found=found))
    return findings


def _precision(recipe: RecipeBase | None, kind: str) -> list[Finding]:
    """Whether the recipe's precision is sound and fast on the device."""
    import torch

    from vcycle.train.accelerator import make_accelerator, slowness

    if recipe is None:
        return []
    name = recipe.run.precision
    try:
        make_accelerator(recipe.run)
    except VcycleError as error:
        return [Finding(level="stop", about="precision", found=str(error), change="set run.precision=fp32")]
    if (why := slowness(name, torch.device(kind))) is not None:
        return [Finding(level="slow", about="precision", found=why, change="set run.precision=fp32")]
    if kind == "cuda" and name == "fp32" and torch.cuda.get_device_capability(0) >= (8, 0):
        change = "run.precision=bf16 is usually faster; `vcycle bench` measures it"
        return [Finding(level="note", about="precision", found="run.precision is fp32", change=change)]
    return [Finding(level="ok", about="precision", found=f"run.precision is {name}")]


def compute(recipe: RecipeBase | None, idle: float | None) -> list[Finding]:
    """Cores, `idle` of which other programs leave idle, against threads and data workers. Imports torch."""
    import torch

    here, there = cores(), os.cpu_count() or 1
    found = f"{here} of {there} cores for this process"
    limited = "" if here == there else ", by its affinity or its container"
    findings = []
    if idle is not None and idle < here / 2:
        change = "other programs use them; run one training at a time, or wait"
        words = f"{found}{limited}, {idle:.1f} of them idle"
        findings.append(Finding(level="slow", about="cores", found=words, change=change))
    else:
        findings.append(Finding(level="ok", about="cores", found=f"{found}{limited}"))
    given = os.environ.get(_THREADS)
    if (
        given
        and given.isdecimal()
        and int(given) < here
        and (idle is None or idle >= 1)
        and not torch.cuda.is_available()
    ):
        words = f"{_THREADS}={given}: torch computes on {given} of {here} cores"
        findings.append(Finding(level="slow", about="threads", found=words, change=f"unset {_THREADS}"))
    elif given and given.isdecimal() and int(given) > here:
        words = f"{_THREADS}={given} on {here} cores: threads wait for each other"
        findings.append(Finding(level="slow", about="threads", found=words, change=f"unset {_THREADS}"))
    return findings + ([] if recipe is None else _workers(recipe, here, gpu=torch.cuda.is_available()))


def _workers(recipe: RecipeBase, here: int, *, gpu: bool) -> list[Finding]:
    """Data workers against cores."""
    workers = recipe.data.workers
    enough = min(_MOST_WORKERS, here - 1)
    found = f"data.workers={workers} on {here} cores"
    if workers > here:
        change = f"they wait for each other: data.workers={max(1, here - 1)}"
        return [Finding(level="slow", about="data workers", found=found, change=change)]
    if gpu and workers < enough:
        change = f"a GPU waits for decoding: data.workers={enough}; `vcycle bench --data` says what bounds a step"
        return [Finding(level="slow", about="data workers", found=found, change=change)]
    return [Finding(level="ok", about="data workers", found=found)]


def memory() -> list[Finding]:
    """Main memory that this process may still take."""
    free = free_memory()
    if free is None:
        return []
    found = f"{as_size(free)} of main memory available"
    if free < _LEAST_MEMORY:
        change = "end other programs, or raise the container's limit; data.prefetch and data.workers save some"
        return [Finding(level="slow", about="memory", found=found, change=change)]
    level: Level = "note" if free < _TIGHT_MEMORY else "ok"
    change = "if a process is killed, lower data.workers, data.prefetch or training.batch" if level == "note" else ""
    return [Finding(level=level, about="memory", found=found, change=change)]


def limits() -> list[Finding]:
    """Limits of the shell on open files and address space."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    findings = []
    if soft != resource.RLIM_INFINITY and soft < _LEAST_FILES:
        change = f"ulimit -n {_LEAST_FILES if hard == resource.RLIM_INFINITY or hard >= _LEAST_FILES else hard}"
        findings.append(Finding(level="slow", about="open files", found=f"at most {soft}", change=change))
    else:
        words = "no limit" if soft == resource.RLIM_INFINITY else f"at most {soft:,}"
        findings.append(Finding(level="ok", about="open files", found=words))
    space, _ = resource.getrlimit(resource.RLIMIT_AS)
    if space != resource.RLIM_INFINITY:
        found = f"the address space is limited to {as_size(space)} (ulimit -v)"
        change = "ulimit -v unlimited: GPUs map more than they use"
        findings.append(Finding(level="slow", about="address space", found=found, change=change))
    return findings

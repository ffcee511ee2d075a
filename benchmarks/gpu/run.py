"""Step times of the papers' networks at every batch shape of their plans, on one GPU, beside what the papers report.

    PYTHONPATH=src python benchmarks/gpu/run.py --out gpu          # at most eight minutes; again: goes on
    PYTHONPATH=src python benchmarks/gpu/run.py --smoke --out x    # all of it on a CPU, at reduced width and size

It needs Python 3.11 and torch 2.11 or later, and torchvision for EDVR; no data, no decoder, nothing else. What there is
to measure, and the work of each shape, is in `plans.json`, which `plans.py` wrote from the recipes.
"""

import argparse
import json
import platform
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from vcycle.bench.memory import forget_peak, peak_bytes
from vcycle.bench.steps.ceiling import peak_flops
from vcycle.bench.timing import Spread
from vcycle.nn import SubBatchNorm, convert_batchnorm, set_bn_batch
from vcycle.tasks.recognition.models import build_model
from vcycle.tasks.superres.models import MODELS as RESTORERS
from vcycle.train.graphs import Recorder, on_cuda
from vcycle.train.memory import is_out_of_memory, release
from vcycle.train.optimizer import build_optimizer

sys.path.insert(0, str(Path(__file__).parent))
from tables import markdown

PLANS = Path(__file__).with_name("plans.json")
MODES = ("eager", "graphs")
CLASSES = 400
SCALE = 4

_COMPILING = 120.0
"""Seconds that are kept for what has to be compiled."""


@dataclass(frozen=True, kw_only=True)
class Effort:
    """How, and how much, is measured."""

    device: torch.device
    repeats: int
    seconds: float
    """Of each repeat; one step at least."""
    smoke: bool


class Cell(NamedTuple):
    """One batch shape of a piece, in one way."""

    piece: str
    place: int
    mode: str


def main() -> None:
    """Measure what is not measured yet, until the time is up."""
    arguments = _arguments()
    began = time.monotonic()
    device = torch.device("cpu" if arguments.smoke else "cuda")
    if device.type == "cuda" and not torch.cuda.is_available():
        sys.exit("torch finds no CUDA device: --smoke runs everything on a CPU, at reduced width and size")
    effort = Effort(
        device=device,
        repeats=1 if arguments.smoke else 5,
        seconds=0.0 if arguments.smoke else 0.15,
        smoke=arguments.smoke,
    )
    torch.manual_seed(0)
    torch.backends.cudnn.benchmark = True
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True  # where autocast leaves fp32
    pieces = json.loads(PLANS.read_text(encoding="utf-8"))
    arguments.out.mkdir(parents=True, exist_ok=True)
    log = arguments.out / "results.jsonl"
    before = _lines(log)
    done = {Cell(*line["cell"]) for line in before if "cell" in line}
    here = _environment(effort)
    if other := next((line["environment"] for line in before if not _alike(line.get("environment", here), here)), None):
        sys.exit(f"{log} was measured on {_named(other)}, and this is {_named(here)}: name another folder with --out")
    _write(log, environment=here)
    wanted = [cell for cell in _cells(pieces, effort) if cell not in done]
    wanted = [cell for cell in wanted if arguments.only is None or arguments.only in cell.piece]
    stepper: Stepper | None = None
    for cell in wanted:
        needed = _COMPILING if cell.mode == "compiled" and not effort.smoke else 0.0
        if time.monotonic() - began + needed > arguments.seconds:
            if needed:
                continue
            break
        piece = next(each for each in pieces if each["name"] == cell.piece)
        now = time.monotonic() - began
        print(f"{now:6.1f} s  {cell.piece}: {_shape(piece, cell.place, effort)}, {cell.mode}", flush=True)
        try:
            if stepper is None or (stepper.piece, stepper.mode) != (piece, cell.mode):
                stepper = None
                release(device)
                stepper = Stepper(piece, cell.mode, effort)
            found = stepper.measured(cell.place)
        except Exception as error:  # the next is tried all the same
            stepper = None
            said = "out of memory" if is_out_of_memory(error) else f"{type(error).__name__}: {error}".splitlines()[0]
            found = {"failed": said}
            print(f"          {said}")
        _write(log, cell=list(cell), **found)
        if "failed" in found and not _answers(device):
            print("          the device answers no more: what comes next would fail with it")
            break
    lines = _lines(log)
    (arguments.out / "README.md").write_text(markdown(pieces, lines), encoding="utf-8")
    left = len(set(wanted) - {Cell(*line["cell"]) for line in lines if "cell" in line})
    goes_on = f"; {left} of {len(wanted)} are left, and the same command goes on" if left else ""
    print(f"{arguments.out / 'README.md'} after {time.monotonic() - began:.0f} s{goes_on}")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Step times of the papers' networks on one GPU.")
    parser.add_argument("--out", type=Path, default=Path("gpu"), help="folder of results.jsonl and README.md")
    parser.add_argument("--seconds", type=float, default=420.0, help="no piece is begun after so many")
    parser.add_argument("--only", help="pieces whose name has this in it")
    parser.add_argument("--smoke", action="store_true", help="everything on a CPU, at reduced width and size")
    return parser.parse_args()


def _cells(pieces: list[dict[str, Any]], effort: Effort) -> list[Cell]:
    """All that can be measured, most telling first: each piece eager and by graphs; a few in other ways."""
    cells = [
        Cell(piece["name"], place, mode)
        for piece in pieces
        for mode in MODES
        # Full shape first: what needs the most memory fails at once.
        for place in sorted(range(len(piece["shapes"])), key=lambda place: -piece["shapes"][place]["gflop"])
    ]
    more = [
        Cell(piece["name"], place, mode)
        for piece in pieces
        for place, shape in enumerate(piece["shapes"])
        for mode in shape["more"]
    ]
    early = len(MODES) * sum(len(piece["shapes"]) for piece in pieces[:3])
    return cells[:early] + sorted(more, key=lambda cell: cell.mode) + cells[early:]


class Stepper:
    """A network, its loss and its optimizer, stepping in one way."""

    def __init__(self, piece: dict[str, Any], mode: str, effort: Effort) -> None:
        """Build it on the device."""
        self.piece, self.mode, self._effort = piece, mode, effort
        self._superres = piece["task"] == "superresolution"
        options = {**piece["options"], **(piece["smoke"] if effort.smoke else {})}
        name = piece["model"]
        model = RESTORERS.build(name, **options) if self._superres else build_model(name, CLASSES, **options)
        model = convert_batchnorm(model, 8).to(effort.device).train()
        if not self._superres:
            model = model.to(memory_format=torch.channels_last_3d)
        elif mode == "channels last":
            model = model.to(memory_format=torch.channels_last)
        self._model = model
        section: Any = SimpleNamespace(**piece["optimizer"])  # not the recipe's own, which needs pydantic
        self._optimizer = build_optimizer(section, self._model, fused=effort.device.type == "cuda")
        for group in self._optimizer.param_groups:
            group["lr"] = 1e-4
        self._forward: Callable[..., Tensor] = self._model
        if mode == "compiled":
            torch.compiler.reset()
            backend = "eager" if effort.smoke else "inductor"
            self._forward = torch.compile(self._model, dynamic=False, backend=backend)
        self._recorder = None
        if mode == "graphs":
            self._recorder = Recorder(self._model, _again if effort.smoke else on_cuda())

    def measured(self, place: int) -> dict[str, Any]:
        """Milliseconds of a step at a shape, by part where they can be told apart, and memory."""
        batch, frames, size, bn_batch = _shape(self.piece, place, self._effort)
        set_bn_batch(self._model, bn_batch)
        clips, labels = self._noise(batch, frames, size)
        device = self._effort.device
        began = time.perf_counter()
        # Algorithms are chosen, memory is taken, what is to be compiled or recorded is.
        for _ in range(1 if self._effort.smoke else 2):
            self._step(clips, labels)
        self._now()
        prepared = time.perf_counter() - began
        forget_peak(device)
        once = self._timed(1, clips, labels)[0]
        steps = max(1, round(self._effort.seconds / once))
        runs = [self._timed(steps, clips, labels) for _ in range(self._effort.repeats)]
        found = {
            "step_ms": Spread.of([1e3 * whole for whole, _ in runs])._asdict(),
            "launch_share": sorted(launch / whole for whole, launch in runs)[len(runs) // 2],
            "memory_mib": (peak_bytes(device) or 0) >> 20,
            "prepared_s": prepared,
            "steps": steps,
        }
        if device.type == "cuda":
            found["reserved_mib"] = torch.cuda.memory_reserved(device) >> 20
        return found | {"parts_ms": self._parts(clips, labels)}

    def _timed(self, steps: int, clips: Tensor, labels: Tensor) -> tuple[float, float]:
        """Seconds of a step, and of it until all was handed to the device."""
        began = self._now()
        for _ in range(steps):
            self._step(clips, labels)
        launched = time.perf_counter()
        return (self._now() - began) / steps, (launched - began) / steps

    def _parts(self, clips: Tensor, labels: Tensor) -> dict[str, float]:
        """Milliseconds of one step's parts, each waited for; a recording has no parts but the optimizer."""
        times = [self._now()]
        if self._recorder is None:
            loss = self._loss(clips, labels)
            times.append(self._now())
            loss.backward()
            names: tuple[str, ...] = ("forward", "backward", "optimizer")
        else:
            self._learn(clips, labels)
            names = ("forward and backward", "optimizer")
        times.append(self._now())
        self._update()
        times.append(self._now())
        spans = zip(names, pairwise(times), strict=True)
        return {name: 1e3 * (end - begin) for name, (begin, end) in spans}

    def _step(self, clips: Tensor, labels: Tensor) -> None:
        self._learn(clips, labels)
        self._update()

    def _learn(self, clips: Tensor, labels: Tensor) -> None:
        if self._recorder is None:
            self._learnt(clips, labels)
        else:
            self._recorder((clips.shape, self.bn_batch), self._learnt, clips, labels)

    def _learnt(self, clips: Tensor, labels: Tensor) -> Tensor:
        loss = self._loss(clips, labels)
        loss.backward()
        return loss.detach()

    def _loss(self, clips: Tensor, labels: Tensor) -> Tensor:
        """The tasks' own losses, in bf16 on a GPU."""
        device = self._effort.device
        reduced = torch.autocast(device.type, dtype=torch.bfloat16) if device.type == "cuda" else nullcontext()
        with reduced:
            if not self._superres:
                x = clips.float().sub_(115).mul_(0.0174).permute(0, 4, 1, 2, 3)
                return functional.cross_entropy(self._forward(x).float(), labels)
            restored = self._forward(_video(clips), mirrored=self.piece["mirrored"])
            first = (labels.shape[1] - restored.shape[1]) // 2
            truth = _video(labels[:, first : first + restored.shape[1]])
            return ((restored.float() - truth).square() + 1e-12).sqrt().mean()

    def _update(self) -> None:
        self._optimizer.step()
        self._optimizer.zero_grad()

    def _noise(self, batch: int, frames: int, size: int) -> tuple[Tensor, Tensor]:
        """A batch as the tasks take it, on the device."""

        def pixels(side: int) -> Tensor:
            return torch.randint(0, 256, (batch, frames, side, side, 3), dtype=torch.uint8, device=self._effort.device)

        if self._superres:
            return pixels(size), pixels(SCALE * size)
        return pixels(size), torch.randint(0, CLASSES, (batch,), device=self._effort.device)

    @property
    def bn_batch(self) -> int | None:
        """Clips in a group of BatchNorm."""
        return next((m.bn_batch for m in self._model.modules() if isinstance(m, SubBatchNorm)), None)

    def _now(self) -> float:
        if self._effort.device.type == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter()


def _again(work: Callable[[], Tensor]) -> tuple[Tensor, Callable[[], None]]:
    """What stands for a recording on a CPU: the work done again."""

    def play() -> None:
        work()

    return work(), play


def _video(clips: Tensor) -> Tensor:
    return clips.movedim(-1, -3).float().div_(255)


def _shape(piece: dict[str, Any], place: int, effort: Effort) -> tuple[int, int, int, int]:
    """Batch, frames, side and BatchNorm's group of one of a piece's shapes."""
    shape = piece["shapes"][place]
    batch, frames, size, bn_batch = (shape[name] for name in ("batch", "frames", "size", "bn_batch"))
    if not effort.smoke:
        return batch, frames, size, bn_batch
    if piece["task"] == "superresolution":
        fewer = frames if piece["model"].startswith("edvr") else frames // 3
        return 1, fewer + fewer % 2 if piece["mirrored"] else fewer, size // 2, bn_batch
    return max(batch // 8, 2), frames, size // 6, max(bn_batch // 8, 2)


def _environment(effort: Effort) -> dict[str, Any]:
    found = {"python": platform.python_version(), "torch": torch.__version__, "smoke": effort.smoke}
    if effort.device.type == "cuda":
        at = torch.cuda.get_device_properties(effort.device)
        found |= {"device": at.name, "memory_gib": at.total_memory >> 30, "cuda": torch.version.cuda}
        found |= {"cudnn": torch.backends.cudnn.version(), "precision": "bf16"}
        found["peak_tflops"] = peak_flops(effort.device, "bf16") / 1e12
    else:
        found |= {"device": platform.machine(), "precision": "fp32"}
    return found


def _alike(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether step times of two environments may stand in one table."""
    return all(one.get(key) == other.get(key) for key in ("device", "torch", "precision", "smoke"))


def _named(found: dict[str, Any]) -> str:
    return f"{found.get('device')} with torch {found.get('torch')}" + (", --smoke" if found.get("smoke") else "")


def _answers(device: torch.device) -> bool:
    """Whether the device still computes: some errors leave it so that all that follows fails."""
    try:
        release(device)
        return torch.ones(2, device=device).sum().item() == 2
    except RuntimeError:
        return False


def _lines(log: Path) -> list[dict[str, Any]]:
    """What was measured before; a line that was cut short is left out."""
    lines = []
    for line in log.read_text(encoding="utf-8").splitlines() if log.exists() else ():
        try:
            lines.append(json.loads(line))
        except json.JSONDecodeError:
            continue
    return lines


def _write(log: Path, **values: Any) -> None:
    with open(log, "a", encoding="utf-8") as file:
        file.write(json.dumps(values, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()

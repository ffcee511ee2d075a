"""Loggers in addition to the JSON lines: TensorBoard, Weights & Biases, MLflow, and your own.

Only the first rank logs to them. All of them get the same numbers under the same names.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from vcycle.errors import RecipeError, VcycleError, reason, user_code
from vcycle.registry import Registry, import_attribute
from vcycle.utils.atomic import atomic_write
from vcycle.utils.extras import check_installed

__all__ = ["LOGGERS", "LoggedRun", "Logger", "LoggerFactory", "check_logger", "check_loggers", "open_loggers"]


class Logger(Protocol):
    """Logs the numbers of a run."""

    def log(self, numbers: Mapping[str, float], step: int) -> None:
        """Log numbers of a training step or, with the prefix `val_`, of a validation."""
        ...

    def close(self) -> None:
        """Flush and close; called at the end of training, also after an error."""
        ...


@dataclass(frozen=True, kw_only=True)
class LoggedRun:
    """The run, as a logger sees it."""

    folder: Path
    """The run's folder."""
    start: int
    """The step at which the run starts or resumes; steps from here on may be logged again."""
    recipe: str | None
    """The resolved recipe, as YAML."""

    @property
    def _ids(self) -> Path:
        return self.folder / "loggers.json"

    def known_id(self, name: str) -> str | None:
        """The run's id at a service, if it has logged there before."""
        with suppress(OSError, ValueError, AttributeError):
            found = json.loads(self._ids.read_text(encoding="utf-8")).get(name)
            return found if isinstance(found, str) else None
        return None

    def keep_id(self, name: str, value: str) -> None:
        """Save the run's id at a service in the run folder, to resume with it."""
        known: dict[str, Any] = {}
        with suppress(OSError, ValueError, TypeError):
            known = dict(json.loads(self._ids.read_text(encoding="utf-8")))
        with atomic_write(self._ids) as file:
            file.write(json.dumps({**known, name: value}, indent=1).encode() + b"\n")


LoggerFactory = Callable[[LoggedRun], Logger]

LOGGERS: Registry[LoggerFactory] = Registry("logger", "vcycle.loggers")
"""Loggers by name."""


class _TensorBoard:
    def __init__(self, run: LoggedRun) -> None:
        writer: Any = import_module("torch.utils.tensorboard").SummaryWriter
        # Events of repeated steps are not shown twice.
        self._writer = writer(str(run.folder / "tensorboard"), purge_step=run.start)
        if run.recipe is not None:
            self._writer.add_text("recipe", "    " + run.recipe.replace("\n", "\n    "), run.start)

    def log(self, numbers: Mapping[str, float], step: int) -> None:
        for name, number in numbers.items():
            self._writer.add_scalar(name, number, step)

    def close(self) -> None:
        self._writer.close()


class _WeightsAndBiases:
    def __init__(self, run: LoggedRun) -> None:
        wandb: Any = import_module("wandb")
        self._run = wandb.init(
            id=run.known_id("wandb"),
            resume="allow",
            name=run.folder.name,
            dir=str(run.folder),
            config={"recipe": run.recipe},
        )
        run.keep_id("wandb", str(self._run.id))

    def log(self, numbers: Mapping[str, float], step: int) -> None:
        self._run.log(dict(numbers), step=step)

    def close(self) -> None:
        self._run.finish()


class _MlFlow:
    def __init__(self, run: LoggedRun) -> None:
        self._mlflow: Any = import_module("mlflow")
        known = run.known_id("mlflow")
        begun = self._mlflow.start_run(run_id=known, run_name=None if known else run.folder.name)
        run.keep_id("mlflow", str(begun.info.run_id))
        if run.recipe is not None and known is None:
            self._mlflow.log_text(run.recipe, "recipe.yaml")

    def log(self, numbers: Mapping[str, float], step: int) -> None:
        self._mlflow.log_metrics(dict(numbers), step=step)

    def close(self) -> None:
        self._mlflow.end_run()


_OURS: dict[str, LoggerFactory] = {"tensorboard": _TensorBoard, "wandb": _WeightsAndBiases, "mlflow": _MlFlow}
"""Each is called like the library that it needs."""
for _name, _factory in _OURS.items():
    LOGGERS.register(_name, _factory)


def check_logger(name: str) -> None:
    """Check that a logger is registered, or given as `module:callable`.

    Raises:
        RecipeError: if it is neither, with the registered names.
    """
    if ":" not in name and name not in LOGGERS:
        LOGGERS[name]


def check_loggers(names: Sequence[str]) -> None:
    """Check that loggers can be imported, before a run.

    Raises:
        RecipeError: if one cannot, or its library is not installed.
    """
    for name in names:
        _factory_of(name)


def _factory_of(name: str) -> LoggerFactory:
    if ":" not in name:
        factory = LOGGERS[name]
        if factory is _OURS.get(name):
            check_installed(name, f"run.loggers=[{name}] needs")
        return factory
    imported: LoggerFactory = import_attribute(name, "run.loggers", here=True)
    if not callable(imported):
        raise RecipeError(f"run.loggers: {name} is {imported!r}; accepted: a callable that returns a logger")
    return imported


def open_loggers(names: Sequence[str], run: LoggedRun, on_message: Callable[[str], None]) -> list[Logger]:
    """Open the loggers of a run.

    Args:
        names: The names in `run.loggers`.
        run: The run.
        on_message: Called once for a logger that fails later: training continues without it.

    Raises:
        VcycleError: if a logger cannot be opened, with the package to install.
    """
    opened: list[Logger] = []
    try:
        for name in names:
            factory = _factory_of(name)
            with user_code(f"run.loggers: {name} cannot be opened"):
                logger = factory(run)
                if not (callable(getattr(logger, "log", None)) and callable(getattr(logger, "close", None))):
                    raise VcycleError(
                        f"run.loggers: {name} returns {type(logger).__name__}; accepted: an object with log(numbers, "
                        "step) and close()"
                    )
                opened.append(_Guarded(name, logger, on_message))
    except BaseException:
        for logger in opened:
            logger.close()
        raise
    return opened


class _Guarded:
    """A logger whose errors do not stop training."""

    def __init__(self, name: str, logger: Logger, on_message: Callable[[str], None]) -> None:
        self._name, self._logger, self._tell = name, logger, on_message
        self._failed = False

    def log(self, numbers: Mapping[str, float], step: int) -> None:
        if not self._failed:
            self._try(lambda: self._logger.log(numbers, step))

    def close(self) -> None:
        self._try(self._logger.close)

    def _try(self, call: Callable[[], None]) -> None:
        try:
            call()
        except Exception as error:  # whatever a service or a user's code raises
            if not self._failed:
                self._tell(f"logger {self._name} failed ({reason(error)}): the training continues without it")
            self._failed = True

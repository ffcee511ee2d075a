"""Where jobs on many files run: the processes of this machine, or a Ray cluster.

``jobs`` says what a job and an engine are. ``local`` is a process pool; the other engines run one on each machine, so a
file fails everywhere for the same cause.
"""

from typing import TYPE_CHECKING, Literal, get_args

from vcycle.errors import DataError

if TYPE_CHECKING:
    from vcycle.data.engines.jobs import Engine

__all__ = ["EngineName", "make_engine"]

EngineName = Literal["local", "ray"]


def make_engine(name: str, *, workers: int | None, patience: float, gpus: float = 0.0) -> "Engine":
    """Make an engine.

    Args:
        name: Its name.
        workers: Most jobs in parallel; by default one per core of this machine, or of the cluster.
        patience: Seconds without progress before a job is abandoned; longer for large files.
        gpus: GPUs of a cluster that each job needs; may be a fraction.

    Raises:
        DataError: If there is none of that name, or its cluster cannot be reached.
        NotInstalledError: If its library is missing.
    """
    if name == "ray":
        from vcycle.data.engines.ray import RayEngine

        return RayEngine(workers, patience=patience, gpus=gpus)
    if name != "local":
        raise DataError(f"engine {name}: {' or '.join(get_args(EngineName))} is accepted")
    from vcycle.data.engines.local import ProcessPool
    from vcycle.utils.cores import cores

    return ProcessPool(workers or cores(), patience=patience)

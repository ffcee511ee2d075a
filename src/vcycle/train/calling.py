"""Calls of the user's network: names it and its clips in the error of an exception that it raises."""

from contextlib import AbstractContextManager

from vcycle.errors import user_code
from vcycle.train.memory import is_out_of_memory
from vcycle.train.ranks import is_communication_error

__all__ = ["MODEL_NAME", "calling", "is_handled_elsewhere", "name_of"]

MODEL_NAME = "_vcycle_name"
"""The attribute of a network that holds the name by which it was built: a registered name, or `module:Class`."""


def name_of(model: object) -> str:
    """The name by which a network was built, or else its class, as `module:Class`."""
    kind = type(model)
    found: str = getattr(model, MODEL_NAME, None) or f"{kind.__module__}:{kind.__qualname__}"
    return found


def calling(model: object, where: str, *others: object) -> AbstractContextManager[None]:
    """Report an exception of a network as one error that names it, its file and line, and where it was called.

    Running out of memory and a lost connection between ranks are handled elsewhere, and pass unchanged.

    Args:
        model: The network.
        where: The step and the shape of the clips, such as `at step 12 (8×4×32²)`.
        others: What is called too and may be the user's, such as the objective.

    Raises:
        UserCodeError: for an exception within the context.
    """
    return user_code(f"model {name_of(model)!r} failed {where}", model, *others, passing=is_handled_elsewhere)


def is_handled_elsewhere(error: BaseException) -> bool:
    """Whether the trainer handles an exception itself: out of memory, or another rank has ended."""
    return is_out_of_memory(error) or is_communication_error(error)

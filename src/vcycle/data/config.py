"""The options of loading that every task's recipe shares. The string under a field is its documentation."""

from typing import Annotated

from pydantic import Field, PositiveFloat, PositiveInt

from vcycle.section import Section

__all__ = ["LoadingSection"]


class LoadingSection(Section):
    """How clips are loaded; none of it changes which clips are trained on."""

    workers: Annotated[int, Field(ge=0, le=1024)] = 2
    """Processes that load clips; 0 loads in the training process."""
    timeout: PositiveFloat = 60.0
    """Seconds that a worker may take over a clip. Then both are replaced: the worker, and the clip by another."""
    prefetch: PositiveInt | None = None
    """Clips to load ahead where batches are smallest, by default 4 for each worker; as many batches elsewhere, never
    less than two."""

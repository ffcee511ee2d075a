"""Recipe section for data loading. The string under a field is its documentation."""

from typing import Annotated, Any

from pydantic import Field

from vcycle.section import Clips, Seconds, Section

__all__ = ["LoadingSection"]


class LoadingSection(Section):
    """How clips are loaded. No option here changes a batch."""

    workers: Annotated[int, Field(ge=0, le=1024)] = 2
    """Number of worker processes; 0 loads in the training process."""
    timeout: Seconds = 60.0
    """Seconds a worker may take for a clip. After a timeout, the worker is restarted and the clip is replaced."""
    prefetch: Clips | None = None
    """Number of clips to load ahead at the smallest batch size, by default 4 per worker. Other sizes load
    ahead the same number of batches, at least two."""

    @property
    def loader_options(self) -> dict[str, Any]:
        """The arguments of `vcycle.loader` that these are."""
        return {name: getattr(self, name) for name in LoadingSection.model_fields}

"""Opens the journal of a preparation of frames, and finds finished stores."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from vcycle.data.prepare.journal import Journal
from vcycle.errors import DataError
from vcycle.tasks.base import SPLITS
from vcycle.tasks.superres.pairs.store import StoredClip, is_store
from vcycle.utils.locks import file_lock

__all__ = ["is_begun", "journal_of", "stores_in"]

_NAME = "journal.jsonl"
_REMEDY = "name another folder, or delete this one"


def is_begun(folder: Path) -> bool:
    """Whether a folder holds an unfinished store."""
    return (folder / _NAME).is_file() and not is_store(folder)


@contextmanager
def journal_of(folder: Path, settings: Mapping[str, str]) -> Iterator[Journal]:
    """Open the journal of a folder exclusively; its entries are of kind ``clip``, by the name of the clip.

    Args:
        folder: The output folder; created if missing.
        settings: The settings of the preparation.

    Raises:
        DataError: if another process writes to the folder; or the journal is damaged, has other settings, or is missing
            in a finished store.
        OSError: if the folder cannot be locked or written.
    """

    def refusal(holder: str) -> DataError:
        return DataError(f"{folder}: {holder} is preparing frames there")

    def refuse(error: OSError) -> None:
        raise error

    folder.mkdir(parents=True, exist_ok=True)
    with file_lock(folder / ".lock", refusal=refusal, on_unsupported=refuse):
        try:
            journal = Journal(folder / _NAME, {"settings": dict, "clip": lambda clip: StoredClip(**clip)})
        except DataError as error:
            raise DataError(f"{error}: {_REMEDY}") from error
        begun = journal.get("settings", "")
        if begun is None and is_store(folder):
            raise DataError(f"{folder}: holds frames but no {_NAME} with their settings: {_REMEDY}")
        for key, wanted in settings.items():
            if begun is not None and begun.get(key) != wanted:
                raise DataError(f"{folder}: was prepared with {key} {begun.get(key)}, not {wanted}: {_REMEDY}")
        with journal:
            if begun is None:
                journal.note("settings", "", dict(settings))
            yield journal


def stores_in(folder: Path) -> list[Path]:
    """The stores in a folder: itself, or one per split.

    Raises:
        DataError: if a store is unfinished.
    """
    places = (folder, *(folder / split for split in SPLITS))
    if unfinished := next(filter(is_begun, places), None):
        raise DataError(f"{unfinished}: the preparation is incomplete: run the same `vcycle prepare` to resume it")
    return list(filter(is_store, places))

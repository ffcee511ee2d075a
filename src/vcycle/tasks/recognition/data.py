"""The videos of a recipe: location, splits and whether the task accepts them. Needs no torch."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from vcycle.data.layouts import LAYOUTS, VideoList, layout_of, read_folder, read_list, read_videos, splits_of
from vcycle.data.layouts.files import printable, refuse_video
from vcycle.data.layouts.folder import folder_splits
from vcycle.data.layouts.layout import AUTO
from vcycle.data.layouts.lists import list_splits, splits_in_list
from vcycle.data.locations import Location, joined, location
from vcycle.data.prepare.names import is_prepared
from vcycle.errors import DataError, RecipeError
from vcycle.tasks.base import Progress, Splits
from vcycle.tasks.recognition.recipe import DigitsSection, RecognitionRecipe
from vcycle.utils.extras import check_installed

__all__ = [
    "check_videos",
    "every_video",
    "find_videos",
    "layout_in",
    "left_out",
    "notes",
    "was_prepared",
    "without_digits",
]


def notes(splits: Splits[VideoList]) -> list[str]:
    """What a user should know: the layout recognised, videos left out or in two splits, classes without any."""
    train, others = splits.train, {"val": splits.val} | ({} if splits.test is None else {"test": splits.test})
    found = [] if splits.layout in ("folder", "list") else [f"layout: {splits.layout}, by {train.source}"]
    found += left_out([train, *others.values()])
    if splits.layout != "folder":  # a file is in one folder
        found += _shared(train, others)
    empty = sorted(set(range(len(train.classes))).difference(train.labels))
    if empty:
        names = ", ".join(repr(train.classes[label]) for label in empty[:3])
        found.append(
            f"{train.source}: no video to train on for {len(empty):,} of {len(train.classes):,} classes: "
            f"{names}{', …' if empty[3:] else ''}"
        )
    return found


_NAMED = 10
"""Videos that are named one by one where they are left out."""


def left_out(lists: Iterable[VideoList]) -> list[str]:
    """What a user should know of lists whose videos are not all there, and of folders not all of which is taken."""
    notes = []
    for videos in lists:
        if videos.missing:
            listed = len(videos) + videos.missing
            notes.append(f"{videos.source}: {videos.missing:,} of {listed:,} videos have no file and are left out")
        named = list(videos.dead.items())
        notes += [
            f"left out, as it cannot be opened: {joined(videos.root, path)}: {cause}" for path, cause in named[:_NAMED]
        ]
        if named[_NAMED:]:
            notes.append(f"left out, as they cannot be opened: {len(named) - _NAMED:,} more videos of {videos.source}")
        if videos.beside:
            notes.append(f"{videos.source}: {videos.beside}")
    return list(dict.fromkeys(notes))  # splits that were cut from one folder have the same beside them


def _shared(train: VideoList, others: Mapping[str, VideoList]) -> list[str]:
    """How many videos of each other split are trained on as well, by their paths and the parts of them."""
    notes = []
    for split, videos in others.items():
        # By 64-bit hashes, and of the smaller split as a rule: a set of ten million paths takes gigabytes.
        own = set(map(hash, _identities(videos)))
        trained = own.intersection(map(hash, _identities(train)))
        shared = [item for item, identity in enumerate(_identities(videos)) if hash(identity) in trained]
        if shared:
            notes.append(
                f"{videos.source}: {len(shared):,} of {len(videos):,} videos of {split} are in train too, such as "
                f"{printable(videos.paths[shared[0]])}: they tell nothing of videos that the model has not seen"
            )
    return notes


def _identities(videos: VideoList) -> Iterator[str | tuple[str, float, float]]:
    """What each video is known by: its path, and its part where a film has several. No file is looked at."""
    for item, path in enumerate(videos.absolute_paths()):
        yield (path, *videos.span(item)) if videos.spans else path


def find_videos(recipe: RecognitionRecipe, work: Path, progress: Progress = lambda *_: None) -> Splits[VideoList]:
    """Find the recipe's videos, or make the embedded set under `work`.

    Raises:
        RecipeError: if the recipe names no videos.
        DataError: if they are not there, or malformed.
    """
    data = recipe.data
    if data.digits is not None:
        made = _render(data.digits, Path(data.path) if data.path else work / "digits", progress)
        return Splits(lambda split: read_videos(made, split), data.digits.clips, source=str(data.path or work))
    if data.path is None:
        raise RecipeError("the recipe names no videos: give a folder or a list file with data=PATH")
    path = location(data.path)
    if not is_prepared(path):
        if path.is_file():
            _check_list(recipe, path)
        if path.is_file() and (data.layout not in (AUTO, "list") or data.fold is not None):
            raise RecipeError(f"data.path {data.path} is one list: data.layout and data.fold go with a folder")
        if path.is_dir() and (data.val is not None or data.test is not None):
            raise RecipeError(f"data.path {data.path} is a folder: data.val and data.test go with a list file")
    layout, splits, read = _reader(recipe)
    return Splits(read, splits, source=data.path, layout=layout)


def _check_list(recipe: RecognitionRecipe, path: Location) -> None:
    """Check that a list comes with videos to validate on: in another list, or by its own column of splits."""
    data = recipe.data
    refuse_video(path)
    named = splits_in_list(path)
    given = next((key for key in ("val", "test") if getattr(data, key) is not None), None)
    if named and given is not None:
        raise RecipeError(
            f"data.path {data.path} names the split of each video in a column, and data.{given} is given: keep one"
        )
    if named and "val" not in named:
        raise RecipeError(f"data.path {data.path} has a column of splits, and none is val: it has {', '.join(named)}")
    if named or data.val is not None:
        return
    beside = list_splits(path.parent)
    others = [place.name for split, place in beside.items() if split != "train"]
    hint = ""
    if beside.get("train") == path and "val" in beside:
        hint = f"; data={path.parent} takes {' and '.join(others)} beside it as well"
    raise RecipeError(
        f"data.path {data.path} is one list: give a list of validation videos with data.val=FILE, or name the split of "
        f"each video in a column split{hint}"
    )


def every_video(recipe: RecognitionRecipe, *, cut: bool = True, vanished: bool = False) -> dict[str, VideoList]:
    """The videos that a recipe's data lists, by split, whether or not their files are there.

    Args:
        recipe: The recipe.
        cut: Whether to cut a split for validation from folders per class, as training does.
        vanished: Whether to list those that may have no file (Kinetics), too.

    Raises:
        DataError: if the data is not as it should be.
    """
    path = location(recipe.data.path or "")
    layout, splits, read = _reader(recipe, check_files=False, vanished=vanished)
    if layout == "folder" and not cut and not folder_splits(path):
        return {"train": read_folder(path, "train", val_fraction=0, frame_rate=recipe.data.frame_rate)}
    return {split: read(split) for split in splits or ("train",)}  # where there is none, that says why


def layout_in(recipe: RecognitionRecipe) -> str:
    """The layout of a recipe's data.

    Raises:
        DataError: if there is no such data.
    """
    return _reader(recipe, check_files=False)[0]


def _reader(
    recipe: RecognitionRecipe, *, check_files: bool = True, vanished: bool = False
) -> tuple[str, Sequence[str], Callable[[str], VideoList]]:
    """Layout and splits of the recipe's videos, and the reader of a split."""
    data = recipe.data
    if data.layout != AUTO:
        _ = LAYOUTS[data.layout]  # known?
    path = location(data.path or "")
    root = None if data.root is None else location(data.root)
    if is_prepared(path):
        for key in ("val", "test", "root", "fold", "frame_rate"):
            if getattr(data, key) is not None:
                raise RecipeError(
                    f"data.{key} has no use for {data.path}, which is prepared and has its splits in it: leave it out, "
                    "or prepare what it says"
                )
        from vcycle.data import load_index

        index = load_index(path)
        return "prepared", index.splits, index.videos
    if path.is_file() and (named := splits_in_list(path)):
        return (
            "list",
            named,
            _confined(
                lambda split: read_list(path, root, split=split, check_files=check_files, frame_rate=data.frame_rate),
                root,
            ),
        )
    if path.is_file():
        lists = {"train": path} | {
            split: location(given) for split, given in (("val", data.val), ("test", data.test)) if given is not None
        }
        train = read_list(path, root, check_files=check_files, frame_rate=data.frame_rate)

        def read_one(split: str) -> VideoList:
            if split == "train":
                return train
            return read_list(
                lists[split], root, classes=train.classes, check_files=check_files, frame_rate=data.frame_rate
            )

        return "list", tuple(lists), _confined(read_one, root)
    layout = _layout(recipe, path)

    def read(split: str) -> VideoList:
        return read_videos(
            path,
            split,
            layout=layout,
            videos=root,
            fold=data.fold,
            val_fraction=data.val_fraction,
            check_files=check_files or (LAYOUTS[layout].incomplete and not vanished),
            frame_rate=data.frame_rate,
        )

    return layout, splits_of(path, layout, videos=root), _confined(read, root)


def _confined(read: Callable[[str], VideoList], root: Location | None) -> Callable[[str], VideoList]:
    """What reads a list, but none that leads out of the folder of videos where one is named."""
    if root is None:
        return read

    def confined(split: str) -> VideoList:
        found = read(split)
        found.refuse_outsiders()
        return found

    return confined


def _layout(recipe: RecognitionRecipe, folder: Location) -> str:
    """Layout of a folder of videos."""
    data = recipe.data
    layout = layout_of(folder) if data.layout == AUTO else data.layout
    if data.root is not None and not LAYOUTS[layout].takes("videos"):
        raise RecipeError(
            f"data.root {data.root} goes with list files: the layout {layout} of data.path {data.path} has none; "
            "null is accepted"
        )
    return layout


def check_videos(recipe: RecognitionRecipe, splits: Splits[VideoList]) -> None:
    """Check that the recipe's task and cache take its videos. Needs no torch.

    Raises:
        RecipeError: if they do not.
        DataError: if they are all of one class.
    """
    data, training, augment, init = recipe.data, recipe.training, recipe.augment, recipe.init
    if init.needed and init.path is None and "weights" not in recipe.model.options:  # torchvision's own
        raise RecipeError(
            "the recipe begins with trained weights, and names none: give their file with init=FILE; "
            "init.needed=false trains from nothing"
        )
    if splits.train.multi_label and not training.multi_label:
        message = "its videos have any number of labels, and training.multi_label is false: true trains on them"
        raise RecipeError(f"data.path {data.path}: {message}")
    if training.multi_label and not splits.train.multi_label:
        message = "its videos have one label each, and training.multi_label is true: false trains on them"
        raise RecipeError(f"data.path {data.path}: {message}")
    classes = len(splits.train.classes)
    if classes < 2 and not training.multi_label:
        raise DataError(
            f"data.path {data.path}: its videos are of {classes} class ({', '.join(splits.train.classes)}): at least 2 "
            "are needed to tell apart"
        )
    if training.multi_label and training.label_smoothing:
        raise RecipeError(
            f"training.label_smoothing={training.label_smoothing:g}: videos of any number of labels are learnt by "
            "binary cross-entropy, which has none; 0 is accepted"
        )
    if training.precise_bn is not None and training.freeze != "none":
        raise RecipeError(
            f"training.precise_bn={training.precise_bn}: training.freeze={training.freeze} keeps BatchNorm's "
            "statistics as they are; null is accepted"
        )
    if (asked := augment.needing_torchvision) is not None:
        check_installed("torchvision", f"augment.{asked} needs")
    if data.cache is not None and was_prepared(recipe):
        from vcycle.data import load_index

        if load_index(location(data.path or "")).settings.to == "array":
            raise RecipeError(f"data.cache={data.cache}: {data.path} is an array already and needs no cache")


def without_digits(recipe: RecognitionRecipe) -> RecognitionRecipe:
    """The recipe on videos of the user's, where it would make the embedded set."""
    if recipe.data.digits is None:
        return recipe
    return recipe.model_copy(update={"data": recipe.data.model_copy(update={"digits": None})})


def was_prepared(recipe: RecognitionRecipe) -> bool:
    """Whether the recipe's videos were written by `vcycle prepare`."""
    return recipe.data.digits is None and recipe.data.path is not None and is_prepared(location(recipe.data.path))


def _render(section: DigitsSection, root: Path, progress: Progress) -> Path:
    from vcycle.tasks.recognition.digits import render_digits

    return render_digits(root, section, progress=lambda done, total: progress("making videos", done, total))

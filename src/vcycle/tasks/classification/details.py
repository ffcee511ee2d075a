"""What the page of a run shows of an evaluation: the confusion matrix, the classes, and the worst mistakes."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from vcycle.data.layouts import VideoList
from vcycle.errors import VcycleError
from vcycle.plan import Shape
from vcycle.tasks.classification.figures import draw_confusion
from vcycle.tasks.details import Detail, Drawing, Strip

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from numpy import uint8
    from numpy.typing import NDArray

    from vcycle.data import GridSampler

__all__ = ["evaluation_details", "frames_of"]

_WORST = 8
"""Number of mistakes to show."""
_LONG = 16
"""Characters of a class name in the confusion matrix on a page."""


def evaluation_details(evaluation: Mapping[str, Any], item: str) -> list[Detail]:
    """The confusion matrix, a table of the classes, and the most confident mistakes.

    With several labels per item, the table alone, of average precision.

    Args:
        evaluation: What `vcycle eval` has written.
        item: Name of one item: `video`.
    """
    classes, items = evaluation.get("per_class", ()), evaluation.get(f"{item}s", ())
    found = []
    if classes and items and all("class" in each for each in items):
        found.append(Detail(title="Confusion matrix", drawing=_confusion(classes, items, item)))
    if classes:
        found.append(Detail(title="Classes", rows=_class_rows(classes, item)))
    if strips := _mistakes(items, item):
        found.append(Detail(title="Most confident mistakes", strips=strips))
    return found


def _confusion(classes: Sequence[Mapping[str, Any]], items: Sequence[Mapping[str, Any]], item: str) -> Drawing:
    names = [str(row["class"]) for row in classes]
    place = {name: number for number, name in enumerate(names)}
    matrix = [[0] * len(names) for _ in names]
    for each in items:
        matrix[place[each["class"]]][place[next(iter(each["scores"]))]] += 1
    side = min(4.4, 1.6 + 0.3 * len(names))

    def draw(figure: "Figure") -> None:
        draw_confusion(figure, matrix, names, side=side, item=item, longest=_LONG)

    return Drawing(draw=draw, height=side + 0.9, grid=False)


def _class_rows(classes: Sequence[Mapping[str, Any]], item: str) -> list[list[str]]:
    """The classes, those with the lowest accuracy first, and those without items last."""
    measure, words = ("accuracy", "accuracy") if "accuracy" in classes[0] else ("average_precision", "AP")
    rows = [["class", f"{item}s", words, *["most often confused with"] * (measure == "accuracy")]]
    known = sorted(classes, key=lambda row: (row[measure] is None, row[measure] or 0.0, -row[f"{item}s"]))
    for row in known:
        other = row.get("taken_for")
        confused = f"{other['class']} ({other[f'{item}s']:,})" if other else "–"
        value = "–" if row[measure] is None else f"{row[measure]:.1%}"
        rows.append([str(row["class"]), f"{row[f'{item}s']:,}", value, *[confused] * (measure == "accuracy")])
    return rows


def _mistakes(items: Sequence[Mapping[str, Any]], item: str) -> list[Strip]:
    """The items whose wrong prediction has the highest scores."""
    wrong = [(next(iter(each["scores"].items())), each) for each in items if not each["right"]]
    wrong.sort(key=lambda pair: -pair[0][1])
    strips = []
    for (predicted, score), each in wrong[:_WORST]:
        true = each["class"] if "class" in each else ", ".join(each["classes"]) or "none"
        own = each["scores"].get(true)
        beside = "" if own is None else f" ({own:.0%})"
        strips.append(Strip(item=each[item], caption=f"true: {true}{beside}, predicted: {predicted} ({score:.0%})"))
    return strips


def frames_of(
    videos: VideoList, grids: "GridSampler", items: Sequence[str], *, count: int, side: int
) -> "dict[str, NDArray[uint8]]":
    """Frames of the center clips of some items; without those that are not in the list or cannot be read.

    Args:
        videos: The items.
        grids: The sampler of clips.
        items: Their paths, as `VideoDataset.name` gives them.
        count: The number of frames of each.
        side: Height and width in pixels.
    """
    from vcycle.data import VideoDataset

    dataset = VideoDataset(videos, grids)
    wanted, found = set(items), {}
    for number in range(len(videos)):
        name = dataset.name(number)
        if name in wanted and name not in found:
            try:
                found[name] = dataset.center(number, Shape(count, side, side)).clip.numpy()
            except VcycleError:
                continue  # the evaluation has named it
    return found

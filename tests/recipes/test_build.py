import shutil

import pytest
import torch

from vcycle.errors import DataError, RecipeError
from vcycle.plan import Shape
from vcycle.recipes import load_recipe
from vcycle.recipes.build import build_model, datasets_of, evaluator, find_videos, settings_of, task_of

TEXT = """
sampling: {span: [1.0, 1.0], short_side: [16, 20], flip: false}
model: {name: r3d_tiny, options: {widths: [4], blocks: [1], temporal_kernels: [3]}}
training: {batch: 4, frames: 4, size: 16, steps: 10, lr: 0.1, label_smoothing: 0.2}
"""


@pytest.fixture
def load(tmp_path):
    def load(*overrides):
        (tmp_path / "recipe.yaml").write_text(TEXT)
        return load_recipe(str(tmp_path / "recipe.yaml"), overrides)

    return load


def counts(videos):
    return len(videos.train), len(videos.val), None if videos.test is None else len(videos.test)


def test_a_folder_with_splits_gives_them(load, digit_videos, tmp_path):
    videos = find_videos(load(f"data={digit_videos}"), tmp_path)
    assert counts(videos) == (24, 8, 8)
    assert videos.train.classes == ("2-left", "2-right", "7-left", "7-right")


def test_a_folder_of_classes_is_split_by_the_recipes_fraction(load, digit_videos, tmp_path):
    videos = find_videos(load(f"data={digit_videos / 'train'}", "data.val_fraction=0.34"), tmp_path)
    assert counts(videos) == (16, 8, None)
    assert not set(videos.train.paths) & set(videos.val.paths)


def test_a_class_may_be_called_test(load, digit_videos, tmp_path):
    shutil.copytree(digit_videos / "train", tmp_path / "set")
    (tmp_path / "set" / "7-left").rename(tmp_path / "set" / "test")
    videos = find_videos(load(f"data={tmp_path / 'set'}", "data.val_fraction=0.34"), tmp_path)
    assert counts(videos) == (16, 8, None)
    assert "test" in videos.train.classes


def test_list_files_give_their_splits_and_share_their_classes(load, digit_videos, tmp_path):
    for split in ("train", "val", "test"):
        lines = [
            f"{file.relative_to(digit_videos)} {file.parent.name}" for file in (digit_videos / split).rglob("*.mp4")
        ]
        (tmp_path / f"{split}.txt").write_text("\n".join(lines))
    lists = [f"data={tmp_path / 'train.txt'}", f"data.val={tmp_path / 'val.txt'}", f"data.root={digit_videos}"]
    assert counts(find_videos(load(*lists), tmp_path)) == (24, 8, None)
    videos = find_videos(load(*lists, f"data.test={tmp_path / 'test.txt'}"), tmp_path)
    assert counts(videos) == (24, 8, 8)
    assert videos.val.classes == videos.test.classes == videos.train.classes
    with pytest.raises(RecipeError, match=r"is one list: give a list of validation videos with data.val=FILE"):
        find_videos(load(lists[0]), tmp_path)
    with pytest.raises(RecipeError, match=r"is a folder: data.root, data.val and data.test go with a list file"):
        find_videos(load(f"data={digit_videos}", lists[1]), tmp_path)


def test_without_videos_the_error_says_how_to_name_them(load, tmp_path):
    with pytest.raises(RecipeError, match="the recipe names no videos: give a folder or a list file with data=PATH"):
        find_videos(load(), tmp_path)
    with pytest.raises(DataError, match="nowhere: no such folder or list file"):
        find_videos(load(f"data={tmp_path / 'nowhere'}"), tmp_path)


def test_the_embedded_set_is_made_once_and_has_the_splits_asked_for(load, tmp_path):
    digits = "data.digits={motions: [left], clips: {train: 2, val: 1}, frames: 4, size: 16, digit_size: 9}"
    told = []
    videos = find_videos(load(digits), tmp_path, lambda *what: told.append(what))
    assert counts(videos) == (4, 2, None)
    assert told == [("making videos", done, 6) for done in range(1, 7)]
    assert videos.train.root == tmp_path / "digits" / "train"
    told.clear()
    assert find_videos(load(digits), tmp_path, lambda *what: told.append(what)) == videos
    assert told == []
    elsewhere = find_videos(load(digits, f"data={tmp_path / 'mine'}"), tmp_path)
    assert elsewhere.train.root == tmp_path / "mine" / "train"


def test_the_cache_gives_the_clips_of_the_files(load, digit_videos, tmp_path):
    plain, cached = load(f"data={digit_videos}"), load(f"data={digit_videos}", "data.cache=24")
    videos = find_videos(plain, tmp_path)
    shape = Shape(4, 16, 16)
    one, other = (datasets_of(recipe, videos, tmp_path).val.center(3, shape) for recipe in (plain, cached))
    assert torch.equal(one.clip, other.clip)
    assert (tmp_path / "cache").is_dir()


def test_weights_are_drawn_under_the_seed(load):
    one, same, other = (build_model(load(), 4, seed).state_dict() for seed in (0, 0, 1))
    assert all(torch.equal(value, same[key]) for key, value in one.items())
    assert any(not torch.equal(value, other[key]) for key, value in one.items())


def test_the_recipes_values_reach_the_task_and_the_settings(load):
    recipe = load(
        "sampling.mean=[0.1, 0.2, 0.3]", "run.save_every=7", "run.bad_limit=0.5", "data.workers=3", "run.seed=5"
    )
    task = task_of(recipe, 4)
    assert (task.classes, task.mean, task.label_smoothing) == (4, (0.1, 0.2, 0.3), 0.2)
    settings = settings_of(recipe)
    assert (settings.save_every, settings.bad_limit, settings.workers, settings.seed) == (7, 0.5, 3, 5)
    assert settings_of(recipe, seed=9).seed == 9


@pytest.mark.parametrize("workers", [0, 2])
def test_evaluation_names_a_bad_video_once_and_counts_it_every_time(load, digit_videos, tmp_path, workers):
    videos = tmp_path / "videos"
    shutil.copytree(digit_videos, videos)
    bad = videos / "val" / "7-left" / "0001.mp4"
    bad.write_bytes(b"")
    recipe = load(f"data={videos}", f"data.workers={workers}")
    splits = datasets_of(recipe, find_videos(recipe, tmp_path), tmp_path)
    said = []
    evaluate = evaluator(recipe, splits.val, said.append)
    model = build_model(recipe, 4, 0)
    first, second = (evaluate(model, torch.device("cpu")) for _ in range(2))
    assert first == second
    assert (first.samples, first.unreadable, first.protocol) == (7, 1, "1 center clip, 4×16×16")
    (text,) = said
    assert text.startswith(f"bad video {bad}: ")
    assert text.endswith("; left out of the evaluation")

import json
import shutil

import av
import pytest
import torch

from vcycle.data.prepare.run import prepare_videos
from vcycle.data.prepare.settings import PrepareSettings
from vcycle.errors import DataError, RecipeError
from vcycle.plan import Shape
from vcycle.runs.evaluate import validator
from vcycle.runs.experiment import Experiment
from vcycle.runs.train import config_of
from vcycle.tasks.recipes import load_recipe
from vcycle.tasks.recognition.data import find_videos, notes
from vcycle.tasks.recognition.init_weights import build_model
from vcycle.tasks.recognition.task import RECOGNITION
from vcycle.train.ranks import SINGLE_PROCESS

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


def test_another_root_goes_with_lists_alone(load, digit_videos, tmp_path):
    with pytest.raises(RecipeError, match=r"data\.root elsewhere goes with list files: the layout folder of "):
        find_videos(load(f"data={digit_videos}", "data.root=elsewhere"), tmp_path)


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
    with pytest.raises(RecipeError, match=r"is a folder: data.val and data.test go with a list file"):
        find_videos(load(f"data={digit_videos}", lists[1]), tmp_path)
    with pytest.raises(DataError, match=r"trian.txt.*no such"):
        find_videos(load(f"data={tmp_path / 'trian.txt'}", *lists[1:]), tmp_path)


@pytest.mark.parametrize("given", ["val=val.csv", "test=test.csv", "root=.", "fold=2"])
def test_prepared_videos_have_their_splits_and_take_no_others(load, digit_videos, tmp_path, given):
    videos = find_videos(load(f"data={digit_videos}"), tmp_path)
    splits = {"train": videos.train, "val": videos.val}
    prepare_videos(splits, tmp_path / "fast", PrepareSettings(to="array", levels=(24,)), workers=1)
    assert counts(find_videos(load(f"data={tmp_path / 'fast'}"), tmp_path)) == (24, 8, None)
    with pytest.raises(RecipeError, match=rf"data\.{given.partition('=')[0]} has no use for .*fast, which is prepared"):
        find_videos(load(f"data={tmp_path / 'fast'}", f"data.{given}"), tmp_path)


@pytest.fixture
def ucf101(digit_videos, tmp_path):
    """The embedded set's videos under the lists of UCF101: 5 groups of 2 clips in each class."""
    root = tmp_path / "ucf101"
    lists = root / "ucfTrainTestlist"
    lists.mkdir(parents=True)
    names = ["2-left", "2-right"]
    (lists / "classInd.txt").write_text("".join(f"{label} {name}\n" for label, name in enumerate(names, 1)))
    for fold in (1, 2, 3):
        for kind, groups in (("train", {1, 2, 3, 4, 5} - {fold}), ("test", {fold})):
            lines = [f"{name}/v_{name}_g{g:02}_c{c:02}.mp4" for name in names for g in sorted(groups) for c in (1, 2)]
            (lists / f"{kind}list0{fold}.txt").write_text("".join(f"{line}\n" for line in lines))
            for line in lines:
                (root / "UCF-101" / line).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(digit_videos / "train" / line.split("/")[0] / "0000.mp4", root / "UCF-101" / line)
    return root


def test_a_sets_official_files_are_recognised_and_told(load, ucf101, tmp_path):
    videos = find_videos(load(f"data={ucf101}", "data.val_fraction=0.25"), tmp_path)
    assert counts(videos) == (12, 4, 4)
    assert notes(videos) == [f"layout: ucf101, by {ucf101}/ucfTrainTestlist/trainlist01.txt"]
    third = find_videos(load(f"data={ucf101}", "data.val_fraction=0.25", "data.fold=3"), tmp_path)
    assert third.test.paths[0] == "2-left/v_2-left_g03_c01.mp4"
    named = load(f"data={ucf101 / 'UCF-101'}", "data.layout=folder", "data.val_fraction=0.2")
    assert counts(find_videos(named, tmp_path)) == (16, 4, None)
    moved = (ucf101 / "UCF-101").rename(tmp_path / "elsewhere")
    rooted = load(f"data={ucf101}", "data.val_fraction=0.25", f"data.root={moved}")
    assert find_videos(rooted, tmp_path).train.root == moved


def test_layouts_and_folds_that_do_not_fit_are_refused(load, ucf101, tmp_path):
    with pytest.raises(DataError, match="no labelled train split for layout ssv2"):
        _ = find_videos(load(f"data={ucf101}", "data.layout=ssv2"), tmp_path).train
    with pytest.raises(DataError, match=r"fold=2: layout folder of .* has no folds, only ucf101 and hmdb51 have"):
        _ = find_videos(load(f"data={ucf101 / 'UCF-101'}", "data.fold=2"), tmp_path).train
    (tmp_path / "list.csv").write_text("a.mp4 0\n")
    with pytest.raises(RecipeError, match=r"is one list: data.layout and data.fold go with a folder"):
        find_videos(load(f"data={tmp_path / 'list.csv'}", "data.val=x.csv", "data.fold=2"), tmp_path)
    with pytest.raises(RecipeError, match=r"data\.layout=ucf: unknown \(did you mean 'ucf101'\?\); accepted: auto, "):
        find_videos(load(f"data={ucf101}", "data.layout=ucf"), tmp_path)
    with pytest.raises(DataError, match="fold=4: must be one of 1, 2, 3"):
        _ = find_videos(load(f"data={ucf101}", "data.fold=4"), tmp_path).train
    with pytest.raises(RecipeError, match=r"data\.fold"):
        load("data.fold=0")


def test_videos_that_a_list_of_kinetics_misses_are_told(load, digit_videos, tmp_path):
    root = tmp_path / "kinetics"
    (root / "train").mkdir(parents=True)
    rows = {name: f"{label},{name},0,10,train" for name, label in (("a", "run"), ("b", "sit"), ("c", "run"))}
    for split in ("train", "val"):
        lines = ["label,youtube_id,time_start,time_end,split", *rows.values()]
        (root / f"{split}.csv").write_text("\n".join(lines))
    for name in ("a", "b"):
        shutil.copy(digit_videos / "train" / "2-left" / "0000.mp4", root / "train" / f"{name}_000000_000010.mp4")
    shutil.copytree(root / "train", root / "val")
    videos = find_videos(load(f"data={root}"), tmp_path)
    assert counts(videos) == (2, 2, None)
    assert notes(videos) == [
        f"layout: kinetics, by {root}/train.csv",
        f"{root}/train.csv: 1 of 3 videos have no file and are left out",
        f"{root}/val.csv: 1 of 3 videos have no file and are left out",
    ]


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
    again = find_videos(load(digits), tmp_path, lambda *what: told.append(what))
    assert (again.train, again.val, again.test) == (videos.train, videos.val, None)
    assert told == []
    elsewhere = find_videos(load(digits, f"data={tmp_path / 'mine'}"), tmp_path)
    assert elsewhere.train.root == tmp_path / "mine" / "train"


def test_the_cache_gives_the_clips_of_the_files(load, digit_videos, tmp_path):
    plain, cached = load(f"data={digit_videos}"), load(f"data={digit_videos}", "data.cache=24")
    shape = Shape(4, 16, 16)
    one, other = (Experiment(recipe, tmp_path).dataset("val").center(3, shape) for recipe in (plain, cached))
    assert torch.equal(one.clip, other.clip)
    assert (tmp_path / "cache").is_dir()


def test_folders_of_pictures_can_be_cached(load, digit_videos, tmp_path):
    root = tmp_path / "ssv2"
    files = sorted((digit_videos / "train" / "2-left").iterdir())[:3]
    for number, file in enumerate(files):
        (root / "frames" / str(number)).mkdir(parents=True)
        with av.open(str(file)) as container:
            for count, frame in enumerate(container.decode(video=0)):
                frame.to_image().save(root / "frames" / str(number) / f"{count:06d}.png")
    rows = [{"id": str(number), "template": f"{('Moving', 'Lifting')[number % 2]} [something]"} for number in range(3)]
    (root / "something-something-v2-labels.json").write_text('{"Moving something": "0", "Lifting something": "1"}')
    (root / "something-something-v2-train.json").write_text(json.dumps(rows[:2]))
    (root / "something-something-v2-validation.json").write_text(json.dumps(rows[2:]))
    plain, cached = load(f"data={root}"), load(f"data={root}", "data.cache=24")
    assert find_videos(plain, tmp_path).train.frame_rate == 12
    one, other = (Experiment(recipe, tmp_path) for recipe in (plain, cached))
    shape = Shape(4, 16, 16)
    for split, item in (("train", 1), ("val", 0)):
        clips = [experiment.dataset(split).center(item, shape).clip for experiment in (one, other)]
        assert torch.equal(*clips)


def test_weights_are_drawn_under_the_seed(load):
    one, same, other = (build_model(load(f"run.seed={seed}"), 4).state_dict() for seed in (0, 0, 1))
    assert all(torch.equal(value, same[key]) for key, value in one.items())
    assert any(not torch.equal(value, other[key]) for key, value in one.items())


def test_the_recipes_values_reach_the_task_and_the_options_of_training(load):
    recipe = load(
        "sampling.mean=[0.1, 0.2, 0.3]", "run.save_every=7", "run.bad_limit=0.5", "data.workers=3", "run.seed=5"
    )
    task = RECOGNITION.objective(recipe, 4)
    assert (task.classes, task.mean, task.label_smoothing) == (4, (0.1, 0.2, 0.3), 0.2)
    config = config_of(recipe)
    assert (config.run.save_every, config.run.bad_limit, config.loading.workers, config.run.seed) == (7, 0.5, 3, 5)


@pytest.mark.parametrize("workers", [0, 2])
def test_evaluation_names_a_bad_video_once_and_counts_it_every_time(load, digit_videos, tmp_path, workers):
    videos = tmp_path / "videos"
    shutil.copytree(digit_videos, videos)
    bad = videos / "val" / "7-left" / "0001.mp4"
    bad.write_bytes(b"")
    recipe = load(f"data={videos}", f"data.workers={workers}")
    said = []
    told = []
    evaluator = Experiment(recipe, tmp_path).evaluator("val", "validation")
    evaluate = validator(evaluator, said.append, ranks=SINGLE_PROCESS, on_progress=lambda *done: told.append(done))
    model = build_model(recipe, 4)
    first, second = (evaluate(model, torch.device("cpu")) for _ in range(2))
    assert first == second
    assert told == [("evaluating videos", done, 8) for done in range(9)] * 2
    assert (first.samples, first.unreadable, first.protocol) == (7, 1, "1 center clip, 4×16×16")
    (text,) = said
    assert text.startswith(f"bad video {bad}: ")
    assert text.endswith("; left out of the evaluation")


def test_each_training_on_the_same_data_names_a_damaged_video_of_its_validations_once(load, digit_videos, tmp_path):
    videos = tmp_path / "videos"
    shutil.copytree(digit_videos, videos)
    damaged = videos / "val" / "7-left" / "0001.mp4"
    with av.open(str(damaged)) as container:
        packets = [(packet.pos, packet.size) for packet in container.demux(video=0) if packet.size]
    data = bytearray(damaged.read_bytes())
    for start, size in packets[5:]:
        data[start : start + size] = bytes(size)
    damaged.write_bytes(data)
    recipe = load(f"data={videos}", "data.workers=0", "run.device=cpu")
    experiment = Experiment(recipe, tmp_path)
    model = build_model(recipe, 4)
    for _ in range(2):
        said = []
        evaluate = validator(experiment.evaluator("val", "validation"), said.append, ranks=SINGLE_PROCESS)
        for _ in range(2):
            evaluate(model, torch.device("cpu"))
        assert [text.partition(": ")[0] for text in said] == [f"damaged video {damaged}"]

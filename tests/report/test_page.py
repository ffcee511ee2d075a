"""The page of `vcycle report`: made from a run's folder, self-contained, and viewed in a browser."""

import base64
import contextlib
import dataclasses
import io
import json
import os
import re
import signal
import subprocess
from html import escape
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
import torch
from matplotlib.image import imread

from vcycle.cli.app import app
from vcycle.cli.reporting import _file_names, _read, _with_present_data
from vcycle.errors import VcycleError
from vcycle.plan import Plan
from vcycle.report.comparison import statements
from vcycle.report.page.figures import accuracy, drawn
from vcycle.report.page.html import page as page_of
from vcycle.report.page.summary import summary_rows
from vcycle.tasks.recipes import dump_recipe, load_recipe
from vcycle.tasks.recognition.task import RECOGNITION
from vcycle.tasks.superres.task import SUPERRESOLUTION
from vcycle.train.environment import record_environment
from vcycle.train.run import RunFolder
from vcycle.utils.jsonl import JsonLines

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
BROWSER = os.environ.get("VCYCLE_TEST_BROWSER")


def write_run(folder, *, plan="cascade", steps=None, bad=0):
    """A run's folder as training leaves it, its numbers made up."""
    recipe = load_recipe("demo/digits", [f"plan={plan}"])
    planned: Plan = RECOGNITION.plan(recipe, 1200)
    run = RunFolder(folder)
    run.prepare(planned, dump_recipe(recipe), resume=False)
    with JsonLines(run.log) as log:
        for step in list(planned)[:steps]:
            log.write(
                event="step", step=step.index, stage=step.stage, frames=step.shape.frames, size=step.shape.size,
                batch=step.batch, lr=step.lr, loss=2 / (1 + step.index), seconds=0.5, data_seconds=0.1, memory_mib=900,
            )  # fmt: skip
            if step.index % 50 == 0:
                evaluation = {"top1": step.index / 1000, "top5": 0.9, "map": None}
                log.write(
                    event="validation", step=step.index, samples=1, seconds=0.5 * step.index, evaluation=evaluation
                )
        log.write(event="slow_data", step=9, stage=0, message="stage 'x' waits for data 20% of the time: <disk>")
    found = {
        "split": "test",
        "top1": 0.9,
        "map": None,
        "protocol": "10 clips, `evaluation.size` 32, " + "long words " * 20,
    }
    (folder / "eval-test.json").write_text(json.dumps(found), encoding="utf-8")
    with JsonLines(run.environment) as record:
        for step in (0, 100):
            record.write(
                step=step, command="vcycle train demo/digits plan='a b'", folder="/home", device="CPU", ranks=1,
                processor="Some", cores=2, torch="2.11",
            )  # fmt: skip
    for position in range(bad):
        with JsonLines(run.bad_samples_of(position % 2)) as journal:  # as two processes leave them
            journal.write(position=position, video=1, replacement=2, path="a & <b>.mp4", cause="broken")
    return planned


def fetched(attributes):
    """The addresses outside of the page."""
    links = [value for name, value in attributes if name in ("src", "href")]
    return [link for link in links if not link.startswith(("#", "data:"))]


class Tags(HTMLParser):
    """What a document is made of: every tag closed, and nothing fetched."""

    def __init__(self):
        super().__init__()
        self.open, self.fetched = [], []

    def handle_starttag(self, tag, attributes):
        if tag not in ("meta", "path", "use", "line", "rect", "br", "link", "circle", "img", "image"):
            self.open.append(tag)
        self.fetched += fetched(attributes)

    def handle_startendtag(self, tag, attributes):
        self.fetched += fetched(attributes)

    def handle_endtag(self, tag):
        if self.open and tag == self.open[-1]:
            self.open.pop()


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    write_run(folder / "one", bad=3)
    write_run(folder / "two|2", plan="constant", steps=120)
    out = folder / "page.html"
    app(["report", str(folder / "one"), str(folder / "two|2"), "-o", str(out)], standalone_mode=False)
    return out


def test_a_page_is_whole_and_fetches_nothing(page):
    text = page.read_text(encoding="utf-8")
    tags = Tags()
    tags.feed(text)
    assert tags.open == []
    assert tags.fetched == []
    for words in (
        "cascade",
        "T·S/2",
        "120 of 675",
        "3 of ",
        "a &amp; &lt;b&gt;.mp4",
        "&lt;disk&gt;",
        "20%",
        "<td>900</td>",
        "<code>evaluation.size</code>",
        "# from step 100, in /home",
        "plan=&#x27;a b&#x27;",
        "processor Some, cores 2",
        "torch 2.11",
    ):
        assert words in text
    assert text.count("<svg") == 2 * (1 + 2 * 3)


def test_the_summary_is_a_markdown_table_too(page, capsys):
    app(["report", str(page.parent / "two|2"), "-o", str(page.parent / "x.html"), "--markdown"], standalone_mode=False)
    head, rule, row, *rest = capsys.readouterr().out.splitlines()
    assert head.startswith("| run | plan | steps |")
    assert rule.count("|") == head.count("|")
    assert row.startswith("| two\\|2 | constant | 120 of 675 | 960 | 60.0 s | 10.0% |")
    assert "| test 90.0% |" in row
    assert rest[1].startswith("test (two|2): 10 clips, `evaluation.size` 32, long words")
    assert rest[3:6] == ["```sh", "vcycle train demo/digits plan='a b'", "```"]
    assert rest[7:] == ["device CPU, ranks 1, processor Some, cores 2; torch 2.11."]


def test_the_pictures_are_files_too(page, tmp_path):
    app(["report", str(page.parent / "two|2"), "-o", str(tmp_path / "x.html"), "--figures", str(tmp_path / "p")],
        standalone_mode=False)  # fmt: skip
    names = ["accuracy", "two_2-loss", "two_2-schedule", "two_2-time"]
    assert sorted(file.name for file in (tmp_path / "p").iterdir()) == [
        f"{name}.{kind}" for name in names for kind in ("png", "svg")
    ]
    assert imread(tmp_path / "p" / "accuracy.png").shape[1] == 1200


def test_runs_whose_names_differ_in_odd_characters_have_pictures_of_their_own(tmp_path):
    for name in ("a b", "A_b"):
        write_run(tmp_path / "runs" / name, steps=2)
    folders = sorted(map(str, (tmp_path / "runs").iterdir()))
    app(["report", *folders, "-o", str(tmp_path / "x.html"), "--figures", str(tmp_path / "p")], standalone_mode=False)
    names = {file.name for file in (tmp_path / "p").glob("*-loss.png")}
    assert names == {"A_b-loss.png", "a_b-2-loss.png"}
    assert _file_names(["A_b", "a b", "a?b", "a_b"]) == ["A_b", "a_b-2", "a_b-3", "a_b-4"]
    assert _file_names(["a-2", "a", "a", "é"]) == ["a-2", "a", "a-3", "é"]


def test_a_name_that_is_no_text_is_written_as_it_can_be(tmp_path):
    write_run(tmp_path / "run", steps=2)
    with JsonLines(RunFolder(tmp_path / "run").bad_samples) as journal:
        journal.write(position=0, video=1, replacement=2, path=os.fsdecode(b"\xff.mp4"), cause="broken")
    app(["report", str(tmp_path / "run"), "-o", str(tmp_path / "x.html")], standalone_mode=False)
    assert r"\udcff.mp4" in (tmp_path / "x.html").read_text(encoding="utf-8")


def test_runs_of_other_measures_are_drawn_apart(page):
    digits = _read(page.parent / "one", "digits")
    lines = [{"seconds": 10.0 * k, "evaluation": {"psnr": 20.0 + k, "ssim": 0.5}} for k in range(3)]
    measures = SUPERRESOLUTION.measures
    clips = dataclasses.replace(digits, name="clips", validations=lines, measures=measures)
    fresh = dataclasses.replace(digits, name="fresh", validations=[])
    with drawn(accuracy([digits, clips, fresh])) as figure:
        first, second = figure.axes
        labels = [axis.get_ylabel() for axis in figure.axes]
        assert labels == ["top-1 accuracy on validation (%)", "PSNR on validation (dB)"]
        assert [line.get_label() for line in first.get_lines()] == ["digits"]
        assert second.get_lines()[0].get_ydata() == pytest.approx([20.0, 21.0, 22.0])
    with drawn(accuracy([fresh])) as figure:
        assert len(figure.axes) == 1


def test_what_bicubic_reaches_is_a_line_in_the_picture_and_stands_beside_the_number(page):
    digits = _read(page.parent / "one", "digits")
    found = [{"psnr": 20.0 + k, "ssim": 0.5, "bicubic_psnr": 21.5} for k in range(3)]
    lines = [{"seconds": 10.0 * k, "evaluation": evaluation} for k, evaluation in enumerate(found)]
    measures = SUPERRESOLUTION.measures
    clips = dataclasses.replace(digits, name="clips", validations=lines, evaluations=[], measures=measures)
    with drawn(accuracy([clips])) as figure:
        (axis,) = figure.axes
        assert [line.get_label() for line in axis.get_lines()] == ["clips", "bicubic"]
        assert set(axis.get_lines()[1].get_ydata()) == {21.5}
        assert [text.get_text() for text in axis.get_legend().get_texts()] == ["clips", "bicubic"]
    assert "22.00 dB (bicubic 21.50 dB)" in summary_rows([clips])[1]


def test_a_run_without_an_evaluation_says_what_to_run(tmp_path, capsys):
    write_run(tmp_path / "a run", steps=2)
    (tmp_path / "a run" / "eval-test.json").unlink()
    write_run(tmp_path / "other", steps=2)

    def page_about(*names):
        folders = [str(tmp_path / name) for name in names]
        app(["report", *folders, "-o", str(tmp_path / "x.html"), "--markdown"], standalone_mode=False)
        return (tmp_path / "x.html").read_text(encoding="utf-8"), capsys.readouterr().out

    run = f"vcycle eval '{tmp_path}/a run'"
    text, markdown = page_about("a run", "other")
    assert f"No evaluation (a run): run <code>{escape(run)}</code> first, and report again" in text
    assert f"No evaluation (a run): run `{run}` first, and report again" in markdown
    assert all("No evaluation" not in said for said in page_about("other"))


def test_stages_that_wait_for_data_for_the_same_reason_share_a_note(tmp_path):
    write_run(tmp_path / "run", steps=2)
    with JsonLines(RunFolder(tmp_path / "run").log) as log:
        for step, (stage, advice) in enumerate([("a", "one"), ("b", "one"), ("c", "two"), ("a", "one")]):
            wait = f"stage '{stage}' waits for data 20% of the time"
            log.write(event="slow_data", step=step, stage=0, message=f"{wait}: {advice}", wait=wait, advice=advice)
    assert _read(tmp_path / "run", "run").notes == [
        "stage 'x' waits for data 20% of the time: <disk>",
        "stage 'a' waits for data 20% of the time, stage 'b' waits for data 20% of the time: one",
        "stage 'c' waits for data 20% of the time: two",
    ]


NO_EVALUATION = r"eval-test\.json is not a result of `vcycle eval`: "


@pytest.mark.parametrize(
    ("file", "content", "words"),
    [
        ("eval-test.json", b"{", r"eval-test\.json cannot be read: "),
        ("eval-test.json", b"\xff\xfe", r"eval-test\.json cannot be read: "),
        ("eval-test.json", b"[" * 99999, r"eval-test\.json cannot be read: "),
        ("eval-test.json", b"[1]", NO_EVALUATION + "it has no keys"),
        ("eval-test.json", b'{"split": "val"}', NO_EVALUATION + "key 'protocol' is missing"),
        (
            "eval-test.json",
            b'{"split": ["a"], "protocol": ""}',
            NO_EVALUATION + r"key 'split' is \['a'\]: input should be",
        ),
        ("eval-test.json", b'{"split": "", "protocol": "", "map": "x"}', NO_EVALUATION + "key 'map' is 'x': input"),
        ("plan.json", b"{", r"plan\.json cannot be read: a plan is not valid JSON"),
        ("plan.json", b"\x80", r"plan\.json cannot be read: 'utf-8' codec"),
        ("plan.json", b"[" * 99999, r"plan\.json cannot be read: "),
        ("recipe.yaml", b"", r"recipe\.yaml is not a recipe: it has no keys"),
        ("recipe.yaml", b"a: [1", r"recipe\.yaml cannot be read: "),
        ("recipe.yaml", b"\x80", r"recipe\.yaml cannot be read: 'utf-8' codec"),
        ("environment.jsonl", b'{"step": 0}\n', r"environment\.jsonl, line 1 is damaged: key 'command' is missing"),
        (
            "bad_samples.jsonl",
            b'{"path": 1, "cause": ""}\n',
            r"bad_samples\.jsonl, line 1 is damaged: key 'path' is 1: ",
        ),
        ("log.jsonl", b"\x00\xff" * 99, r"log\.jsonl, line 1 is damaged: .* is not a JSON object"),
    ],
)
def test_a_file_that_was_damaged_is_named(tmp_path, file, content, words):
    write_run(tmp_path / "run", steps=2)
    (tmp_path / "run" / file).write_bytes(content)
    with pytest.raises(VcycleError, match=f"^{tmp_path}/run/{words}") as caught:
        app(["report", str(tmp_path / "run")], standalone_mode=False)
    assert len(str(caught.value)) < 500


def change(line, **values):
    """A line of a log with other values; without those that are None."""
    return json.dumps({key: value for key, value in (json.loads(line) | values).items() if value is not None})


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda line: line[:30], "'.*' is not a JSON object"),
        (lambda line: "[1]", r"'\[1\]' is not a JSON object"),
        (lambda line: "{}", "key 'event' is missing"),
        (lambda line: change(line, event=["step"]), r"key 'event' is \['step'\]: input should be a valid string"),
        (lambda line: change(line, seconds=None), "key 'seconds' is missing"),
        (lambda line: change(line, seconds="1"), "key 'seconds' is '1': input should be a valid number"),
        (lambda line: change(line, seconds=float("nan")), "key 'seconds' is nan: input should be"),
        (lambda line: change(line, batch=0.5), "key 'batch' is 0.5: input should be a valid integer"),
        (lambda line: change(line, step=-1), "key 'step' is -1: input should be greater than or equal to 0"),
        (lambda line: change(line, lr=10**400), "key 'lr' is 1000.*: input should be"),
        (lambda line: change(line, loss=[]), r"key 'loss.*' is \[\]: input should be a valid"),
        (lambda line: change(line, event="validation", evaluation=1), "key 'evaluation' is 1: "),
        (lambda line: change(line, event="validation", evaluation={"map": "x"}), "key 'evaluation.map' is 'x': "),
        (lambda line: change(line, event="slow_data"), "key 'message' is missing"),
    ],
)
def test_a_line_of_a_log_that_was_damaged_is_named(tmp_path, damage, words):
    write_run(tmp_path / "run", steps=4)
    log = tmp_path / "run" / "log.jsonl"
    lines = log.read_text().splitlines()
    lines[2] = damage(lines[2])
    log.write_text("\n".join(lines) + "\n")
    with pytest.raises(VcycleError, match=rf"run/log\.jsonl, line 3 is damaged: {words}"):
        app(["report", str(tmp_path / "run")], standalone_mode=False)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"steps": "x"}, "cannot be read: Stage in a plan does not fit: "),
        ({"steps": 1.5}, "cannot be read: "),
        ({"pattern": [{"a": 1}]}, "cannot be read: "),
        ({"name": 7}, "cannot be read: Stage in a plan does not fit: its name is 7"),
    ],
)
def test_a_plan_with_other_values_is_named(tmp_path, values, words):
    whole = json.loads(write_run(tmp_path / "run", steps=2).to_json())
    stages = [whole["stages"][0] | values, *whole["stages"][1:]]
    (tmp_path / "run" / "plan.json").write_text(json.dumps(whole | {"stages": stages}))
    with pytest.raises(VcycleError, match=rf"run/plan\.json {words}"):
        app(["report", str(tmp_path / "run")], standalone_mode=False)


def test_what_a_kill_cut_short_and_lines_of_other_versions_are_no_damage(tmp_path):
    write_run(tmp_path / "run", steps=4)
    with (tmp_path / "run" / "log.jsonl").open("a") as log:
        log.write('{"event": "news", "what": 1}\n{"event": "step", "st')
    app(["report", str(tmp_path / "run"), "-o", str(tmp_path / "x.html")], standalone_mode=False)


def test_a_run_records_what_it_was_carried_out_by(tmp_path, monkeypatch):
    run = RunFolder(tmp_path)
    for program, told in (("/bin/vcycle", "vcycle"), ("/lib/vcycle/__main__.py", "python -m vcycle")):
        monkeypatch.setattr("sys.argv", [program, "train", "x y"])
        record_environment(run, 7, torch.device("cpu"), world=2)
        line = list(JsonLines(run.environment).read())[-1]
        assert line["command"] == f"{told} train 'x y'"
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")
    for here, nodes in (("2", "--standalone"), ("1", "--nnodes 2")):
        monkeypatch.setenv("LOCAL_WORLD_SIZE", here)
        record_environment(run, 7, torch.device("cpu"), world=2)
        line = list(JsonLines(run.environment).read())[-1]
        assert line["command"] == f"torchrun {nodes} --nproc-per-node {here} -m vcycle train 'x y'"
    assert (line["step"], line["ranks"], line["device"], line["torch"]) == (
        7,
        2,
        "CPU",
        torch.__version__.split("+")[0],
    )
    assert line["folder"] == os.getcwd()


def evaluated(folder, **given):
    """Add what `vcycle eval` writes of 5 videos in 3 classes, two of which are mistaken."""
    rows = [
        ("打球", "打球", 0.9),
        ("打球", "run", 0.6),
        ("run", "run", 0.8),
        ("walk", "run", 0.95),
        ("walk", "walk", 0.7),
    ]
    videos = [
        {"video": f"/data/{true}/{number}.mp4", "class": true, "right": true == predicted,
         "scores": {predicted: score, **({} if true == predicted else {true: 0.03})}}
        for number, (true, predicted, score) in enumerate(rows)
    ]  # fmt: skip
    classes = [
        {"class": "打球", "videos": 2, "accuracy": 0.5, "taken_for": {"class": "run", "videos": 1}},
        {"class": "run", "videos": 1, "accuracy": 1.0},
        {"class": "walk", "videos": 2, "accuracy": 0.5, "taken_for": {"class": "run", "videos": 1}},
    ]
    found = {"split": "val", "top1": 0.6, "map": None, "protocol": "1 center clip"}
    found |= {"per_class": classes, "videos": videos} | given
    (folder / "eval-val-1x1.json").write_text(json.dumps(found), encoding="utf-8")


def test_frames_of_mistakes_come_from_the_videos_that_the_run_generated(tmp_path):
    recipe = load_recipe("demo/digits")
    with pytest.raises(VcycleError, match=r"its data is not there any more: .*digits"):
        _with_present_data(recipe, tmp_path)
    (tmp_path / "digits").mkdir()
    assert _with_present_data(recipe, tmp_path).data.path == str(tmp_path / "digits")


def test_the_page_shows_classes_confusions_and_the_most_confident_mistakes_of_an_evaluation(tmp_path, capsys):
    write_run(tmp_path / "run", steps=2)
    evaluated(tmp_path / "run")
    (run,) = [_read(tmp_path / "run", "run")]
    assert "no frames of the worst mistakes: its data is not there any more" in capsys.readouterr().err
    (shown,) = run.shown
    matrix, classes, mistakes = shown.details
    with drawn(matrix.drawing) as figure:
        axis = figure.axes[0]
        assert (axis.get_xlabel(), axis.get_ylabel()) == ("predicted class", "true class")
        counts = {text.get_position(): text.get_text() for text in axis.texts}
        assert counts == {(0, 0): "1", (1, 0): "1", (1, 1): "1", (1, 2): "1", (2, 2): "1"}
    assert classes.rows[1:] == [
        ["打球", "2", "50.0%", "run (1)"], ["walk", "2", "50.0%", "run (1)"], ["run", "1", "100.0%", "–"]
    ]  # fmt: skip
    assert [strip.caption for strip in mistakes.strips] == [
        "true: walk (3%), predicted: run (95%)", "true: 打球 (3%), predicted: run (60%)"
    ]  # fmt: skip
    frames = np.zeros((4, 32, 32, 3), dtype=np.uint8)
    shown = dataclasses.replace(shown, frames={"/data/walk/3.mp4": frames})
    text = page_of([dataclasses.replace(run, shown=[shown])], versions={})
    tags = Tags()
    tags.feed(text)
    assert (tags.open, tags.fetched) == ([], [])
    (encoded,) = re.findall(r'<img alt="walk/3.mp4" src="data:image/jpeg;base64,([^"]+)"', text)
    assert imread(io.BytesIO(base64.b64decode(encoded)), format="jpeg").shape == (96, 4 * 96, 3)
    assert "true: 打球 (3%), predicted: run (60%) · 打球/1.mp4" in text


def test_several_labels_a_video_have_a_table_and_no_matrix(tmp_path):
    write_run(tmp_path / "run", steps=2)
    videos = [{"video": "a.mp4", "classes": ["x", "y"], "right": True, "scores": {"x": 0.9}}]
    classes = [
        {"class": "x", "videos": 1, "average_precision": 0.75},
        {"class": "y", "videos": 0, "average_precision": None},
    ]
    evaluated(tmp_path / "run", videos=videos, per_class=classes)
    (shown,) = _read(tmp_path / "run", "run").shown
    assert [list(detail.rows) for detail in shown.details] == [
        [["class", "videos", "AP"], ["x", "1", "75.0%"], ["y", "0", "–"]]
    ]


def test_details_of_another_version_are_left_out_with_a_word(tmp_path, capsys):
    write_run(tmp_path / "run", steps=2)
    evaluated(tmp_path / "run", videos=[{"class": "run"}])
    assert _read(tmp_path / "run", "run").shown == []
    assert "the evaluation on val is damaged, or of another version" in capsys.readouterr().err


def test_clips_of_a_restoration_are_listed_by_their_gain():
    clips = [
        {"clip": "b", "psnr": 30.0, "bicubic_psnr": 28.0, "ssim": 0.9},
        {"clip": "a", "psnr": 27.0, "bicubic_psnr": 27.5, "ssim": 0.8},
        {"clip": "same", "psnr": None, "bicubic_psnr": None, "ssim": 1.0},
    ]
    (detail,) = SUPERRESOLUTION.details({"clips": clips})
    assert [row[:4] for row in detail.rows[1:]] == [
        ["a", "27.00", "27.50", "-0.50"], ["b", "30.00", "28.00", "+2.00"], ["same", "–", "–", "–"]
    ]  # fmt: skip
    assert SUPERRESOLUTION.details({}) == []


def test_a_studys_table_and_figure_come_first_and_its_runs_are_folded(tmp_path):
    study = tmp_path / "study"
    write_run(study / "runs/cascade-seed0", steps=2)
    data = json.loads((BENCHMARKS / "demo/comparison.json").read_text(encoding="utf-8"))
    data["runs"] = [{"arm": arm, "curve": [[1.0, 1, 0.5]], "curve_seconds": [1.0]} for arm in data["arms"]]
    (study / "comparison.json").write_text(json.dumps(data), encoding="utf-8")
    app(["report", str(study), "-o", str(tmp_path / "x.html")], standalone_mode=False)
    text = (tmp_path / "x.html").read_text(encoding="utf-8")
    tags = Tags()
    tags.feed(text)
    assert (tags.open, tags.fetched) == ([], [])
    order = ["<h1>study</h1>", "<h2>Verdict</h2>", statements(data)[0].split(";")[0], "vs its control", "<svg",
             "<h2>Runs</h2>", '<details class="run"><summary>cascade-seed0</summary>']  # fmt: skip
    places = [text.index(words) for words in order]
    assert places == sorted(places)
    assert "± standard deviation" in text
    assert "<h2>Validation against training time</h2>" not in text


def test_runs_of_a_study_without_a_comparison_are_shown_as_runs(tmp_path):
    for name in ("whole", "cut"):
        write_run(tmp_path / name / "runs" / f"{name}-seed0", steps=2)
    data = json.loads((BENCHMARKS / "demo/comparison.json").read_text(encoding="utf-8"))
    data["runs"] = []
    (tmp_path / "whole/comparison.json").write_text(json.dumps(data), encoding="utf-8")
    folders = [str(tmp_path / name) for name in ("whole", "cut")]
    app(["report", *folders, "-o", str(tmp_path / "x.html")], standalone_mode=False)
    text = (tmp_path / "x.html").read_text(encoding="utf-8")
    assert text.count('<details class="run">') == 1
    assert "<summary>whole-seed0</summary>" in text
    assert "<h2>cut-seed0</h2>" in text
    assert "<h2>Validation against training time</h2>" in text


def test_a_study_stands_for_all_its_runs(tmp_path):
    for name in ("b", "a"):
        write_run(tmp_path / "study/runs" / name, steps=2)
    app(["report", str(tmp_path / "study"), "-o", str(tmp_path / "x.html")], standalone_mode=False)
    text = (tmp_path / "x.html").read_text(encoding="utf-8")
    assert text.index("<h2>a</h2>") < text.index("<h2>b</h2>")


def test_a_page_is_written_into_its_run_and_that_of_several_beside_the_first(tmp_path, monkeypatch, capsys):
    for name in ("a/one", "b/two"):
        write_run(tmp_path / name, steps=2)
    monkeypatch.chdir(tmp_path)

    def written(*runs):
        app(["report", *runs, "--no-clips"], standalone_mode=False)
        return capsys.readouterr().err.strip()

    assert written("a/one") == "page: a/one/report.html"
    assert written("a/one", "b/two") == "page: a/report.html"
    monkeypatch.chdir(tmp_path / "b" / "two")
    assert written(".") == "page: report.html"
    assert written(".", "../../a/one") == f"page: {tmp_path}/b/report.html"
    pages = ["a/one/report.html", "a/report.html", "b/report.html", "b/two/report.html"]
    assert sorted(str(file.relative_to(tmp_path)) for file in tmp_path.rglob("*.html")) == pages


def test_what_is_no_run_is_refused_in_a_line(tmp_path):
    with pytest.raises(VcycleError, match=r"is not the folder of a run: it has no plan\.json and recipe\.yaml"):
        app(["report", str(tmp_path)], standalone_mode=False)
    write_run(tmp_path / "new", steps=0)
    with pytest.raises(VcycleError, match="has taken no step yet"):
        app(["report", str(tmp_path / "new")], standalone_mode=False)


def browse(page, tmp_path, width, theme, *options):
    """What a browser prints of a page."""
    command = [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run"]
    command += [f"--user-data-dir={tmp_path / 'profile'}", "--disable-background-networking"]
    command += [f"--blink-settings=preferredColorScheme={int(theme == 'light')}", f"--window-size={width},1500"]
    with subprocess.Popen(
        [*command, *options, page.as_uri()], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True
    ) as browser:
        try:
            return browser.communicate()[0].decode()
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(browser.pid, signal.SIGKILL)  # a browser is many processes


@pytest.mark.skipif(BROWSER is None, reason="VCYCLE_TEST_BROWSER names no Chromium to look at the page with")
@pytest.mark.parametrize(("width", "theme"), [(1280, "light"), (400, "dark")])
def test_a_browser_shows_it(page, tmp_path, width, theme):
    picture = tmp_path / "page.png"
    browse(page, tmp_path, width, theme, f"--screenshot={picture}")
    pixels = imread(picture)[..., :3]
    assert pixels.shape[:2] == (1500, width)
    back = pixels[5, 5].mean()
    assert back > 0.95 if theme == "light" else back < 0.15
    assert pixels.std() > 0.05  # something is drawn on it


@pytest.mark.skipif(BROWSER is None, reason="VCYCLE_TEST_BROWSER names no Chromium to look at the page with")
@pytest.mark.parametrize("width", [1280, 400])
def test_pictures_and_text_fit_the_width_and_only_tables_are_scrolled(page, tmp_path, width):
    measuring = """<body><script>
      function measure(frame) {
        const seen = [...frame.contentDocument.querySelectorAll("svg, p, pre, h2, figcaption, .wide")];
        const right = Math.max(...seen.map(each => each.getBoundingClientRect().right));
        document.title = right + " of " + frame.contentWindow.innerWidth;
      }
    </script>"""
    frame = f'<iframe width="{width}" style="border: 0" onload="measure(this)" srcdoc="%s"></iframe>'
    measured = tmp_path / "measured.html"
    measured.write_text(measuring + frame % escape(page.read_text(encoding="utf-8")), encoding="utf-8")
    found = browse(measured, tmp_path, 1400, "light", "--dump-dom")
    right, inner = map(float, re.search("<title>(.*) of (.*)</title>", found).groups())
    assert inner == width
    assert width / 2 < right <= width

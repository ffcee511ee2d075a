import dataclasses
import itertools
import json

import pytest

from vcycle.bench.compare import Comparison, Reach
from vcycle.bench.runs import Failure
from vcycle.bench.statistics import Interval
from vcycle.tasks.base import measures
from vcycle.tasks.reference import Reference


@pytest.fixture
def comparison(arms_of, run_of, steps_of):
    """Makes a comparison whose arms end at the validation and test accuracies that are given."""

    def make(accuracy, *, seeds=2, test=True, seconds=(), steps=None, **given):
        runs = []
        arms = arms_of(*accuracy)
        for seed, arm in itertools.product(range(seeds), arms):
            val, shown = accuracy[arm.name]
            took = {"seconds": dict(seconds)[arm.name]} if arm.name in dict(seconds) else {}
            shift = 0.01 * seed
            runs.append(run_of(arm, seed, val=val + shift, test=shown + shift if test else None, **took))
        steps = steps or steps_of(arms)
        return Comparison(measure=measures()["top-1"], arms=tuple(arms), runs=tuple(runs), steps=steps, **given)

    return make


def test_the_best_plan_is_the_fastest_within_a_point_of_the_best_on_validation(comparison):
    # The test split would choose long+short.
    found = comparison({"constant": (0.9, 0.9), "long+short": (0.81, 0.95), "cascade": (0.805, 0.6)})
    assert found.best == "cascade"


def test_a_faster_plan_that_is_worse_on_validation_is_not_the_best(comparison):
    found = comparison({"constant": (0.9, 0.9), "long+short": (0.82, 0.6), "cascade": (0.80, 0.95)})
    assert found.best == "long+short"


def test_plans_whose_control_was_trained_come_first(comparison):
    accuracy = {"long+short": (0.9, 0.9), "cascade": (0.5, 0.5), "control:cascade": (0.6, 0.6)}
    found = comparison(accuracy)
    assert (found.best, found.control_of("cascade"), found.control_of("long+short")) == (
        "cascade",
        "control:cascade",
        None,
    )
    assert found.constant is None


def test_a_plan_of_another_length_has_the_same_control(comparison):
    found = comparison({"cascade@0.5": (0.5, 0.5), "control:cascade@2": (0.6, 0.6), "constant@2": (0.6, 0.6)})
    assert found.best == "cascade@0.5"
    assert found.control_of("cascade@0.5") == "control:cascade@2"
    assert found.constant == "constant@2"


def test_a_plan_whose_batch_is_scaled_has_the_control_of_the_one_whose_is_not(comparison):
    found = comparison({"cascade+scaled": (0.5, 0.5), "control:cascade": (0.6, 0.6)})
    assert (found.best, found.control_of("cascade+scaled@2")) == ("cascade+scaled", "control:cascade")


def test_constant_and_controls_alone_have_no_best_plan(comparison):
    found = comparison({"constant": (0.9, 0.9), "control:cascade": (0.9, 0.9)})
    assert found.best is None
    assert found.as_data()["plan"] is None
    assert found.as_data()["control"] is None


def test_gains_are_of_time_and_of_accuracy_on_the_split_that_is_shown(comparison):
    found = comparison({"constant": (0.9, 0.8), "cascade": (0.8, 0.75), "control:cascade": (0.85, 0.7)})
    data = json.loads(json.dumps(found.as_data()))
    assert (data["plan"], data["control"], data["split"]) == ("cascade", "control:cascade", "test")
    arm, plan = data["arms"]["cascade"], found.arms[1].plan
    steps = {each.name: len(each.plan) for each in found.arms}
    assert (arm["train_seconds"], arm["wall_seconds"]) == (steps["cascade"], 25.5)
    assert (arm["value"], arm["val"]) == (pytest.approx(0.755), pytest.approx(0.805))
    assert arm["value_std"] == pytest.approx(0.01 / 2**0.5)
    assert (arm["seeds"], arm["steps"], arm["samples"]) == (2, len(plan), plan.samples)
    assert arm["fingerprint"] == plan.fingerprint
    assert arm["over_constant"]["speedup"] == pytest.approx(steps["constant"] / steps["cascade"])
    assert arm["over_constant"]["difference"]["difference"] == pytest.approx(-0.05)
    assert arm["over_control"]["speedup"] == pytest.approx(steps["control:cascade"] / steps["cascade"])
    assert arm["over_control"]["difference"]["low"] < 0.05 < arm["over_control"]["difference"]["high"]
    assert "over_constant" not in data["arms"]["constant"]
    assert "over_control" not in data["arms"]["control:cascade"]
    assert data["arms"]["control:cascade"]["over_constant"]["speedup"] == pytest.approx(1.0)
    assert [run["curve"] for run in data["runs"]] == [
        [[1.0, run["samples"] // 2, 0.1], [2.0, run["samples"], run["val"]]] for run in data["runs"]
    ]
    assert [run["curve_seconds"][-1] for run in data["runs"]] == [run["steps"] for run in data["runs"]]


def test_times_are_of_steps_timed_in_turns_and_a_wall_clock_that_disagrees_is_said_to(comparison):
    accuracy = {"constant": (0.9, 0.9), "long+short": (0.9, 0.9), "cascade": (0.9, 0.9)}
    quiet = {"constant": 111.0, "long+short": 37.0, "cascade": 30.0}  # a second per step, as steps in turns take
    same = comparison(accuracy, seconds=quiet)
    # Other programs ran beside the trainings of the constant shape and of cascade: the wall clock prefers long+short.
    bent = comparison(accuracy, seconds={**quiet, "constant": 200.0, "cascade": 45.0})
    assert same.best == bent.best == "cascade"
    gains = [each.as_data()["arms"]["cascade"]["over_constant"] for each in (same, bent)]
    assert [gain["speedup"] for gain in gains] == [3.7, 3.7]
    assert [gain["wall_speedup"] for gain in gains] == [3.7, pytest.approx(200 / 45)]
    assert [gain["clocks_disagree"] for gain in gains] == [False, True]
    for seconds, disagree in ((32.9, False), (33.1, True), (27.4, False), (27.2, True)):  # 10 % either way
        gain = comparison(accuracy, seconds={**quiet, "cascade": seconds}).gain("cascade", "constant")
        assert gain.clocks_disagree == disagree


def test_a_speed_up_has_its_range_over_turns_that_a_machine_slow_in_one_does_not_widen(comparison, arms_of, steps_of):
    arms = arms_of("constant", "cascade")
    accuracy = {"constant": (0.9, 0.9), "cascade": (0.9, 0.9)}
    gain = comparison(accuracy, steps=steps_of(arms)).gain("cascade", "constant")
    assert (gain.speedup_low, gain.speedup, gain.speedup_high) == pytest.approx((3.7, 3.7, 3.7))
    # In one turn, other programs ran beside the full shape alone.
    full = arms[0].plan.baseline_shape
    steps = steps_of(arms, lambda shape, turn: 2.0 if (shape, turn) == (full, 0) else 1.0)
    gain = comparison(accuracy, steps=steps).gain("cascade", "constant")
    assert gain.speedup_low == pytest.approx(3.7)
    assert gain.speedup_high == pytest.approx(222 / (30 + arms[1].plan.counts[full]))


def test_without_a_test_split_validation_is_shown(comparison):
    found = comparison({"constant": (0.9, 0.1), "cascade": (0.8, 0.1)}, test=False)
    assert found.split == "val"
    assert found.values("constant") == [0.9, pytest.approx(0.91)]


def test_one_seed_has_no_interval(comparison):
    data = comparison({"constant": (0.9, 0.9), "cascade": (0.8, 0.8)}, seeds=1).as_data()
    assert data["arms"]["cascade"]["over_constant"]["difference"] is None
    assert data["arms"]["cascade"]["value_std"] == 0.0


def test_of_several_lengths_the_fastest_within_a_point_of_the_best_on_validation_is_compared_with(comparison):
    lengths = {"constant@0.25": (0.5, 0.9), "constant@0.5": (0.895, 0.5), "constant": (0.9, 0.6)}
    controls = {"control:cascade@0.5": (0.6, 0.9), "control:cascade": (0.9, 0.5)}
    found = comparison({**lengths, "cascade": (0.9, 0.6), **controls})
    data = found.as_data()
    assert (found.constant, data["constant"]) == ("constant@0.5", "constant@0.5")
    assert (found.control_of("cascade"), data["control"]) == ("control:cascade", "control:cascade")
    assert data["arms"]["cascade"]["over_constant"]["speedup"] == pytest.approx(56 / 30)
    assert data["arms"]["cascade"]["over_constant"]["cpu_speedup"] == 1.0


@pytest.fixture
def gain(arms_of, run_of, steps_of):
    """What cascade gains over constant, from each seed's answers on the test videos."""

    def of(each):
        arms = arms_of("constant", "cascade")
        runs = []
        for arm in arms:
            for seed, row in each[arm.name].items():
                known = [answer for answer in row or [0.7] if answer is not None]
                runs.append(run_of(arm, seed, test=sum(known) / len(known), each=row))
        found = Comparison(measure=measures()["top-1"], arms=tuple(arms), runs=tuple(runs), steps=steps_of(arms))
        return found.gain("cascade", "constant")

    return of


def test_videos_are_paired_where_every_run_could_read_them(gain):
    constant, cascade = {0: [1, 0, 0, None, 1], 1: [1, 0, 0, 1, 1]}, {0: [1, 1, 0, 1, 1], 1: [1, 1, 1, 0, 1]}
    found = gain({"constant": constant, "cascade": cascade}).paired
    assert found.difference == pytest.approx(3 / 8)
    assert found.low <= found.difference <= found.high


def test_seeds_are_paired_where_both_arms_have_them(gain):
    rows = {0: [1, 0, 1], 1: [0, 0, 1], 2: [1, 1, 1]}
    assert gain({"constant": {5: [0, 0, 0], **rows}, "cascade": rows}).paired.difference == 0
    assert gain({"constant": {0: [1, 0]}, "cascade": {1: [1, 0]}}).paired is None


@pytest.mark.parametrize("other", [{0: None, 1: None}, {0: [1, 0], 1: None}, {0: [1, 0], 1: [1, 1, 1]}])
def test_without_the_same_videos_in_every_run_nothing_is_paired(gain, other):
    assert gain({"constant": other, "cascade": {0: [1, 0], 1: [0, 1]}}).paired is None


def test_a_loss_is_ruled_out_only_where_all_intervals_do_so(gain):
    videos = 400
    same = {seed: [1, 0] * (videos // 2) for seed in range(4)}
    scattered = {seed: [int(seed % 2 == 0)] * videos for seed in range(4)}
    assert gain({"constant": same, "cascade": same}).no_worse == "shown"
    # Equal means, with seeds that scatter: nothing is shown, and equality least of all.
    found = gain({"constant": scattered, "cascade": same})
    assert found.paired.low < -0.01 < found.paired.high
    assert (found.no_worse, found.doubt) == ("not shown", None)


@pytest.mark.parametrize("videos", [2, 24, 120])
def test_a_few_videos_that_all_come_out_alike_show_nothing(gain, videos):
    right, wrong = ({seed: [answer] * videos for seed in range(3)} for answer in (1, 0))
    found = gain({"constant": right, "cascade": right})
    assert found.paired == Interval(0.0, 0.0, 0.0, 0.95)
    assert (found.no_worse, found.doubt) == ("not shown", "few")
    worse = gain({"constant": right, "cascade": wrong})
    assert worse.no_worse == ("not shown" if videos == 2 else "shown worse")


def test_of_two_clips_in_decibels_nothing_is_shown_that_a_bootstrap_would(arms_of, run_of, steps_of):
    arms = arms_of("constant", "cascade")
    runs = []
    for seed in range(4):
        for arm, gained in zip(arms, (0.0, 0.03), strict=True):
            each = [20.0 + gained + 0.001 * seed, 28.0 + 2 * gained]
            runs.append(run_of(arm, seed, test=sum(each) / 2, each=each))
    whole = Comparison(measure=measures()["PSNR"], arms=tuple(arms), runs=tuple(runs), steps=steps_of(arms))
    found = whole.gain("cascade", "constant")
    assert min(found.paired.low, found.welch.low) > 0
    assert found.clips.low < -0.05
    assert (found.no_worse, found.doubt) == ("not shown", "few")


def test_a_training_that_failed_forbids_a_statement(comparison):
    accuracy = {"constant": (0.90, 0.80), "cascade": (0.90, 0.90), "long+short": (0.9, 0.5)}
    lost = Failure(arm="cascade", seed=5, key="k", failed="the loss is not finite")
    found = comparison(accuracy, seeds=5, failures=(lost,))
    gains = [found.gain(*pair) for pair in (("cascade", "constant"), ("constant", "cascade"))]
    assert [(gain.no_worse, gain.doubt) for gain in gains] == [("not shown", "failed")] * 2
    assert found.gain("constant", "long+short").no_worse == "shown"


def test_equal_trainings_on_validation_are_no_certainty(comparison):
    found = comparison({"constant": (0.9, 0.9), "cascade": (0.9, 0.9)}, test=False)
    alike = dataclasses.replace(found, runs=tuple(dataclasses.replace(run, val=0.75) for run in found.runs))
    gain = alike.gain("cascade", "constant")
    assert gain.welch == Interval(0.0, 0.0, 0.0, 0.95)
    assert (gain.no_worse, gain.doubt) == ("not shown", "few")


def test_the_margin_is_what_is_lost_at_most_and_what_chooses(comparison):
    accuracy = {"constant": (0.90, 0.90), "cascade": (0.80, 0.85), "long+short": (0.83, 0.85)}
    close = comparison(accuracy, seeds=5)
    assert (close.best, close.as_data()["margin"]) == ("long+short", 0.01)
    assert close.gain("cascade", "constant").no_worse == "shown worse"
    wide = comparison(accuracy, seeds=5, margin=0.1)
    assert wide.best == "cascade"
    assert wide.gain("cascade", "constant").no_worse == "shown"


def test_one_seed_shows_nothing(comparison):
    found = comparison({"constant": (0.1, 0.1), "cascade": (0.9, 0.9)}, seeds=1)
    assert found.gain("cascade", "constant").no_worse == "not shown"


@pytest.fixture
def reach(arms_of, run_of, steps_of):
    """How soon an arm with these curves, of values by step, reaches a half."""

    def of(*curves):
        (arm,) = arms_of("cascade")
        runs = []
        for seed, curve in enumerate(curves):
            points = [(99.0, arm.plan.samples_before(step), value) for step, value in curve]
            runs.append(run_of(arm, seed, val=curve[-1][1], curve=points))
        found = Comparison(measure=measures()["top-1"], arms=(arm,), runs=tuple(runs), steps=steps_of([arm]))
        return found.reach("cascade", 0.5)

    return of


SOON, LATER, NEVER = [(1, 0.5), (2, 0.4)], [(1, 0.1), (4, 0.6)], [(9, 0.49)]


def test_the_time_to_a_target_is_that_of_the_first_validation_at_or_above_it(reach):
    assert reach(SOON, LATER) == Reach(reached=2, runs=2, median=2.5, low=1.0, high=4.0)


def test_runs_that_never_reach_the_target_count_in_the_median(reach):
    assert reach(SOON, LATER, NEVER) == Reach(reached=2, runs=3, median=4.0, low=1.0, high=None)
    assert reach(SOON, NEVER) == Reach(reached=1, runs=2, median=None, low=1.0, high=None)
    assert reach(NEVER) == Reach(reached=0, runs=1, median=None, low=None, high=None)


def test_a_training_that_failed_never_reaches_the_target(comparison):
    lost = tuple(Failure(arm="cascade", seed=seed, key="k", failed="the loss is not finite") for seed in (2, 3))
    found = comparison({"cascade": (0.9, 0.9)}, failures=lost[:1])
    assert found.reach("cascade", 0.5) == Reach(reached=2, runs=3, median=30.0, low=30.0, high=None)
    found = comparison({"cascade": (0.9, 0.9)}, failures=lost)
    assert found.reach("cascade", 0.5) == Reach(reached=2, runs=4, median=None, low=30.0, high=None)


def test_the_target_is_where_the_constant_shape_ends_unless_it_is_given(comparison):
    accuracy = {"constant": (0.8, 0.9), "cascade": (0.81, 0.9)}
    data = comparison(accuracy).as_data()
    assert (data["target"], data["target_of"]) == (pytest.approx(0.805), "constant")
    assert data["arms"]["cascade"]["to_target"]["reached"] == 2
    assert data["arms"]["constant"]["to_target"]["reached"] == 1
    data = comparison(accuracy, target=0.99).as_data()
    assert (data["target"], data["target_of"]) == (0.99, None)
    assert data["arms"]["cascade"]["to_target"]["reached"] == 0
    assert comparison({"cascade": (0.8, 0.9)}).as_data()["target"] is None


def test_an_arm_with_a_run_that_failed_is_shown_and_not_chosen(comparison):
    accuracy = {"constant": (0.9, 0.9), "cascade": (0.9, 0.9), "long+short": (0.8, 0.8)}
    failed = Failure(arm="cascade", seed=2, key="k", failed="the loss is not finite")
    data = comparison(accuracy, failures=(failed,)).as_data()
    assert data["plan"] == "long+short"
    assert data["arms"]["cascade"]["seeds"] == 2
    assert [failure["seed"] for failure in data["failures"]] == [2]


def test_an_arm_of_which_every_run_failed_is_left_out(comparison, arms_of):
    found = comparison({"constant": (0.9, 0.9)})
    lost = Failure(arm="cascade", seed=0, key="k", failed="the loss is not finite")
    data = dataclasses.replace(found, arms=(*found.arms, *arms_of("cascade")), failures=(lost,)).as_data()
    assert (list(data["arms"]), data["plan"]) == (["constant"], None)


def test_plans_are_held_against_chance_on_the_split_that_is_shown(comparison):
    levels = {
        split: Reference(name="chance", value=value, words="a guess", advice="train longer", trials=100)
        for split, value in (("val", 0.25), ("test", 0.5))
    }

    def beating(data):
        return {name: arm["beats_reference"] for name, arm in data["arms"].items()}

    accuracy = {"constant": (0.9, 0.9), "cascade": (0.9, 0.52)}
    data = comparison(accuracy, references=levels).as_data()
    assert data["references"] == {split: dataclasses.asdict(level) for split, level in levels.items()}
    assert beating(data) == {"constant": True, "cascade": False}
    assert beating(comparison(accuracy, references=levels, test=False).as_data())["cascade"]
    assert beating(comparison(accuracy).as_data()) == {"constant": None, "cascade": None}

"""Configurations of other tools become recipes, and every key of them is accounted for."""

import os
from itertools import accumulate
from pathlib import Path

import pytest
import yaml

from vcycle.errors import RecipeError, VcycleError
from vcycle.tasks.base import tasks
from vcycle.tasks.importing import Source, import_config
from vcycle.tasks.recipes import load_recipe, parse_recipe
from vcycle.tasks.recognition.importing.mmaction2 import MMACTION2
from vcycle.tasks.recognition.importing.pyslowfast import PYSLOWFAST
from vcycle.tasks.superres.importing import BASICSR

NAMES = (
    *("kinetics", "ssv2", "charades", "i3d", "basicvsr", "edvr"),
    *("mmaction2_0x", "mmaction2_1x", "mmaction2_augmented"),
)
"""The configurations that `write` knows."""


def recipe_of(path, *overrides):
    return parse_recipe(import_config(path, overrides).text, str(path))


def planned(recipe, **kwargs):
    task = tasks[recipe.task]
    return task.plan(recipe, task.length(recipe) or 10_000, **kwargs)


@pytest.mark.parametrize("name", NAMES)
def test_every_key_is_translated_not_needed_or_different_with_a_reason(write, name):
    imported = import_config(write(name))
    kinds = [imported.of(kind) for kind in ("translated", "unneeded", "differs")]
    listed = [key for found in kinds for key in found if not key.endswith(" (default)")]
    assert sorted(listed) == sorted(imported.values) == sorted(imported.findings)
    assert all(finding.reason for found in kinds for finding in found.values())


@pytest.mark.parametrize("name", NAMES)
def test_the_keys_of_supported_configurations_are_known(write, name):
    differing = import_config(write(name)).of("differs")
    assert [key for key, finding in differing.items() if "nothing of the kind" in finding.reason] == []


@pytest.mark.parametrize("name", NAMES)
def test_no_two_keys_give_one_key_of_the_recipe_different_values(write, name):
    imported = import_config(write(name))
    values = {}
    for finding in (*imported.assumed.values(), *imported.findings.values()):
        for key, value in finding.sets.items():
            assert values.setdefault(key, value) == value, key


@pytest.mark.parametrize("name", NAMES)
def test_the_recipe_is_a_shipped_one_and_few_differences_and_can_be_planned(write, name):
    imported = import_config(write(name))
    assert imported.base is not None
    assert imported.keys < (35 if name == "mmaction2_augmented" else 25)
    recipe = parse_recipe(imported.text, name)
    tasks[recipe.task].check_plan(recipe, planned(recipe))


EPOCHS = {
    "kinetics": [73, 110, 142, 158, 205, 228, 248, 259, 291, 308, 322, 329, 343, 358],
    "mmaction2_0x": [73, 110, 142, 158, 205, 228, 248, 259, 291, 308, 322, 329, 343, 358],
    "ssv2": [11, 16, 21, 24, 27, 28, 30, 30, 31, 33],
    "charades": [31, 47, 60, 67, 73, 76, 79, 80, 83, 86],
}
"""Where PySlowFast's stages end, in epochs: `facts/recognition.md`, section 2, computed by running its code."""
FACTORS = {
    "kinetics": [8, 4, 2, 1, 0.8, 0.4, 0.2, 0.1, 0.08, 0.04, 0.02, 0.01, 0.01, 0.001],
    "mmaction2_0x": [8, 4, 2, 1, 0.8, 0.4, 0.2, 0.1, 0.08, 0.04, 0.02, 0.01, 0.01, 0.001],
    "ssv2": [8, 4, 2, 1, 0.8, 0.4, 0.2, 0.1, 0.1, 0.01],
    "charades": [8, 4, 2, 1, 0.8, 0.4, 0.2, 0.1, 0.1, 0.01],
}
"""The LR of each stage in that of the first step after the warmup, of a batch of the full shape."""
LONG = [(0.25, 158, 8), (0.5, 158, 4), (0.5, 224, 2), (1, 224, 1)]
"""Frames, side and batch of a long cycle, by the full clip's."""


@pytest.mark.parametrize("name", EPOCHS)
def test_the_plan_is_the_schedule_of_multigrid_in_the_tool(write, name):
    recipe = recipe_of(write(name))
    training, plan = recipe.training, planned(recipe)
    factors, ends = FACTORS[name], EPOCHS[name]
    cycles = (len(factors) - 2) // 4
    shapes = [*(LONG * cycles), LONG[-1], LONG[-1]]
    assert [(s.base.frames, s.base.size, s.base.batch) for s in plan.stages] == [
        (training.frames * time, side, training.batch * batch) for time, side, batch in shapes
    ]
    assert [stage.rate.at(0.0) for stage in plan.stages] == pytest.approx([training.lr * factor for factor in factors])
    steps = accumulate(stage.steps for stage in plan.stages)
    # The tool rounds ends to whole epochs, one after the other; ours are exact.
    assert [plan.epochs_before(step) for step in steps] == pytest.approx(ends, abs=1)


def test_a_short_cycle_has_the_batches_of_the_tool(write):
    plan = planned(recipe_of(write("kinetics")))
    patterns = [[(cell.size, cell.batch) for cell in stage.pattern] for stage in plan.stages[:4]]
    assert patterns == [
        [(112, 1024), (158, 512), (158, 512)],
        [(112, 512), (158, 256), (158, 256)],
        [(112, 512), (158, 256), (224, 128)],
        [(112, 256), (158, 128), (224, 64)],
    ]


@pytest.mark.parametrize(
    ("switches", "plan"),
    [((True, True), "long+short"), ((True, False), "long"), ((False, True), "short"), ((False, False), "constant")],
)
def test_the_switches_of_both_cycles_choose_the_plan(write, switches, plan):
    long, short = switches
    imported = import_config(
        write("kinetics", MULTIGRID={"LONG_CYCLE": long, "SHORT_CYCLE": short, "EPOCH_FACTOR": 2.0})
    )
    recipe = parse_recipe(imported.text, "recipe")
    assert recipe.plan == plan
    kind = imported.findings["MULTIGRID.EPOCH_FACTOR"].kind
    assert kind == ("unneeded" if plan == "constant" else "translated")
    assert planned(recipe).epochs == pytest.approx(239 * (1 if plan == "constant" else 2), rel=1e-3)


CHANGES = {
    "kinetics": {
        "TRAIN.BATCH_SIZE": 32,
        "NUM_SHARDS": 2,
        "MULTIGRID.SHORT_CYCLE": False,
        "DATA.NUM_FRAMES": 64,
        "DATA.SAMPLING_RATE": 4,
        "DATA.TRAIN_JITTER_SCALES": [256, 340],
        "DATA.TRAIN_CROP_SIZE": 192,
        "DATA.TEST_CROP_SIZE": 256,
        "SLOWFAST.ALPHA": 8,
        "SLOWFAST.BETA_INV": 4,
        "SLOWFAST.FUSION_CONV_CHANNEL_RATIO": 1,
        "SLOWFAST.FUSION_KERNEL_SZ": 5,
        "RESNET.DEPTH": 101,
        "RESNET.WIDTH_PER_GROUP": 32,
        "RESNET.ZERO_INIT_FINAL_BN": False,
        "RESNET.NUM_BLOCK_TEMP_KERNEL": [[3, 3], [4, 4], [3, 3], [3, 3]],
        "BN.NUM_BATCHES_PRECISE": 100,
        "BN.USE_PRECISE_STATS": False,
        "SOLVER.BASE_LR": 0.2,
        "SOLVER.LR_POLICY": "cosine",
        "SOLVER.STEPS": [0, 100],
        "SOLVER.MAX_EPOCH": 250,
        "SOLVER.MOMENTUM": 0.8,
        "SOLVER.WEIGHT_DECAY": "1e-5",
        "SOLVER.WARMUP_EPOCHS": 10.0,
        "SOLVER.WARMUP_START_LR": 0.02,
        "SOLVER.OPTIMIZING_METHOD": "adamw",
        "MODEL.ARCH": "slow",
        "MODEL.DROPOUT_RATE": 0.2,
        "DATA_LOADER.NUM_WORKERS": 3,
        "RNG_SEED": 5,
    },
    "i3d": {
        "NUM_GPUS": 4,
        "SOLVER.LRS": [1, 0.5, 0.25, 0.125],
        "NONLOCAL.INSTANTIATION": "dot_product",
        "NONLOCAL.LOCATION": [[[]], [[]], [[]], [[]]],
        "TRAIN.CHECKPOINT_INFLATE": False,
        "TRAIN.EVAL_PERIOD": 3,
    },
    "basicvsr": {
        "num_gpu": 2,
        "manual_seed": 3,
        "datasets.train.type": "Vimeo90KRecurrentDataset",
        "datasets.train.num_frame": 7,
        "datasets.train.gt_size": 128,
        "datasets.train.use_rot": False,
        "datasets.train.num_worker_per_gpu": 2,
        "datasets.train.batch_size_per_gpu": 2,
        "network_g.num_feat": 32,
        "network_g.num_block": 10,
        "train.ema_decay": 0.9,
        "train.optim_g.type": "AdamW",
        "train.optim_g.lr": 1e-4,
        "train.optim_g.weight_decay": 0.01,
        "train.optim_g.betas": [0.9, 0.999],
        "train.scheduler.eta_min": 1e-6,
        "train.total_iter": 200000,
        "train.fix_flow": 100,
        "train.flow_lr_mul": 0.25,
        "train.warmup_iter": 500,
        "val.val_freq": 1000.0,
        "val.metrics.psnr.crop_border": 4,
        "val.metrics.psnr.test_y_channel": True,
        "logger.save_checkpoint_freq": 1000.0,
    },
}
"""Other values of keys that a recipe depends on."""


@pytest.mark.parametrize(("name", "key"), [(name, key) for name, keys in CHANGES.items() for key in keys])
def test_a_key_that_is_translated_changes_the_recipe(write, name, key):
    before = import_config(write(name))
    changes = CHANGES[name][key]
    for part in reversed(key.split(".")):
        changes = {part: changes}
    after = import_config(write(name, **changes))
    assert values(before) != values(after)


def values(imported):
    return parse_recipe(imported.text, "recipe").model_dump(mode="json", by_alias=True)


def test_batch_norm_groups_are_those_of_the_gpus(write):
    assert recipe_of(write("i3d")).training.bn_batch == 8
    assert recipe_of(write("i3d", NUM_GPUS=4)).training.bn_batch == 16
    assert recipe_of(write("i3d", BN={"NORM_TYPE": "sync_batchnorm", "NUM_SYNC_DEVICES": 4})).training.bn_batch == 32
    assert recipe_of(write("i3d", BN={"NORM_TYPE": "sub_batchnorm", "NUM_SPLITS": 4})).training.bn_batch == 2


def test_the_model_of_a_configuration_is_the_shipped_one(write):
    assert recipe_of(write("kinetics")).model.name == "slowfast_8x8_r50"
    assert recipe_of(write("ssv2")).model.name == "slowfast_16x8_r50"
    assert recipe_of(write("i3d")).model.name == "i3d_nl_r50"
    assert recipe_of(write("basicvsr")).model.name == "basicvsr"
    assert recipe_of(write("edvr")).model.name == "edvr_m"
    assert recipe_of(write("mmaction2_1x")).model.name == "slow_r50"


def test_a_configuration_of_the_shipped_schedule_becomes_the_shipped_recipe_but_for_what_differs(write):
    imported = import_config(write("i3d"))
    assert imported.base == "kinetics/i3d_nl_r50_8x8"
    own = yaml.safe_load(imported.text)
    assert own.keys() == {"base", "description", "training", "plan", "run"}
    assert own["training"] == {"precise_bn": 12_800}
    expected = load_recipe("kinetics/i3d_nl_r50_8x8", ["training.precise_bn=12800", "plan=constant"])
    recipe = parse_recipe(imported.text, "recipe")
    assert recipe.training == expected.training
    assert recipe.model == expected.model
    assert recipe.sampling == expected.sampling


def test_without_a_near_shipped_recipe_the_recipe_is_complete(write, monkeypatch):
    based = recipe_of(write("kinetics"), "data.clips=5000", "plan=cascade")
    monkeypatch.setattr("vcycle.tasks.nearest_recipe.recipe_names", lambda task: [])
    imported = import_config(write("kinetics"), ["data.clips=5000", "plan=cascade"])
    assert imported.base is None
    assert parse_recipe(imported.text, "recipe") == based


def test_a_configuration_of_mmaction2_1x_is_read_over_its_base(write):
    imported = import_config(write("mmaction2_1x"))
    recipe = parse_recipe(imported.text, "recipe")
    assert recipe.training.warmup.model_dump() == {"length": 10, "start_lr": 0.01}
    assert recipe.training.decay.law == "cosine"
    assert (recipe.training.batch, recipe.training.epochs, recipe.run.precision) == (64, 100, "fp16")
    assert recipe.sampling.short_side == (256, 320)
    assert recipe.init.needed  # weights that the tool downloads
    assert imported.missing == "data=FOLDER"  # the list is not here, and its length is unknown


def test_repeated_augmentation_of_mmaction2_is_counted_in_clips_and_the_rest_translated(write):
    plain, recipe = recipe_of(write("mmaction2_1x")), recipe_of(write("mmaction2_augmented"))
    augment = recipe.augment
    assert (augment.repeats, augment.mixup, augment.cutmix) == (2, 0.8, 1.0)
    assert augment.randaugment.model_dump() == {"ops": 4, "magnitude": 7}
    jitter = {"brightness": 0.4, "contrast": 0.5, "saturation": 0.5, "hue": pytest.approx(0.1 * 255 / 180)}
    assert augment.color_jitter.model_dump() == jitter
    erasing = {"probability": 0.3, "area": (0.1, 0.333), "ratio": (0.3, 3.33), "fill": "noise"}
    assert augment.erasing.model_dump() == erasing
    for key in ("batch", "lr_batch", "epochs", "bn_batch"):
        assert getattr(recipe.training, key) == 2 * getattr(plain.training, key)
    assert recipe.training.warmup.length == 2 * plain.training.warmup.length
    assert recipe.run.validate_every == 2 * plain.run.validate_every
    assert recipe.training.lr == plain.training.lr
    assert len(planned(recipe)) == len(planned(plain))  # as many updates, of as many videos


def test_augmentation_of_pyslowfast_is_translated_with_its_defaults_and_repeats_counted_in_clips(write):
    plain = recipe_of(write("i3d", MULTIGRID={"LONG_CYCLE": False, "SHORT_CYCLE": False}))
    on = {"ENABLE": True, "NUM_SAMPLE": 2, "RE_MODE": "const", "RE_COUNT": 1, "RE_SPLIT": False, "AA_TYPE": ""}
    imported = import_config(write("i3d", AUG=on))
    recipe = parse_recipe(imported.text, "recipe")
    assert recipe.augment.repeats == 2
    assert (recipe.augment.erasing.probability, recipe.augment.erasing.fill) == (0.25, "mean")
    assert recipe.augment.color_jitter is None  # PySlowFast has it for ImageNet alone
    assert recipe.augment.randaugment is None
    for key in ("batch", "lr_batch", "epochs", "bn_batch"):
        assert getattr(recipe.training, key) == 2 * getattr(plain.training, key)
    assert recipe.training.decay.milestones == tuple(2 * drop for drop in plain.training.decay.milestones)
    assert len(planned(recipe)) == len(planned(plain))
    assert "draws its own frames too" in imported.findings["AUG.NUM_SAMPLE"].reason
    usual = recipe_of(write("i3d", AUG={"ENABLE": True, "RE_MODE": "pixel"})).augment
    assert (usual.randaugment.magnitude, usual.color_jitter, usual.erasing.fill) == (9, None, "noise")
    off = recipe_of(write("i3d", AUG={"ENABLE": True, "RE_PROB": 0.0, "RE_MODE": "const", "AA_TYPE": ""}))
    assert off.augment.erasing is None
    assert recipe_of(write("i3d", AUG={"NUM_SAMPLE": 2})).augment == plain.augment  # AUG.ENABLE is off


def test_what_exists_is_a_path_of_the_recipe(write, tmp_path):
    (tmp_path / "weights.pyth").touch()
    changes = {"CHECKPOINT_FILE_PATH": str(tmp_path / "weights.pyth")}
    imported = import_config(write("kinetics", TRAIN=changes, DATA={"PATH_TO_DATA_DIR": str(tmp_path)}))
    recipe = parse_recipe(imported.text, "recipe")
    assert (recipe.init.path, recipe.data.path) == (str(tmp_path / "weights.pyth"), str(tmp_path))
    assert import_config(write("ssv2")).findings["TRAIN.CHECKPOINT_FILE_PATH"].kind == "differs"


def test_another_model_is_refused_unless_one_is_given(write):
    path = write("kinetics", MODEL={"ARCH": "mvit"})
    with pytest.raises(RecipeError, match=r"MODEL\.ARCH is 'mvit'.*model=my_package\.nets:MyNet"):
        import_config(path)
    imported = import_config(path, ["model=r3d_18"])
    assert parse_recipe(imported.text, "recipe").model.name == "r3d_18"
    assert imported.findings["MODEL.ARCH"].kind == imported.findings["RESNET.DEPTH"].kind == "differs"


REFUSED = [
    ("kinetics", {"DETECTION": {"ENABLE": True}}, "DETECTION.ENABLE"),
    ("kinetics", {"TRAIN": {"DATASET": "imagenet"}}, "TRAIN.DATASET is 'imagenet'"),
    ("kinetics", {"SOLVER": {"LR_POLICY": "exponential"}}, "SOLVER.LR_POLICY is 'exponential'"),
    ("kinetics", {"SOLVER": {"BASE_LR": "fast"}}, "SOLVER.BASE_LR' is 'fast'"),
    ("kinetics", {"SOLVER": {"STEPS": 7}}, "SOLVER.STEPS' is 7"),
    ("kinetics", {"DATA": {"NUM_FRAMES": 6}}, "plan of its recipe cannot be built"),
    ("basicvsr", {"scale": 2}, "scale is 2"),
    ("basicvsr", {"network_g": {"type": "IconVSR"}}, "network_g.type is 'IconVSR'"),
    ("basicvsr", {"train": {"total_iter": "long"}}, "training.steps"),
]


@pytest.mark.parametrize(("name", "changes", "message"), REFUSED)
def test_what_cannot_be_trained_is_refused_in_one_line(write, name, changes, message):
    with pytest.raises(VcycleError) as caught:
        import_config(write(name, **changes))
    assert message in str(caught.value)
    assert name in str(caught.value)  # the file
    assert "\n" not in str(caught.value)


ODD = (None, "text", [], {}, float("nan"))


@pytest.mark.parametrize("name", NAMES)
def test_a_value_of_any_kind_is_translated_or_refused_in_one_line(write, name):
    imported = import_config(write(name))
    importer, given = {each.tool: each for each in (BASICSR, MMACTION2, PYSLOWFAST)}[imported.tool], imported.values
    keys = [key for key in given if key.split("[")[0] not in ("training", "testing", "pipeline")]
    for key in keys:
        for value in ODD:
            source = Source("file", {**given, key: value}, importer.defaults, frozenset())
            try:
                assert importer.findings(source).keys() == {*importer.defaults, *given}
                importer.composed(source)
            except RecipeError as error:
                assert "\n" not in str(error)  # noqa: PT017


def real(pattern):
    """The real configurations in the folder that the environment names."""
    folder = os.environ.get("VCYCLE_TEST_CONFIGS")
    return [] if folder is None else sorted(Path(folder).rglob(pattern))


@pytest.mark.skipif("VCYCLE_TEST_CONFIGS" not in os.environ, reason="VCYCLE_TEST_CONFIGS names no folder")
@pytest.mark.parametrize("pattern", ["*.yaml", "*.yml", "*.py"])
def test_real_configurations_are_translated_or_refused_in_one_line(pattern):
    translated, refusals = 0, []
    for path in real(pattern):
        try:
            imported = import_config(path)
        except VcycleError as error:
            refusals.append(str(error))
            continue
        translated += 1
        assert imported.values.keys() == imported.findings.keys()
        recipe = parse_recipe(imported.text, str(path))
        if imported.missing is None and recipe.data.path is None:
            tasks[recipe.task].check_plan(recipe, planned(recipe))
    assert translated
    assert [line for line in refusals if "\n" in line] == []

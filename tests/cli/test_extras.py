"""Commands without the libraries that only extras install."""

import sys
from importlib import import_module

import pytest


@pytest.fixture
def without(monkeypatch):
    """Hides a library, as if it were not installed."""

    def hide(library):
        for name in [library, *(name for name in sys.modules if name.startswith(f"{library}."))]:
            monkeypatch.setitem(sys.modules, name, None)

    return hide


PLOTS = "plots need matplotlib, which is not installed: pip install 'vcycle[plots]'"


@pytest.mark.parametrize(
    "arguments",
    [
        ("plan", "demo/digits", "--figure", "{folder}/plan.png"),
        ("eval", "{folder}/run", "--figure", "{folder}/eval.png"),
        ("report", "{folder}/run", "--out", "{folder}/report.html"),
    ],
)
def test_a_picture_without_matplotlib_is_refused_with_what_to_install(vcycle, without, tmp_path, arguments):
    without("matplotlib")
    ran = vcycle(*(argument.format(folder=tmp_path) for argument in arguments))
    assert ran.code == 2
    assert ran.err.splitlines()[-1] == f"error: {PLOTS}"
    assert list(tmp_path.iterdir()) == []


def test_a_comparison_without_matplotlib_ends_with_its_table_and_no_picture(vcycle, without, videos, recipe, tmp_path):
    (tmp_path / "tiny.yaml").write_text(recipe)
    without("matplotlib")
    ran = vcycle(
        "compare", tmp_path / "tiny.yaml", f"data={videos}", "plan=constant", "seeds=1", "--out", tmp_path / "out"
    )
    assert ran.code == 0
    assert f"no figures: {PLOTS}" in ran.err
    assert "constant" in ran.out
    assert (tmp_path / "out" / "comparison.json").exists()
    assert not (tmp_path / "out" / "comparison.png").exists()


@pytest.mark.parametrize("task", ["recognition", "superresolution", "images"])
def test_a_demo_without_scikit_learn_is_refused_with_what_to_install(vcycle, without, tmp_path, task):
    without("sklearn")
    from vcycle.tasks import digit_scans
    from vcycle.tasks.superres.pairs import photographs

    digit_scans.load_scans.cache_clear()
    photographs._photographs.cache_clear()
    ran = vcycle("demo", task, "--out", tmp_path / "demo")
    assert ran.code == 2
    expected = "the demo needs scikit-learn, which is not installed: pip install 'vcycle[demo]'"
    assert ran.err.splitlines()[-1] == f"error: {expected}"


def test_training_and_evaluation_need_neither(vcycle, without, videos, recipe, tmp_path):
    (tmp_path / "tiny.yaml").write_text(recipe)
    without("matplotlib")
    without("sklearn")
    out = tmp_path / "run"
    assert vcycle("train", tmp_path / "tiny.yaml", f"data={videos}", "--out", out).code == 0
    assert vcycle("eval", out).code == 0


@pytest.mark.parametrize(
    ("logger", "said"),
    [
        ("wandb", r"run.loggers=[wandb] needs wandb, which is not installed: pip install 'vcycle[wandb]'"),
        ("no_such:Logger", "run.loggers: module 'no_such' cannot be imported: not found among installed packages"),
        ("json:nothing", "run.loggers: module 'json' has no 'nothing'"),
        ("string:digits", "run.loggers: string:digits is '0123456789'; accepted: a callable that returns a logger"),
    ],
)
def test_a_logger_that_cannot_be_opened_is_refused_by_plan_and_train_alike(
    vcycle, without, videos, tmp_path, logger, said
):
    without("wandb")
    given = ("videos/small", f"data={videos}", f"run.loggers=[{logger}]")
    out = tmp_path / "run"
    for command in (("plan", "videos/small", given[2]), ("plan", *given), ("train", *given, "--out", out)):
        ran = vcycle(*command)
        assert (ran.code, ran.err.splitlines()[-1][: len(said) + 7]) == (2, f"error: {said}")
    assert not out.exists()


@pytest.mark.parametrize("framework", ["lightning", "transformers"])
def test_an_adapter_without_its_framework_is_refused_with_what_to_install(without, framework, monkeypatch):
    name = f"vcycle.integrations.{framework}"
    monkeypatch.delitem(sys.modules, name, raising=False)
    without(framework)
    with pytest.raises(ImportError) as error:
        import_module(name)
    said = f"{name} needs {framework}, which is not installed: pip install 'vcycle[{framework}]'"
    assert str(error.value) == said


def test_ray_is_refused_with_what_to_install(vcycle, without, videos, tmp_path):
    without("ray")
    ran = vcycle("prepare", videos, tmp_path / "out", "--short-side", "16", "--engine", "ray")
    assert ran.code == 2
    needed = "--engine ray needs ray, which is not installed: pip install 'vcycle[ray]'"
    assert ran.err.splitlines()[-1] == f"error: {needed}"
    assert list(tmp_path.iterdir()) == []

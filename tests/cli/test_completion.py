"""The shell completes commands, recipes, their keys and plans, without loading what training needs."""

import json
import os
import subprocess
import sys
from pathlib import Path

import vcycle

COMPLETES = """
import contextlib, io, json, os, sys
from vcycle.cli import app
from vcycle.console import process
sys.argv = ["vcycle"]
for words in json.loads(sys.stdin.read()):
    os.environ |= {"_VCYCLE_COMPLETE": "complete_bash", "COMP_WORDS": " ".join(words)}
    os.environ["COMP_CWORD"] = str(len(words) - 1)
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        process.run(app.app, [])
    print(json.dumps(printed.getvalue().split()))
os.environ["_VCYCLE_COMPLETE"] = "source_bash"
with contextlib.redirect_stdout(io.StringIO()) as printed:
    process.run(app.app, [])
print(json.dumps(printed.getvalue().split()))
print(json.dumps(sorted({"torch", "av", "scipy", "matplotlib"} & set(sys.modules))))
"""
PLANS = ["constant", "long+short", "long", "short", "cascade"]


def test_commands_recipes_keys_and_plans_are_completed_without_torch() -> None:
    expected = {
        ("doc",): {"doctor"},
        ("train", "videos/"): {"videos/small", "videos/finetune"},
        ("plan", "videos/s"): {"videos/small"},
        ("plan", "au"): {"auto"},
        ("bench", "videos/s"): {"videos/small"},
        ("recipes", "show", "kinetics/slowfast_4"): {"kinetics/slowfast_4x16_r50"},
        ("train", "videos/small", "training.ba"): {"training.batch="},
        ("plan", "videos/small", "data.wor"): {"data.workers="},
        ("train", "videos/small", "plan=c"): {"plan=constant", "plan=cascade"},
        ("train", "videos/small", "plan", "="): set(PLANS),  # as bash divides it
        ("train", "videos/small", "plan", "=", "lo"): {"long", "long+short"},
        ("train", "videos/small", "training.batch", "=", "1"): set(),
        ("train", "no/recipe", "training.ba"): set(),
        ("check", "videos", "--recipe", "images/"): {"images/small"},
    }
    ran = subprocess.run(
        [sys.executable, "-c", COMPLETES],
        input=json.dumps([["vcycle", *words] for words in expected]),
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"PYTHONPATH": str(Path(vcycle.__file__).parents[1])},
    )
    *found, script, heavy = map(json.loads, ran.stdout.splitlines())
    assert {words: set(names) for words, names in zip(expected, found, strict=True)} == expected
    assert script[0] == "_vcycle_completion()"
    assert heavy == []


def test_the_help_names_the_options_that_install_it(vcycle) -> None:
    out = vcycle("--help").out
    assert "--install-completion" in out
    assert "--show-completion" in out

"""Steps of large networks on one thread of a CPU, at every shape of their plans, with a baseline of one clip.

    python benchmarks/networks/run.py [NAME ...] [--repeats 3] [--precision bf16] [--compile]
        [--override training.size=112]

It runs `vcycle bench` for each network and keeps its JSON as `NAME.json` (`NAME-bf16.json`,
`NAME-compiled.json`), from which `shown.py` makes the tables of this folder's README.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

LOGS = Path(__file__).parent

_CLIPS = ("--plans", "long+short,cascade", "training.batch=1")
_FRAMES = ("--plans", "hierarchical", "training.batch=1", "training.minibatch.factor=1", "training.warmup=null")

NETWORKS = {
    "slowfast": ("kinetics/slowfast_8x8_r50", *_CLIPS),
    "i3d": ("kinetics/i3d_r50", *_CLIPS),
    "r2plus1d": ("kinetics/i3d_r50", *_CLIPS, "model.name=r2plus1d_18", "training.size=112"),
    "mvit": ("finetune/mvit_v2_s", *_CLIPS),
    "videomae": ("finetune/videomae_b", *_CLIPS, "model.name=videomae_s"),
    "basicvsr": ("reds/basicvsr", *_FRAMES),
}
"""Arguments of `vcycle bench`; torchvision's R(2+1)D-18 has no recipe of its own, and takes I3D's plans."""


def main() -> None:
    """Measure networks."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"{', '.join(NETWORKS)}; by default all")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--precision", choices=("fp32", "bf16"), default="fp32")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--override", action="append", default=[], help="of the recipe, such as training.size=112")
    asked = parser.parse_intermixed_args()
    for name in asked.names or NETWORKS:
        measure(name, asked.repeats, asked.precision, asked.override, compiled=asked.compile)


def measure(name: str, repeats: int, precision: str, overrides: Sequence[str], *, compiled: bool) -> None:
    """Run `vcycle bench` and keep its JSON with the command."""
    way = [f"run.precision={precision}", f"run.compile={str(compiled).lower()}", "run.threads=1"]
    effort = ["--repeats", str(repeats), "--seconds", "0", "--json"]
    arguments = ["bench", *NETWORKS[name], *way, *overrides, *effort]
    found = subprocess.run(
        [sys.executable, "-m", "vcycle", *arguments],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    ).stdout
    ways = "-bf16" * (precision == "bf16") + "-compiled" * compiled
    data = {"command": ["vcycle", *arguments]} | json.loads(found)
    (LOGS / f"{name}{ways}.json").write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

"""The PSNR of bicubic interpolation on each test clip, and the picture of a crop.

Usage: python clips.py STUDY CLIPS   Both as study.sh makes them. Writes clips.json and crop.png here.
"""

import json
import sys
from pathlib import Path

from vcycle.bench.study import run_folder
from vcycle.tasks.superres import PairedDataset
from vcycle.tasks.superres.figures import restored_crops, restored_figure
from vcycle.tasks.superres.metrics import Protocol, clip_quality
from vcycle.tasks.superres.pairs.degrade import imresize
from vcycle.tasks.superres.pairs.layouts import read_pairs

SHOWN, SIDE = "walk", 96

study, clips, here = Path(sys.argv[1]), Path(sys.argv[2]), Path(__file__).parent
pairs = read_pairs(clips / "test")
names, dataset = list(pairs.high.names), PairedDataset(pairs)
bicubic = {}
for number, name in enumerate(names):
    clip = dataset.whole(number)
    enlarged = imresize(clip.lr, 4).movedim(-1, -3)
    bicubic[name] = clip_quality(enlarged, clip.hr.movedim(-1, -3), Protocol(channels="y")).psnr
(here / "clips.json").write_text(json.dumps(bicubic, indent=1) + "\n", encoding="utf-8")

runs: dict[str, Path] = {}
for line in (study / "results.jsonl").read_text(encoding="utf-8").splitlines():
    run = json.loads(line)
    runs.setdefault(run["arm"], run_folder(study, run["arm"], run["seed"], run["key"]))
shown = {"constant shape": runs["constant"], "hierarchical": runs["hierarchical"]}
restored_figure(restored_crops(shown, clip=names.index(SHOWN), side=SIDE)).savefig(here / "crop.png", dpi=110)

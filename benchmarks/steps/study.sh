#!/bin/sh
# The demo's net in one process, and a small net on real videos with two workers. DATA has the folder `gestures`.
set -e
cd "$(dirname "$0")"
short="training.decay=cosine training.warmup=null run.validate_every=100"
python run.py demo demo/digits data="$DATA/digits" training.epochs=1 $short
python run.py gestures videos/small data="$DATA/gestures" training.epochs=2 training.size=48 $short

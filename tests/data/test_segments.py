"""Frames drawn from the segments of a clip, as Something-Something is trained."""

import numpy as np
import pytest

from vcycle.data import GridSampler, SampleRequest, VideoInfo
from vcycle.plan import Shape

VIDEO = VideoInfo.uniform(100, 120, 160, fps=25)
MIDDLES = GridSampler(frames=8, size=64, span=(1.0, 1.0), flip=True)
DRAWN = GridSampler(frames=8, size=64, span=(1.0, 1.0), flip=True, segments=True)


@pytest.mark.parametrize("frames", [8, 4])
def test_each_frame_is_drawn_from_its_own_share_of_the_span_and_nothing_else_changes(frames):
    places = []
    for position in range(50):
        request = SampleRequest(0, Shape(frames, 64, 64), (0, 0, position))
        middle, drawn = MIDDLES.train(request, VIDEO), DRAWN.train(request, VIDEO)
        assert (middle.crop, middle.resized, middle.flip) == (drawn.crop, drawn.resized, drawn.flip)
        assert DRAWN.train(request, VIDEO).times.tolist() == drawn.times.tolist()
        places.append(drawn.times * frames / VIDEO.duration - np.arange(frames))
    assert 0 <= np.min(places) < 0.05
    assert 0.95 < np.max(places) < 1
    assert np.std(places) == pytest.approx(12**-0.5, abs=0.03)

import pickle

import numpy as np
import pytest

from vcycle.data import SampleRequest
from vcycle.plan import Shape

SHAPE = Shape(8, 112, 112)
REQUEST = SampleRequest(3, SHAPE, (0, 1, 103))


def draws(request, purpose=0):
    return request.generator(purpose).random(4).tolist()


def test_the_same_key_gives_the_same_numbers_in_any_process():
    assert draws(REQUEST) == draws(REQUEST) == draws(pickle.loads(pickle.dumps(REQUEST)))
    # First computed with NumPy 2.4: a change of them changes every run.
    assert draws(REQUEST)[:2] == [0.4345117714833494, 0.9913143057238226]


def test_numbers_depend_on_the_key_and_not_on_index_or_shape():
    assert draws(SampleRequest(9, Shape(4, 80, 80), REQUEST.key)) == draws(REQUEST)


@pytest.mark.parametrize("key", [(1, 1, 103), (0, 2, 103), (0, 1, 104), (-1, 1, 103), (2**40, 1, 103), (1, 0, 103)])
def test_another_key_gives_other_numbers(key):
    assert set(draws(SampleRequest(3, SHAPE, key))).isdisjoint(draws(REQUEST))


def test_another_purpose_gives_other_numbers():
    assert set(draws(REQUEST, 1)).isdisjoint(draws(REQUEST))


def test_neighbouring_keys_are_unrelated():
    values = np.array([SampleRequest(0, SHAPE, (0, 0, p)).generator().random(2) for p in range(3000)])
    assert np.abs(np.corrcoef(values[:-1].T, values[1:].T)[np.triu_indices(4, 1)]).max() < 0.08
    assert abs(values.mean() - 0.5) < 0.02
    assert (np.histogram(values[:, 0], 10, (0, 1))[0] > 230).all()

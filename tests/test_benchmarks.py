"""Quick versions of the benchmarks: they run, and the engine is in the league of C."""

import shutil

import pytest

from benchmarks import speed


@pytest.mark.skipif(shutil.which("cc") is None and shutil.which("gcc") is None, reason="needs a C compiler")
@pytest.mark.parametrize("m", [2, 4])
def test_the_engine_and_the_c_reference_do_the_same_work_in_similar_time(m):
    """Equal results; and at most twice the time, far from the usual ratio of 1.2, as neighbours may disturb either."""
    row = speed.against_c(m, n=20_000, repeats=15)
    assert row.difference < 1e-9
    assert row.ratio < 2.0


def test_a_user_family_runs_at_the_speed_of_a_built_in_one():
    assert speed.user_family_against_built_in(n=20_000, repeats=15) < 2.0


def test_learn_one_takes_microseconds():
    assert speed.learn_one_microseconds(n=5_000, repeats=9) < 6.0

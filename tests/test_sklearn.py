"""The estimators keep scikit-learn's conventions."""

import models
import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, TimeSeriesSplit
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import estimator_checks_generator

from hmmstream import BatchHMM, Gaussian, OnlineHMM, online, starts
from hmmstream.arrays import matrix

# Checks that cannot hold here, and why
EXCEPTIONS = {
    "check_fit1d": "a vector is one feature: X of shape (n,) is a record with one column",
    "check_sample_weight_equivalence_on_dense_data": "rows follow each other: repeating or removing one makes another "
    "record (repeating a whole sequence is the same as its weight: tests/test_known.py)",
}


class FirstColumn(OnlineHMM):
    """Takes tables of any size, and learns from their first column: for each size loops would be compiled anew."""

    def _rows(self, X):
        rows = super()._rows(X)
        if rows.shape[1] != self.__dict__.get("n_features_in_", rows.shape[1]):
            raise ValueError("Reshape your data")  # as the model says, if it has all columns
        return rows[:, :1]


# With features that are not correlated, whose loops compile sooner
ESTIMATORS = [FirstColumn(emission=Gaussian("diag")), BatchHMM(emission=Gaussian("diag"), n_iter=5)]


def name_of(check):
    return getattr(check, "func", check).__name__


@pytest.mark.filterwarnings("ignore:y is ignored")
@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda estimator: type(estimator).__name__)
def test_scikit_learns_own_checks_pass_but_for_the_declared_ones(estimator, monkeypatch):
    monkeypatch.setattr(starts, "POWERS", (2,))  # hundreds of fits, of which none has to be good
    monkeypatch.setattr(starts, "BLURS", (0.0,))
    monkeypatch.setattr(online, "matrix", lambda X: matrix(X)[:, :1])
    failed, n_passed = {}, 0
    for checked, check in estimator_checks_generator(estimator, mark=None):
        if name_of(check) in EXCEPTIONS:
            continue
        try:
            check(checked)
            n_passed += 1
        except Exception as error:
            if type(error).__name__ != "SkipTest":
                failed[name_of(check)] = repr(error)
    assert not failed
    assert n_passed > 40


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda estimator: type(estimator).__name__)
def test_parameters_are_stored_untouched(estimator):
    emission = Gaussian("diag")
    other = clone(estimator).set_params(n_components=3, emission=emission)
    assert other.get_params()["emission"] is emission
    assert clone(other).get_params()["n_components"] == 3
    assert other.__sklearn_tags__().input_tags.allow_nan


def test_a_pipeline_scales_first():
    X = models.make("gaussian-full").sample(1500, 1)[0] * [1e-3, 1e5]
    pipeline = make_pipeline(StandardScaler(), OnlineHMM(3, Gaussian("diag"), random_state=0)).fit(X)
    alone = OnlineHMM(3, Gaussian("diag"), random_state=0).fit(StandardScaler().fit_transform(X))
    np.testing.assert_array_equal(pipeline.predict(X), alone.predict(StandardScaler().fit_transform(X)))
    assert pipeline.score(X) == alone.score(StandardScaler().fit_transform(X))


def test_grid_search_finds_the_number_of_states():
    X = models.make("gaussian-diag").sample(3000, 2)[0]
    search = GridSearchCV(
        OnlineHMM(emission=Gaussian("diag"), random_state=0), {"n_components": [2, 3]}, cv=TimeSeriesSplit(2)
    ).fit(X)
    assert search.best_params_ == {"n_components": 3}


def test_frames_come_in_with_their_names():
    X = models.make("gaussian-diag").sample(400, 3)[0]
    frame = pd.DataFrame(X, columns=["left", "right"])
    settings = {"n_components": 2, "emission": Gaussian("diag"), "random_state": 0}
    for estimator in (OnlineHMM(**settings), BatchHMM(**settings, n_iter=5)):
        estimator.fit(frame)
        assert estimator.feature_names_in_.tolist() == ["left", "right"]
        np.testing.assert_array_equal(models.values(estimator.model_), models.values(clone(estimator).fit(X).model_))
        assert estimator.predict(frame).shape == (400,)
        with pytest.raises(ValueError, match="feature names should match"):
            estimator.predict(frame[["right", "left"]])
        with pytest.raises(ValueError, match="feature names should match"):
            estimator.predict(frame[["left"]])
        with pytest.raises(ValueError, match="feature names should match"):
            getattr(estimator, "partial_fit", estimator.predict)(frame.rename(columns={"left": "top"}))
    assert BatchHMM(2, random_state=0, n_iter=2).fit(frame["left"]).n_features_in_ == 1


def test_a_stream_of_frames():
    frame = pd.DataFrame(models.make("gaussian-diag").sample(40, 3)[0], columns=["left", "right"])
    hmm = OnlineHMM(2, Gaussian("diag"), random_state=0).partial_fit(frame[:20]).partial_fit(frame[20:])
    assert hmm.feature_names_in_.tolist() == ["left", "right"]
    assert OnlineHMM(2, Gaussian("diag"), random_state=0).follow(frame).shape == (40, 2)


def test_missing_values_of_a_frame_are_missing():
    X = models.with_gaps(models.make("gaussian-diag").sample(300, 4)[0], 0.1)
    frame = pd.DataFrame(X, columns=["a", "b"]).convert_dtypes()
    assert frame.isna().any().any()
    ours = BatchHMM(2, Gaussian("diag"), random_state=0, n_iter=5).fit(frame)
    np.testing.assert_array_equal(
        models.values(ours.model_),
        models.values(BatchHMM(2, Gaussian("diag"), random_state=0, n_iter=5).fit(X).model_),
    )


def test_polars_frames_come_in_with_their_names():
    pl = pytest.importorskip("polars", reason="polars takes 180 MB, and is in no extra")
    X = models.make("gaussian-diag").sample(200, 3)[0]
    frame = pl.DataFrame({"left": X[:, 0], "right": X[:, 1]})
    estimator = OnlineHMM(2, Gaussian("diag"), random_state=0).fit(frame)
    assert estimator.feature_names_in_.tolist() == ["left", "right"]
    np.testing.assert_array_equal(estimator.predict(frame), estimator.predict(frame.to_pandas()))


def test_partial_fit_never_clears_and_returns_the_estimator():
    X = models.paper_model().sample(200, 5)[0]
    hmm = OnlineHMM(2, Gaussian("diag"), random_state=0)
    assert hmm.partial_fit(X[:100]) is hmm
    assert hmm.partial_fit(X[100:]).n_samples_seen_ == 200
    assert hmm.fit(X[:50]).n_samples_seen_ == 50
    hmm.reset()
    with pytest.raises(NotFittedError):
        hmm.predict(X)
    assert hmm.partial_fit(np.column_stack([X, X])).n_features_in_ == 2

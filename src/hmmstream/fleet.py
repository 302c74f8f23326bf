"""Fleet: many streams side by side, each with a model of its own, or all of them learning one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from hmmstream import checkpoint, transitions
from hmmstream.arrays import FloatArray, IntArray, is_integer, matrix, observations
from hmmstream.averaging import Polyak, Refined, StatisticAverage
from hmmstream.emissions import Emission, specification
from hmmstream.learner import ROWS_A_STATE, Learner, check_engine, has_window
from hmmstream.learners import LearnerStreams
from hmmstream.model import HMM
from hmmstream.names import Names, code_points, from_code_points
from hmmstream.online import OnlineHMM
from hmmstream.priors import Prior
from hmmstream.record import Record
from hmmstream.recursions import rows
from hmmstream.recursions.state import IN_SEQUENCE
from hmmstream.schedule import Track
from hmmstream.starts import find_start
from hmmstream.streams import NO_ORDER, Rows, SeparateStreams, SharedStreams, Streams, are_alike, by_streams

DEVICES = ("cpu", "cuda")
DTYPES = ("float64", "float32")


class Fleet:
    """Many streams, learned side by side: each has a model of its own, or all have one in common.

    Streams are known by their ``ids`` and may appear at any time. What a stream learns is what an
    :class:`~hmmstream.OnlineHMM` of its own would learn from the same rows.

    Parameters
    ----------
    n_components, emission
        As of :class:`~hmmstream.OnlineHMM`.
    shared : bool
        Learn one model from all streams: each has its own hidden states, and their statistics are pooled.
    device : "cpu" or "cuda"
        Where the streams live and learn. "cuda" needs an NVIDIA GPU and ``pip install hmmstream[gpu]``.
    dtype : "float64" or "float32"
        Of the numbers on a GPU.
    n_jobs : int or None
        Threads to use; None for all cores.
    **settings
        ``transition``, ``init``, ``step``, ``averaging``, ``n_min``, ``update_every``, ``engine``, ``prior``,
        ``random_state``: as of OnlineHMM, but that ``averaging="auto"`` is the averaged statistic; "refined" has the
        second stage. With ``init="auto"`` all streams start from values found in the rows of the first call together.
        Windows (``engine``) and the second stage are for streams with models of their own, on the CPU.

    Attributes
    ----------
    ids : (N,)
        The streams, in the order in which they came.
    filtered_proba_ : (N, m)
        Probability of each state now, for each stream.
    transmat_ : (N, m, m), and the values of the emission: means_, covars_, … : (N, …)
        The models to use (averaged). With ``shared`` there is one ``model_``, and they are those of it.
    n_samples_seen_ : (N,)
    log_likelihood_ : (N,)
        Sum of the log predictive densities of a stream.

    Examples
    --------
    >>> import numpy as np
    >>> from hmmstream import Fleet, HMM, Gaussian
    >>> guess = HMM([0.5, 0.5], [[0.7, 0.3], [0.5, 0.5]], Gaussian("tied", means=[-0.5, 1.5], covars=2))
    >>> worlds = [HMM([0.5, 0.5], [[0.9, 0.1], [0.2, 0.8]], Gaussian("tied", [0, 2 + a], 0.5)) for a in range(3)]
    >>> block = np.hstack([world.sample(20_000, random_state=1)[0] for world in worlds])  # time x stream
    >>> fleet = Fleet(init=guess).partial_fit(block)
    >>> fleet.means_[:, 1, 0].round().tolist()
    [2.0, 3.0, 4.0]
    >>> fleet.partial_fit([0.3, 2.8, 2.9], ids=[0, 1, 1]).n_samples_seen_.tolist()
    [20001, 20002, 20000]
    """

    def __init__(
        self,
        n_components: int = 2,
        emission: str | Emission = "gaussian",
        *,
        shared: bool = False,
        device: str = "cpu",
        dtype: str = "float64",
        n_jobs: int | None = None,
        **settings: Any,
    ) -> None:
        self.prototype = OnlineHMM(n_components, emission, **settings)
        self.prototype._check_settings()
        if device not in DEVICES or dtype not in DTYPES:
            raise ValueError(f"device must be one of {DEVICES} and dtype one of {DTYPES}, got {device!r} and {dtype!r}")
        if dtype == "float32" and device == "cpu":
            raise ValueError("dtype='float32' is for device='cuda': on a CPU it would not be faster")
        if shared and device == "cuda":
            raise ValueError("shared=True learns on the CPU: leave device as it is")
        check_engine(self.prototype.engine)
        if self.prototype.engine == "window" and (shared or device == "cuda"):
            raise ValueError("there are no windows of the past with shared=True or on a GPU: leave engine as it is")
        if n_jobs is not None and not (is_integer(n_jobs) and n_jobs >= 1):
            raise ValueError(f"n_jobs must be a positive integer or None, got {n_jobs!r}")
        if self.is_refined and (shared or device == "cuda"):
            raise ValueError("there is no second stage with shared=True or on a GPU: leave averaging as it is")
        if self.prototype.step == "track" or isinstance(self.prototype.step, Track):
            raise ValueError("a fleet watches for no changes: to forget old observations, use Constant")
        if shared and isinstance(self.prototype.averaging, Polyak):
            raise ValueError("shared=True averages the statistic: averaging is 'auto' or None, not Polyak")
        self.shared, self.device, self.dtype, self.n_jobs = shared, device, dtype, n_jobs
        self._names = Names(np.empty(0, dtype=np.int64))
        self._streams: Streams | None = None
        if isinstance(self.prototype.init, HMM):
            self._streams = self._begin(self.prototype._explicit_start())

    # --- learning ---------------------------------------------------------------------------------------------------

    def partial_fit(self, X: Any, ids: ArrayLike | None = None) -> Self:
        """Learn from rows that continue their streams. NaN where missing.

        Parameters
        ----------
        X : (T, N) or (T, N, d), a list of arrays, or with ``ids`` (n,) or (n, d)
            A block holds T rows of each of the N streams, in the order of ``ids``; the first block makes streams of its
            columns, numbered from 0. A list holds an array a stream, of any lengths. On a GPU a block may be an array
            of CuPy or PyTorch: one that is on the device is not copied.
        ids : (n,)
            Which stream each row is of, in order of arrival: integers or strings. New ones are new streams.
        """
        self._learn(X, ids)
        return self

    def follow(self, X: Any, ids: ArrayLike | None = None, *, return_surprise: bool = False) -> Any:
        """Learn, and return each row's state probabilities as they stood at that row: (T, N, m) or (n, m).

        With ``return_surprise`` also minus the log predictive density of each row, as it was before the row was learned
        from: (T, N) or (n,).
        """
        found = self._learn(X, ids, follows=True, is_scored=return_surprise)
        return (found[..., :-1], -found[..., -1]) if return_surprise else found

    def end_sequence(self, ids: ArrayLike | None = None) -> Self:
        """Say that the next row of these streams, or of all, starts a new, independent sequence."""
        at = np.arange(len(self)) if ids is None else self._places_of(ids)
        self._known().set_clock(at, IN_SEQUENCE, 0.0)
        return self

    def freeze(self) -> Self:
        """Hold the parameters of all streams: rows still move the filters and the statistics."""
        self._known().template.freeze()
        return self

    def unfreeze(self) -> Self:
        """Let the parameters follow the statistics again."""
        self._known().template.unfreeze()
        return self

    def _learn(self, X: Any, ids: ArrayLike | None, *, follows: bool = False, is_scored: bool = False) -> FloatArray:
        if self.device == "cuda" and ids is None and hasattr(X, "__cuda_array_interface__"):
            return self._learn_on_device(X, follows)
        data, shape, added = self._rows(X, ids)
        streams = self._streams
        if streams is None:
            streams = self._begin(self._find_start(data, shape))
        emission = streams.template.start.emission
        data = data._replace(X=observations(data.X, emission.n_columns))
        self._check(data, shape, emission)
        filtered = np.empty((len(data.X) if follows else 0, emission.n_components + is_scored))
        n_before = len(self)
        try:
            self._names.add(added)
            streams.add(len(added))
            streams.learn(data, filtered)
            self._streams = streams
        except BaseException:  # a step function that fails, no memory, an interrupt
            n_kept = n_before
            try:
                if streams.have_seen(n_before):  # what was learned stays
                    n_kept, self._streams = len(self), streams
            finally:  # there is a name for each stream whatever happens
                self._keep_first(n_kept, streams)
            raise
        return filtered.reshape(*shape, filtered.shape[1]) if follows else filtered

    def _check(self, data: Rows, shape: tuple[int, ...], emission: Emission) -> None:
        """Refuse rows in which something cannot occur, and say where."""
        place = rows.check(emission, data.X)
        if place != rows.ACCEPTED:
            error = emission.refusal(data.X, place)
            at = [*(int(i) for i in np.unravel_index(error.row, shape)), error.column]
            where = ", ".join(map(str, at[:-1] if len(shape) == 2 and emission.n_columns == 1 else at))
            error.args = (f"X[{where}] is {error.value}: {error.reason} Nothing was learned from these rows.",)
            raise error

    def _learn_on_device(self, X: Any, follows: bool) -> FloatArray:
        """A block that is on the device already."""
        if follows:
            raise ValueError("follow needs its rows on the host: pass a NumPy array")
        if self._streams is None:
            raise ValueError("no start can be found from rows on the device: give init, or a first block on the host")
        streams: Any = self._streams
        streams.learn_block(X)
        if len(self) == 0:
            self._names = Names(np.arange(len(streams)))
        return np.empty((0, 0))

    # --- what was given -----------------------------------------------------------------------------------------

    def _rows(self, X: Any, ids: ArrayLike | None) -> tuple[Rows, tuple[int, ...], Any]:
        """What was given, its shape less features, and the ids of new streams."""
        if ids is not None:
            data, names = matrix(X), self._checked(ids)
            if len(names) != len(data):
                raise ValueError(f"ids must name the stream of each of the {len(data)} rows of X, got {len(names)}")
            places, added = self._places(names)
            return by_streams(data, places, len(self) + len(added), self._n_threads), (len(data),), added
        if isinstance(X, list | tuple) and len(X) and all(isinstance(x, np.ndarray) or is_series(x) for x in X):
            pieces = [matrix(x) for x in X]
            if len({piece.shape[1] for piece in pieces}) > 1:
                raise ValueError("the arrays of X must have the same number of columns, one a feature")
            data = np.concatenate(pieces)
            places = np.repeat(np.arange(len(pieces)), [len(piece) for piece in pieces])
            return by_streams(data, places, len(pieces), self._n_threads), (len(data),), self._columns(len(pieces))
        is_cube = np.ndim(X) == 3
        block = np.ma.asarray(X, dtype=np.float64).filled(np.nan) if is_cube else matrix(X) if np.ndim(X) == 2 else None
        if block is None:
            raise ValueError(
                f"X must be a block of shape (time, stream) or (time, stream, feature), got {np.shape(X)}; for rows of "
                "streams in order of arrival, give their ids"
            )
        n_times, n_streams = block.shape[:2]
        data = matrix(block.reshape(n_times * n_streams, block.shape[2] if is_cube else 1))
        offsets = np.arange(n_streams + 1) * n_times
        return Rows(data, np.arange(n_streams), offsets, NO_ORDER), (n_times, n_streams), self._columns(n_streams)

    def _columns(self, n: int) -> Any:
        """The ids of new streams that the columns of a block make: if there are none yet, their numbers."""
        if len(self) not in (0, n):
            raise ValueError(f"X is of {n} streams, but there are {len(self)}: give the ids of its rows")
        return np.arange(len(self), n)

    def _checked(self, ids: Any) -> Any:
        """Names of streams as an array of integers or of strings, of the same kind as those that are there."""
        names = np.asarray(ids)
        if names.dtype == object and names.size and all(isinstance(name, str) for name in names.ravel()):
            names = names.astype(np.str_)
        if names.size == 0:
            return self.ids[:0]
        is_whole = names.dtype.kind == "i" or (names.dtype.kind == "u" and names.max() <= np.iinfo(np.int64).max)
        if names.ndim != 1 or not (is_whole or names.dtype.kind == "U"):
            raise ValueError(f"a stream is known by an integer or a string, got {names.dtype} of shape {names.shape}")
        if len(self) and (self.ids.dtype.kind == "U") != (names.dtype.kind == "U"):
            kinds = [("integers", "strings")[kind == "U"] for kind in (self.ids.dtype.kind, names.dtype.kind)]
            raise ValueError(f"the streams here are known by {kinds[0]}, not by {kinds[1]}")
        return (
            names if names.dtype.kind == "U" else np.require(names, np.int64, ["C_CONTIGUOUS", "ALIGNED", "WRITEABLE"])
        )

    def _places(self, names: Any) -> tuple[IntArray, Any]:
        """The place of each stream, and the ids of new ones: they come last, in the order in which they are named."""
        places = self._names.find(names, self._n_threads)
        if places.min(initial=0) >= 0:
            return places, names[:0]
        unknown, added = np.flatnonzero(places < 0), Names(names[:0])
        places[unknown] = len(self) + added.add(names[unknown])
        return places, added.ids

    def _places_of(self, ids: Any) -> IntArray:
        """The places of streams that are there."""
        names = self._checked(np.atleast_1d(np.asarray(ids)))
        places = self._names.find(names)
        if (places < 0).any():
            raise KeyError(f"there is no stream {names[places < 0][0].item()!r}")
        return places

    @property
    def start(self) -> HMM:
        """What a stream that has seen nothing starts from."""
        return self._known().template.start

    def find_start(self, X: Any, ids: ArrayLike | None = None) -> HMM:
        """Values to start from, found in these rows for all streams together. Nothing is learned."""
        data, shape, _ = self._rows(X, ids)
        return self._find_start(data, shape)

    def _find_start(self, data: Rows, shape: tuple[int, ...]) -> HMM:
        made = self.prototype
        family = specification(made.emission, data.X)
        sized = family if family.has_values else family.sized(made.n_components, data.X.shape[1])
        self._check(data._replace(X=observations(data.X, sized.n_columns)), shape, sized)
        n_seen = int((~np.isnan(data.X)).any(axis=1).sum())
        if n_seen < ROWS_A_STATE * made.n_components:
            raise ValueError(
                f"the first call holds {n_seen} observations, too few to find a start for all streams: let it hold at "
                f"least {ROWS_A_STATE * made.n_components}, or give init"
            )
        is_start = np.zeros(len(data.X), dtype=np.bool_)
        is_start[data.offsets[:-1][np.diff(data.offsets) > 0]] = True
        structure, rng = transitions.resolve(made.transition), np.random.default_rng(made.random_state)
        prior = Prior() if made.prior is None else made.prior
        record = Record(data.X[data.all_numbers()], is_start)
        return find_start(family, made.n_components, structure, record, rng, prior)

    def _begin(self, start: HMM) -> Streams:
        made = self.prototype
        if start.emission.n_lags:
            raise ValueError(f"{type(start.emission).__name__} looks back at earlier rows, which a fleet cannot yet do")
        prior = made.prior
        if prior is None and not isinstance(made.init, HMM):
            prior = Prior()  # as OnlineHMM has, where it finds its own start
        # Of few states a matrix of all streams is faster, also where M-steps are so seldom that one has a window
        needs_learners = self.is_refined or has_window(made.engine, start.n_components, 1)
        has_learners = self.device == "cpu" and not self.shared and needs_learners
        template = Learner(
            start,
            step=made.step,
            averaging=StatisticAverage() if made.averaging == "auto" else made.averaging,
            n_min=made.n_min,
            update_every=made.update_every,
            engine=made.engine if has_learners else "dense",
            prior=prior,
        )
        if self.device == "cuda":
            from hmmstream.device import DeviceStreams  # which needs numba-cuda, and a GPU

            return DeviceStreams(template, self.dtype)
        kind = SharedStreams if self.shared else LearnerStreams if has_learners else SeparateStreams
        return kind(template, self._n_threads)

    @property
    def is_refined(self) -> bool:
        """Whether its streams have the second stage."""
        return self.prototype.averaging == "refined" or isinstance(self.prototype.averaging, Refined)

    @property
    def _n_threads(self) -> int:
        return self.n_jobs or n_cores()

    def _known(self) -> Streams:
        if self._streams is None:
            raise ValueError("nothing has been learned yet: call partial_fit first, or give init")
        return self._streams

    # --- streams come and go ----------------------------------------------------------------------------------------

    @property
    def ids(self) -> Any:
        """(N,): the streams, in the order in which they came."""
        return self._names.ids

    def __len__(self) -> int:
        return len(self._names)

    def __contains__(self, stream: Any) -> bool:
        try:
            return bool(self._names.find(self._checked([stream]))[0] >= 0)
        except ValueError:
            return False

    def __iter__(self) -> Iterator[Any]:
        return iter(self.ids.tolist())

    def add(self, ids: ArrayLike) -> Self:
        """Add streams that have seen nothing yet."""
        streams, names = self._known(), self._checked(np.atleast_1d(np.asarray(ids)))
        _, added = self._places(names)
        if len(added) < len(names):
            raise ValueError("there is a stream of this name already, or one is named twice")
        n_before = len(self)
        try:
            self._names.add(names)
            streams.add(len(names))
        except BaseException:
            self._keep_first(n_before, streams)
            raise
        return self

    def _keep_first(self, n: int, streams: Streams) -> None:
        self._names.keep(n)
        streams.keep_first(n)

    def remove(self, ids: ArrayLike) -> Self:
        """Forget streams. With ``shared``, what was learned from them stays in the model."""
        places = self._places_of(ids)
        stays = np.ones(len(self), dtype=np.bool_)
        stays[places] = False
        names, stay = Names(self.ids[stays]), np.flatnonzero(stays)
        self._known().keep(stay)
        self._names = names
        return self

    def extract(self, stream: Any) -> OnlineHMM:
        """A stream as an OnlineHMM of its own, which goes on where the stream stands. The fleet keeps its own."""
        (place,) = self._places_of([stream])
        return online_hmm(self.prototype, self._known().learner(int(place)))

    def put(self, stream: Any, hmm: OnlineHMM) -> Self:
        """Let an OnlineHMM of the same kind become a stream, in the place of the one of this name if there is one."""
        streams = self._known()
        if self.shared:
            raise ValueError("the streams of a shared model have no models of their own: add the stream, without one")
        its, mine = hmm._fitted(), streams.template
        if not are_alike(its, mine):
            raise ValueError(f"this fleet is of {mine.start.emission!r}, and {hmm!r} is of another kind")
        n_before = len(self)
        if stream not in self:
            self.add([stream])
        try:
            (place,) = self._places_of([stream])
            streams.replace(int(place), its)
        except BaseException:
            self._keep_first(n_before, streams)
            raise
        return self

    def resume(self, ids: ArrayLike, vectors: FloatArray) -> Self:
        """Go on with these streams, and no others, from where their ``vectors`` say that they stood."""
        checked = self._checked(ids)
        names = Names(checked)
        if len(names) < len(checked):
            raise ValueError("a stream is named twice")
        self._separate().take_over(np.copy(vectors), len(names))
        self._names = names
        return self

    # --- what has been learned --------------------------------------------------------------------------------------

    @property
    def vectors(self) -> FloatArray:
        """(N, s): all that each stream knows, a row each, to be kept elsewhere and given to :meth:`resume`."""
        return self._separate().vectors

    def new_vector(self) -> FloatArray:
        """(s,): that of a stream that has seen nothing."""
        return self._separate().new_vector()

    def _separate(self) -> SeparateStreams:
        streams = self._known()
        if not isinstance(streams, SeparateStreams):
            raise ValueError("vectors are of streams with their own models, no windows and no second stage, on the CPU")
        return streams

    @property
    def filtered_proba_(self) -> FloatArray:
        return self._known().filtered_proba()

    @property
    def n_samples_seen_(self) -> IntArray:
        return self._known().n_seen()

    @property
    def log_likelihood_(self) -> FloatArray:
        return self._known().log_likelihood()

    @property
    def model_(self) -> HMM:
        """The model that all streams have in common."""
        streams = self._known()
        if not isinstance(streams, SharedStreams):
            raise ValueError("each stream has its own model: extract(stream).model_, or transmat_ and so on of all")
        return streams.template.model

    @property
    def startprob_(self) -> FloatArray:
        streams = self._known()
        return streams.template.start.startprob if self.shared else streams.columns(streams.at.startprob)

    def __getattr__(self, name: str) -> Any:
        streams = self.__dict__.get("_streams")
        if streams is None:
            raise AttributeError(f"a {type(self).__name__} that has learned nothing has no {name!r}")
        if name == "transmat_" or (name.endswith("_") and name[:-1] in streams.template.start.emission.value_names):
            return streams.values()[name[:-1]]
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")

    # --- files ------------------------------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write all streams to one file, from which ``hmmstream.load`` makes them again and continues bit for bit."""
        checkpoint.save(self, path)

    def _document(self) -> dict[str, Any]:
        names = {"shared": self.shared, "device": self.device, "dtype": self.dtype, "n_jobs": self.n_jobs}
        ids = self.ids if self.ids.dtype.kind != "U" else code_points(self.ids)
        held = None if self._streams is None else self._streams.document()
        return {**names, "prototype": self.prototype, "ids": ids, "streams": held}

    @classmethod
    def _restored(cls, document: dict[str, Any]) -> Self:
        made, held, ids = document.pop("prototype"), document.pop("streams"), document.pop("ids")
        if not isinstance(made, OnlineHMM):
            raise ValueError("its prototype is not a model")
        settings = made.get_params(deep=False)
        try:
            fleet = cls(**document, **settings)
        except (ImportError, RuntimeError):  # no GPU here: the streams go on without
            fleet = cls(**{**document, "device": "cpu", "dtype": "float64"}, **settings)
        if isinstance(ids, list):  # a file from before they were numbers
            ids = np.array(ids, dtype=np.str_)
        elif ids.dtype == np.uint32:
            ids = from_code_points(ids)
        if ids.ndim != 1 or ids.dtype.kind not in "iU" or len(fleet._names.add(ids)) > len(fleet):
            raise ValueError("its streams have no names of their own")
        if held is not None:
            try:
                fleet._streams = fleet._begin(held["template"].start)
            except (ImportError, RuntimeError):
                fleet.device, fleet.dtype = "cpu", "float64"
                fleet._streams = fleet._begin(held["template"].start)
            fleet._streams.restore(held, len(fleet))
        return fleet

    def __repr__(self) -> str:
        return f"<Fleet of {len(self):,} streams on {self.device}{', one model' if self.shared else ''}>"


def is_series(x: Any) -> bool:
    """Whether this is one column of a table."""
    return hasattr(x, "to_numpy") and np.ndim(x) == 1


def online_hmm(prototype: OnlineHMM, learner: Learner) -> OnlineHMM:
    """An estimator around a learner."""
    settings = prototype.get_params(deep=False)
    own = {"init": learner.start, "prior": learner.prior, "averaging": learner.averaging}
    hmm = OnlineHMM(**{**settings, **own})
    hmm._learner = learner
    hmm.n_features_in_ = learner.start.emission.n_columns
    return hmm


def n_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1

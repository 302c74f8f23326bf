"""Models on disk: one file that holds everything, and runs nothing.

A file is in the safetensors format: arrays behind a header, readable by many tools. Our part of the header is a JSON
document that says what the arrays are, with a checksum of both. Nothing in it is executed: objects are made again by
their constructors, which check what they are given.

Where that would make a header longer than readers take, as with very many streams, the small arrays of a type are one,
and the document is an array too.
"""

from __future__ import annotations

import hashlib
import json
import os
import warnings
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from inspect import signature
from typing import Any

import numpy as np

from hmmstream.arrays import LARGEST_WEIGHT, are_distributions, known_states, row_weights
from hmmstream.averaging import Polyak, Refined, StatisticAverage
from hmmstream.emissions import FAMILIES, AutoRegressive, Emission, Independent, LinearRegression, Poisson
from hmmstream.io.whole import write_whole
from hmmstream.journal import Journal
from hmmstream.learner import FIRST_ROOM, MOST_ROOM, Learner, has_window
from hmmstream.model import HMM
from hmmstream.priors import Prior
from hmmstream.record import Record, join
from hmmstream.recursions import window
from hmmstream.recursions.state import (
    CLOCK_SIZE,
    LIKELIHOOD_FACTOR,
    LOG_LIKELIHOOD,
    MATRIX_IS_KEPT,
    MEMORY,
    N_SEEN,
    OWN_PARTS,
    TIME,
    WINDOW_COUNT,
    WINDOW_FIRST,
    Shape,
)
from hmmstream.recursions.window import Contents, Window
from hmmstream.schedule import Constant, Harmonic, Power, Schedule, Track, TwoPhase
from hmmstream.selfstart import SelfStart
from hmmstream.transitions import STRUCTURES, Masked, Tied, Transition

VERSION = 1  # of the format; a file of a later one is refused
OURS = "hmmstream"  # our entry in the header
DTYPES = ("float64", "int64", "uint32", "bool")
LONGEST_HEADER = 2**24  # bytes of text, which takes up to four times as much in a header; readers take 100 MB
ENTRY = 100  # bytes that a header has of an array, besides its name
LARGE = 2**12  # numbers of an array that keeps its name
FOLDED = "document"  # what an array is called that the text is in; those of a document begin with "holds" or "notes"
Contained = tuple[str, dict[str, Any]]  # our entry in the header, and the arrays

# What a file can be made of, by the part it plays: new classes are registered here. Those of a user are passed to load.
PARTS: dict[str, tuple[type, tuple[type, ...]]] = {
    "emission": (Emission, (*FAMILIES.values(), AutoRegressive, LinearRegression, Independent)),
    "transition": (Transition, (*STRUCTURES.values(), Tied, Masked)),
    "step": (Schedule, (Power, Constant, Harmonic, TwoPhase, Track)),
    "averaging": (tuple, (Polyak, StatisticAverage, Refined)),
    "prior": (Prior, (Prior,)),
    "model": (HMM, (HMM,)),
    "journal": (Journal, (Journal,)),
}
# Estimators come with scikit-learn, which takes long to import: only if a file holds one
ESTIMATORS = {"OnlineHMM": "hmmstream.online", "BatchHMM": "hmmstream.batch", "Fleet": "hmmstream.fleet"}


class ModelFileError(ValueError):
    """A file that is no model, is damaged, or was made by another version."""


def save(thing: Any, path: str | os.PathLike[str], notes: Mapping[str, Any] | None = None) -> None:
    """Write an estimator, a learner or a model to a file, from which :func:`load` makes it again.

    The file is complete or not there: it is written under another name first, and replaces an older one at once.

    Parameters
    ----------
    thing : OnlineHMM, BatchHMM, Fleet, Learner or HMM
    path : str or path
    notes : dict
        Whatever else is to be kept, in terms of JSON: see ``load_with_notes``.

    Examples
    --------
    >>> import hmmstream, tempfile
    >>> from hmmstream import HMM, Poisson
    >>> model = HMM([1.0, 0.0], [[0.9, 0.1], [0.2, 0.8]], Poisson([1.0, 5.0]))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     hmmstream.save(model, folder + "/model.hmm")
    ...     hmmstream.load(folder + "/model.hmm").emission
    Poisson(rates=[[1.0], [5.0]])
    """
    write_whole(path, encode(thing, notes))


def load(path: str | os.PathLike[str], classes: Iterable[type] = ()) -> Any:
    """Make again what was saved in a file: it continues where it stood, bit for bit.

    Parameters
    ----------
    path : str or path
    classes : classes
        Those of your own that the model is made of: emission families, transition structures, step schedules.
    """
    return load_with_notes(path, classes)[0]


def load_with_notes(path: str | os.PathLike[str], classes: Iterable[type] = ()) -> tuple[Any, dict[str, Any]]:
    """What was saved in a file, and the notes beside it."""
    document = read(path)
    return build(document, os.fspath(path), classes), document.get("notes", {})


def build(document: dict[str, Any], name: str, classes: Iterable[type]) -> Any:
    """The object of a document that was read from ``name``."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of settings that were warned of when they were made
            return Builder(classes).whole(document)
    except Exception as error:  # whatever a hostile file brings about; nothing was changed by it
        raise ModelFileError(f"{name} does not hold a model that can be used: {error}") from error


# --- bytes ----------------------------------------------------------------------------------------------------------


def encode(thing: Any, notes: Mapping[str, Any] | None = None) -> bytes:
    """The contents of a file."""
    return pack({"version": VERSION, "holds": describe(thing), "notes": dict(notes or {})})


def pack(document: Mapping[str, Any]) -> bytes:
    """A document as the contents of a file."""
    from safetensors.numpy import save as encoded

    arrays: dict[str, Any] = {}
    text = json.dumps(take_out(document, arrays, ""))  # in ASCII, also what UTF-8 cannot say
    if len(text) + sum(len(name) + ENTRY for name in arrays) > LONGEST_HEADER:
        text, arrays = "", fold(text, arrays)
    return encoded(arrays, {OURS: json.dumps({"sha256": digest(text, arrays), "document": text})})


def fold(text: str, arrays: Mapping[str, Any]) -> dict[str, Any]:
    """The text of a document, and its arrays, in few arrays: small ones of a type stand one after the other.

    What is in one, and in which shape, the text then says in the same order.
    """
    small = {name: array for name, array in arrays.items() if array.size < LARGE}
    places = [(name, array.dtype.name, array.shape) for name, array in small.items()]
    folded = f'{{"document": {text}, "arrays": {json.dumps(places)}}}'.encode()
    few = {name: array for name, array in arrays.items() if name not in small}
    for kind in dict.fromkeys(kind for _, kind, _ in places):
        few[kind] = np.concatenate([array.ravel() for array in small.values() if array.dtype.name == kind])
    return {**few, FOLDED: np.frombuffer(folded, dtype=np.uint8)}


def unfold(few: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    """The document and its arrays, of which the small ones are views."""
    folded = json.loads(few[FOLDED].tobytes())
    arrays = {name: array for name, array in few.items() if name not in (FOLDED, *DTYPES)}
    begins = dict.fromkeys(DTYPES, 0)
    for name, kind, shape in folded["arrays"]:
        end = begins[kind] + np.broadcast_to(False, shape).size  # which refuses what is no shape
        arrays[name] = few[kind][begins[kind] : end].reshape(shape)
        begins[kind] = end
    return folded["document"], arrays


def read(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The document in a file, its arrays in their places, if it is whole."""
    from safetensors import safe_open

    name = os.fspath(path)
    if not os.path.isfile(name):
        raise FileNotFoundError(f"there is no file {name}")

    def contents() -> Contained:
        with safe_open(name, framework="numpy") as file:
            header = (file.metadata() or {})[OURS]
            return header, {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118

    return unpack(contents, name)


def decode(data: bytes, classes: Iterable[type] = ()) -> Any:
    """Make again what was encoded."""
    return decode_with_notes(data, classes)[0]


def decode_with_notes(data: bytes, classes: Iterable[type] = ()) -> tuple[Any, dict[str, Any]]:
    """What was encoded, and the notes beside it."""
    from safetensors.numpy import load as arrays_of

    def contents() -> Contained:
        size = int.from_bytes(data[:8], "little")
        header = json.loads(data[8 : 8 + size])["__metadata__"][OURS]
        return header, arrays_of(data)

    document = unpack(contents, "what was kept")
    return build(document, "what was kept", classes), document.get("notes", {})


def unpack(contents: Callable[[], Contained], name: str) -> dict[str, Any]:
    """The document of what ``name`` contains, its arrays in their places, if it is whole."""
    from safetensors import SafetensorError

    try:
        entry, arrays = contents()
        header = json.loads(entry)
        document, parts = unfold(arrays) if FOLDED in arrays else (json.loads(header["document"]), arrays)
        version = document["version"]
        if isinstance(version, int) and version > VERSION:
            raise ModelFileError(
                f"{name} was written by a later hmmstream, in format {version}; this one reads format {VERSION}: "
                "upgrade hmmstream"
            )
        if version != VERSION:
            raise ModelFileError(f"{name} is in a format that was never in use: {version!r}")
        if digest(header["document"], arrays) != header["sha256"]:
            raise ModelFileError(f"{name} is damaged: its checksum is not that of what it holds")
        return dict(put_back(document, parts))
    except ModelFileError:
        raise
    except SafetensorError as error:
        raise ModelFileError(f"{name} is not a model file, or is damaged: {error}") from error
    except Exception as error:  # of JSON that is none, or is nested without end, or lacks what it should have
        raise ModelFileError(f"{name} is not a model file of hmmstream, or is damaged") from error


def digest(text: str, arrays: Mapping[str, Any]) -> str:
    """A checksum of the document and its arrays."""
    sha = hashlib.sha256(text.encode())
    for name in sorted(arrays):
        sha.update(f"{name} {arrays[name].dtype} {arrays[name].shape}".encode())
        numbers: Any = np.ascontiguousarray(arrays[name]).reshape(-1).view(np.uint8)  # no copy of what may be large
        sha.update(numbers)
    return sha.hexdigest()


def take_out(document: Any, arrays: dict[str, Any], name: str) -> Any:
    """The document with names in place of its arrays, which are collected."""
    if isinstance(document, np.ndarray):
        arrays[name] = np.ascontiguousarray(document).reshape(document.shape)
        return {"array": name}
    if isinstance(document, dict):
        return {key: take_out(value, arrays, f"{name}.{key}".lstrip(".")) for key, value in document.items()}
    if isinstance(document, list):
        return [take_out(value, arrays, f"{name}.{at}") for at, value in enumerate(document)]
    return document


def put_back(document: Any, arrays: Mapping[str, Any]) -> Any:
    """The document with its arrays in their places."""
    if isinstance(document, dict):
        if document.keys() == {"array"}:
            array = arrays[document["array"]]
            if array.dtype.name not in DTYPES:
                raise ValueError(f"an array of {array.dtype}")
            return array
        return {key: put_back(value, arrays) for key, value in document.items()}
    if isinstance(document, list):
        return [put_back(value, arrays) for value in document]
    return document


# --- objects --------------------------------------------------------------------------------------------------------


def describe(thing: Any) -> Any:
    """An object in terms of JSON and arrays: what its constructor needs to make it again."""
    if isinstance(thing, np.generic):
        return thing.item()
    if thing is None or isinstance(thing, bool | int | float | str | np.ndarray):
        return thing
    if isinstance(thing, Learner):
        return {"is": "Learner", **describe_learner(thing)}
    if isinstance(thing, SelfStart):
        return {"is": "SelfStart", **describe_self_start(thing)}
    if type(thing).__name__ in ESTIMATORS and hasattr(thing, "_document"):
        return {"is": type(thing).__name__, **describe_all(thing._document())}
    for part, (base, classes) in PARTS.items():
        if type(thing) in classes or (isinstance(thing, base) and base in (Emission, Transition, Schedule)):
            remembered = {name: getattr(thing, name, None) for name in getattr(thing, "remembered", ())}
            return {"is": f"{part}.{type(thing).__name__}", **describe_all(arguments(thing) | remembered)}
    if isinstance(thing, dict):
        return {"is": "dict", "of": describe_all(thing)}
    if isinstance(thing, list | tuple):
        return [describe(member) for member in thing]
    if callable(thing):
        raise ValueError(f"{thing!r} is a function, which a file cannot hold: use a schedule such as Power(0.6)")
    raise ValueError(f"{thing!r} cannot be saved")


def describe_all(things: Mapping[str, Any]) -> dict[str, Any]:
    return {name: describe(thing) for name, thing in things.items()}


def arguments(thing: Any) -> dict[str, Any]:
    """The arguments that an object was made with, or could have been."""
    if hasattr(thing, "arguments"):
        return dict(thing.arguments())
    if hasattr(thing, "_asdict"):
        return dict(thing._asdict())
    held = vars(thing)
    named = {name: held.get(name, held.get(f"_{name}")) for name in signature(type(thing)).parameters}
    return {name: value for name, value in named.items() if value is not None}


COMPANIONS = ("refinement", "detector")  # of a learner: not every one has them
LEARNER_SETTINGS = ("step", "averaging", "n_min", "update_every", "engine", "prior")


def describe_learner(learner: Learner) -> dict[str, Any]:
    settings = {name: getattr(learner, name) for name in ("start", *LEARNER_SETTINGS, "frozen", "latest")}
    state = dict(zip(OWN_PARTS, learner.state, strict=False))
    contents = learner.contents
    companions = {name: getattr(learner, name) and getattr(learner, name).document() for name in COMPANIONS}
    return {**describe_all(settings), "state": state, "window": contents and contents._asdict(), **companions}


COUNTS = ("n_before", "n_at_last_look")
SELF_START = ("emission", "n_components", "transition", "seed", "prior", "has_ended", "last_rows", "frozen", *COUNTS)


def describe_self_start(search: SelfStart) -> dict[str, Any]:
    held = search.__getstate__()  # a look in the background has come to its end
    settings = {name: held[name] for name in (*SELF_START, "family", "sized", "learner")}
    gathered = [vars(join(search.pieces))] if search.pieces else []
    return {
        **describe_all(settings),
        "settings": describe_all(search.settings),
        "gathered": [describe_all(piece) for piece in gathered],
    }


class Builder:
    """Makes objects again from their descriptions, and refuses what does not fit together."""

    def __init__(self, classes: Iterable[type] = ()) -> None:
        self.classes: dict[str, type] = {}
        for part, (base, known) in PARTS.items():
            own = [cls for cls in classes if issubclass(cls, base) and base is not tuple]
            self.classes |= {f"{part}.{cls.__name__}": cls for cls in (*known, *own)}

    def whole(self, document: Mapping[str, Any]) -> Any:
        """What a file holds."""
        return self.build(document["holds"])

    def build(self, description: Any) -> Any:
        """The object of this description."""
        if isinstance(description, list):
            return [self.build(member) for member in description]
        if not isinstance(description, dict):
            return description
        described = dict(description)
        kind = described.pop("is")
        if kind == "dict":
            return {name: self.build(value) for name, value in described["of"].items()}
        if kind == "Learner":
            return self.learner(described)
        if kind == "SelfStart":
            return self.self_start(described)
        if kind in ESTIMATORS:
            estimator = getattr(import_module(ESTIMATORS[kind]), kind)
            return estimator._restored({name: self.build(value) for name, value in described.items()})
        if kind not in self.classes:
            raise ValueError(
                f"it is made of {kind!r}, which is not part of hmmstream: pass your class, as in "
                f"load(path, classes=[{str(kind).split('.')[-1]}])"
            )
        made_of = {name: self.build(value) for name, value in described.items()}
        remembered = {name: made_of.pop(name) for name in getattr(self.classes[kind], "remembered", ())}
        made = self.classes[kind](**made_of)
        for name, array in remembered.items():
            if array is not None:
                setattr(made, name, _checked(array, getattr(made, name).shape, name))
        return made

    def learner(self, described: dict[str, Any]) -> Learner:
        """A learner with its state, if that fits."""
        parts = described.pop("state")
        if "engine" not in described:  # a file from before there was a window
            described = {**described, "engine": "dense"}
            parts = {**parts, "base": np.zeros(0)}
        if "rho" in parts:  # a file from before that was multiplied by the filter
            rho = parts.pop("rho")
            parts = {**parts, "tau": parts["phi"][: len(rho), np.newaxis] * rho}
        parts["clock"] = np.append(parts["clock"], np.zeros(CLOCK_SIZE - len(parts["clock"])))
        start = self.build(described["start"])
        if not isinstance(start, HMM):
            raise ValueError("its start is not a model")
        settings = {name: self.build(described[name]) for name in LEARNER_SETTINGS}
        m, emission = start.n_components, start.emission
        is_windowed = has_window(settings["engine"], m, settings["update_every"])
        if is_windowed and described.get("window") is None:  # a file from when fewer learners had one
            settings["engine"], is_windowed = "dense", False
        shape = Shape(
            m,
            start.transition.cells(m).n_groups,
            emission.width,
            emission.n_statistics,
            has_prior=settings["prior"] is not None,
            has_window=is_windowed,
        )
        if parts["theta"].shape[1:] != (emission.width,):
            raise ValueError(
                f"its state is not that of its model: {type(emission).__name__} measured what it learned otherwise "
                "in an earlier hmmstream, which can go on with it"
            )
        if sum(part.size for part in parts.values()) != shape.size:  # before memory is asked for
            raise ValueError("its state is not that of its model")
        learner = Learner(start, **settings)
        for name, part in zip(OWN_PARTS, learner.state, strict=False):
            if parts[name].shape != part.shape or parts[name].dtype != part.dtype:
                raise ValueError(f"{name} does not have the shape of its model")
            part[:] = parts[name]
        if learner.window is not None:
            first, count, is_kept = learner.vector[[WINDOW_FIRST, WINDOW_COUNT, MATRIX_IS_KEPT]]
            contents = self.contents(described["window"], shape, learner.window)
            is_place = 0.0 <= first < contents.room[0] and first.is_integer()
            if not is_place or count != len(contents.entries) or is_kept not in (0.0, 1.0):
                raise ValueError("its window is not as its clock says")
            learner.window = window.refill(learner.window, contents, int(first))
        learner.frozen = bool(described["frozen"])
        learner.latest = _checked(described["latest"], learner.latest.shape, "latest values")
        for name in COMPANIONS:
            if getattr(learner, name) is not None and described.get(name) is not None:
                getattr(learner, name).restore(described[name])
        check_state(learner)
        return learner

    def contents(self, held: Mapping[str, Any], shape: Shape, empty: Window) -> Contents:
        """What is to be in a window that is still empty, if it fits."""
        counts = np.array([len(held["entries"]), len(held["matrices"])])
        sizes = np.array([ring.shape[1] for ring in (empty.entries, empty.matrices)])
        least = np.maximum(counts, FIRST_ROOM)
        contents = Contents(**{"room": least, **held})  # files from before it was kept have the oldest entry first
        for array, count, size in zip(contents, counts, sizes, strict=False):
            _checked(array, (count, size), "window's numbers")
        room = _checked(contents.room, (2,), "window's numbers", "int64")
        most = np.maximum(least, 2 * MOST_ROOM // sizes)  # it is doubled up to there
        if (room < least).any() or (room > most).any():
            raise ValueError("its window does not have the room of one")
        check_window(contents, shape)
        return contents

    def self_start(self, described: dict[str, Any]) -> SelfStart:
        """A search for a start, with what it has gathered."""
        own = {name: self.build(described[name]) for name in (*SELF_START, "family", "sized", "learner")}
        settings = {name: self.build(value) for name, value in described["settings"].items()}
        kinds = {"emission": str | Emission, "n_components": int, "transition": Transition, "seed": int, "prior": Prior}
        for name, kind in kinds.items():
            if not isinstance(own[name], kind) or (kind is int and own[name] < 0):
                raise ValueError(f"{name} is {own[name]!r}")
        search = SelfStart(*(own[name] for name in kinds), **settings)
        search.family, search.sized, search.learner = own["family"], own["sized"], own["learner"]
        Learner(HMM([1.0], [[1.0]], Poisson([1.0])), **settings)  # which checks them
        search.n_before, search.n_at_last_look = (_count(own[name]) for name in COUNTS)
        search.frozen, search.has_ended = bool(own["frozen"]), bool(own["has_ended"])
        if search.sized is not None:
            d, m = search.sized.n_features, search.n_components
            for piece in described["gathered"]:
                X, n = piece["X"], len(piece["X"])
                is_start = _checked(piece["is_start"], (n,), "starts of sequences", dtype="bool")
                states = known_states(piece["states"], n, m)
                search._gather(Record(_checked(X, (n, d), "rows"), is_start, states, row_weights(piece["weights"], n)))
            if len(own["last_rows"]):
                search.last_rows = _checked(own["last_rows"], (1, d), "last row")
            for emission in (search.sized, search.family, search.learner and search.learner.start.emission):
                if emission and emission.has_values and (emission.n_features, emission.n_components) != (d, m):
                    raise ValueError("its parts do not fit together")
        if (search.learner is None) != (search.n_gathered == 0) or search.n_at_last_look > search.n_gathered:
            raise ValueError("its rows are not those that it has looked at")
        return search


def check_state(learner: Learner) -> None:
    """Refuse a state that no stream leads to: compiled loops would go on with it, and never recover."""
    state = learner.state
    clock = dict(enumerate(state.clock))
    is_factor = 0.0 < clock.pop(LIKELIHOOD_FACTOR) < np.inf
    if not clock.pop(LOG_LIKELIHOOD) < np.inf or not clock.pop(MEMORY) >= 0.0 or not is_factor:
        raise ValueError("its clock is wrong")
    if not all(0.0 <= value < 2**53 for value in clock.values()) or clock[TIME] > clock[N_SEEN]:
        raise ValueError("its clock is wrong")
    for name, part in zip(OWN_PARTS[1:], state[1:], strict=False):
        if not np.isfinite(part).all():
            raise ValueError(f"{name} must be finite numbers")
    for probabilities in (state.startprob, state.phi, state.transmat):
        if not are_distributions(probabilities):
            raise ValueError("its probabilities do not sum to 1")
    learner.last_model  # noqa: B018  # the parameters make a model, or this says why not


def check_window(contents: Contents, shape: Shape) -> None:
    """Refuse a window that no stream leads to."""
    head, statistic, inverse, phi = window.split(shape, contents.entries)
    steps = np.diff(head[:, window.MATRIX], prepend=0.0, append=max(len(contents.matrices) - 1, 0))
    is_in_order = np.isin(steps, (0.0, 1.0)).all() and steps[:1].sum() == steps[-1] == 0.0
    if not is_in_order or len(contents.matrices) > len(head) or (len(head) and not len(contents.matrices)):
        raise ValueError("its window does not say which transitions it came by")
    shares = head[:, [window.KEEP, window.MOVED]]
    weights = head[:, [window.TRANSITION_WEIGHT, window.EMISSION_WEIGHT]]
    probabilities = ((phi, 1.0 + 1e-8), (contents.matrices, 1.0 + 1e-8))
    for array, most in ((shares, 1.0), (weights, LARGEST_WEIGHT), (inverse, 1e251), *probabilities):
        if not ((array >= 0.0) & (array <= most)).all():
            raise ValueError("its window does not hold probabilities and weights")
    if not np.isfinite(statistic).all():
        raise ValueError("its window must hold finite numbers")


def _checked(array: Any, shape: tuple[int, ...], name: str, dtype: str = "float64") -> Any:
    if not isinstance(array, np.ndarray) or array.shape != shape or array.dtype != dtype:
        raise ValueError(f"its {name} do not fit the model")
    return array.copy()


def _count(value: Any) -> int:
    if not isinstance(value, int) or not 0 <= value < 2**53:
        raise ValueError(f"{value!r} is not a count")
    return value

"""Models on disk: whole, exact, and harmless whatever the file holds."""

import copy
import json
import math
import os
import struct
import subprocess
import sys
import tracemalloc

import models
import numpy as np
import pytest
from safetensors import safe_open

import hmmstream
from hmmstream import (
    HMM,
    AutoRegressive,
    BatchHMM,
    Categorical,
    Constant,
    Gaussian,
    Learner,
    LinearRegression,
    Masked,
    NegativeBinomial,
    OnlineHMM,
    Poisson,
    Polyak,
    Prior,
    StatisticAverage,
    TwoPhase,
    checkpoint,
    emissions,
)
from hmmstream.checkpoint import (
    FOLDED,
    Builder,
    ModelFileError,
    decode,
    decode_with_notes,
    describe,
    encode,
    load_with_notes,
    pack,
    put_back,
    take_out,
    unfold,
)
from hmmstream.io.whole import remove_drafts

WORLD = HMM([0.5, 0.5], [[0.95, 0.05], [0.3, 0.7]], Gaussian("tied", means=[0.0, 1.0], covars=0.5))


def stream(n=3000, seed=0):
    return WORLD.sample(n, seed)[0]


# --- exact ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", models.FAMILIES)
def test_a_learner_of_every_family_continues_bit_for_bit(family, tmp_path):
    world = models.make(family)
    X, _ = world.sample(900, 1)
    learner = Learner(world, averaging=Polyak(100))
    learner.learn(X[:500])
    hmmstream.save(learner, tmp_path / "model.hmm")
    classes = () if type(world.emission).__module__.startswith("hmmstream.") else (type(world.emission),)
    other = hmmstream.load(tmp_path / "model.hmm", classes=classes)
    assert repr(other.model) == repr(learner.model)
    for one in (learner, other):
        one.learn(X[500:])
    assert other.vector.tobytes() == learner.vector.tobytes()


@pytest.mark.parametrize("n", [0, 1, 500, 5000, 40_000])
def test_a_model_that_seeks_its_start_is_saved_with_all_it_has_gathered(n, tmp_path):
    X = stream(n + 4000)
    X[100:110] = np.nan
    one = OnlineHMM(2, Gaussian("tied"), random_state=3).keep_journal()
    if n:
        one.partial_fit(X[:n])
    one.save(tmp_path / "model.hmm")
    other = hmmstream.load(tmp_path / "model.hmm")
    for hmm in (one, other):
        hmm.partial_fit(X[n:])
    assert encode(one) == encode(other)


@pytest.mark.parametrize(
    "settings",
    [
        {"step": Constant(0.02), "averaging": None, "init": WORLD},
        {"step": TwoPhase(n0=100), "averaging": Polyak(50), "init": WORLD},
        {"transition": Masked.banded(3), "init": models.make("gaussian-paper", "masked")},
        {"transition": models.STRUCTURES["tied"][0], "init": models.make("gaussian-paper", "tied")},
        {"prior": Prior(1.0, 5.0, Gaussian("tied", means=[0.0, 1.0], covars=1.0), 3.0), "emission": Gaussian("tied")},
        {"n_min": math.inf, "init": WORLD},
        {"update_every": 7, "init": WORLD},
    ],
    ids=lambda settings: "+".join(settings),
)
def test_every_setting_is_kept(settings, tmp_path):
    X = stream(600)
    one = OnlineHMM(random_state=0, **settings).partial_fit(X[:300])
    one.save(tmp_path / "model.hmm")
    other = hmmstream.load(tmp_path / "model.hmm")
    assert repr(other) == repr(one)
    for hmm in (one, other):
        hmm.partial_fit(X[300:])
    assert encode(one) == encode(other)


def test_whatever_else_was_said_of_the_stream_is_kept(tmp_path):
    """Frozen parameters, an ended sequence, known states and weights in the buffer, the names of the columns."""
    pandas = pytest.importorskip("pandas", reason="pandas is in the extra of the tests")
    X = stream(300)
    frame = pandas.DataFrame({"current": X[:, 0]})
    y, weights = np.full(300, -1), np.ones(300)
    y[:10], weights[20:30] = 0, 0.5
    one = OnlineHMM(2, Gaussian("tied"), random_state=0).partial_fit(
        frame, y, sample_weight=weights, lengths=[100, 200]
    )
    one.freeze()
    one.save(tmp_path / "model.hmm")
    other = hmmstream.load(tmp_path / "model.hmm")
    assert list(other.feature_names_in_) == ["current"]
    for hmm in (one, other):
        hmm.partial_fit(frame)
        hmm.unfreeze().partial_fit(frame)
    assert encode(one) == encode(other)


def test_specifications_are_kept_too():
    for emission in [
        Gaussian("diag"),
        Categorical(5),
        NegativeBinomial(2.0, learn_shape=False),
        NegativeBinomial(shapes=2.0, means=[1.0, 5.0], learn_shape=False),
        LinearRegression(3),
        AutoRegressive(2),
        emissions.Independent([Gaussian("full"), Poisson()], n_features=[2, 1]),
        emissions.GaussianMixture(3, "spherical"),
    ]:
        again = Builder().build(describe(emission))
        assert repr(again) == repr(emission)
        assert again.specification == emission.specification


def test_regressions_remember_where_their_inputs_are(tmp_path):
    rng = np.random.default_rng(0)
    x = 1e6 + rng.normal(size=2000)
    model = BatchHMM(1, LinearRegression(1), n_iter=5, random_state=0).fit(np.c_[x, 2 * x + rng.normal(size=2000)])
    model.save(tmp_path / "model.hmm")
    again = hmmstream.load(tmp_path / "model.hmm")
    assert again.model_.emission.theta().tobytes() == model.model_.emission.theta().tobytes()


def test_a_batch_fit_and_a_plain_model_are_saved_as_they_are(tmp_path):
    X = stream(500)
    batch = BatchHMM(2, Gaussian("tied"), n_iter=5, random_state=0).fit(X)
    batch.save(tmp_path / "batch.hmm")
    again = hmmstream.load(tmp_path / "batch.hmm")
    assert (again.history_ == batch.history_).all()
    assert again.forecast(3).mean.tolist() == batch.forecast(3).mean.tolist()
    hmmstream.save(WORLD, tmp_path / "world.hmm")
    assert repr(hmmstream.load(tmp_path / "world.hmm")) == repr(WORLD)
    OnlineHMM(3).save(tmp_path / "empty.hmm")
    assert repr(hmmstream.load(tmp_path / "empty.hmm")) == repr(OnlineHMM(3))


def test_the_journal_does_not_depend_on_the_chunks():
    X = stream(3000)
    whole, pieces = (OnlineHMM(init=WORLD).keep_journal() for _ in range(2))
    for hmm, size in ((whole, 3000), (pieces, 7)):
        for first in range(0, len(X), size):
            rows = X[first : first + size]
            n_seen = hmm.n_samples_seen_ if first else 0
            for piece in hmm.journal_.pieces(n_seen, len(rows)):
                hmm.partial_fit(rows[piece])
    assert encode(whole) == encode(pieces)
    assert len(whole.journal_.n) == len(set(whole.journal_.n)) > 40
    assert whole.journal_.recent.tolist() == X[-2000:].tolist()


def test_the_sample_of_a_journal_is_spread_over_the_stream_and_bounded():
    journal = hmmstream.journal.Journal()
    X = np.arange(300_000.0)[:, np.newaxis]
    for first in range(0, len(X), 70_001):
        rows = X[first : first + 70_001]
        journal.note(lambda: WORLD, first + len(rows), rows, np.ones((len(rows), 2)) / 2)
    assert 2**14 <= len(journal.sample) <= 2**15
    starts = journal.sample[:: hmmstream.journal.BLOCK_ROWS, 0]
    assert set(np.diff(starts)) == {journal.stride * hmmstream.journal.BLOCK_ROWS}
    assert sum(journal.sample_lengths) == len(journal.sample)


def test_standard_errors_of_a_stream_are_those_of_the_whole_record():
    """From a sample of 32,768 of 200,000 rows. Its information is off by about 1 % (1 sd); the bound is 8 sd."""
    X = stream(200_000)
    hmm = OnlineHMM(init=WORLD, averaging=StatisticAverage()).keep_journal().partial_fit(X)
    errors, exact = hmm.standard_errors(), hmm.model_.standard_errors(X)
    for name in exact:
        assert np.allclose(errors[name], exact[name], rtol=0.08), name
    with pytest.raises(ValueError, match="keep_journal"):
        OnlineHMM(init=WORLD, averaging=None).partial_fit(X[:10]).standard_errors()


# --- whole ----------------------------------------------------------------------------------------------------------


def test_a_file_is_replaced_at_once_and_nothing_else_is_left(tmp_path):
    path = tmp_path / "model.hmm"
    hmmstream.save(WORLD, path)
    before = path.read_bytes()
    with pytest.raises(ValueError, match="is a function"):
        hmmstream.save(OnlineHMM(init=WORLD, step=lambda n: 0.5).partial_fit(stream(5)), path)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["model.hmm"]
    link = tmp_path / "link.hmm"
    link.symlink_to(path)
    hmmstream.save(HMM([1.0], [[1.0]], Poisson([1.0])), link)
    assert link.is_symlink()
    assert hmmstream.load(path).n_components == 1


def test_what_a_killed_process_left_behind_is_removed(tmp_path):
    path = tmp_path / "model.hmm"
    for name in (".model.hmm.99999999.tmp", f".model.hmm.{os.getpid()}.tmp", ".other.hmm.99999999.tmp"):
        (tmp_path / name).write_bytes(b"half")
    remove_drafts(path)
    assert sorted(os.listdir(tmp_path)) == sorted([f".model.hmm.{os.getpid()}.tmp", ".other.hmm.99999999.tmp"])


def test_other_tools_can_read_the_arrays(tmp_path):
    OnlineHMM(init=WORLD).partial_fit(stream(100)).save(tmp_path / "model.hmm")
    with safe_open(tmp_path / "model.hmm", framework="numpy") as file:
        assert file.get_tensor("holds._learner.state.transmat").shape == (2, 2)
        header = json.loads(file.metadata()["hmmstream"])
    assert json.loads(header["document"])["holds"]["is"] == "OnlineHMM"


def test_nothing_in_a_file_is_executed_or_compiled(tmp_path):
    """A file is opened in a process in which compiling and unpickling fail."""
    OnlineHMM(init=WORLD).partial_fit(stream(100)).save(tmp_path / "model.hmm")
    script = (
        "import pickle, sys, hmmstream.checkpoint, hmmstream.learner, hmmstream.online\n"
        "def refuse(*a, **k): raise SystemExit('executed')\n"
        "pickle.loads = pickle.load = hmmstream.learner.specialize = refuse\n"
        "print(hmmstream.load(sys.argv[1]).last_model_.n_components)"
    )
    done = subprocess.run([sys.executable, "-c", script, tmp_path / "model.hmm"], capture_output=True, text=True)
    assert done.stdout.strip() == "2", done.stderr


def test_a_family_of_ones_own_is_asked_for(tmp_path):
    from examples.rayleigh import Rayleigh

    hmmstream.save(HMM([1.0], [[1.0]], Rayleigh([2.0])), tmp_path / "model.hmm")
    with pytest.raises(ModelFileError, match=r"load\(path, classes=\[Rayleigh\]\)"):
        hmmstream.load(tmp_path / "model.hmm")
    assert hmmstream.load(tmp_path / "model.hmm", classes=[Rayleigh]).emission.scales.tolist() == [[2.0]]


# --- harmless -------------------------------------------------------------------------------------------------------


def refused(path, match):
    with pytest.raises((ModelFileError, FileNotFoundError), match=match):
        hmmstream.load(path)


def test_errors_say_what_is_wrong(tmp_path):
    path = tmp_path / "model.hmm"
    refused(path, "there is no file")
    path.write_text("time,current\n0,1\n")
    refused(path, "is not a model file")
    path.write_bytes(b"")
    refused(path, "is not a model file")
    content = encode(WORLD)
    path.write_bytes(content[:-3])
    refused(path, "damaged")
    path.write_bytes(content[:-3] + bytes([content[-3] ^ 1]) + content[-2:])
    refused(path, "checksum")
    path.write_bytes(pack({"version": 2, "holds": describe(WORLD)}))
    refused(path, "later hmmstream.*upgrade")
    path.write_bytes(pack({"version": 0, "holds": describe(WORLD)}))
    refused(path, "never in use")
    path.write_bytes(pack({"version": 1, "holds": {"is": "os.system", "command": "true"}}))
    refused(path, "not part of hmmstream")


def test_a_file_cannot_ask_for_more_memory_than_it_has(tmp_path):
    """A chain of 400 states would need 10 GB for its statistic; a header can claim exabytes."""
    m = 400
    model = HMM(np.full(m, 1 / m), np.full((m, m), 1 / m), Poisson(np.ones(m)))
    small = describe(Learner(WORLD))
    small["start"] = describe(model)
    (tmp_path / "model.hmm").write_bytes(pack({"version": 1, "holds": small}))
    refused(tmp_path / "model.hmm", "state is not that of its model")
    header = b'{"a":{"dtype":"F64","shape":[1000000000000000],"data_offsets":[0,8000000000000000]}}'
    (tmp_path / "model.hmm").write_bytes(struct.pack("<Q", len(header)) + header)
    refused(tmp_path / "model.hmm", "is not a model file")
    (tmp_path / "model.hmm").write_bytes(struct.pack("<Q", 2**60) + b"{")
    refused(tmp_path / "model.hmm", "is not a model file")


def test_what_would_make_a_header_too_long_stands_beside_it(tmp_path, monkeypatch):
    """Readers refuse headers of 100 MB, which thousands of learners have, or millions of names."""
    path = tmp_path / "model.hmm"
    for source in sources():
        plain = encode(source)
        monkeypatch.setattr(checkpoint, "LONGEST_HEADER", 0)
        hmmstream.save(source, path)
        monkeypatch.undo()
        assert encode(hmmstream.load(path)) == encode(decode(path.read_bytes())) == plain
        with safe_open(path, framework="numpy") as file:
            assert FOLDED in file.keys()  # noqa: SIM118
            assert set(file.keys()) <= {FOLDED, *checkpoint.DTYPES}
        content = path.read_bytes()
        at = content.index(b'"holds') + 4  # in the document, which is an array now
        path.write_bytes(content[:at] + b"x" + content[at + 1 :])
        refused(path, "damaged")


def test_only_what_is_too_long_for_a_header_stands_beside_it(monkeypatch):
    """A backslash is four in the header, in which a document is a text in a text."""
    for length, is_folded in ((2**24 - 2**10, False), (2**24, True)):
        content = encode(WORLD, {"text": "\\" * (length // 2)})
        assert (int.from_bytes(content[:8], "little") < 1000) == is_folded
        assert len(decode_with_notes(content)[1]["text"]) == length // 2
    learner = Learner(WORLD)
    arrays = {}
    text = json.dumps(take_out(describe(learner), arrays, ""))
    monkeypatch.setattr(checkpoint, "LONGEST_HEADER", len(text) + 50 * len(arrays))
    assert FOLDED.encode() + b'":{' in encode(learner)  # what the header says of arrays counts too


@pytest.mark.parametrize(
    "shapes", [[[-1]], [[4], [-4], [4]], [[2.0, 2]], [[2**31, "a"]], [[2**31, [0]]], [[2**70]], [[3]], [None]]
)
def test_arrays_that_are_not_where_a_file_says_are_refused_at_once(shapes):
    places = [(f"holds.{at}", "float64", shape) for at, shape in enumerate(shapes)]
    text = json.dumps({"document": {}, "arrays": places})
    few = {FOLDED: np.frombuffer(text.encode(), dtype=np.uint8), "float64": np.arange(2.0)}
    tracemalloc.start()
    with pytest.raises((ValueError, TypeError)):
        unfold(few)
    assert tracemalloc.get_traced_memory()[1] < 100_000
    tracemalloc.stop()


def sources():
    """Files of different kinds, to be damaged."""
    X = stream(200)
    yield OnlineHMM(init=WORLD).keep_journal().partial_fit(X)
    yield OnlineHMM(init=WORLD, engine="window", n_min=150).partial_fit(X)
    yield OnlineHMM(2, Gaussian("tied"), random_state=0).keep_journal().partial_fit(X, np.r_[[0, 1], np.full(198, -1)])
    yield BatchHMM(2, Gaussian("tied"), n_iter=2, random_state=0).fit(X)
    yield HMM([1.0], [[1.0]], emissions.Independent([Poisson([1.0]), Gaussian("diag", [0.0], [1.0])]))


def damaged(content, rng):
    """The bytes with some of them changed, gone, doubled or from elsewhere."""
    content = bytearray(content)
    for _ in range(rng.integers(1, 4)):
        at = int(rng.integers(len(content)))
        size = int(rng.integers(1, 64))
        kind = rng.integers(5)
        if kind == 0:
            content[at] ^= 1 << int(rng.integers(8))
        elif kind == 1:
            content[at : at + size] = rng.bytes(size)
        elif kind == 2:
            del content[at : at + size]
        elif kind == 3:
            content[at:at] = content[at : at + size]
        else:
            del content[max(at, 1) :]
    return bytes(content)


def test_no_damage_is_overlooked_or_breaks_anything(tmp_path):
    """3,000 damaged files: a clear error each time, unless the damage was none."""
    rng = np.random.default_rng(5)
    path = tmp_path / "model.hmm"
    whole = [encode(source) for source in sources()]
    for trial in range(3000):
        content = whole[trial % len(whole)]
        broken = damaged(content, rng)
        if broken == content:
            continue
        path.write_bytes(broken)
        with pytest.raises(ModelFileError) as caught:
            hmmstream.load(path)
        assert len(str(caught.value).splitlines()) == 1


STRANGE = [
    None,
    True,
    -1,
    0,
    3,
    2**70,
    1e308,
    math.nan,
    math.inf,
    "",
    "gaussian",
    "x" * 100,
    [],
    {},
    [[1]],
    {"is": "Learner"},
]


def places(tree, path=()):
    """Where anything stands in a document."""
    yield path
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, value in items:
        yield from places(value, (*path, key))


def hostile(document, rng):
    """The document with something else in one or two places; the checksum will be right."""
    tree = json.loads(json.dumps(document["tree"]))
    arrays = dict(document["arrays"])
    for _ in range(rng.integers(1, 3)):
        if rng.random() < 0.5:
            name = sorted(arrays)[rng.integers(len(arrays))]
            array = arrays[name].copy()
            kind = rng.integers(5)
            if kind == 0 and array.size:
                array.reshape(-1)[rng.integers(array.size)] = rng.choice([-1, 0, 7, 2**40])
            elif kind == 1 and array.size and array.dtype == float:
                array.reshape(-1)[rng.integers(array.size)] = rng.choice([np.nan, np.inf, -np.inf, 1e300, -1e300])
            elif kind == 2:
                array = array.reshape(-1)[: array.size // 2]
            elif kind == 3:
                array = array[np.newaxis]
            else:
                array = array.astype(rng.choice(["float64", "int64", "uint32", "bool", "float32"]))
            arrays[name] = array
        else:
            found = [path for path in places(tree) if len(path) > 1]
            *way, last = found[rng.integers(len(found))]
            parent = tree
            for key in way:
                parent = parent[key]
            if isinstance(parent, dict) and rng.random() < 0.3:
                del parent[last]
            else:
                parent[last] = STRANGE[rng.integers(len(STRANGE))]
    return put_back(tree, arrays) if all(a.dtype.name in checkpoint.DTYPES for a in arrays.values()) else None


@pytest.mark.filterwarnings("ignore")
def test_a_hostile_file_is_refused_or_is_a_model_that_works(tmp_path, monkeypatch):
    """4,000 files with right checksums and wrong contents. What is loaded learns, and stays finite."""
    rng = np.random.default_rng(6)
    path = tmp_path / "model.hmm"
    documents = []
    for source in sources():
        arrays = {}
        tree = take_out({"version": 1, "holds": describe(source), "notes": {}}, arrays, "")
        documents.append({"tree": tree, "arrays": arrays})
    n_loaded = 0
    for trial in range(4000):
        monkeypatch.setattr(checkpoint, "LONGEST_HEADER", (0, 2**24)[trial // len(documents) % 2])  # or beside it
        try:
            document = hostile(documents[trial % len(documents)], rng)
            if document is None:
                continue
            path.write_bytes(pack(document))
        except (KeyError, TypeError, IndexError, ValueError, OverflowError):
            continue  # the mutation could not be written down
        try:
            held, _ = load_with_notes(path)
        except ModelFileError:
            continue
        n_loaded += 1
        if isinstance(held, OnlineHMM) and n_loaded % 4 == 0:
            try:
                held.partial_fit(stream(30))
            except ValueError:
                continue
            assert np.isfinite(held.model_.transmat).all()
            assert np.isfinite(held.filtered_proba_).all()
    assert n_loaded > 100  # mutations of numbers that may be what they are


@pytest.mark.parametrize(
    ("n", "change"), [(0, {"n_at_last_look": 1}), (5, {"n_at_last_look": 6}), (5, {"learner": None})]
)
def test_a_search_that_has_looked_at_other_rows_than_it_has_is_refused(n, change):
    document = describe(OnlineHMM(2, random_state=0).partial_fit(stream(5)[:n]))
    Builder().build(copy.deepcopy(document))  # as it is it can be read, also if its only rows were none
    document["_learner"].update(change)
    with pytest.raises(ValueError, match="not those that it has looked at"):
        Builder().build(document)


@pytest.mark.parametrize("family", ["gamma", "von-mises"])
def test_files_and_pickles_from_before_a_family_had_centres_are_refused(family):
    """Their statistic was measured from the origin: to go on with it would be wrong."""
    learner = Learner(models.rough_start(family))
    emission, description = learner.start.emission, describe(learner)
    for name in ("theta", "mean_theta"):
        description["state"][name] = description["state"][name][:, : emission.n_parameters]
    with pytest.raises(ValueError, match="in an earlier hmmstream"):
        Builder().build(description)
    before = {name: value for name, value in vars(emission).items() if name not in ("n_feature_columns", "n_cached")}
    with pytest.raises(ValueError, match="from before"):
        object.__new__(type(emission)).__setstate__(before)

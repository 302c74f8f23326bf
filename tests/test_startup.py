"""Compiled code is cached across processes, never stale, and nothing heavy is imported before it is needed.

Seconds on a shared machine are noise (``python -m benchmarks.startup`` shows them), so each start is compared with what
importing the libraries alone takes, both taking turns. The bounds leave room for noise, but none for compiling or for
an import too many: either would multiply the time.
"""

import os
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

LEARN = """
from hmmstream import HMM, Gaussian, Learner
hmm = HMM([0.5, 0.5], [[0.9, 0.1], [0.2, 0.8]], Gaussian("tied", means=[0, 1], covars=1))
learner = Learner(hmm)
learner.learn_one(0.3)
"""
WRAPPED = """
from hmmstream import Exponential

class Wrapped(Exponential):
    constants = ("inner",)

    def __init__(self, inner):
        super().__init__(inner.scales)
        self.inner = inner

    def feature_log_density(self, theta, y):
        return self.inner.feature_log_density(theta, y)
"""
STATS = """
from hmmstream.recursions import online
stats = online.learn.stats
print(sum(stats.cache_hits.values()), sum(stats.cache_misses.values()))
"""
SCORE = """
from hmmstream import HMM, Gaussian
from hmmstream.recursions.rows import densities
hmm = HMM([0.5, 0.5], [[0.9, 0.1], [0.2, 0.8]], {family})
print(hmm.log_likelihood([1.0]), len(densities.stats.cache_hits), len(densities.stats.cache_misses))
"""  # a loop that is compiled in a fraction of the time that learning takes, and kept in the same way
GAUSSIAN = SCORE.format(family='Gaussian("tied", means=[0, 1], covars=1)')
RAYLEIGH = SCORE.format(family="Rayleigh([0.5, 2.0])")


def run(code, cache, path=ROOT / "src", cwd=None):
    """What ``code`` prints in a new process, as a list of words."""
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(cache), "PYTHONPATH": str(path)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, cwd=cwd, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def ratio(code, imports, cache):
    """Processor time of a process that runs ``code`` over that of one that only imports, best of three each."""
    best = {}
    for _ in range(3):
        for program in (code, imports):
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            run(program, cache)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
            best[program] = min(spent, best.get(program, spent))
    return best[code] / best[imports]


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    """A cache that holds what LEARN needs."""
    path = tmp_path_factory.mktemp("cache")
    assert run(LEARN + STATS, path) == ["0", "1"]
    return path


def test_a_second_process_compiles_nothing(cache):
    assert run(LEARN + STATS, cache) == ["1", "0"]


def test_importing_takes_little_more_than_importing_numpy(cache):
    assert ratio("import hmmstream", "import numpy", cache) < 3.0


def test_the_engine_learns_its_first_observation_soon_after_numba_is_there(cache):
    assert ratio(LEARN, "import numba", cache) < 4.0


def test_the_estimator_learns_its_first_observation_soon_after_scikit_learn_is_there(cache):
    code = LEARN.replace("learner = Learner(hmm)", "learner = OnlineHMM(init=hmm)").replace("Learner", "OnlineHMM")
    assert ratio(code, "import numba, sklearn.base", cache) < 2.0


def test_numba_and_scikit_learn_are_loaded_only_by_what_needs_them(cache):
    loaded = "import sys; print('numba' in sys.modules, 'sklearn' in sys.modules)"
    assert run("import hmmstream; " + loaded, cache) == ["False", "False"]
    assert run(LEARN + loaded, cache) == ["True", "False"]


def test_an_edited_package_never_meets_its_old_cache(tmp_path):
    """The file that is edited is not the one that numba's cache watches, and even its time stays the same."""
    shutil.copytree(ROOT / "src" / "hmmstream", tmp_path / "hmmstream", ignore=shutil.ignore_patterns("__pycache__"))
    before = run(GAUSSIAN, tmp_path / "cache", tmp_path)
    assert run(GAUSSIAN, tmp_path / "cache", tmp_path) == [before[0], "1", "0"]
    family = tmp_path / "hmmstream" / "emissions" / "gaussian.py"
    status, text = family.stat(), family.read_text()
    edited = text.replace("return 1.0 if is_nan(y[0]) else theta[self.log_norm]", "return 1e300" + " " * 40)
    assert edited != text
    family.write_text(edited)
    os.utime(family, ns=(status.st_atime_ns, status.st_mtime_ns))
    after = run(GAUSSIAN, tmp_path / "cache", tmp_path)
    assert after[1:] == ["0", "1"]
    assert float(after[0]) > 500.0


@pytest.mark.parametrize("family", ["Rayleigh([0.5, 2.0])", "Wrapped(Rayleigh([0.5, 2.0]))"], ids=["alone", "inside"])
def test_a_user_family_is_cached_and_an_edited_one_compiled_anew(family, tmp_path):
    """Also one that is inside another, whose file stays as it is."""
    edited = tmp_path / "sea.py"
    edited.write_text((ROOT / "examples" / "rayleigh.py").read_text())
    (tmp_path / "wrapped.py").write_text(WRAPPED)
    code = "from sea import Rayleigh\nfrom wrapped import Wrapped\n" + SCORE.format(family=family)
    first = run(code, tmp_path / "cache", cwd=tmp_path)
    assert first[1:] == ["0", "1"]
    assert run(code, tmp_path / "cache", cwd=tmp_path) == [first[0], "1", "0"]
    edited.write_text(edited.read_text().replace("return log(y)", "return 1000.0 + log(y)"))
    after = run(code, tmp_path / "cache", cwd=tmp_path)
    assert after[1:] == ["0", "1"]
    assert float(after[0]) == pytest.approx(float(first[0]) + 1000.0)


def test_a_family_may_be_defined_in_a_session_without_a_file_and_spoils_no_cache(tmp_path):
    code = (ROOT / "examples" / "rayleigh.py").read_text().split("if __name__")[0] + RAYLEIGH
    first = run(code, tmp_path)
    assert first[1:] == ["0", "1"]
    assert run(code, tmp_path) == [first[0], "1", "0"]
    assert run(GAUSSIAN, tmp_path)[1:] == ["0", "1"]  # a process that knows nothing of that family

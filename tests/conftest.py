"""Settings of the whole test suite."""

import gc
import os
import signal

from hypothesis import settings

# The same examples in every run; HYPOTHESIS_PROFILE=explore looks for new ones, and for more of them.
settings.register_profile("fixed", derandomize=True, deadline=None, database=None)
settings.register_profile("explore", deadline=None, max_examples=2000, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fixed"))

# The compiler makes very many objects and next to no garbage: looking for some as usual takes a tenth of its time.
gc.set_threshold(100_000, 50, 100)

# Tests interrupt programs, also where a shell has Ctrl-C ignored by all that runs in the background.
signal.signal(signal.SIGINT, signal.default_int_handler)

# The first compiles the loops of all families, of which the second needs none: later files find them in the cache,
# where two files at a time would compile them twice. Then those that take long: if one came last, a core would idle.
FIRST = ["exactness", "batch", "spark", "sklearn", "selfstart", "window", "compat_hmmlearn", "fleet", "information"]
RANK = {f"test_{name}.py": rank for rank, name in enumerate(FIRST)}


def pytest_collection_modifyitems(items):
    """The order in which files are handed out; within a file, tests stay as they are."""
    items.sort(key=lambda item: RANK.get(item.path.name, len(FIRST)))

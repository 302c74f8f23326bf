"""Settings of the whole test suite."""

import os

from hypothesis import settings

# The same examples in every run; HYPOTHESIS_PROFILE=explore looks for new ones, and for more of them.
settings.register_profile("fixed", derandomize=True, deadline=None, database=None)
settings.register_profile("explore", deadline=None, max_examples=2000, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fixed"))

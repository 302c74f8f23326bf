"""A pytest plugin: what asks for hmmlearn's estimators gets hmmstream's."""

import hmmlearn.hmm

from hmmstream.compat import hmmlearn as compat

for name in ("CategoricalHMM", "GaussianHMM", "MultinomialHMM", "PoissonHMM"):
    setattr(hmmlearn.hmm, name, getattr(compat, name))

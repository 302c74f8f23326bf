"""A pytest plugin: what asks for hmmlearn's estimators gets hmmstream's."""


def pytest_configure():
    """Put them in place; not already when this file is imported, which whoever collects tests may do."""
    import hmmlearn.hmm

    from hmmstream.compat import hmmlearn as compat

    for name in ("CategoricalHMM", "GaussianHMM", "MultinomialHMM", "PoissonHMM"):
        setattr(hmmlearn.hmm, name, getattr(compat, name))

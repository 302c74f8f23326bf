"""A family that hmmstream does not ship: Rayleigh-distributed magnitudes (wave heights, wind speeds, fading signals).

All of it is plain Python. The short methods from ``accepts`` on are compiled into the learning loop, where they run as
fast as the built-in families.
"""

from math import inf, log, pi, sqrt

import numpy as np

from hmmstream import IndependentFeatures


class Rayleigh(IndependentFeatures):
    """Magnitudes with one scale for each state and feature: density y / scale² · exp(-y² / (2 scale²))."""

    value_names = ("scales",)
    domain = "a number that is not negative"
    value_bounds = ((0.0, inf),)

    def __init__(self, scales=None):
        super().__init__(scales=scales)

    def sample(self, states, rng):
        return rng.rayleigh(self.scales[states])

    def accepts(self, value):
        return value >= 0.0

    def feature_log_density(self, theta, y):
        if y == 0.0:
            return -inf
        return log(y) - 2.0 * log(theta[0]) - 0.5 * (y / theta[0]) ** 2

    def feature_statistic(self, theta, y, s):
        s[0] = y * y

    def feature_expectation(self, theta, s):
        s[0] = 2.0 * theta[0] * theta[0]

    def feature_maximize(self, s, overall, theta):
        theta[0] = sqrt(max(0.5 * s[0], 1e-12 * overall[0], 1e-250))

    # Not needed to learn: for scores and standard errors, and for forecasts

    def feature_gradient(self, theta, weight, s, gradient):
        gradient[0] = s[0] / theta[0] ** 3 - 2.0 * weight / theta[0]

    def moments(self):
        return sqrt(pi / 2.0) * self.scales, (2.0 - pi / 2.0) * self.scales**2


if __name__ == "__main__":
    from hmmstream import HMM, OnlineHMM

    sea = HMM([0.5, 0.5], [[0.99, 0.01], [0.02, 0.98]], Rayleigh(scales=[0.5, 2.0]))
    guess = HMM([0.5, 0.5], [[0.9, 0.1], [0.1, 0.9]], Rayleigh(scales=[0.8, 1.2]))
    heights, _ = sea.sample(50_000, random_state=np.random.default_rng(0))
    print(OnlineHMM(init=guess).partial_fit(heights).model_)

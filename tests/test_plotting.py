"""Pictures show what is so: colours are states, areas are probabilities, curves are densities."""

import subprocess
import sys

import matplotlib
import models
import numpy as np
import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from hmmstream import HMM, AutoRegressive, Gaussian, Masked, Poisson, plotting

MODEL = models.paper_model()
X = MODEL.sample(400, random_state=0)[0]
PROBA = MODEL.filter(X)
N = np.array([10.0, 100.0, 1000.0, 10_000.0])
COUNTS = HMM([0.5, 0.5], [[0.9, 0.1], [0.2, 0.8]], Poisson([1.0, 6.0]))


def words(ax):
    return [text.get_text() for text in ax.texts]


def density_lines(ax):
    """The curves of emissions: (sum, those of states)."""
    total, *states = ax.lines
    return total, states


def drawn_areas(ax):
    """Heights of the areas of probabilities, state by state: (m, steps)."""
    return np.array([patch.get_data().values - patch.get_data().baseline for patch in ax.patches])


# --- transitions ----------------------------------------------------------------------------------------------------


def test_the_heat_map_shows_the_matrix_and_writes_it_down():
    ax = plotting.plot_transitions(MODEL)
    np.testing.assert_array_equal(ax.images[0].get_array(), MODEL.transmat)
    assert words(ax) == ["0.95", "0.050", "0.30", "0.70"]
    assert [label.get_text().split() for label in ax.get_yticklabels()] == [["0", "(20)"], ["1", "(3.33)"]]


def test_what_is_impossible_is_hatched_and_what_is_rare_is_not():
    chain = HMM([1, 0], [[1 - 1e-7, 1e-7], [0, 1]], MODEL.emission, Masked([[1, 1], [0, 1]]))
    ax = plotting.plot_transitions(chain)
    assert ax.images[0].get_array().mask.tolist() == [[False, False], [True, False]]
    hatched = [area for area in ax.collections if area.get_hatch()]
    assert len(hatched) == 1
    np.testing.assert_array_equal(hatched[0].get_paths()[0].get_extents().extents, [-0.5, 0.5, 0.5, 1.5])
    assert words(ax) == ["≈ 1", "1e−7", "0", "1"]
    assert "∞" in ax.get_yticklabels()[1].get_text()


def test_cells_of_many_states_are_not_labelled():
    m = 13
    ax = plotting.plot_transitions(HMM(np.full(m, 1 / m), np.full((m, m), 1 / m), Poisson(np.arange(1.0, m + 1))))
    assert words(ax) == []
    assert len(ax.figure.axes) == 2  # a scale of colours instead


@pytest.mark.parametrize(
    ("p", "text"),
    [(0, "0"), (1, "1"), (0.5, "0.50"), (0.02, "0.020"), (3e-5, "3e−5"), (0.988, "0.988"), (0.99996, "0.99996")],
)
def test_probabilities_are_never_rounded_to_certainties(p, text):
    assert plotting._probability(p) == text


# --- emissions ------------------------------------------------------------------------------------------------------


def test_densities_are_those_of_the_stationary_mixture():
    total, states = density_lines(plotting.plot_emissions(MODEL))
    grid = total.get_xdata()
    weights = MODEL.stationary_distribution()
    exact = [
        w * np.exp(-((grid - mean) ** 2) / (2 * 0.5)) / np.sqrt(2 * np.pi * 0.5)
        for w, mean in zip(weights, [0, 1], strict=True)
    ]
    for line, density in zip(states, exact, strict=True):
        np.testing.assert_allclose(line.get_ydata(), density, rtol=1e-10)
    np.testing.assert_allclose(total.get_ydata(), np.sum(exact, axis=0), rtol=1e-10)
    assert np.trapezoid(total.get_ydata(), grid) == pytest.approx(1.0, abs=1e-3)


def test_a_histogram_has_area_one_whatever_is_missing_and_however_far_outliers_are():
    data = np.concatenate([X[:, 0], [np.nan] * 50, [1e6]])
    ax = plotting.plot_emissions(MODEL, data)
    values, edges, _ = ax.patches[0].get_data()
    assert (values * np.diff(edges)).sum() == pytest.approx(400 / 401)
    assert edges[-1] < 10.0
    assert ax.get_xlim()[1] < 10.0


def test_a_narrow_state_is_not_stepped_over():
    narrow = HMM([0.5, 0.5], [[0.5, 0.5], [0.5, 0.5]], Gaussian("diag", means=[0.0, 0.0], covars=[1e-8, 1.0]))
    _, (line, _) = density_lines(plotting.plot_emissions(narrow))
    assert np.trapezoid(line.get_ydata(), line.get_xdata()) == pytest.approx(0.5, rel=0.1)


def test_counts_are_bars_upon_each_other_with_the_shares_of_the_data():
    counts = COUNTS.sample(300, random_state=0)[0]
    ax = plotting.plot_emissions(COUNTS, counts)
    lower, upper = ax.containers
    places = [bar.get_x() + bar.get_width() / 2 for bar in lower]
    np.testing.assert_allclose(places, np.round(places))
    assert min(places) == pytest.approx(0.0)
    weights = COUNTS.stationary_distribution()
    assert [sum(bar.get_height() for bar in bars) for bars in (lower, upper)] == pytest.approx(weights, abs=1e-2)
    assert [bar.get_y() for bar in upper] == pytest.approx([bar.get_height() for bar in lower])
    values, shares = ax.lines[0].get_data()
    np.testing.assert_allclose(shares, [(counts == value).mean() for value in values])


def test_a_feature_is_drawn_from_its_own_margin():
    both = HMM(
        [0.5, 0.5],
        [[0.9, 0.1], [0.1, 0.9]],
        Gaussian("full", means=[[0, 5], [1, 9]], covars=[[[1.0, 0.9], [0.9, 4.0]]] * 2),
    )
    total, _ = density_lines(plotting.plot_emissions(both, feature=1))
    grid = total.get_xdata()
    exact = sum(0.5 * np.exp(-((grid - mean) ** 2) / 8) / np.sqrt(8 * np.pi) for mean in (5, 9))
    np.testing.assert_allclose(total.get_ydata(), exact, rtol=1e-10)


def test_a_family_of_whole_rows_shares_out_the_histogram_or_says_why_not():
    series = AutoRegressive(coefficients=[[0.9], [-0.5]], intercepts=[0.0, 3.0], variances=[1.0, 1.0])
    hmm = HMM([0.5, 0.5], [[0.95, 0.05], [0.1, 0.9]], series)
    assert "AutoRegressive describes whole rows" in words(plotting.plot_emissions(hmm))[0]
    data = hmm.sample(300, random_state=0)[0]
    ax = plotting.plot_emissions(hmm, data)
    edges = ax.patches[0].get_data().edges
    shares = (drawn_areas(ax) * np.diff(edges)).sum(axis=1)
    np.testing.assert_allclose(shares, hmm.smooth(data).mean(axis=0), atol=1e-6)


def test_means_are_drawn_where_counts_depend_on_each_other():
    ax = plotting.plot_emissions(models.make("multinomial"), feature=1)
    means = [container.lines[0].get_xdata()[0] for container in ax.containers]
    np.testing.assert_allclose(means, [0.8, 2.4, 1.2])


@pytest.mark.parametrize("family", ["categorical", "user-rayleigh"])
def test_families_are_drawn_with_and_without_data(family):
    hmm = models.make(family)
    for data in (None, hmm.sample(200, random_state=0)[0], np.full((3, hmm.n_features), np.nan)):
        ax = plotting.plot_emissions(hmm, data, name="what was seen")
        assert ax.has_data()
        assert ax.get_xlabel() == "what was seen"
        assert ax.get_legend().get_texts()[0].get_text() == "state 0 (39 %)"


@pytest.mark.parametrize("data", [[7.0], np.full(20, 3.0), np.full(20, np.nan), [100.0, 101.0], []])
def test_emissions_are_drawn_whatever_the_data(data):
    ax = plotting.plot_emissions(MODEL, data)
    low, high = ax.get_xlim()
    assert low < 0.5 < high
    assert all(low < x < high for x in np.unique(data) if np.isfinite(x))


def test_a_chain_in_parts_is_weighted_by_its_start():
    apart = HMM([0.25, 0.75], np.eye(2), MODEL.emission)
    ax = plotting.plot_emissions(apart)
    assert ax.get_legend().get_title().get_text() == "weights: start distribution"
    _, states = density_lines(ax)
    assert np.trapezoid(states[1].get_ydata(), states[1].get_xdata()) == pytest.approx(0.75, abs=1e-2)


def test_a_feature_that_is_not_there_is_refused():
    with pytest.raises(ValueError, match="feature must be one of 0, …, 0, got 1"):
        plotting.plot_emissions(MODEL, feature=1)


# --- states over time -----------------------------------------------------------------------------------------------


def test_points_have_the_colour_of_their_most_probable_state():
    data, _ = plotting.plot_states(X, PROBA, first_row=1000)
    points = data.collections[0]
    np.testing.assert_array_equal(points.get_offsets()[:, 0], 1000 + np.arange(400))
    np.testing.assert_array_equal(points.get_offsets()[:, 1], X[:, 0])
    colours = [to_hex(colour).upper() for colour in points.get_facecolors()]
    assert colours == [plotting.COLOURS[state] for state in PROBA.argmax(axis=1)]


def test_probabilities_fill_the_panel():
    _, below = plotting.plot_states(X, PROBA)
    np.testing.assert_allclose(drawn_areas(below), PROBA.T, atol=1e-12)
    np.testing.assert_allclose(drawn_areas(below).sum(axis=0), 1.0)
    assert below.get_ylim() == (0.0, 1.0)
    edges = below.patches[0].get_data().edges
    assert (edges[0], edges[-1]) == below.get_xlim() == (-0.5, 399.5)


def test_of_many_rows_probabilities_are_means_of_neighbours():
    proba = np.tile([[1.0, 0.0], [0.0, 1.0]], (5000, 1))
    _, below = plotting.plot_states(np.arange(10_000.0), proba)
    np.testing.assert_allclose(drawn_areas(below), np.tile([[0.6, 0.4], [0.4, 0.6]], 1000), atol=1e-12)


def test_what_is_missing_leaves_a_gap():
    data = X[:100].copy()
    data[40:60] = np.nan
    above, _ = plotting.plot_states(data, PROBA[:100])
    rows = above.collections[0].get_offsets()[:, 0]
    assert rows.tolist() == [*range(40), *range(60, 100)]
    assert np.isnan(above.lines[0].get_ydata()[40:60]).all()


def test_an_outlier_is_counted_rather_than_shown():
    data = np.append(X[:, 0], 1e6)
    above, _ = plotting.plot_states(data, np.vstack([PROBA, [0.5, 0.5]]))
    assert above.get_ylim()[1] < 10.0
    assert words(above) == ["1 beyond the frame"]


def test_a_few_features_are_drawn_and_named():
    wide = np.tile(X, (1, 30))
    axes = plotting.plot_states(wide, PROBA, names=["a $", "b", "c", "d"])
    assert [ax.get_ylabel() for ax in axes] == ["a $", "b", "c", "d", "probability"]
    assert axes[0].get_title(loc="left") == "first 4 of 30 features"
    assert axes[-1].get_xlabel() == "row"


@pytest.mark.parametrize("data", [np.empty((0, 1)), [[1.0]], np.full((5, 1), np.nan), np.full((5, 1), 2.0)])
def test_few_or_dull_rows_are_drawn(data, tmp_path):
    axes = plotting.plot_states(data, np.tile([1.0, 0.0], (len(data), 1)))
    plotting.save(axes[0].figure, tmp_path / "few.png")
    low, high = axes[-1].get_xlim()
    ticks = [tick for tick in axes[-1].get_xticks() if low <= tick <= high]
    assert ticks == sorted({round(tick) for tick in ticks})
    assert (words(axes[0]) == ["no value was seen"]) == (not np.isfinite(data).any())


def test_probabilities_of_other_rows_are_refused():
    with pytest.raises(ValueError, match=r"proba must have shape \(400, states\)"):
        plotting.plot_states(X, PROBA[1:])


# --- parameters -----------------------------------------------------------------------------------------------------


def test_paths_have_the_colour_of_their_state_and_bands_that_narrow_with_the_root_of_n():
    transmat = np.tile(MODEL.transmat, (4, 1, 1))
    means = np.array([[0.3, 0.6], [0.1, 0.9], [0.02, 1.01], [0.0, 1.0]])[:, :, np.newaxis]
    errors = {"means": np.array([[0.01], [0.02]])}
    staying, centres = plotting.plot_parameters(N, {"transmat": transmat, "means": means}, errors)
    assert [line.get_ydata()[-1] for line in staying.lines] == [0.95, 0.7]
    for state, line in enumerate(centres.lines):
        assert line.get_color() == plotting.COLOURS[state]
        np.testing.assert_array_equal(line.get_xdata(), N)
        np.testing.assert_array_equal(line.get_ydata(), means[:, state, 0])
        x, y = centres.collections[state].get_paths()[0].vertices.T
        for n in N:
            band = 2 * errors["means"][state, 0] * np.sqrt(N[-1] / n)
            assert np.ptp(y[x == n]) == pytest.approx(2 * band)
    assert words(centres) == ["0", "1"]
    assert centres.get_xscale() == "log"
    assert centres.get_title(loc="left") == "means[state]"


def test_an_early_wild_part_does_not_squash_the_rest():
    means = np.array([[1e6, 0.0], [50.0, 2.0], [0.1, 1.1], [0.0, 1.0]])
    (ax,) = plotting.plot_parameters(N, {"means": means}, {"means": [0.01, 0.01]})
    low, high = ax.get_ylim()
    assert -1.0 < low < 0.0
    assert 1.1 < high < 2.0


def test_large_parameters_are_drawn_in_part_and_say_so():
    covars = np.tile(np.eye(12), (4, 3, 1, 1))
    (ax,) = plotting.plot_parameters(N, {"covars": covars})
    assert ax.get_title(loc="left") == "covars[state, column], diagonal, first 6 of 36"
    assert words(ax) == ["0, 0", "1, 0", "2, 0", "0, 1", "1, 1", "2, 1"]


def test_what_all_states_share_has_no_colour_of_a_state():
    values = {"transmat": np.tile(MODEL.transmat, (4, 1, 1)), "covars": np.tile(0.5, (4, 1, 1))}
    _, ax = plotting.plot_parameters(N, values)
    assert [line.get_color() for line in ax.lines] == [plotting.INK]
    assert words(ax) == []


def test_paths_of_another_length_are_refused():
    with pytest.raises(ValueError, match=r"values\['means'\] must have an entry for each of the 4"):
        plotting.plot_parameters(N, {"means": np.zeros((3, 2))})
    with pytest.raises(ValueError, match=r"errors\['means'\] must have shape \(2,\)"):
        plotting.plot_parameters(N, {"means": np.zeros((4, 2))}, {"means": np.zeros(3)})


# --- pages ----------------------------------------------------------------------------------------------------------


def test_a_page_has_a_panel_for_all_that_is_given():
    path = (N, {"transmat": np.tile(MODEL.transmat, (4, 1, 1)), "means": np.zeros((4, 2, 1))}, None)
    assert len(plotting.page(MODEL).axes) == 2
    assert len(plotting.page(MODEL, X=X, recent=(X, PROBA, 0)).axes) == 4
    figure = plotting.page(MODEL, recent=(X, PROBA, 7), path=path, names=["current (pA)"], title="A channel")
    assert len(figure.axes) == 6
    assert figure.get_suptitle() == "A channel"
    assert figure.axes[1].get_xlabel() == figure.axes[2].get_ylabel() == "current (pA)"
    assert figure.axes[3].get_xlim()[0] == 6.5


@pytest.mark.parametrize(("suffix", "magic"), [("png", b"\x89PNG"), ("svg", b"<?xml"), ("PDF", b"%PDF")])
def test_a_figure_is_saved_by_its_suffix(suffix, magic, tmp_path):
    figure = plotting.page(MODEL, recent=(X, PROBA, 0))
    plotting.save(figure, tmp_path / f"page.{suffix}")
    assert (tmp_path / f"page.{suffix}").read_bytes().startswith(magic)


@pytest.mark.parametrize("name", ["page.xyz", "page"])
def test_an_unknown_suffix_is_refused(name, tmp_path):
    with pytest.raises(ValueError, match=r"ends in \.png, \.svg, \.pdf, got"):
        plotting.save(Figure(), tmp_path / name)
    assert not list(tmp_path.iterdir())


def test_pictures_are_drawn_where_they_are_told_to():
    figure = Figure()
    axes = figure.subplots(2, 2)
    assert plotting.plot_transitions(MODEL, axes[0, 0]) is axes[0, 0]
    assert plotting.plot_emissions(MODEL, ax=axes[0, 1]) is axes[0, 1]
    assert plotting.plot_states(X, PROBA, axes=axes[1]) == list(axes[1])
    assert plotting.plot_parameters(N, {"a": np.zeros((4, 2))}, axes=axes[:1, 0]) == [axes[0, 0]]


def test_a_dark_style_of_others_neither_shows_nor_goes():
    with matplotlib.rc_context({"figure.facecolor": "black", "axes.facecolor": "black", "text.color": "white"}):
        before = dict(matplotlib.rcParams)
        ax = plotting.plot_emissions(MODEL)
        assert dict(matplotlib.rcParams) == before
    assert to_hex(ax.get_facecolor()) == to_hex(ax.figure.get_facecolor()) == "#ffffff"


def in_a_new_process(program):
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.strip()


def test_matplotlib_comes_with_the_first_picture_and_pyplot_never():
    program = """
import sys
from hmmstream import HMM, Gaussian, plotting
assert "matplotlib" not in sys.modules
model = HMM([0.5, 0.5], [[0.95, 0.05], [0.3, 0.7]], Gaussian("tied", means=[0.0, 1.0], covars=0.5))
plotting.page(model).canvas.draw()
print("matplotlib.pyplot" in sys.modules)
"""
    assert in_a_new_process(program) == "False"


def test_without_matplotlib_a_picture_says_what_to_install():
    program = """
import sys
sys.modules["matplotlib"] = None
from hmmstream import plotting
try:
    plotting.save(None, "a.png")
except ImportError as error:
    print(error)
"""
    assert in_a_new_process(program) == "pictures need Matplotlib: pip install matplotlib"

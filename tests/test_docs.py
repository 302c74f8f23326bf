"""Every Python example in the documentation runs, and what it names exists."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import hmmstream
from hmmstream.cli import main

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]
ELSEWHERE = {"spark.md"}  # run by test_spark.py, in its session
NEEDED = {"coming-from-river.md": "river"}  # packages that hmmstream itself does not need


def blocks(page):
    return re.findall(r"```python\n(.*?)```", page.read_text(), flags=re.DOTALL)


@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if blocks(page) and page.name not in ELSEWHERE],
    ids=lambda page: str(page.relative_to(ROOT)),
)
def test_the_examples_of_a_page_run_in_order(page):
    if page.name in NEEDED:
        pytest.importorskip(NEEDED[page.name], reason="the page is about it")
    namespace = {"__name__": "__main__"}  # what is compiled is cached: its module must be there in every process
    for block in blocks(page):
        exec(compile(block, str(page), "exec"), namespace)


def commands(page):
    """Lines of the shell."""
    blocks = re.findall(r"```console\n(.*?)```", page.read_text(), flags=re.DOTALL)
    return [line[2:] for block in blocks for line in block.splitlines() if line.startswith("$ ")]


@pytest.mark.parametrize(
    "page", [page for page in PAGES if commands(page)], ids=lambda page: str(page.relative_to(ROOT))
)
def test_the_commands_of_a_page_run_in_order(page, tmp_path, monkeypatch, capfd):
    """Those of the command alone in this process, which saves the time of imports; others by the shell."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    for command in commands(page):
        words = shlex.split(command, comments=True)
        if words[0] == "hmmstream" and "|" not in words and "--version" not in words:
            assert main(words[1:]) == 0, command
        else:
            subprocess.run(["bash", "-o", "pipefail", "-c", command], check=True)
    out, err = capfd.readouterr()
    assert "Traceback" not in out + err
    pictures = [path for path in tmp_path.iterdir() if path.suffix == ".png"]
    assert pictures
    assert all(path.stat().st_size > 20_000 for path in pictures)


def test_the_readme_shows_a_model_close_to_the_truth(capsys):
    namespace = {"__name__": "example"}
    exec(blocks(ROOT / "README.md")[0], namespace)
    assert abs(namespace["hmm"].means_[:, 0] - [0.0, 1.0]).max() < 0.1
    assert namespace["proba"].shape == (50_000, 2)
    assert "HMM(" in capsys.readouterr().out


def test_the_family_in_contributing_is_the_tested_one():
    """The same statements as in examples/rayleigh.py, comments and documentation aside."""

    def statements(text):
        text = text[text.index("class Rayleigh") :].split("\n\n\n")[0]
        return re.sub(r"\s+", "", re.sub(r"#.*", "", text))

    page = blocks(ROOT / "CONTRIBUTING.md")[0]
    assert statements(page) == statements((ROOT / "examples" / "rayleigh.py").read_text())


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
        assert (page.parent / target).exists(), target


def test_tests_named_in_the_notation_exist():
    tests = "".join(path.read_text() for path in (ROOT / "tests").glob("*.py"))
    for name in re.findall(r"`(test_\w+)(?:…)?`", (ROOT / "docs" / "notation.md").read_text()):
        if not (ROOT / "tests" / f"{name}.py").exists():
            assert f"def {name}" in tests, name


def test_all_public_names_are_there_and_documented():
    for name in hmmstream.__all__:
        assert getattr(hmmstream, name).__doc__, name
    assert dir(hmmstream) == sorted(hmmstream.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        hmmstream.nonsense  # noqa: B018


def test_the_changelog_speaks_of_this_version():
    assert f"## {hmmstream.__version__}" in (ROOT / "CHANGELOG.md").read_text()

"""Imports point one way: from the mathematics to what uses it, never back."""

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "src" / "hmmstream"

# Each layer may import those before it, and modules of its own layer that come before it alphabetically or otherwise
# without a circle. Kernels know of families only what they share: the contract.
LAYERS = [
    ["arrays", "background"],
    ["compilable", "record", "io"],
    ["emissions", "transitions", "schedule", "averaging", "detection"],
    ["recursions"],
    ["inference"],
    ["parameters"],
    ["information"],
    ["model"],
    ["priors"],
    ["plotting"],
    ["examples"],
    ["em"],
    ["refinement", "starts"],
    ["learner"],
    ["streams"],
    ["device", "learners", "names"],
    ["selfstart", "journal"],
    ["checkpoint"],
    ["estimator"],
    ["batch", "online"],
    ["fleet", "comparison"],
    ["spark"],
    ["compat", "cli"],
    ["__main__"],
]
# Folders whose files come one after the other
FOLDERS = {
    "io": ["whole", "parsing", "reading", "writing"],
    "spark": ["session", "keyed", "columns", "stored", "streaming", "tables", "fitting", "shared"],
    "cli": ["options", "report", "work", "learning", "using", "spark"],
}
# What neighbours in other folders may import
SHARED = {"base", "centred", "gaussian", "linear_regression", "special"} | {
    "bridge",
    "state",
    "vectors",
    "rows",
    "exact",
    "products",
    "filter",
    "window",
    "online",
}
ENTRIES = {"spark/submit.py": "__main__"}  # files that are run, not imported
LEVEL = {name: level for level, layer in enumerate(LAYERS) for name in layer}
MODULES = sorted(path.relative_to(PACKAGE) for path in PACKAGE.rglob("*.py") if path.name != "__init__.py")


def imported(path):
    """Modules of the package that a file imports."""
    for node in ast.walk(ast.parse((PACKAGE / path).read_text())):
        assert not (isinstance(node, ast.ImportFrom) and node.level), f"{path} has a relative import"
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("hmmstream"):
            folder = PACKAGE / "/".join(node.module.split(".")[1:])
            for name in (alias.name for alias in node.names):
                if (folder / name).is_dir() or (folder / f"{name}.py").exists():
                    yield f"{node.module}.{name}".removeprefix("hmmstream.")
                elif node.module != "hmmstream":
                    yield node.module.removeprefix("hmmstream.")
        elif isinstance(node, ast.Import):
            yield from (alias.name.removeprefix("hmmstream.") for alias in node.names if "hmmstream" in alias.name)


@pytest.mark.parametrize("path", MODULES, ids=str)
def test_a_module_imports_only_what_is_upstream(path):
    own = ENTRIES.get(path.as_posix(), path.parts[0].removesuffix(".py"))
    for module in imported(path):
        other = module.split(".")[0]
        if other == own and own in FOLDERS:
            order = FOLDERS[own]
            assert order.index(module.split(".")[-1]) < order.index(path.stem), f"{path} imports {module}"
        elif other == own:
            assert module.split(".")[-1] in SHARED, f"{path} imports {module} of its own folder"
        else:
            assert LEVEL[other] < LEVEL[own], f"{path} imports {module}, which is not upstream"


def test_kernels_know_no_family_and_no_estimator():
    for path in (PACKAGE / "recursions").glob("*.py"):
        for module in imported(path.relative_to(PACKAGE)):
            assert module in {
                "arrays",
                "compilable",
                "emissions.base",
                *(f"recursions.{name}" for name in SHARED),
            }, f"{path.name} imports {module}"


def test_only_estimators_import_scikit_learn_and_only_recursions_numba():
    for path in PACKAGE.rglob("*.py"):
        text = path.read_text()
        is_estimator = path.parent == PACKAGE and path.name in {"estimator.py", "online.py"}
        if not is_estimator and path.parent.name != "compat":
            assert "sklearn" not in text, path
        if path.parent.name != "recursions":
            assert "import numba" not in text, path
            assert "from numba" not in text, path

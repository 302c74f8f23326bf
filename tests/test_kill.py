"""Nothing is lost when the power goes."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.mark.skipif(not hasattr(__import__("os"), "fork"), reason="processes are forked")
def test_fifty_kills_at_random_moments_lose_nothing():
    """The checkpoint is readable after each, and the end is that of an uninterrupted run, bit for bit."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.kill", "50"], cwd=ROOT, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr

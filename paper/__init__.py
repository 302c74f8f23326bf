"""The paper, reproduced: every figure, the table and every claim of Cappé (2011), by ``make paper``.

The way of a number: ``experiments/`` simulates and measures, ``runner.py`` has them done on all cores and keeps what is
done, ``claims.py`` holds the paper's words against the numbers, ``pictures.py`` draws, ``report.py`` writes the page.
"""

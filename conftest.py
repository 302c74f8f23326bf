"""Where PySpark is missing, examples in the modules that need it are left out; tests/test_spark.py says so."""

from importlib.util import find_spec

collect_ignore = [] if find_spec("pyspark") else ["src/hmmstream/spark", "src/hmmstream/cli/spark.py"]

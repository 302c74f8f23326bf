"""hmmstream.spark: millions of keyed streams on Apache Spark, each with a model of its own, exactly once."""

try:
    import pandas  # noqa: F401
    import pyspark  # noqa: F401
except ImportError as error:
    raise ImportError(
        "hmmstream.spark needs PySpark, pandas and Java 17 or later: pip install 'hmmstream[spark]', and on Debian or "
        "Ubuntu apt-get install openjdk-17-jre-headless"
    ) from error

from hmmstream.spark.fitting import fit_table
from hmmstream.spark.session import session
from hmmstream.spark.shared import learn_shared, shared_model
from hmmstream.spark.stored import models, template
from hmmstream.spark.streaming import learn_stream
from hmmstream.spark.tables import find_start, learn_table

__all__ = [
    "find_start",
    "fit_table",
    "learn_shared",
    "learn_stream",
    "learn_table",
    "models",
    "session",
    "shared_model",
    "template",
]

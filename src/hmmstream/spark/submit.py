"""The command as a file, which is what spark-submit runs: ``spark-submit submit.py spark-learn INPUT OUTPUT ...``."""

import sys

from hmmstream.cli import main

if __name__ == "__main__":
    sys.exit(main())

"""``python -m hmmstream``: the command, where it is not on the path."""

import sys

from hmmstream.cli import main

if __name__ == "__main__":
    sys.exit(main())

"""``python -m hmmstream``: the command, where it is not on the path."""

import sys

from hmmstream.cli import main

sys.exit(main())

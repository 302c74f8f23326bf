"""The command ``hmmstream``: how it begins, and how it ends.

What a command does is in a module that takes long to import, and comes when it is needed: asking for help is quick.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module

from hmmstream.cli.options import USER_ERROR, parser

OK, FAILED, INTERRUPTED, BROKEN_PIPE = 0, 1, 130, 141
MODULES = {"learn": "learning", "watch": "learning", "fit": "learning", "compare": "learning", "spark-learn": "spark"}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; the exit code."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by whoever started this
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115  # until the end
    options = parser().parse_args(arguments)
    try:
        module = import_module(f"hmmstream.cli.{MODULES.get(options.command, 'using')}")
        return int(getattr(module, options.command.replace("-", "_"))(options) or OK)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # nothing more can be written at exit
        return BROKEN_PIPE
    except (ValueError, OSError, ImportError, MemoryError) as error:
        if options.debug:
            raise
        return _say(" ".join(str(error).split()) or type(error).__name__, USER_ERROR)
    except KeyboardInterrupt:
        return _say("interrupted", INTERRUPTED)
    except Exception as error:
        if options.debug:
            raise
        text = " ".join(str(error).split())
        return _say(f"a fault of hmmstream: {type(error).__name__}: {text} (--debug shows where)", FAILED)


def _say(text: str, code: int) -> int:
    print(f"hmmstream: {text}", file=sys.stderr)
    return code

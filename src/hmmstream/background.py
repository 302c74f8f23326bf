"""A second process for work that nobody should have to wait for.

A thread would do in a language without a global lock. The process ends with the one that started it, however that ends:
it reads from a pipe, and the pipe breaks.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import IO, Any, TypeVar

T = TypeVar("T")


class SecondProcess:
    """Runs functions one after the other in a process of its own, which starts with the first of them."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1)
        self._process: subprocess.Popen[bytes] | None = None
        self._is_closed = False

    def submit(self, function: Callable[..., T], *arguments: Any) -> Future[T]:
        """Begin to work; the result comes later."""
        return self._thread.submit(self._ask, function, arguments)

    def _ask(self, function: Callable[..., T], arguments: tuple[Any, ...]) -> T:
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "hmmstream.background"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                start_new_session=True,  # Ctrl-C is not for it
            )
        try:
            assert self._process.stdin is not None
            assert self._process.stdout is not None
            send(self._process.stdin, (function, arguments))
            result: T = pickle.load(self._process.stdout)
            return result
        except (EOFError, OSError, ValueError, pickle.UnpicklingError):  # it was killed: then this one does the work
            if self._is_closed:
                raise
            return function(*arguments)

    def close(self) -> None:
        """End the process; work that is going on is not waited for."""
        self._is_closed = True
        if self._process is not None:
            self._process.kill()
            for pipe in (self._process.stdin, self._process.stdout):
                if pipe is not None:
                    with suppress(OSError):  # what was to be sent has nobody to go to
                        pipe.close()
            self._process.wait()
        self._thread.shutdown(wait=False, cancel_futures=True)


def send(pipe: IO[bytes], message: Any) -> None:
    """Write an object to a pipe."""
    pipe.write(pickle.dumps(message))
    pipe.flush()


def main() -> None:
    """What the second process does: call functions, and send what they return."""
    if hasattr(os, "nice"):
        os.nice(10)  # the first one is in a hurry
    while True:
        try:
            function, arguments = pickle.load(sys.stdin.buffer)
            send(sys.stdout.buffer, function(*arguments))
        except (EOFError, BrokenPipeError):  # the first process has ended
            os._exit(0)


if __name__ == "__main__":
    main()

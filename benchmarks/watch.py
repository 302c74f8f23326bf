"""How soon ``hmmstream watch`` answers: ``python -m benchmarks.watch [lines a second] [seconds] [options]``."""

from __future__ import annotations

import subprocess
import sys
import threading
import time

import numpy as np

from hmmstream.examples import EXAMPLES


def latencies(rate: float, n: int, options: list[str]) -> np.ndarray:
    """Seconds between sending a line and having the answer, for each of ``n`` lines sent at this rate."""
    X, _ = EXAMPLES["paper"].model.sample(n, 0)
    command = [sys.executable, "-m", "hmmstream", "watch", "-", "--quiet", *options]
    watch = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert watch.stdin is not None
    assert watch.stdout is not None
    sent, answered = np.zeros(n), np.zeros(n)

    def listen() -> None:
        for at in range(n):
            watch.stdout.readline()
            answered[at] = time.perf_counter()

    listener = threading.Thread(target=listen)
    listener.start()
    began = time.perf_counter()
    for at, line in enumerate(f"{x}\n".encode() for x in X[:, 0]):
        if at == 1:
            while not answered[0]:  # the command has started
                time.sleep(0.001)
            began = time.perf_counter() - 1 / rate
        pause = began + at / rate - time.perf_counter()
        if pause > 0:
            time.sleep(pause)
        sent[at] = time.perf_counter()
        watch.stdin.write(line)
        watch.stdin.flush()
    listener.join()
    watch.stdin.close()
    watch.wait()
    watch.stdout.close()
    return answered[1:] - sent[1:]


if __name__ == "__main__":
    rate = float(sys.argv[1]) if len(sys.argv) > 1 else 1000.0
    seconds = float(sys.argv[2]) if len(sys.argv) > 2 else 20.0
    taken = 1e3 * latencies(rate, int(rate * seconds), sys.argv[3:])
    for share in (50, 90, 99, 99.9):
        print(f"{share:5g} % of lines are answered within {np.percentile(taken, share):.3f} ms")
    print(f"all within {taken.max():.1f} ms")

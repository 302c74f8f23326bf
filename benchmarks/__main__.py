"""Run all benchmarks and print one page."""

from benchmarks import batch, memory, speed, starts, startup

if __name__ == "__main__":
    for benchmark in (speed, batch, startup, memory, starts):
        print(f"\n{benchmark.__doc__.splitlines()[0]}\n", flush=True)
        benchmark.main()

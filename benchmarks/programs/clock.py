"""Times a program's own steps. The mean counts: what a profiler does on a few steps must not vanish in a median."""

import time

WARM_UP = 10


def timed(step, steps):
    """Run `step` a few times, then `steps` times, and print the mean of those in seconds as the last line."""
    for _ in range(WARM_UP):
        step()
    started = time.perf_counter()
    for _ in range(steps):
        step()
    print(f"seconds_per_step={(time.perf_counter() - started) / steps:.9f}", flush=True)

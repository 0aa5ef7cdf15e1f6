"""PyTorch's own device tests on the simulated GPU: how many pass, and why the others do not.

`python benchmarks/simulated_device_tests.py FOLDER [FILE...] [--every N] [--seconds S]`: FOLDER is the folder `test` of
a checkout of PyTorch, of the version that is installed or one near it. Each test runs in a fork of its own, so that an
abort or a hang is counted as such. A test that fails is done again on the CPU: where it fails there as well, it is too
old or too new for the torch that is installed, and says nothing of the simulation.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import importlib
import os
import pickle
import pkgutil
import re
import resource
import select
import signal
import sys
import time
import traceback
import unittest
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import torch.testing._internal

FILES = ("test_view_ops", "test_indexing", "test_torch", "test_autograd", "test_linalg", "test_shape_ops")
WRONG = re.compile("not close|not equal|Booleans mismatch|!=", re.IGNORECASE)
_KIND = re.compile(r"cuda|cpu|[\d.]+", re.IGNORECASE)
"""What may differ between the same failure on both."""
_PATIENCE = 30
"""Times the seconds of computing that a test may take by the clock: a busy machine starves it, and only a test that
waits for nothing hangs."""
REFUSED = re.compile("not simulated")


def prepared(folder: Path) -> None:
    """Start the simulation and make torch's tests importable, for the CPU and for CUDA."""
    from torchvet.simulate.cards import card_of
    from torchvet.simulate.start import start

    start(card_of("24GiB"), 1)
    os.environ["PYTORCH_TESTING_DEVICE_ONLY_FOR"] = "cpu,cuda"
    sys.argv = sys.argv[:1]
    sys.path.insert(0, str(folder))
    os.chdir(folder)
    warnings.simplefilter("ignore")
    from torch.testing._internal import common_device_type, common_utils

    tolerant()
    for_cuda_too()
    # These are torch's own harness, which asks C++ directly.
    common_device_type.CUDATestBase._do_cuda_memory_leak_check = False
    streams = common_utils.CudaNonDefaultStream
    streams.__enter__ = streams.__exit__ = lambda self, *error: None


def _gone(name: str) -> Any:
    """What stands for a name of torch's testing that the installed version no longer has."""
    if name.startswith("__"):
        raise AttributeError(name)
    if name.isupper() or name.endswith("_tests"):
        return [] if name.endswith("_tests") else False
    return lambda made=None, *_, **__: made if callable(made) else lambda f: f


def tolerant() -> None:
    """Tests of another version ask for decorators and flags that have gone since."""
    vars(torch._C).setdefault("has_mkldnn", torch.backends.mkldnn.is_available())
    for part in pkgutil.iter_modules(torch.testing._internal.__path__):
        if part.name.startswith(("common_", "composite_", "autograd_", "opinfo", "custom_op", "hypothesis_")):
            with contextlib.suppress(Exception):
                module = importlib.import_module(f"torch.testing._internal.{part.name}")
                vars(module).setdefault("__getattr__", _gone)


def for_cuda_too() -> None:
    """Copies of the tests that another accelerator keeps are made for CUDA as well."""
    from torch.testing._internal import common_device_type

    made = common_device_type.instantiate_device_type_tests

    def instantiate(generic: type, scope: dict[str, Any], **given: Any) -> None:
        if "xpu" in (given.get("only_for") or ()):
            del given["only_for"]
        made(generic, scope, **given)

    common_device_type.instantiate_device_type_tests = instantiate


def cases(name: str) -> Iterator[tuple[type[unittest.TestCase], str]]:
    """The tests of a file that run on CUDA."""
    module = importlib.import_module(name)
    for made in list(vars(module).values()):
        if isinstance(made, type) and issubclass(made, unittest.TestCase) and made.__name__.endswith("CUDA"):
            yield from ((made, test) for test in sorted(dir(made)) if test.startswith("test") and "_cuda" in test)


def outcome(case: type[unittest.TestCase], test: str) -> tuple[str, str]:
    """How a test went, run here."""
    found = unittest.TestResult()
    found.failfast = True
    unittest.TestSuite([case(test)]).run(found)
    for kind, those in (("failed", found.failures), ("failed", found.errors), ("skipped", found.skipped)):
        if those:
            return kind, those[0][1]
    return "passed", ""


def apart(case: type[unittest.TestCase], test: str, seconds: float) -> tuple[str, str]:
    """The same in a fork: an abort ends the fork alone. It is ended after so many seconds of computing."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        resource.setrlimit(resource.RLIMIT_CPU, (int(seconds), int(seconds) + 1))
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.dup2(null, 2)
        try:
            answer = outcome(case, test)
        except BaseException:
            answer = "failed", traceback.format_exc()
        os.write(writer, pickle.dumps((answer[0], answer[1][-4000:])))
        os._exit(0)
    os.close(writer)
    ready, _, _ = select.select([reader], [], [], _PATIENCE * seconds)
    text = os.read(reader, 1 << 16) if ready else b""
    os.close(reader)
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    if not ready:
        return "hung", f"no answer within {_PATIENCE * seconds:g} s"
    if not text and os.WTERMSIG(status) in (signal.SIGXCPU, signal.SIGKILL):
        return "slow", f"more than {seconds:g} s of computing"
    return pickle.loads(text) if text else ("aborted", f"signal {os.WTERMSIG(status)}")


def on_cpu(case: type[unittest.TestCase], test: str, seconds: float) -> tuple[str, str]:
    """How the test's twin for the CPU goes; "none" where it has none."""
    module = sys.modules[case.__module__]
    twin = getattr(module, case.__name__.removesuffix("CUDA") + "CPU", None)
    name = test.replace("_cuda", "_cpu")
    return apart(twin, name, seconds) if twin is not None and hasattr(twin, name) else ("none", "")


def last_of(text: str) -> str:
    """An error's own text, which comes after the last frame."""
    said = [line for line in text.splitlines() if line and not line.startswith((" ", "To execute", "This message"))]
    errors = [line for line in said if re.match(r"[\w.]*(Error|Exception|Exit)\b", line)]
    # Refusals of the dispatcher are longer than what is kept of them.
    cut = "an operator of torch's own without a kernel" if "[backend fallback]" in text else ""
    return cut or (" ".join(said[said.index(errors[-1]) :])[:200] if errors else (said or ["?"])[-1][:200])


def judged(case: type[unittest.TestCase], test: str, seconds: float) -> tuple[str, str]:
    """The outcome, and of a failure its kind and its last line."""
    kind, text = apart(case, test, seconds)
    if kind != "failed":
        return kind, text.strip().splitlines()[-1] if text.strip() else ""
    last = last_of(text)
    if REFUSED.search(last):
        return "refused", last
    twin, why = on_cpu(case, test, seconds)
    if twin == "failed" and _KIND.sub("", last_of(why)) == _KIND.sub("", last):
        return "fails on the CPU too", last
    if last.startswith("AssertionError") and WRONG.search(last):
        return "other values" if twin == "passed" else "other values, no twin", last
    return "failed", last


def main() -> None:
    """Run the tests and print the counts, and each failure with its cause."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("files", nargs="*", default=FILES)
    parser.add_argument("--every", type=int, default=1, help="each N-th test")
    parser.add_argument("--seconds", type=float, default=20.0, help="what one test may compute")
    parser.add_argument("-k", default="", help="only tests whose name has this")
    given = parser.parse_args()
    prepared(given.folder)
    counts: collections.Counter[str] = collections.Counter()
    began = time.perf_counter()
    for name in given.files:
        try:
            found = [c for c in cases(name.removesuffix(".py")) if given.k in c[1]]
        except BaseException as error:
            print(f"{name}: cannot be imported: {type(error).__name__}: {error}", flush=True)
            continue
        for case, test in found[:: given.every]:
            kind, why = judged(case, test, given.seconds)
            counts[kind] += 1
            if kind not in ("passed", "skipped"):
                print(f"{kind:22} {name}.{case.__name__}.{test}: {why}", flush=True)
    print(
        ", ".join(f"{kind} {count}" for kind, count in counts.most_common()), f"in {time.perf_counter() - began:.0f} s"
    )


if __name__ == "__main__":
    main()

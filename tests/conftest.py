"""Every test leaves torch and the interpreter as it found them: nothing of torchvet's stays installed."""

from __future__ import annotations

import compileall
import gc
import os
import random
import signal
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from dispositions import default_in_children
from hypothesis import settings

# The machine may be busy: what an example takes is no property of the code. Examples are the same in each run, so that
# no change fails by what it has nothing to do with; `make fuzz` looks for others.
settings.register_profile("busy", deadline=None, derandomize=not os.environ.get("TORCHVET_FUZZ"))
settings.load_profile("busy")

# For this process and those that it starts: the machine's cores are shared.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Whoever runs the tests in a terminal of some width: reports in pipes are whole.
os.environ.pop("COLUMNS", None)

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # the casebook is not installed

# Hundreds of programs import torchvet and its rules: compiling them takes each longer than all else that is torchvet's.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


def pytest_sessionstart(session: pytest.Session) -> None:
    """What all workers import is compiled before they start."""
    if not hasattr(session.config, "workerinput"):
        for folder in ("src", "casebook"):
            compileall.compile_dir(str(ROOT / folder), quiet=2)


default_in_children()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Tests owe nothing to their order: `make test SEED=3` runs them in another one."""
    parser.addoption("--shuffle", type=int, metavar="SEED", help="shuffle the files, and the tests of each")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tests of a file stay together, so that they share what is made once for it."""
    seed = config.getoption("--shuffle", default=None)
    if seed is None:
        return
    dice = random.Random(seed)
    files: dict[Path, list[pytest.Item]] = {}
    for item in items:
        files.setdefault(item.path, []).append(item)
    shuffled = list(files.values())
    dice.shuffle(shuffled)
    for tests in shuffled:
        dice.shuffle(tests)
    items[:] = [item for tests in shuffled for item in tests]


@pytest.fixture(autouse=True)
def _signals_as_before() -> Iterator[None]:
    """Signals that a test has left blocked would be blocked in all processes that later ones start: a fork server then
    never hears that a child has ended."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    yield
    after = signal.pthread_sigmask(signal.SIG_SETMASK, before)
    if after != before:
        warnings.warn(f"signals were left blocked: {sorted(after - before)}", stacklevel=1)


@pytest.fixture(autouse=True)
def _as_a_fresh_process_has_it() -> Iterator[None]:
    """What torch keeps for a process, and a test may change, is as it was when the next test comes."""
    torch = sys.modules.get("torch")
    if torch is None or not hasattr(torch, "set_num_threads"):
        yield
        return
    torch.set_num_threads(1)
    # A process starts with a seed of its own: a test would see other numbers in each run, and fail in some.
    torch.default_generator.manual_seed(0)
    dtype = torch.get_default_dtype()
    yield
    torch.set_default_dtype(dtype)
    torch.set_grad_enabled(True)
    torch.clear_autocast_cache()
    _forget_what_was_compiled()


def _forget_what_was_compiled() -> None:
    dynamo = sys.modules.get("torch._dynamo")
    utils = sys.modules.get("torch._dynamo.utils")
    if dynamo is not None and utils is not None and (utils.counters["frames"] or dynamo.eval_frame.cached_backends):
        dynamo.reset()
        utils.counters.clear()
    # `torch.compile` switches the validation of distributions off for the rest of the process.
    distributions = sys.modules.get("torch.distributions")
    if distributions is not None:
        distributions.Distribution.set_default_validate_args(__debug__)


PROBES = os.sep + os.path.join("torchvet", "probes", "")


def code_file(hook: Any) -> str:
    """The file that a callable is written in, empty where it has none."""
    function = getattr(hook, "__func__", hook)
    code = getattr(function, "__code__", None) or getattr(type(function).__call__, "__code__", None)
    return getattr(code, "co_filename", "")


def _slots(torch: ModuleType) -> Iterator[tuple[str, Any]]:
    """Every place in torch that probes install themselves in, with what is there now."""
    from torch.nn.modules import module
    from torch.optim import optimizer
    from torch.utils.data import dataloader

    for name in ("backward", "grad"):
        yield f"torch.autograd.{name}", getattr(torch.autograd, name)
    yield "_BaseDataLoaderIter.__next__", dataloader._BaseDataLoaderIter.__next__
    yield "Optimizer.__init__", optimizer.Optimizer.__init__
    yield "Module.train", torch.nn.Module.train
    for owner in (torch.nn.Module, optimizer.Optimizer):
        yield f"{owner.__name__}.zero_grad", owner.zero_grad
    for name in ("__init__", "scale", "unscale_", "step", "update", "load_state_dict", "get_scale"):
        yield f"GradScaler.{name}", getattr(torch.amp.GradScaler, name)
    for name in ("clip_grad_norm_", "clip_grad_value_"):
        yield f"nn.utils.{name}", getattr(torch.nn.utils, name)
    yield "LRScheduler.step", torch.optim.lr_scheduler.LRScheduler.step
    yield "nn.modules.module._has_any_global_hook", module._has_any_global_hook
    compiler = sys.modules.get("torch._dynamo.eval_frame")
    if compiler is not None:
        yield "torch._dynamo.eval_frame", compiler._maybe_set_eval_frame
    for name in vars(module):
        if name.startswith("_global_") and name.endswith("_hooks"):
            yield from ((f"nn.{name}", hook) for hook in getattr(module, name).values())
    for name in ("_global_optimizer_pre_hooks", "_global_optimizer_post_hooks"):
        yield from ((f"optim.{name}", hook) for hook in getattr(optimizer, name).values())


def _leftovers() -> list[str]:
    """What torchvet has in torch and in the interpreter right now, by place. Imports nothing."""
    found = [f"gc.callbacks: {c}" for c in gc.callbacks if PROBES in code_file(c)]
    found += [f"sys.meta_path: {f}" for f in sys.meta_path if type(f).__module__.startswith("torchvet")]
    found += [f"{name} is replaced" for name, hook in _interpreter() if PROBES in code_file(hook)]
    torch = sys.modules.get("torch")
    if torch is not None and hasattr(torch, "optim"):
        found += [f"{place} is tapped" for place, hook in _slots(torch) if PROBES in code_file(hook)]
        found += [f"dispatch mode: {mode}" for mode in _dispatch_modes()]
    return found


def _interpreter() -> list[tuple[str, Any]]:
    return [("sys.excepthook", sys.excepthook), ("os._exit", os._exit), ("sys.unraisablehook", sys.unraisablehook)]


def _dispatch_modes() -> list[Any]:
    from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

    return list(_get_current_dispatch_mode_stack())


@pytest.fixture
def leftovers() -> Callable[[], list[str]]:
    """The function that the check below goes by, for the test that it can fail."""
    return _leftovers


@pytest.fixture(autouse=True)
def _nothing_stays_installed() -> Iterator[None]:
    graphs = sys.modules.get("torchvet.probes.base.graphs")
    if graphs is not None:
        # A look that met a very deep graph ends all looks of its run: the next test is another run.
        graphs.forget_types()
    yield
    assert _leftovers() == []

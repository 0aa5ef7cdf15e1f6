"""Which places are not a trial's to be undone: devices, bytecode, new files in caches and of downloads."""

from __future__ import annotations

import os
import re
import sys
from types import FrameType

_SYSTEM = ("/dev/", "/proc/", "/sys/")
_BYTECODE = f"{os.sep}__pycache__{os.sep}"
_VARIABLES = (
    "XDG_CACHE_HOME", "TORCH_HOME", "TORCH_EXTENSIONS_DIR", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "HF_HOME",
    "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_DATASETS_CACHE", "TRANSFORMERS_CACHE", "CUDA_CACHE_PATH",
    "NUMBA_CACHE_DIR", "MPLCONFIGDIR", "NLTK_DATA", "KERAS_HOME", "SCIKIT_LEARN_DATA", "WANDB_CACHE_DIR",
)  # fmt: skip
_HOMES = (".cache", ".triton", ".nv", ".keras", "nltk_data", "scikit_learn_data", os.path.join("Library", "Caches"))
_FETCHING = re.compile(r"(?:^|_)(?:download|fetch|urlretrieve|prepare_data)", re.IGNORECASE)


def is_nobodys(path: str) -> bool:
    """Whether a path is the system's, or bytecode, which its source is the original of."""
    return path.startswith(_SYSTEM) or _BYTECODE in path or path.endswith(_BYTECODE[:-1])


class Caches:
    """Where new files stay: what is in a cache is there to be found by the next run.

    A folder that the program works or lies in (`at_work`) is none, whatever variables say.
    """

    def __init__(self, at_work: tuple[str, ...]) -> None:
        self.at_work = [os.path.realpath(folder) for folder in at_work]
        self._named: list[str | None] | None = None
        self._found: list[str] = []
        self._compiled = ""

    def hold(self, path: str) -> bool:
        """Whether a path lies in a cache. The environment is asked each time: programs change it."""
        named = [os.environ.get(name) for name in ("TMPDIR", *_VARIABLES)]
        if named != self._named:
            self._named, self._found = named, self._roots([name for name in named[1:] if name])
            self._compiled = os.path.join(os.path.realpath(named[0] or "/tmp"), "torchinductor_")
        return path.startswith(self._compiled) or any(_within(path, root) for root in self._found)

    def _roots(self, named: list[str]) -> list[str]:
        home = os.path.expanduser("~")
        roots = map(os.path.realpath, [*named, *(os.path.join(home, name) for name in _HOMES)])
        return [root for root in roots if not any(_within(folder, root) for folder in self.at_work)]


def _within(path: str, root: str) -> bool:
    return path == root or path.startswith(root.rstrip(os.sep) + os.sep)


def is_fetching() -> bool:
    """Whether the calling thread is within a function that brings data from elsewhere, by the functions' names.

    Loaders fetch batches, which is no download.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if _FETCHING.search(frame.f_code.co_name):
            module = frame.f_globals.get("__name__")
            if not (isinstance(module, str) and module.startswith("torch.utils.data.")):
                return True
        frame = frame.f_back
    return False

"""Names of attributes that libraries have: a program's own attribute of such a name cannot be told from theirs."""

from __future__ import annotations

import argparse
import collections
import functools
import inspect
import logging
import pathlib
import queue
import random
import threading
from concurrent import futures


@functools.cache
def library_names() -> frozenset[str]:
    """The attributes of the classes and modules that the cases' programs meet."""
    import torch
    from torch import nn
    from torch.optim import lr_scheduler
    from torch.utils import data

    modules = (
        torch,
        torch.cuda,
        nn,
        nn.functional,
        nn.utils,
        torch.optim,
        lr_scheduler,
        data,
        torch.autograd,
        torch.amp,
    )
    classes = {c for module in modules for _, c in inspect.getmembers(module, inspect.isclass)}
    builtin = {object, str, bytes, int, float, complex, list, dict, tuple, set, slice, type, BaseException}
    standard = {
        *(argparse.ArgumentParser, argparse.Namespace, collections.deque, collections.Counter, collections.OrderedDict),
        *(logging.Logger, pathlib.Path, queue.Queue, random.Random, threading.Thread, threading.Event),
        *(futures.Executor, futures.Future),
    }
    return frozenset(name for owner in {*modules, *classes, *builtin, *standard} for name in dir(owner)) | {"grad"}

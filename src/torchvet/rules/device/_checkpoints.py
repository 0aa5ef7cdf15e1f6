"""What a file shows of the checkpoints that it writes, and of the ranks that read them."""

from __future__ import annotations

import ast
import re

from torchvet.rules.kit import SourceFile
from torchvet.source.model import Event, argument, keyword, receiver, target_names, walk

_ON_HOST = re.compile(r"\.cpu\(\)|[\"']cpu[\"']|_cpu\b")


def saved_from_host(file: SourceFile) -> bool:
    """Whether all that a file saves is brought to the CPU first: then its checkpoints load everywhere."""
    saves = [event for event in file.calls("save") if file.dotted(event.call.func) == "torch.save"]
    return bool(saves) and all(_is_brought_to_host(file, save) for save in saves)


def _is_brought_to_host(file: SourceFile, save: Event) -> bool:
    """Whether what is saved says so, or what it is bound to, or a call on it before: `model.cpu()`."""
    if save.unit.is_module or not save.call.args:
        return False
    saved = save.call.args[0]
    names = {n.id for n in walk(saved) if isinstance(n, ast.Name)}
    told: list[ast.AST] = [saved]
    for event in save.unit.events[: save.index]:
        value = getattr(event.node, "value", None)
        if isinstance(event.node, ast.Assign) and target_names(event.node) & names and value is not None:
            told.append(value)
        elif isinstance(event.node, ast.Call) and isinstance(event.parent, ast.Expr):
            on = receiver(event.node)
            told += [event.node] if isinstance(on, ast.Name) and on.id in names else []
    return any(_ON_HOST.search(file.segment(one)) and "map_location" not in file.segment(one) for one in told)


def shares_a_gpu(file: SourceFile) -> bool:
    """Whether a file starts several ranks that may compute on GPUs."""
    groups = list(file.calls("init_process_group"))
    sizes = [keyword(group.call, "world_size") for group in groups]
    if not groups or all(getattr(size, "value", None) == 1 for size in sizes):
        return False
    backends = {getattr(argument(group.call, "backend", 0), "value", None) for group in groups}
    return backends != {"gloo"} or file.mentions("cuda", "gpu")

"""Probes take torch's private names from one module, and lose one thing each where a name is missing."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from torchvet.probes.base.watcher import Watcher
from torchvet.probes.internals import private
from torchvet.probes.session import bus

PROBES = Path(private.__file__).parents[1]
PYTHONS = {
    "_getframe",
    "_current_frames",
    "_exit",
    "_make",
    "_replace",
    "_run_module_as_main",
    "_registry",
    "_traces",
    "_GeneratorContextManagerBase",
}
"""Private names of Python itself."""
OPERATORS = ("torch.ops.", "_aten.", "aten.")


def chain(node: ast.expr) -> str:
    """A chain of attributes as it is written, `?` for what it begins with where that is no name."""
    if isinstance(node, ast.Attribute):
        return f"{chain(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else "?"


def own(tree: ast.AST) -> set[str]:
    """Attributes that a file's own classes and functions have."""
    found = {n.name for n in ast.walk(tree) if isinstance(n, (ast.FunctionDef, ast.ClassDef))}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and chain(node.value) in ("self", "cls"):
            found.add(node.attr)
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            found.add(node.target.id)
    return found


def is_private(name: str) -> bool:
    """Whether a part of a dotted name is private; operators have names of their own."""
    parts = name.split(".")
    return any(p.startswith("_") and not p.startswith("__") and p != "_aten" for p in parts)


def names_of_torch(tree: ast.AST) -> Iterator[str]:
    """Private names of torch's that a file writes itself."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "torch":
            yield from (f"{node.module}.{a.name}" for a in node.names if is_private(f"{node.module}.{a.name}"))
        if isinstance(node, ast.Attribute):
            name = chain(node)
            if name.startswith("torch.") and is_private(name) and not name.startswith(OPERATORS):
                yield name


def attributes(tree: ast.AST, known: set[str]) -> Iterator[str]:
    """Private attributes of objects that are not the file's own."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr.startswith("_") and not node.attr.startswith("__"):
            name = chain(node)
            if not name.startswith(("torch.", "self.", "cls.", *OPERATORS)) and node.attr not in known:
                yield node.attr


ALL_OWN = set().union(*(own(ast.parse(p.read_text("utf-8"))) for p in PROBES.rglob("*.py")))


@pytest.mark.parametrize("path", sorted(PROBES.rglob("*.py")), ids=lambda p: str(p.relative_to(PROBES)))
def test_private_names_come_from_one_module(path: Path) -> None:
    if path.name == "private.py":
        return
    tree = ast.parse(path.read_text("utf-8"))
    allowed = {*private.WHERE_USED, *private.CUDA_ONLY, "torch._C"}
    assert set(names_of_torch(tree)) - allowed == set()
    named = {*private.ATTRIBUTES, *PYTHONS, *ALL_OWN}
    assert {a for a in attributes(tree, named) if not a.startswith("_torchvet")} == set()


def test_this_torch_lacks_nothing() -> None:
    assert private.missing == {}


def test_what_is_missing_is_told_and_raises_where_it_is_used() -> None:
    before = dict(private.missing)
    found = private._name("torch._C._not_there", "something")
    try:
        assert private.missing["torch._C._not_there"] == "something"
        with pytest.raises(private.LacksName, match=r"torch .* has no torch\._C\._not_there"):
            found()
        with pytest.raises(private.LacksName), found:
            pass
        assert private._name("torch._C._not_there", "something", 7) == 7
        assert private._name("torch._C._functorch.is_functorch_wrapped_tensor", "")(torch.ones(1)) is False
    finally:
        private.missing.clear()
        private.missing.update(before)


def test_every_watcher_loads_and_one_that_does_not_leaves_the_others_alone() -> None:
    failed: list[str] = []
    names = ("numerics.persistent_nonfinite.Poison", "numerics.persistent_nonfinite.NoSuchWatcher")
    names += ("not_there.Watcher", "training.eval_mode_training.StuckModes")
    assert [cls.__name__ for cls in bus.load(names, lambda what, error: failed.append(what))] == [
        "Poison", "StuckModes",
    ]  # fmt: skip
    assert len(failed) == 2
    failed.clear()
    loaded = list(bus.load(bus.PROBES, lambda what, error: failed.append(what)))
    assert failed == []
    assert all(issubclass(cls, Watcher) for cls in loaded)
    assert len(set(loaded)) == len(bus.PROBES)


def test_the_substitutes_do_what_they_stand_for() -> None:
    module = importlib.import_module("torchvet.probes.internals.private")
    assert [n.item() for n in module._norms([torch.ones(4)])] == [2.0]
    assert module._NoTracing.try_get() is None
    with pytest.raises(private.LacksName):
        module._NoMode().__enter__()

"""The before-training checklist of one script: what stands in its source, and in the files beside it that it imports.

Only what the source shows is said. What is not seen may be in an installed package, so that it is a note at most.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from torchvet.checking.decoding import decode
from torchvet.doctor.check import Check
from torchvet.doctor.machine import Machine

MOST_FILES = 200
"""Files of the project that are followed from the script."""


class Item(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the checklist. `seen` is a place (`train.py:12`), empty where nothing of the kind was seen."""

    name: str
    seen: str
    why: str = ""


class Asked(msgspec.Struct, frozen=True):
    """An item: the calls that fulfil it, those of which one makes it matter (none: any training), and why it does."""

    name: str
    calls: frozenset[str]
    matters_with: frozenset[str]
    why: str


def _asked(name: str, calls: str, matters_with: str, why: str) -> Asked:
    return Asked(name, frozenset(calls.split()), frozenset(matters_with.split()), why)


ITEMS = (
    _asked(
        "seed",
        "manual_seed manual_seed_all seed_everything set_seed set_random_seed",
        "backward fit train",
        "two runs cannot be compared, and a fix cannot be proven, if they start from different numbers",
    ),
    _asked("zero_grad", "zero_grad", "backward", "gradients of all batches add up"),
    _asked("eval()", "eval", "train", "dropout and batch statistics stay active in evaluation"),
    _asked(
        "no_grad",
        "no_grad inference_mode",
        "eval",
        "evaluation keeps each batch's activations until the result is freed",
    ),
    _asked(
        "checkpoint",
        "save save_checkpoint save_pretrained save_state save_model",
        "backward",
        "a run that is killed starts again from nothing",
    ),
)
TRAINING = frozenset(("backward", "fit", "train", "training_step"))


def project_files(script: Path) -> list[Path]:
    """The script, then the files beside and below it that it imports, each once; at most `MOST_FILES`."""
    folder, found, waiting = script.resolve().parent, dict[Path, None](), [script.resolve()]
    while waiting and len(found) < MOST_FILES:
        file = waiting.pop(0)
        if file in found:
            continue
        found[file] = None
        tree = _tree(file)
        waiting += [] if tree is None else _imported(tree, file, folder)
    return list(found)


def _tree(file: Path) -> ast.Module | None:
    try:
        return ast.parse(decode(file.read_bytes()).text)
    except (OSError, SyntaxError, ValueError, LookupError, RecursionError, MemoryError):
        return None  # `check` says why


def _imported(tree: ast.Module, file: Path, folder: Path) -> Iterator[Path]:
    for node in ast.walk(tree):
        names: list[tuple[Path, str]] = []
        if isinstance(node, ast.Import):
            names = [(folder, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = folder if node.level == 0 else file.parents[min(node.level, len(file.parents)) - 1]
            module = node.module or ""
            names = [(base, module)] if module else []
            names += [(base, f"{module}.{alias.name}".lstrip(".")) for alias in node.names]
        for base, name in names:
            parts = name.split(".")
            place = base.joinpath(*parts)
            packages = (base.joinpath(*parts[:n], "__init__.py") for n in range(1, len(parts) + 1))
            for candidate in (*packages, place.with_name(place.name + ".py")):
                if candidate.is_file() and candidate.is_relative_to(folder):
                    yield candidate


def checklist(files: Sequence[Path], folder: Path) -> list[Item]:
    """What was seen of each item in these files; empty where they train nothing. Places are relative to `folder`."""
    calls = _calls(files, folder)
    if not TRAINING & calls.keys():
        return []
    found = []
    for asked in ITEMS:
        if asked.matters_with & calls.keys():
            seen = next((calls[name] for name in sorted(asked.calls) if name in calls), "")
            found.append(Item(name=asked.name, seen=seen, why="" if seen else asked.why))
    return found


def _calls(files: Sequence[Path], folder: Path) -> dict[str, str]:
    """The last names of what is called or used as a decorator or context, or defined, each with its first place."""
    found: dict[str, str] = {}
    for file in files:
        tree = _tree(file)
        shown = file.relative_to(folder) if file.is_relative_to(folder) else file
        for node in ast.walk(tree) if tree is not None else ():
            for name in _names(node):
                found.setdefault(name, f"{shown}:{getattr(node, 'lineno', 1)}")
    return found


def _names(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Call):
        return [name] if (name := _last(node.func)) else []
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        decorators = [_last(d) for d in node.decorator_list]
        return [*filter(None, decorators), *([node.name] if node.name == "training_step" else [])]
    return []


def _last(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def shadowed(script: Path, imported: Sequence[str]) -> Iterator[Check]:
    """Files beside the script that stand in the way of what `import torch` imports."""
    folder = script.resolve().parent
    for name in sorted({"torch", *imported}):
        file = next((f for f in (folder / f"{name}.py", folder / name / "__init__.py") if f.is_file()), None)
        if file is not None:
            yield Check(
                name="shadowed-module",
                level="error",
                found=f"{file.name if file.parent == folder else f'{name}/__init__.py'} lies beside {script.name}",
                expected=f"no file named {name}.py in the script's folder",
                why=f"`import torch` imports `{name}`; Python looks in the script's folder first and takes this file",
                fix="rename the file",
            )


def worker_guard(script: Path, machine: Machine) -> Iterator[Check]:
    """A loader with workers that the script makes at its top level, where workers import the script anew."""
    tree = _tree(script)
    if tree is None or machine.start_method == "fork":
        return
    for statement in tree.body:
        if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)) or _is_guard(statement):
            continue
        for node in ast.walk(statement):
            if isinstance(node, ast.Call) and _last(node.func) == "DataLoader" and _has_workers(node):
                yield Check(
                    name="worker-start",
                    level="error",
                    found=f"line {node.lineno} makes a DataLoader with workers outside of `if __name__ == '__main__':`",
                    expected="workers are started below that line only",
                    why=f"multiprocessing starts workers by {machine.start_method!r} here: each imports the script, "
                    "which would start workers again",
                    fix="move the program's work into a function and call it below `if __name__ == '__main__':`",
                )
                return


def _is_guard(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.If) and "__name__" in {
        n.id for n in ast.walk(statement.test) if isinstance(n, ast.Name)
    }


def _has_workers(call: ast.Call) -> bool:
    given = [k.value for k in call.keywords if k.arg == "num_workers"]
    return any(isinstance(v, ast.Constant) and isinstance(v.value, int) and v.value > 0 for v in given)

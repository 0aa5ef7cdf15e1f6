"""The house's measures: how long a file and a function may be, and who may import what."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "torchvet"
EXAMPLES = ("bad.py", "good.py", "proof.py")
"""The example programs of rules are programs of users; what measures a claim is a program of its own."""
FILES = sorted(path for path in SOURCE.rglob("*.py") if path.name not in EXAMPLES)
FILE_MOST, FUNCTION_MOST, FOLDER_MOST, UNFORMATTED_MOST = 500, 60, 25, 61
MAY_IMPORT_TORCH = ("probes", "simulate", "transformers")
UPWARD: dict[str, set[str]] = {
    "allocator": set(),
    "errors": set(),
    "charts": {"errors"},
    "finding": set(),
    "formatting": set(),
    "gc_pause": set(),
    "patches": set(),
    "scratch": set(),
    "undo": set(),
    "configuration": {"errors"},
    "readers": {"errors", "gc_pause"},
    "simulate": {"allocator"},
    "source": {"finding"},
    "recording": {"errors", "source"},
    "snapshots": {"allocator", "readers"},
    "analysis": {"allocator", "finding", "formatting", "recording"},
    "probes": {"errors", "gc_pause", "undo", "simulate", "source", "recording"},
    "rules": {
        "allocator",
        "finding",
        "formatting",
        "patches",
        "readers",
        "source",
        "recording",
        "snapshots",
        "analysis",
    },
    "supervisor": {"errors", "formatting", "scratch", "undo", "simulate", "recording", "probes"},
    "checking": {"errors", "finding", "formatting", "gc_pause", "configuration", "source", "rules"},
    "docgen": {"finding", "patches", "rules"},
    "traces": {"errors", "finding", "formatting", "gc_pause", "readers", "rules"},
    "comparing": {"finding", "readers", "recording", "snapshots", "analysis", "traces"},
    "diagnosis": {
        "errors",
        "finding",
        "formatting",
        "readers",
        "source",
        "recording",
        "snapshots",
        "analysis",
        "rules",
        "checking",
    },
    "exporting": {"analysis", "errors", "finding", "formatting", "readers", "recording", "snapshots", "traces"},
    "drawing": {"analysis", "charts", "finding", "formatting", "readers", "recording", "snapshots", "traces"},
    "fixing": {"errors", "finding", "gc_pause", "patches", "source", "checking"},
    "renderers": {"charts", "errors", "finding", "formatting", "patches", "source", "fixing"},
    "whatif": {"finding", "formatting", "recording", "renderers", "analysis"},
    "skill": {"errors", "rules", "docgen"},
    "inspecting": {
        "errors",
        "finding",
        "formatting",
        "gc_pause",
        "readers",
        "recording",
        "snapshots",
        "rules",
        "traces",
        "diagnosis",
    },
    "fleet": {
        "errors",
        "finding",
        "formatting",
        "readers",
        "recording",
        "snapshots",
        "checking",
        "traces",
        "diagnosis",
        "inspecting",
        "scratch",
    },
    "doctor": {"errors", "finding", "formatting", "probes", "checking"},
    "verifying": {"finding", "formatting", "recording", "analysis", "fixing"},
    "api": {
        "formatting",
        "charts",
        "drawing",
        "errors",
        "finding",
        "configuration",
        "recording",
        "renderers",
        "probes",
        "checking",
        "diagnosis",
        "inspecting",
        "simulate",
        "scratch",
    },
    "editors": {
        "errors",
        "finding",
        "formatting",
        "configuration",
        "source",
        "rules",
        "checking",
        "fixing",
    },
    "surfaces": {"errors", "finding", "formatting", "renderers", "api"},
    "lightning": {"finding", "surfaces"},
    "transformers": {"finding", "surfaces"},
    "workflows": {
        "charts",
        "errors",
        "finding",
        "formatting",
        "configuration",
        "recording",
        "renderers",
        "probes",
        "rules",
        "supervisor",
        "checking",
        "comparing",
        "diagnosis",
        "fixing",
        "inspecting",
        "verifying",
        "scratch",
    },
    "agents": {
        "errors",
        "finding",
        "configuration",
        "source",
        "recording",
        "renderers",
        "rules",
        "checking",
        "docgen",
        "comparing",
        "diagnosis",
        "inspecting",
        "workflows",
    },
    "commands": {
        "agents",
        "charts",
        "errors",
        "finding",
        "formatting",
        "recording",
        "analysis",
        "rules",
        "supervisor",
        "whatif",
        "checking",
        "comparing",
        "diagnosis",
        "doctor",
        "editors",
        "drawing",
        "exporting",
        "skill",
        "inspecting",
        "fleet",
        "workflows",
    },
}
"""What each part may import: only parts that stand above it in this table, so that imports run one way."""


def imports(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """The absolute names of imported modules with their lines, those within functions included."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            yield node.module, node.lineno


def part(path: Path) -> str:
    """The part of the house that a file belongs to: the folder or module right below torchvet."""
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def long_functions(text: str) -> list[str]:
    """The functions over the measure, their docstrings not counted."""
    found = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            doc = node.body[0] if ast.get_docstring(node) is not None else None
            lines = (node.end_lineno or 0) - node.lineno + 1
            lines -= (doc.end_lineno or 0) - doc.lineno + 1 if doc is not None else 0
            found += [f"{node.name}: {lines} lines"] if lines > FUNCTION_MOST else []
    return found


def misplaced(path: Path, text: str) -> list[str]:
    """The imports of torch, and of other parts of torchvet, that this file may not have."""
    mine, wrong = part(path), []
    for name, line in imports(ast.parse(text)):
        top, _, rest = name.partition(".")
        other = rest.partition(".")[0]
        if top == "torch" and mine not in MAY_IMPORT_TORCH:
            wrong.append(f"line {line}: torch")
        if top == "torchvet" and other and not other.startswith("_") and mine in UPWARD:
            wrong += [] if other in UPWARD[mine] | {mine} else [f"line {line}: {name}"]
    return wrong


def foreign_private_imports(path: Path, text: str) -> list[str]:
    """The imports of another family's fixes and `_private` modules; what several families need is in rules/shared."""
    family, wrong = path.relative_to(SOURCE / "rules").parts[0], []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("torchvet.rules."):
            parts = (node.module or "").split(".")[2:]
            private = [
                name for name in (*parts[1:], *(a.name for a in node.names)) if name[0] == "_" or name == "fixes"
            ]
            wrong += [f"line {node.lineno}: {node.module}"] if private and parts[0] != family else []
    return wrong


@pytest.mark.parametrize("path", [p for p in FILES if part(p) == "rules"], ids=lambda p: str(p.relative_to(SOURCE)))
def test_a_family_of_rules_keeps_its_private_modules(path: Path) -> None:
    assert foreign_private_imports(path, path.read_text("utf-8")) == []


def test_an_import_of_another_familys_private_module_is_seen() -> None:
    path = SOURCE / "rules" / "memory" / "mem101_graph_retained" / "rule.py"
    assert foreign_private_imports(path, "from torchvet.rules.training._modes import x") == [
        "line 1: torchvet.rules.training._modes"
    ]
    assert foreign_private_imports(path, "from torchvet.rules.device.fixes import order") == [
        "line 1: torchvet.rules.device.fixes"
    ]
    assert foreign_private_imports(path, "from torchvet.rules.memory import _stores") == []


def test_every_part_stands_in_the_table_and_imports_only_what_stands_above_it() -> None:
    parts = {part(path) for path in FILES} - {"__init__", "__main__", "_version"}
    assert parts == set(UPWARD)
    order = list(UPWARD)
    assert [n for n, known in UPWARD.items() if any(order.index(k) >= order.index(n) for k in known)] == []


def test_a_folder_stays_small_enough_to_be_read() -> None:
    number = Counter(path.parent for path in FILES)
    assert [str(folder.relative_to(SOURCE)) for folder, files in number.items() if files > FOLDER_MOST] == []


def test_the_formatter_is_switched_off_for_tables_only() -> None:
    """The number may only fall: a signature or a call that the formatter makes long is too long."""
    assert sum(path.read_text("utf-8").count("# fmt: skip") for path in FILES) <= UNFORMATTED_MOST


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_nothing_is_exempt_from_the_measure_of_complexity(path: Path) -> None:
    """`make check` holds the measure itself: ruff's C901, 10 at most."""
    assert "C901" not in path.read_text("utf-8")


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_a_file_keeps_to_the_measures(path: Path) -> None:
    text = path.read_text("utf-8")
    assert len(text.splitlines()) <= FILE_MOST
    assert long_functions(text) == []
    assert misplaced(path, text) == []
    assert text.strip() == "" or ast.get_docstring(ast.parse(text)), "a module says in its first line what it is for"


@pytest.mark.parametrize("name", ["renderers/text.py", "rules/core/base.py", "commands/run.py"])
def test_torch_outside_the_probes_is_seen(name: str) -> None:
    assert misplaced(SOURCE / name, "def f():\n    from torch import nn") == ["line 2: torch"]
    assert misplaced(SOURCE / "probes" / "heap.py", "import torch") == []


def test_an_import_against_the_direction_is_seen() -> None:
    assert misplaced(SOURCE / "rules" / "core" / "base.py", "from torchvet.probes import heap") == [
        "line 1: torchvet.probes"
    ]
    assert misplaced(SOURCE / "probes" / "heap.py", "import torchvet.rules.core.base") == [
        "line 1: torchvet.rules.core.base"
    ]
    assert misplaced(SOURCE / "rules" / "core" / "base.py", "from torchvet.recording import Recording") == []


def test_a_long_function_is_seen() -> None:
    body = "    x = 1\n" * FUNCTION_MOST
    assert long_functions(f"def f():\n{body}") == [f"f: {FUNCTION_MOST + 1} lines"]
    assert long_functions('def f():\n    """A\n    docstring."""\n' + body[: -len("    x = 1\n")]) == []


DIFFICULT = 15
"""By `difficulty`: the most that a function may have."""


def difficulty(function: ast.AST) -> int:
    """What a reader must keep in mind: branches, loops, handlers, contexts, each further operand of `and` and `or`,
    each comprehension and its conditions. Functions within count in the outer one. ruff's C901 counts no operands."""
    found = 1
    for node in ast.walk(function):
        branches = (ast.If, ast.IfExp, ast.For, ast.AsyncFor, ast.While, ast.ExceptHandler, ast.With, ast.Assert)
        if isinstance(node, branches):
            found += 1
        elif isinstance(node, ast.BoolOp):
            found += len(node.values) - 1
        elif isinstance(node, ast.comprehension):
            found += 1 + len(node.ifs)
        elif isinstance(node, ast.Match):
            found += len(node.cases)
    return found


def test_a_function_can_be_kept_in_mind() -> None:
    trees = (ast.parse(path.read_text("utf-8")) for path in FILES)
    functions = (n for tree in trees for n in ast.walk(tree) if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef)))
    hard = [(count, f.name) for f in functions if (count := difficulty(f)) > DIFFICULT]
    assert hard == []


@pytest.mark.parametrize(
    ("body", "expected"),
    [("pass", 1), ("if a and b or c: pass", 4), ("return [x for x in y if x if z]", 4), ("return a if b else c", 2)],
)
def test_operands_and_comprehensions_count(body: str, expected: int) -> None:
    assert difficulty(ast.parse(f"def f():\n    {body}")) == expected

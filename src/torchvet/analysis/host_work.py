"""What the lines of a step do beside the model, by what ran below them and by the names that they call."""

from __future__ import annotations

import ast
import builtins
import re
from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from torchvet.analysis.flows import feeds
from torchvet.analysis.line_times import Statement, Timing
from torchvet.analysis.text.reporting import dotted, level_of, logger_of, reports, turned_off
from torchvet.recording.records.timing import LineTime

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torchvet.recording.records.base import Place
    from torchvet.recording.records.timing import OperatorsAt

COLLECTING, AUTOMATIC = "collect", "collected"
"""Collections that are called for, and those that come by themselves on any line."""
UNWRITTEN = "unwritten"
"""What is made for a message whose level is turned off."""
FILES = "files"
"""Reading, writing and making the text of files in one call."""
_MODULES = {
    # Names as an import spells them; a whole module where all of it is of one kind.
    "sleep": "time.sleep",
    "collect": "gc.collect",
    "copy": "copy.deepcopy copy.copy",
    "log": "print logging loguru wandb mlflow tqdm tensorboard tensorboardX torch.utils.tensorboard",
    "save": "torch.save torch.serialization.save pickle.dump pickle.dumps pickle._dump json.dump numpy.save "
    "numpy.savez numpy.savez_compressed os.fsync safetensors",
    # `open` counts as reading where its text does not say that it writes.
    "read": "torch.load torch.serialization.load json.load pickle.load pickle.loads open numpy.load",
    "text": "json.dumps json.loads csv re",
    "process": "subprocess os.system os.popen",
    "network": "socket urllib requests http",
    "array": "numpy scipy sklearn pandas cv2 skimage",
    "image": "PIL torchvision torchaudio",
    "plot": "matplotlib seaborn",
    "wait": "threading queue multiprocessing",
}
"""What the functions of a module (or one of them) do."""
_CALLS = {name: kind for kind, names in _MODULES.items() for name in names.split()}
_METHODS = {
    "log": "add_scalar add_scalars add_histogram add_image set_postfix",
    "save": "write writelines flush to_csv savez",
    "plot": "savefig",
    "read": "read readline",
}
_METHOD_KINDS = {name: kind for kind, names in _METHODS.items() for name in names.split()}
# Other rules speak of these; here `x.cpu()` would be told as unknown work a second time.
_OF_TENSORS = frozenset(
    ["item", "tolist", "cpu", "cuda", "numpy", "to", "synchronize", "backward", "step", "zero_grad", "clone", "detach"]
)
"""Methods of tensors and of what trains: they are no work of the host's own, or they wait for a device."""
_EVALUATES = re.compile(r"(^|_)(eval|valid|test)", re.IGNORECASE)
"""Names of functions whose work is an evaluation. A metric is work like any other."""


_OPENED_TO_WRITE = "open to write"
_Key = tuple[str, str, int]
"""A kind, and the line of a statement."""
_OF_FILES = frozenset(["read", "save", "text"])
_WRITING = frozenset("wax+")
"""Letters of a mode with which a file is opened to be written."""


@dataclass
class Work:
    """What a statement of the training loop, or below it, does beside the model."""

    kind: str
    site: Place
    """The statement of the function that trains."""
    parts: list[LineTime]
    statements: list[Statement]
    """Where the time goes, those that take most first."""

    @property
    def seconds(self) -> float:
        """Of all that was watched."""
        return sum(part.seconds for part in self.parts)

    @property
    def named(self) -> Statement | None:
        """The statement that most of it goes to; None where it is spread."""
        first = self.statements[0]
        return first if 2 * first.seconds >= self.seconds else None


class HostWork:
    """Tells the parts of a step apart. `operators` are the lines that ran some in sampled steps."""

    def __init__(self, timing: Timing, operators: Mapping[tuple[str, int], OperatorsAt]) -> None:
        self._timing = timing
        self._operators = operators
        self._names: dict[str, dict[str, str]] = {}
        self._trained: dict[tuple[str, int], bool] = {}
        """By the statement's line: whether backward passes go through what it makes."""

    @cached_property
    def _training(self) -> set[tuple[str, str]]:
        """The functions from which backward passes and optimizers are called."""
        return {
            (place.path, place.function)
            for one in self._timing.times.lines
            if one.phase in ("backward", "optimizer")
            for place in (one.place, *one.callers)
        }

    def site(self, one: LineTime) -> tuple[Place, tuple[Place, ...]]:
        """The innermost line in a function that trains, and the lines below it, innermost first."""
        stack = (one.place, *one.callers)
        # `stack` begins innermost: the first that trains is the statement of the loop that the user can
        # change.
        for depth, place in enumerate(stack):
            if (place.path, place.function) in self._training:
                return place, stack[:depth]
        return stack[-1], stack[:-1]

    def works(self, reported: Sequence[LineTime] = ()) -> list[Work]:
        """What is done beside the model, by kind and by the statement that trains; the longest first. Parts that are
        `reported` as something else are none of it."""
        without = set(map(id, reported))
        found: dict[tuple[str, str, int], list[LineTime]] = defaultdict(list)
        sites: dict[tuple[str, int], Place] = {}
        for one in self._timing.times.lines:
            kind = "" if id(one) in without else self.kind(one)
            if kind:
                # A message that is not written is reported where it is made, from wherever that is called.
                unwritten = self._unwritten(one) if kind == UNWRITTEN else None
                at = self._timing.files.statement(unwritten or self.site(one)[0], {})
                sites.setdefault((at.path, at.line), at.place)
                found[kind, at.path, at.line].append(one)
        works = [
            Work(kind, sites[path, line], parts, self._timing.statements(parts))
            for (kind, path, line), parts in _joined(found).items()
        ]
        return sorted(works, key=lambda work: -work.seconds)

    def kind(self, one: LineTime) -> str:
        """What a line does beside the model; empty for the model's own work and what cannot be told."""
        # First: the collector runs on any line, and none of that line's work is meant.
        if COLLECTING in one.kinds:
            return COLLECTING if "collect" in self._called(one) else AUTOMATIC
        if one.phase in ("backward", "optimizer"):
            return ""
        site, below = self.site(one)
        # The function's name without its class: `Evaluator.step` may do anything.
        named = any(_EVALUATES.search(place.function.rpartition(".")[2]) for place in below)
        # Without gradients and in a function of its own; a forward pass in the loop may be a frozen part of the model.
        quiet = one.phase == "forward" and one.quiet and bool(below)
        # What the loss is made of is the training's own: a rollout, the outputs of a teacher.
        if (named or quiet) and not self._trains_on(site):
            return "evaluation"
        if one.phase in ("data", "forward"):
            return "data" if one.phase == "data" else ""
        return self._reported(one) or self._other(one)

    def _reported(self, one: LineTime) -> str:
        """Of a statement that only reports, all that it makes to say is a part of it."""
        if self._unwritten(one) is not None:
            return UNWRITTEN
        name = one.calls or self._called(one)
        says = not one.kinds or one.kinds[0] in ("log", "text")
        return "log" if says and self._report(one.place) is not None and not self._may_wait(name) else ""

    def _may_wait(self, name: str) -> bool:
        """Whether a call may wait for a device: that is the model's time."""
        return not self._timing.on_cpu and name.rpartition(".")[2] in _OF_TENSORS

    def _unwritten(self, one: LineTime) -> Place | None:
        """The statement around a line that reports at a level that is turned off."""
        site, below = self.site(one)
        if self._may_wait(one.calls or self._called(one)):
            return None
        for place in (*below, site):
            call = self._report(place)
            if call is not None:
                names, tree = self._imported(place.path), self._timing.files.tree(place.path)
                logger = logger_of(call, tree, names, place.path)
                if turned_off(level_of(call), logger, self._timing.times.loggers):
                    return place
        return None

    def _report(self, place: Place) -> ast.Call | None:
        node = self._timing.files.statement(place, {}).node
        return reports(node, self._imported(place.path), known_kind)

    def _trains_on(self, site: Place) -> bool:
        """Whether backward passes go through what the statement makes."""
        key = site.path, site.line
        if key not in self._trained:
            passes = {
                place.line
                for one in self._timing.times.lines
                if one.phase == "backward"
                for place in (one.place, *one.callers)
                if (place.path, place.function) == (site.path, site.function)
            }
            nodes = self._timing.files.function(site.path, site.line)
            self._trained[key] = any(feeds(nodes, site.line, line) for line in passes)
        return self._trained[key]

    def _other(self, one: LineTime) -> str:
        # What the frame was seen calling is certain; the text may have several calls.
        name = one.calls or self._called(one)
        known = "save" if name == _OPENED_TO_WRITE else known_kind(name)
        if one.kinds:
            # `json.load` and `json.dump` make and parse text, and are there for a file.
            return known if one.kinds[0] == "text" and known in _OF_FILES else one.kinds[0]
        if known or name.startswith("torch.") or name.rpartition(".")[2] in _OF_TENSORS:
            return known
        if (one.place.path, one.place.line) in self._operators:
            return ""
        # Whose frames were there is known: without a name it is the user's own Python, or a function written in C.
        return "python" if not name or name in vars(builtins) else "other"

    def _called(self, one: LineTime) -> str:
        """The name of what the instruction calls, as far as imports tell."""
        statement = self._timing.files.statement(one.place, {})
        if statement.node is None:
            return ""
        calls = [node for node in _own_nodes(statement.node) if isinstance(node, ast.Call)]
        exact = [call for call in calls if one.span is not None and _span(call) == one.span]
        # With a span (Python 3.11) it must be that one; without, only a single call leaves no doubt.
        call = exact[0] if exact else calls[0] if one.span is None and len(calls) == 1 else None
        if call is None:
            return ""
        name = dotted(call.func, self._imported(one.place.path))
        return _OPENED_TO_WRITE if name == "open" and _writes(call) else name

    def _imported(self, path: str) -> dict[str, str]:
        if path not in self._names:
            self._names[path] = self._timing.files.imported(path)
        return self._names[path]


def _joined(found: dict[_Key, list[LineTime]]) -> dict[_Key, list[LineTime]]:
    """Reading, writing and making text of files that one statement leads to are one work."""
    joined: dict[_Key, list[LineTime]] = defaultdict(list)
    kinds: dict[tuple[str, int], set[str]] = defaultdict(set)
    for kind, path, line in found:
        kinds[path, line].add(kind)
    for (kind, path, line), parts in found.items():
        here = kinds[path, line] & _OF_FILES
        # Text that is made for one of the others is a part of that.
        whole = FILES if {"read", "save"} <= here else next(iter(here - {"text"}), "text")
        joined[whole if kind in _OF_FILES else kind, path, line] += parts
    return joined


def _writes(call: ast.Call) -> bool:
    """Whether `open` is called to write, as far as its text says."""
    mode = next((k.value for k in call.keywords if k.arg == "mode"), call.args[1] if len(call.args) > 1 else None)
    value = mode.value if isinstance(mode, ast.Constant) else None
    return isinstance(value, str) and not _WRITING.isdisjoint(value)


def known_kind(name: str) -> str:
    """What a function does, by its name or its module's; empty where that says nothing."""
    parts = name.split(".")
    # The longest first: `torch.load` reads, `torch` alone says nothing.
    for length in range(len(parts), 0, -1):
        kind = _CALLS.get(".".join(parts[:length]))
        if kind:
            return kind
    # A method's name counts on something only: a function `flush()` of the program's may do anything.
    return _METHOD_KINDS.get(parts[-1], "") if len(parts) > 1 else ""


def _own_nodes(statement: ast.stmt) -> list[ast.AST]:
    """The nodes of a statement, without those of the statements in its body."""
    found: list[ast.AST] = []
    waiting: list[ast.AST] = [statement]
    while waiting:
        node = waiting.pop()
        found.append(node)
        # Statements of the body have lines, and looks, of their own.
        waiting.extend(child for child in ast.iter_child_nodes(node) if not isinstance(child, ast.stmt))
    return found


def _span(node: ast.expr) -> tuple[int, int, int | None, int | None]:
    return node.lineno, node.col_offset, node.end_lineno, node.end_col_offset

"""A source file, read once: its units, classes and imports, and where its words are."""

from __future__ import annotations

import ast
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import Any

from torchvet.finding import Location
from torchvet.source.lazily import lazy
from torchvet.source.model.devices import Devices
from torchvet.source.model.events import Event
from torchvet.source.model.expressions import is_name
from torchvet.source.model.gradients import Gradients
from torchvet.source.model.imports import Imports
from torchvet.source.model.roles import RoleFinder
from torchvet.source.model.steps import Effect, Step, StepFinder
from torchvet.source.model.units import ClassModel, FunctionNode, Unit, passed, targets_of, terminal
from torchvet.source.model.words import Words
from torchvet.source.statements import DEFINITIONS
from torchvet.source.text import SourceText

_BLOCKS: dict[type[ast.AST], tuple[str, ...]] = {
    **dict.fromkeys((ast.If, ast.For, ast.AsyncFor, ast.While), ("body", "orelse")),
    **dict.fromkeys((ast.With, ast.AsyncWith, ast.ExceptHandler, ast.match_case), ("body",)),
    **dict.fromkeys((ast.Try, getattr(ast, "TryStar", ast.Try)), ("body", "orelse", "finalbody", "handlers")),
    ast.Match: ("cases",),
}
_READ = {*DEFINITIONS, ast.Import, ast.ImportFrom, ast.AnnAssign, *_BLOCKS}


class SourceFile:
    """One file's text and what is asked of it. Raises SyntaxError, ValueError or RecursionError where parsing does.

    Events are made unit by unit, when a rule asks for a word that the unit's lines hold: most is never walked.
    """

    def __init__(self, path: str, text: str) -> None:
        self.path = path
        self.text = text
        self.tree = ast.parse(text)
        self.units: list[Unit] = []
        self.classes: dict[str, ClassModel] = {}
        # Wherever they stand: imports within functions give names as well.
        self._statements: list[ast.Import | ast.ImportFrom] = []
        self._cache: dict[str, list[Event]] = {}
        self._calling: dict[str, list[Unit]] = {}
        self.words = Words(text)
        self._source = SourceText(text)
        self.column = self._source.column_at
        self.line_of = self.words.line_of
        # Before `_read`, which makes the other units its children.
        self.top = Unit(self, self.tree)
        self.units.append(self.top)
        # Definitions and imports are found at once: every question needs them. All else waits until a rule asks.
        self._read(self.tree.body, self.top, None, "")
        self.imports = Imports(self._statements)
        self.dotted = self.imports.dotted
        self.roles = RoleFinder(self)
        self.gradients = Gradients(self)
        self.devices = Devices(self)
        self._finder = StepFinder(self)

    def _read(self, statements: list[ast.stmt], unit: Unit, owner: ClassModel | None, prefix: str) -> None:
        """Find definitions and imports, by statements alone: expressions are walked when a rule asks for them."""
        # A stack and no recursion: this runs for every statement of every file.
        waiting = _readable(statements, fields=owner is not None)
        while waiting:
            node = waiting.pop()
            # By class, as `isinstance` with this many types takes longer.
            blocks = _BLOCKS.get(node.__class__)
            if blocks is not None:
                for name in blocks:
                    waiting += _readable(getattr(node, name), fields=owner is not None)
            elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                self._function(node, unit, owner, prefix)
            elif isinstance(node, ast.ClassDef):
                model = ClassModel(self, node, prefix + node.name, unit)
                self.classes.setdefault(node.name, model)
                self._read(node.body, unit, model, model.qualname + ".")
            elif isinstance(node, (ast.Import, ast.ImportFrom)):
                self._statements.append(node)

    def _function(self, node: FunctionNode, unit: Unit, owner: ClassModel | None, prefix: str) -> None:
        function = Unit(self, node, prefix + node.name, unit, owner)
        self.units.append(function)
        if owner is not None:
            # The last of a name counts, as in Python; of a property that is the setter.
            owner.methods[node.name] = function
        # Without an owner: a function in a method is no method.
        self._read(node.body, function, None, f"{function.qualname}.<locals>.")

    @lazy
    def lines(self) -> list[str]:
        """The text's lines, as the parser counts them, without line ends."""
        return self._source.lines

    def text_of(self, code: Unit | ClassModel) -> str:
        """The lines of a function or class."""
        return "\n".join(self.lines[code.first - 1 : code.last])

    @lazy
    def newline(self) -> str:
        """How the file ends its lines."""
        return "\r\n" if "\r\n" in self.text else "\n"

    @lazy
    def _spans(self) -> tuple[list[int], list[Unit]]:
        """First lines, and from each on the innermost unit."""
        marks: list[tuple[int, Unit]] = [(1, self.top)]
        for unit in self.units[1:]:
            assert unit.parent is not None
            marks.append((unit.first, unit))
            marks.append((unit.last + 1, unit.parent))
        # A later mark on the same line wins: a unit that begins there over one that ends before.
        marks.sort(key=lambda m: (m[0], m[1].first))
        return [m[0] for m in marks], [m[1] for m in marks]

    def unit_at(self, line: int) -> Unit:
        """The innermost unit that holds a line."""
        starts, units = self._spans
        unit = units[bisect_right(starts, line) - 1]
        # Two functions may share a line, and one ends where another goes on.
        while not unit.first <= line <= unit.last and unit.parent is not None:
            unit = unit.parent
        return unit

    def units_at(self, lines: Iterable[int]) -> list[Unit]:
        """The innermost units that hold some lines, in the order of the lines, each once."""
        return list({id(unit): unit for unit in map(self.unit_at, lines)}.values())

    def lines_with(self, word: str) -> list[int]:
        """Lines, in order, that hold an identifier."""
        return self.words.lines_with(word)

    def mentions(self, *words: str) -> bool:
        """Whether the text holds any of the words, also in a comment."""
        held = self.words
        for word in words:  # noqa: SIM110 - asked a hundred times a file, where a generator takes twice as long
            if held[word]:
                return True
        return False

    def units_with(self, word: str) -> list[Unit]:
        """Units on whose own lines an identifier stands."""
        return self.units_at(self.lines_with(word))

    def units_calling(self, name: str) -> list[Unit]:
        """Units on whose own lines something of that name is called."""
        if name not in self._calling:
            self._calling[name] = self.units_at(self.words.lines_calling(name))
        return self._calling[name]

    def calls(self, *names: str) -> Iterator[Event]:
        """Calls of functions or methods whose last identifier is one of `names`, in the order of the file."""
        for name in names:
            if name not in self._cache:
                # Units are walked only where the word stands: that is what keeps `check` quick.
                found = [e for unit in self.units_calling(name) for e in unit.calls.get(name, ())]
                self._cache[name] = sorted(found, key=lambda e: (e.line, e.index))
        if len(names) == 1:
            yield from self._cache[names[0]]
        else:
            yield from sorted((e for name in names for e in self._cache[name]), key=lambda e: (e.line, e.index))

    def functions(self, name: str) -> list[Unit]:
        """Functions and methods of a name."""
        return self._by_name.get(name, [])

    @lazy
    def _by_name(self) -> dict[str, list[Unit]]:
        found: dict[str, list[Unit]] = {}
        for unit in self.units[1:]:
            found.setdefault(unit.name, []).append(unit)
        return found

    @property
    def steps(self) -> list[Step]:
        """The training steps of this file."""
        return self._finder.steps

    def effects(self, unit: Unit) -> list[Effect]:
        """Everything that one run of a unit does to gradients, optimizers and schedulers, in order."""
        return self._finder.sequence(unit)

    def events_on(self, line: int) -> list[Event]:
        """What happens on a line, in the order of evaluation."""
        return [e for e in self.unit_at(line).events if e.line == line]

    def calls_on(self, line: int, name: str) -> list[Event]:
        """Calls on a line of what has this last identifier."""
        return [e for e in self.unit_at(line).calls.get(name, ()) if e.line == line]

    def callee(self, event: Event) -> Unit | None:
        """The function or method of this file that a call runs; None where that is elsewhere or not sure."""
        function = event.call.func
        # Asked first: nearly every call is of something elsewhere.
        if terminal(function) not in self._by_name:
            return self._instance_called(event) if "__call__" in self._by_name else None
        if isinstance(function, ast.Name):
            return self._function_seen_from(event.unit, function.id)
        return self._method_called(event.unit, function) if isinstance(function, ast.Attribute) else None

    def _method_called(self, unit: Unit, called: ast.Attribute) -> Unit | None:
        on, name = called.value, called.attr
        if isinstance(on, ast.Call) and is_name(on.func, "super"):
            owner = unit.method_class()
            # The bases alone, as `super()` looks.
            bases = owner.lineage[1:] if owner is not None else ()
            return next((base.methods[name] for base in bases if name in base.methods), None)
        # `Trainer.step(self, x)`, called on the class.
        known = self.classes.get(on.id) if isinstance(on, ast.Name) else None
        known = known if known is not None else self.roles.class_of(on, unit)
        return known.method(name) if known is not None else None

    def _instance_called(self, event: Event) -> Unit | None:
        """`__call__` of the class, no module, that what is called is an instance of."""
        function = event.call.func
        if not isinstance(function, (ast.Name, ast.Attribute)) or self.dotted(function).startswith("torch."):
            return None
        known = self.roles.class_of(function, event.unit)
        # Of a module `__call__` is torch's, which runs `forward`.
        return known.method("__call__") if known is not None and known.method("forward") is None else None

    def _function_seen_from(self, unit: Unit | None, name: str) -> Unit | None:
        candidates = [f for f in self.functions(name) if f.owner is None]
        while unit is not None and candidates:
            found = [f for f in candidates if f.parent is unit]
            if found:
                # Defined twice on one level: the later one has replaced the other.
                return found[-1]
            unit = unit.parent
        return None

    def callers(self, unit: Unit) -> list[Event]:
        """Calls in this file that run a function. For a class's `__init__` those that make an instance."""
        if unit.is_module:
            return []
        if unit.name == "__init__" and unit.owner is not None:
            return list(self.calls(unit.owner.name))
        if unit.name == "__call__" and unit.owner is not None:
            # An instance is called by the names that instances are bound to.
            made = (t for e in self.calls(unit.owner.name) for t in targets_of(e.statement))
            names = {terminal(t) for t in made} - {""}
            return [event for event in self.calls(*names) if self.callee(event) is unit]
        return [event for event in self.calls(unit.name) if self.callee(event) is unit]

    def arguments(self, unit: Unit, name: str) -> Iterator[tuple[ast.expr, Unit]]:
        """What callers in this file pass for a parameter, each with the caller's unit."""
        for event in self.callers(unit):
            for given in self.passed(event, unit, name):
                yield given, event.unit

    @staticmethod
    def passed(event: Event, unit: Unit, name: str) -> list[ast.expr]:
        """What a call that runs a function gives for a parameter: one expression, or none."""
        given = passed(unit, name, event.call)
        return [given] if given is not None else []

    def place(self, node: Any, event: Event) -> Location:
        """A node of an event's unit as a location; the event's statement where the node has no position."""
        if not hasattr(node, "lineno"):
            node = event.statement
        column = self.column(node.lineno, node.col_offset)
        function = event.unit.qualname or None
        return Location(path=self.path, line=node.lineno, column=column, end_line=node.end_lineno, function=function)

    def segment(self, node: ast.AST) -> str:
        """The text of a node on one line, as the user wrote it; what cannot be joined as written, without comments."""
        if not hasattr(node, "lineno"):
            return ast.unparse(node)
        rows = self._source.rows(node)  # type: ignore[arg-type]
        # Joined to one line a comment would swallow what follows it.
        if len(rows) > 1 and any("#" in row or row.endswith("\\") or '"""' in row or "'''" in row for row in rows):
            return " ".join(ast.unparse(node).split("\n"))
        return " ".join(row.strip() for row in rows)


def _readable(block: list[Any], fields: bool) -> list[ast.AST]:
    """The statements of a block that are read on their own, last first. Annotated assignments become plain ones: what
    is bound is the same, and no rule has to know both. Those that may be a class's `fields` stay as they are."""
    found: list[Any] = [s for s in reversed(block) if s.__class__ in _READ]
    for node in found:
        if isinstance(node, ast.AnnAssign) and node.value is not None and not fields:
            plain = ast.Assign(targets=[node.target], value=node.value)
            block[block.index(node)] = ast.copy_location(plain, node)
    return found

"""All the user's files together: read on demand, each once, and looked up by name."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping

from torchvet.source import syntax
from torchvet.source.program import reading
from torchvet.source.program.flows import Flow
from torchvet.source.program.module import CallSite, Module
from torchvet.source.program.scopes import Member, Scope, Subject, Variable
from torchvet.source.text import name_set

_DEEPEST_CALL = 4
CONSTRUCTORS = frozenset(("__init__", "__new__", "__post_init__"))
# A file may write into it without the word.
_OTHER_SPELLINGS = {"__dict__": ("setattr", "vars(")}
CALLED_BY_FRAMEWORK = name_set("""
    forward backward __call__ __getitem__ __iter__ __next__ run training_step validation_step test_step compute_loss
    on_log on_step_end __enter__ __exit__
""")


class Project:
    """Files by path. What does not parse is skipped."""

    def __init__(self, sources: Mapping[str, str]) -> None:
        self._sources = dict(sources)
        self._modules: dict[str, Module | None] = {}
        self._paths: dict[str, dict[str, None]] = {}
        # By name: functions that share one are taken together, as calls are found by name.
        self._hot: dict[str, bool] = {}
        self._classes: dict[str, Scope | None] = {}
        self._made: dict[str, set[str]] = {}

    def module(self, path: str) -> Module | None:
        """A file, read the first time that it is asked for."""
        if path not in self._modules:
            text = self._sources.get(path)
            self._modules[path] = reading.read(path, text, self) if text is not None else None
        return self._modules[path]

    def containing(self, word: str, first: Iterable[str] = ()) -> Iterator[Module]:
        """Files whose text has a word in it, those of `first` first. Others are not even parsed."""
        paths = self._paths.get(word)
        if paths is None:
            words = (word, *_OTHER_SPELLINGS.get(word, ()))
            paths = {p: None for p, text in self._sources.items() if any(w in text for w in words)}
            self._paths[word] = paths
        # The file at hand first: it is parsed already and the likeliest.
        for path in dict.fromkeys([*(p for p in first if p in paths), *paths]):
            found = self.module(path)
            if found is not None:
                yield found

    def calls(self, name: str, first: Iterable[str] = ()) -> Iterator[CallSite]:
        """The calls of anything of a name."""
        for module in self.containing(name, first):
            yield from module.calls.get(name, ())

    def is_passed(self, name: str) -> bool:
        """Whether anything of a name is handed to a call, which may call it."""
        return any(name in module.passed for module in self.containing(name))

    # Classes ---------------------------------------------------------------------------------------------------------

    def class_named(self, name: str) -> Scope | None:
        """A class of this program."""
        if name not in self._classes:
            # The first file's; two classes of one name are not told apart.
            found = (m.classes[name] for m in self.containing(name) if name in m.classes)
            self._classes[name] = next(found, None)
        return self._classes[name]

    def classes_of(self, name: str) -> set[str]:
        """Classes of this program that a variable or attribute of that name may be an instance of."""
        if name and name not in self._made:
            made = {c for one in self.containing(name) for c in one.made_by.get(name, ())}
            self._made[name] = {c for c in made if self.class_named(c) is not None}
        return self._made.get(name, set())

    def classes_meant(self, name: str) -> set[str]:
        """The class of that name, or else the classes that something of that name may be an instance of."""
        return {name} if self.class_named(name) is not None else self.classes_of(name)

    def lineage(self, name: str) -> set[str]:
        """A class with its bases, as far as they are in this program's files."""
        found: set[str] = set()
        waiting = [name]
        while waiting:
            one = waiting.pop()
            if one and one not in found:
                found.add(one)
                known = self.class_named(one)
                waiting.extend(known.bases if known else [])
        return found

    def related(self, left: Iterable[str], right: Iterable[str]) -> bool:
        """Whether an object could be of a class of either side."""
        return any(a in self.lineage(b) or b in self.lineage(a) for a in left for b in right)

    # Parameters and arguments ----------------------------------------------------------------------------------------

    def parameters(self, flow: Flow) -> Iterator[Subject]:
        """Where an argument arrives: parameters of all functions that may be meant, the field of a dataclass."""
        name = syntax.ident(flow.callee)
        for function, is_bound in self._callables(flow, name):
            # A bound method's first parameter is `self`.
            index = flow.position + is_bound if flow.position is not None else -1
            if flow.keyword is not None:
                index = function.params.index(flow.keyword) if flow.keyword in function.params else -1
            if 0 <= index < len(function.params):
                yield Variable(function, function.params[index])
        yield from self._fields(flow, name)

    def _callables(self, flow: Flow, name: str) -> Iterator[tuple[Scope, bool]]:
        """Functions that a call may run, each with whether its first parameter is already bound."""
        home = flow.scope.owner_class()
        if not name:
            return
        if name == "__init__" and home is not None:  # `super().__init__(losses)`
            yield from self._methods(self.lineage(home.name), {"__init__"}, flow.scope)
        elif self.class_named(name) is not None:
            # Bases as well: the class itself may have no `__init__`.
            yield from self._methods({name, *self.lineage(name)}, {"__init__", "__new__"}, None)
        else:
            found = [f for m in self.containing(name, [flow.file.path]) for f in m.functions(name)]
            # Where no function has the name, it may be that of an instance that is called.
            yield from self._functions(found, flow)
            if not found:
                yield from self._methods(self.classes_of(name), {"forward", "__call__"}, None)

    @staticmethod
    def _functions(found: list[Scope], flow: Flow) -> Iterator[tuple[Scope, bool]]:
        """Of functions that have the right name those that a call may run: the file's own go before others'."""
        on_object = isinstance(flow.callee, ast.Attribute)
        # A plain name means the file's own function, where it has one.
        if not on_object and any(f.file is flow.file and f.method_class() is None for f in found):
            found = [f for f in found if f.file is flow.file]
        for function in found:
            is_method = function.method_class() is not None
            # `module.function(x)` looks like a method's call.
            if is_method == on_object or (on_object and function.parent is function.file.top):
                yield function, is_method and not _is_static(function)

    def _methods(self, classes: set[str], names: set[str], but: Scope | None) -> Iterator[tuple[Scope, bool]]:
        for known in filter(None, map(self.class_named, sorted(classes))):
            for function in known.file.scopes:
                if function.parent is known and function.name in names and function is not but:
                    yield function, True

    def _fields(self, flow: Flow, name: str) -> Iterator[Subject]:
        # Only what may be a class: each other name would be looked for in every file.
        known = self.class_named(name) if name[:1].isupper() or name.startswith("_") else None
        if known is None or not isinstance(known.node, ast.ClassDef):
            return
        body = known.node.body
        # A dataclass has no `__init__` in its text: what it is made of becomes its fields, in their order.
        if any(isinstance(s, ast.FunctionDef) and s.name == "__init__" for s in body):
            return
        fields = [s.target.id for s in body if isinstance(s, ast.AnnAssign) and isinstance(s.target, ast.Name)]
        position = fields.index(flow.keyword) if flow.keyword in fields else flow.position
        if position is not None and position < len(fields):
            yield Member(fields[position], frozenset({known.name}))

    def arguments(self, function: Scope, name: str) -> Iterator[tuple[CallSite, ast.expr]]:
        """What callers pass for a parameter."""
        if name not in function.params:
            return
        owner = function.method_class()
        # A constructor is called by its class's name.
        called = owner.name if owner is not None and function.name == "__init__" else function.name
        index = function.params.index(name) - (owner is not None and not _is_static(function))
        for site in self.calls(called):
            given = syntax.argument(site.node, name, index)
            if given is not None:
                yield site, given

    # How often -------------------------------------------------------------------------------------------------------

    def is_hot(self, function: Scope | None, depth: int = 0) -> bool:
        """Whether a function runs again and again: called in a loop, by one that is, or by a framework."""
        name = function.name if function is not None else ""
        if not name or name in CALLED_BY_FRAMEWORK:
            return bool(name)
        if name not in self._hot:
            # Two functions that call each other, and that nobody else calls, run never.
            self._hot[name] = False  # recursion ends here
            self._hot[name] = self.is_passed(name) or any(self._repeats(s, depth) for s in self.calls(name))
        return self._hot[name]

    def _repeats(self, site: CallSite, depth: int) -> bool:
        # A lambda is handed on: how often it is called is not seen.
        if site.loop is not None or site.scope.kind == "lambda":
            return True
        return depth < _DEEPEST_CALL and self.is_hot(site.scope.function(), depth + 1)

    def runs_once(self, function: Scope, depth: int = 0) -> bool:
        """Whether the program calls a function from one place only, and runs that place once."""
        sites = list(self.calls(function.name))
        # What is handed to a call may be called by it any number of times.
        if self.is_passed(function.name) or len(sites) != 1:
            return False
        if sites[0].loop is not None or sites[0].scope.kind == "lambda":
            return False
        caller = sites[0].scope.function()
        return caller is None or (depth < _DEEPEST_CALL and self.runs_once(caller, depth + 1))

    def only_from_constructors(self, function: Scope, depth: int = 0) -> bool:
        """Whether every call of a method comes from a constructor; a framework may call one without calls."""
        callers = [site.scope.function() for site in self.calls(function.name)]
        if self.is_passed(function.name) or not callers:
            return False
        for caller in callers:
            if caller is None:
                return False
            if caller.name in CONSTRUCTORS:
                continue
            if depth >= _DEEPEST_CALL or caller is function or not self.only_from_constructors(caller, depth + 1):
                return False
        return True

    def constructs(self, function: Scope) -> bool:
        """Whether a function is a constructor, or runs as a part of one only."""
        return function.name in CONSTRUCTORS or self.only_from_constructors(function)

    def is_called(self, function: Scope) -> bool:
        """Whether anything in the program calls a function of that name."""
        return any(True for _ in self.calls(function.name))


def _is_static(function: Scope) -> bool:
    return any(syntax.ident(d) == "staticmethod" for d in function.decorators)

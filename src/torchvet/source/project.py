"""All the user's files together: read on demand, each once, and looked up by name."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from torchvet.source import reading, syntax
from torchvet.source.flows import Flow
from torchvet.source.module import CallSite, ClassInfo, Module
from torchvet.source.scopes import Scope

_DEEPEST_CALL = 4
_INIT = {"__init__", "__new__", "__post_init__"}
_OTHER_SPELLINGS = {"__dict__": ("setattr", "vars(")}
CALLED_BY_FRAMEWORK = {
    "forward", "backward", "__call__", "__getitem__", "__iter__", "__next__", "run", "training_step",
    "validation_step", "test_step", "compute_loss", "on_log", "on_step_end", "__enter__", "__exit__",
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class Parameter:
    """A parameter that an argument binds, or the dataclass field of that name."""

    module: Module
    scope: Scope
    name: str
    is_field: bool = False


class Project:
    """Files by path. What does not parse is left out."""

    def __init__(self, sources: Mapping[str, str]) -> None:
        self._sources = dict(sources)
        self._modules: dict[str, Module | None] = {}
        self._paths: dict[str, dict[str, None]] = {}
        self._hot: dict[str, bool] = {}
        self._classes: dict[str, tuple[Module, ClassInfo] | None] = {}
        self._made: dict[str, set[str]] = {}

    def module(self, path: str) -> Module | None:
        """A file, read the first time that it is asked for."""
        if path not in self._modules:
            text = self._sources.get(path)
            self._modules[path] = reading.read(path, text) if text is not None else None
        return self._modules[path]

    def containing(self, word: str, first: Iterable[str] = ()) -> Iterator[Module]:
        """Files whose text has a word in it, those of `first` first. Others are not even parsed."""
        paths = self._paths.get(word)
        if paths is None:
            words = (word, *_OTHER_SPELLINGS.get(word, ()))
            paths = {p: None for p, text in self._sources.items() if any(w in text for w in words)}
            self._paths[word] = paths
        for path in dict.fromkeys([*(p for p in first if p in paths), *paths]):
            found = self.module(path)
            if found is not None:
                yield found

    def classes_of(self, name: str) -> set[str]:
        """Classes of this program that a variable or attribute of that name may be an instance of."""
        if name and name not in self._made:
            made = {c for one in self.containing(name) for c in one.made_by.get(name, ())}
            self._made[name] = {c for c in made if self.class_named(c) is not None}
        return self._made.get(name, set())

    def class_named(self, name: str) -> tuple[Module, ClassInfo] | None:
        """A class of this program."""
        if name not in self._classes:
            found = ((m, m.classes[name]) for m in self.containing(name) if name in m.classes)
            self._classes[name] = next(found, None)
        return self._classes[name]

    def lineage(self, name: str) -> set[str]:
        """A class with its bases, as far as they are in this program's files."""
        found: set[str] = set()
        waiting = [name]
        while waiting:
            one = waiting.pop()
            if one in found or not one:
                continue
            found.add(one)
            known = self.class_named(one)
            waiting.extend(known[1].bases if known else [])
        return found

    def related(self, left: set[str], right: set[str]) -> bool:
        """Whether an object could be of a class of either side."""
        return any(a in self.lineage(b) or b in self.lineage(a) for a in left for b in right)

    def parameters(self, flow: Flow, here: Module) -> Iterator[Parameter]:
        """Where an argument arrives: the parameters of every function that may be meant."""
        if flow.callee is None:
            return
        name = syntax.ident(flow.callee)
        for where, function, bound in self._callables(flow, name, here):
            offset = 1 if bound else 0
            if flow.keyword is not None:
                if flow.keyword in function.params:
                    yield Parameter(where, function, flow.keyword)
            elif flow.position is not None and flow.position + offset < len(function.params):
                yield Parameter(where, function, function.params[flow.position + offset])
        yield from self._fields(flow, name)

    def _callables(self, flow: Flow, name: str, here: Module) -> Iterator[tuple[Module, Scope, bool]]:
        """Functions that a call may run, each with whether its first parameter is already bound."""
        if not name:
            return
        home = flow.scope.owner_class()
        if name == "__init__" and home is not None:
            yield from self._methods(self.lineage(home.name), {"__init__"}, flow.scope)
            return
        if self.class_named(name) is not None:
            yield from self._methods({name, *self.lineage(name)}, {"__init__", "__new__"}, None)
            return
        on_object = isinstance(flow.callee, ast.Attribute)
        found = [(m, f) for m in self.containing(name, [here.path]) for f in m.functions(name)]
        if not on_object and any(m is here and not _is_method(f) for m, f in found):
            found = [(m, f) for m, f in found if m is here]
        for where, function in found:
            if _is_method(function) == on_object or (on_object and function.parent is where.top):
                yield where, function, _is_method(function) and not _is_static(function)
        if not found:
            yield from self._methods(self.classes_of(name), {"forward", "__call__"}, None)

    def _methods(self, classes: set[str], names: set[str], but: Scope | None) -> Iterator[tuple[Module, Scope, bool]]:
        for name in sorted(classes):
            known = self.class_named(name)
            if known is None:
                continue
            for function in known[0].scopes:
                if function.parent is known[1].scope and function.name in names and function is not but:
                    yield known[0], function, True

    def _fields(self, flow: Flow, name: str) -> Iterator[Parameter]:
        known = self.class_named(name) if name[:1].isupper() or name.startswith("_") else None
        if known is None or not isinstance(known[1].scope.node, ast.ClassDef):
            return
        body = known[1].scope.node.body
        if any(isinstance(s, ast.FunctionDef) and s.name == "__init__" for s in body):
            return
        fields = [s.target.id for s in body if isinstance(s, ast.AnnAssign) and isinstance(s.target, ast.Name)]
        position = fields.index(flow.keyword) if flow.keyword in fields else flow.position
        if position is not None and position < len(fields):
            yield Parameter(known[0], known[1].scope, fields[position], is_field=True)

    def arguments(self, function: Scope, name: str) -> Iterator[tuple[Module, CallSite, ast.expr]]:
        """What callers pass for a parameter."""
        called = function.name
        owner = function.parent if _is_method(function) else None
        if called == "__init__" and owner is not None:
            called = owner.name
        if name not in function.params:
            return
        index = function.params.index(name) - (1 if owner is not None and not _is_static(function) else 0)
        for one in self.containing(called):
            for site in one.calls.get(called, ()):
                keyword = next((k.value for k in site.node.keywords if k.arg == name), None)
                if keyword is not None:
                    yield one, site, keyword
                elif 0 <= index < len(site.node.args):
                    yield one, site, site.node.args[index]

    def is_hot(self, function: Scope | None, depth: int = 0) -> bool:
        """Whether a function runs again and again: called in a loop, by one that is, or by a framework."""
        if function is None:
            return False
        name = function.name
        if name in CALLED_BY_FRAMEWORK:
            return True
        if name not in self._hot:
            self._hot[name] = False  # recursion ends here
            self._hot[name] = self._called_again(name, depth)
        return self._hot[name]

    def _called_again(self, name: str, depth: int) -> bool:
        for one in self.containing(name):
            if name in one.passed:
                return True
            for site in one.calls.get(name, ()):
                if site.loop is not None or site.scope.kind == "lambda":
                    return True
                caller = site.scope.function()
                if depth < _DEEPEST_CALL and caller is not None and self.is_hot(caller, depth + 1):
                    return True
        return False

    def runs_once(self, function: Scope, depth: int = 0) -> bool:
        """Whether the program calls a function from one place only, and comes to that place once."""
        name = function.name
        if any(name in one.passed for one in self.containing(name)):
            return False
        sites = [site for one in self.containing(name) for site in one.calls.get(name, ())]
        if len(sites) != 1 or sites[0].loop is not None or sites[0].scope.kind == "lambda":
            return False
        caller = sites[0].scope.function()
        return caller is None or (depth < _DEEPEST_CALL and self.runs_once(caller, depth + 1))

    def only_from_init(self, function: Scope, depth: int = 0) -> bool:
        """Whether every call of a method comes from a constructor; a framework may call one that nobody calls."""
        name = function.name
        if any(name in one.passed for one in self.containing(name)):
            return False
        callers = [site.scope.function() for one in self.containing(name) for site in one.calls.get(name, ())]
        return bool(callers) and all(
            c is not None
            and (c.name in _INIT or (depth < _DEEPEST_CALL and c is not function and self.only_from_init(c, depth + 1)))
            for c in callers
        )

    def is_called(self, function: Scope | None) -> bool:
        """Whether anything in the program calls a function of that name."""
        return function is not None and any(m.calls.get(function.name) for m in self.containing(function.name))


def _is_method(function: Scope) -> bool:
    return function.parent is not None and function.parent.kind == "class"


def _is_static(function: Scope) -> bool:
    node = function.node
    decorators = node.decorator_list if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) else []
    return any(syntax.ident(d) == "staticmethod" for d in decorators)

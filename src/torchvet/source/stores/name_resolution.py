"""What a holder's name may denote in source text, and whether an expression means it."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from torchvet.source import holder, syntax
from torchvet.source.holder import HolderName, scope_name
from torchvet.source.program.module import Module
from torchvet.source.program.project import Project
from torchvet.source.program.scopes import Member, Scope, Subject, Variable, defaults
from torchvet.source.syntax import Base

NO, UNLIKELY, LIKELY, SURE = -1, 0, 1, 2


def fit(project: Project, subject: Subject, base: Base, scope: Scope) -> int:
    """How surely an expression in a scope means the subject: NO, UNLIKELY (same name, other class), LIKELY, SURE."""
    if isinstance(subject, Variable):
        return _fit_variable(subject, base, scope)
    if isinstance(base, ast.Name):
        # A plain name in a class's body is an attribute of the class.
        in_body = scope.kind == "class" and base.id == subject.name and base.id in scope.bound
        return _fit_classes(project, subject, {scope.name}) if in_body else NO
    if base.attr != subject.name:
        return NO
    inner, _ = syntax.peel(base.value)
    owner = syntax.ident(inner)
    if owner in ("self", "cls") and isinstance(inner, ast.Name):
        home = scope.owner_class()
        return _fit_classes(project, subject, {home.name} if home is not None else set())
    # Called by the same name: what classes it may be of matters less.
    if owner and owner == subject.owner:
        return SURE
    return _fit_classes(project, subject, project.classes_meant(owner))


def _fit_variable(subject: Variable, base: Base, scope: Scope) -> int:
    if syntax.ident(base) != subject.name:
        return NO
    if isinstance(base, ast.Name):
        # A variable is never merely likely: scopes are known.
        return SURE if scope.resolve(base.id) is subject.scope else NO
    imported = scope.file.imports.get(syntax.ident(base.value))
    # Only a module's own variables are reached by an import.
    if imported is None or subject.scope.parent is not None:
        return NO
    return SURE if is_module(subject.scope.file.path, imported) else NO


def _fit_classes(project: Project, subject: Member, classes: set[str]) -> int:
    # Without annotations or constructors nobody knows whose attribute it is.
    if not subject.classes or not classes:
        return LIKELY
    return SURE if project.related(subject.classes, classes) else UNLIKELY


def _flat(path: str) -> str:
    """A file's path as an import would spell it, but with slashes."""
    return path.replace("\\", "/").removesuffix(".py").removesuffix("/__init__")


def is_module(path: str, name: str) -> bool:
    """Whether an imported module's name may be the file at a path, judged by the end of both."""
    wanted = [part for part in name.split(".") if part]
    return bool(wanted) and _flat(path).rpartition("/")[2] == wanted[-1]


@dataclass(frozen=True)
class Asked:
    """A holder that is asked about: its name, the scope and file of its root, and the files of the classes along it."""

    name: HolderName
    scope: str
    path: str
    files: tuple[str, ...]

    @classmethod
    def of(cls, name: str, scope: str, path: str, files: Iterable[str]) -> Asked | None:
        """The same from what a recording says; None where the name has no identifier."""
        parsed = holder.parse(name)
        return cls(parsed, scope, path, tuple(files)) if parsed is not None else None

    @property
    def first(self) -> list[str]:
        """The files that are searched first."""
        return [self.path, *self.files]

    @property
    def last(self) -> int:
        """The position of what is stored into among the name's parts."""
        return len(self.name.parts) - 1

    @property
    def has_no_statement(self) -> bool:
        """Whether no statement stores into such a name."""
        return self.name.special in ("cache", "hooks")


def start(project: Project, asked: Asked, index: int) -> list[Subject]:
    """What the part of a name at an index denotes: usually one subject, several where the scope is not known."""
    # From what is sure to what is loose: closures and defaults go by their function, the rest by the root's file.
    name, part, path = asked.name, asked.name.parts[index], asked.path
    # Of a function, or of a method: `Model.forward.<default>`.
    if index == asked.last and name.special == "default":
        return list(_default_parameters(project, part.name, name.owner, asked.first))
    # An attribute is looked for in all files, wherever its root is.
    if not part.free:
        return [_member(project, asked, index)]
    if index > 0 or name.special == "frame":
        return list(_variables_of(project, part.name, name.function, asked.first))
    # None for a root in a file that was not kept, or in a library.
    module = project.module(path)
    if module is None:
        return [v for m in project.containing(part.name, asked.files) for v in _elsewhere(m, asked, part.name)]
    found = (function_named(module, asked.scope) or module.top).resolve(part.name)
    # Else `exec`, or a star import, has put it there.
    if part.name in found.bound or found.globals:
        return [Variable(found, part.name)]
    return list(_everywhere(module, part.name)) or [Variable(found, part.name)]


def _elsewhere(module: Module, asked: Asked, name: str) -> Iterator[Variable]:
    """What the name may be in a module, where the text of its own file is not known: the same function's variable, or
    the module's. A variable of the same name in another function is another variable."""
    if not asked.path:
        return _everywhere(module, name)
    homes = (function_named(module, asked.scope), module.top)
    return (Variable(scope, name) for scope in homes if scope is not None and scope.binds(name))


def _everywhere(module: Module, name: str) -> Iterator[Variable]:
    return (Variable(scope, name) for scope in module.scopes if scope.binds(name))


def function_named(module: Module, scope: str) -> Scope | None:
    """The function that a run-time scope such as `pkg.mod.Trainer.fit` means in a file; None for the module itself."""
    parts = scope_name(scope).split(".")
    # A dotted scope that is the file names no function, even one that is called like the module.
    # Both ends are compared whole, part by part: `util` is not `my_util`.
    if parts == ["__main__"] or f"/{_flat(module.path)}".endswith("/" + "/".join(parts)):
        return None
    for first in range(len(parts)):
        # How many parts are the module's is not known: the longest that fits is the function.
        qualname = ".".join(parts[first:])
        for found in module.scopes:
            if found.kind in ("function", "lambda") and found.qualname == qualname:
                return found
    # Python 3.10 knows no qualified names at run time.
    return next(iter(module.functions(parts[-1])), None)


def _member(project: Project, asked: Asked, index: int) -> Member:
    name, before = asked.name.parts[index].name, asked.name.parts[index - 1]
    if index == asked.last and asked.name.special == "ctx":
        return Member(name, frozenset(), "ctx")
    if before.name in ("self", "cls") and before.free:
        module = project.module(asked.path)
        known = [n for n in scope_name(asked.scope).split(".") if module is not None and n in module.classes]
        return Member(name, frozenset(known[-1:]), "")
    return Member(name, frozenset(project.classes_meant(before.name)), before.name)


def _default_parameters(project: Project, name: str, owner: str, files: Sequence[str]) -> Iterator[Subject]:
    """Parameters of a function whose defaults are objects that last; of a method in the class `owner`, if it is one."""
    for module in project.containing(name, files):
        for scope in module.functions(name):
            home = scope.owner_class()
            if owner in module.classes and (home is None or home.name != owner):
                continue
            if isinstance(scope.node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                lasting = (p for p, value in defaults(scope.node) if not isinstance(value, ast.Constant))
                yield from (Variable(scope, parameter) for parameter in lasting)


def _variables_of(project: Project, name: str, function: str, files: Sequence[str]) -> Iterator[Subject]:
    """A variable that a function uses; failing that, one of any function, as closures go by other names."""
    loose: list[Subject] = []
    for module in project.containing(name, files):
        for scope in module.functions(function) if function else ():
            home = scope.resolve(name)
            # A closure's variable belongs to a function around it.
            if name in home.bound and home.kind != "module":
                yield Variable(home, name)
                return
        loose += [v for v in _everywhere(module, name) if v.scope.kind == "function"]
    yield from loose

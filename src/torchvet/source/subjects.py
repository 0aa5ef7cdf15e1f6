"""What a holder's name may denote in source text, and whether an expression means it."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from torchvet.source import syntax
from torchvet.source.holder import HolderName, Part, scope_name
from torchvet.source.module import Module
from torchvet.source.project import Project
from torchvet.source.scopes import Scope, defaults
from torchvet.source.syntax import Base

NO, UNLIKELY, LIKELY, SURE = -1, 0, 1, 2


@dataclass(frozen=True)
class Variable:
    """A name in one scope of one file."""

    module: Module
    scope: Scope
    name: str


@dataclass(frozen=True)
class Member:
    """An attribute of objects of some `classes` (empty: not known), which the program calls `owner`."""

    name: str
    classes: frozenset[str] = frozenset()
    owner: str = ""


Subject = Variable | Member


def fit(project: Project, subject: Subject, base: Base, scope: Scope, module: Module) -> int:
    """How surely an expression in a scope means the subject: NO, UNLIKELY (same name, other class), LIKELY, SURE."""
    if isinstance(subject, Variable):
        return _fit_variable(subject, base, scope, module)
    if isinstance(base, ast.Name):
        in_body = scope.kind == "class" and base.id == subject.name and base.id in scope.bound
        return _fit_classes(project, subject, {scope.name}) if in_body else NO
    if base.attr != subject.name:
        return NO
    inner, _ = syntax.peel(base.value)
    owner = syntax.ident(inner)
    if owner in ("self", "cls") and isinstance(inner, ast.Name):
        home = scope.owner_class()
        return _fit_classes(project, subject, {home.name} if home is not None else set())
    if owner and owner == subject.owner:
        return SURE
    return _fit_classes(project, subject, {owner} if project.class_named(owner) else project.classes_of(owner))


def _fit_variable(subject: Variable, base: Base, scope: Scope, module: Module) -> int:
    if isinstance(base, ast.Name):
        found = module is subject.module and base.id == subject.name and scope.resolve(base.id) is subject.scope
        return SURE if found else NO
    if subject.scope is not subject.module.top or base.attr != subject.name:
        return NO
    imported = module.imports.get(syntax.ident(base.value))
    if imported is None:
        return NO
    named = f"{imported.module}.{imported.name}" if imported.name else imported.module
    return SURE if is_module(subject.module.path, named) else NO


def _fit_classes(project: Project, subject: Member, classes: set[str]) -> int:
    if not subject.classes or not classes:
        return LIKELY
    return SURE if project.related(set(subject.classes), classes) else UNLIKELY


def is_module(path: str, name: str) -> bool:
    """Whether an imported module's name may be the file at a path, judged by the end of both."""
    parts = path.replace("\\", "/").removesuffix(".py").removesuffix("/__init__").split("/")
    wanted = [part for part in name.split(".") if part]
    return bool(wanted) and parts[-1] == wanted[-1]


def start(project: Project, name: HolderName, index: int, scope: str, path: str, files: Sequence[str]) -> list[Subject]:
    """What the part of a name at an index denotes: one subject as a rule, several where scopes cannot be told apart."""
    part = name.parts[index]
    last = index == len(name.parts) - 1
    if not part.free:
        return [_member(project, name, index, scope, path)]
    if last and name.special == "default":
        return list(_default_parameters(project, part, path, files))
    if index > 0 or name.special == "frame":
        return list(_variables_of(project, part.name, name.function, path, files))
    module = project.module(path)
    if module is None:
        return [v for m in project.containing(part.name, files) for v in _everywhere(m, part.name)]
    home = function_named(module, scope)
    found = (home or module.top).resolve(part.name)
    if part.name in found.bound or found.globals:
        return [Variable(module, found, part.name)]
    return list(_everywhere(module, part.name)) or [Variable(module, found, part.name)]


def _everywhere(module: Module, name: str) -> Iterator[Subject]:
    for scope in module.scopes:
        if name in scope.bound and name not in scope.outer | scope.globals:
            yield Variable(module, scope, name)


def function_named(module: Module, scope: str) -> Scope | None:
    """The function that a run-time scope such as `pkg.mod.Trainer.fit` means in a file; None for the module itself."""
    parts = scope_name(scope).split(".")
    if parts == ["__main__"] or _is_whole_file(module.path, parts):
        return None
    for first in range(len(parts)):
        found = _by_qualname(module, ".".join(parts[first:]))
        if found is not None:
            return found
    # Python 3.10 knows no qualified names at run time.
    return next(iter(module.functions(parts[-1])), None)


def _is_whole_file(path: str, parts: list[str]) -> bool:
    """Whether a dotted scope is the file: then it names no function, even one that is called like the module."""
    flat = path.replace("\\", "/").removesuffix(".py").removesuffix("/__init__")
    return flat == "/".join(parts) or flat.endswith("/" + "/".join(parts))


def _by_qualname(module: Module, qualname: str) -> Scope | None:
    return next((s for s in module.scopes if s.kind in ("function", "lambda") and s.qualname == qualname), None)


def _member(project: Project, name: HolderName, index: int, scope: str, path: str) -> Member:
    part, before = name.parts[index], name.parts[index - 1]
    last = index == len(name.parts) - 1
    if last and name.special == "ctx":
        return Member(part.name, frozenset(), "ctx")
    if before.name in ("self", "cls") and before.free:
        module = project.module(path)
        names = scope_name(scope).split(".")
        known = [n for n in names if module is not None and n in module.classes]
        return Member(part.name, frozenset(known[-1:]), "")
    if project.class_named(before.name) is not None:
        return Member(part.name, frozenset({before.name}), before.name)
    return Member(part.name, frozenset(project.classes_of(before.name)), before.name)


def _default_parameters(project: Project, part: Part, path: str, files: Sequence[str]) -> Iterator[Subject]:
    """Parameters of a function whose defaults are objects that last."""
    for module in project.containing(part.name, [path, *files]):
        for scope in module.functions(part.name):
            node = scope.node
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                for name, value in defaults(node):
                    if not isinstance(value, ast.Constant):
                        yield Variable(module, scope, name)


def _variables_of(project: Project, name: str, function: str, path: str, files: Sequence[str]) -> Iterator[Subject]:
    """A variable that a function uses; failing that, one of any function, as closures go by other names."""
    loose: list[Subject] = []
    for module in project.containing(name, [path, *files]):
        for scope in module.functions(function) if function else ():
            home = scope.resolve(name)
            if name in home.bound and home.kind != "module":
                yield Variable(module, home, name)
                return
        loose += [v for v in _everywhere(module, name) if isinstance(v, Variable) and v.scope.kind == "function"]
    yield from loose

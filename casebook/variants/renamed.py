"""A program in which every name that its author chose is another."""

from __future__ import annotations

import ast
import builtins
import itertools
import keyword
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from casebook.variants.foreign import library_names
from casebook.variants.rewriting import Rewriting
from casebook.variants.scopes import Function, Scopes, all_arguments, scopes
from casebook.variants.text import Module

WORDS = (
    *(
        "item",
        "entry",
        "part",
        "piece",
        "unit",
        "thing",
        "stuff",
        "bundle",
        "packet",
        "token",
        "slot",
        "cell",
        "record",
    ),
    *(
        "element",
        "member",
        "figure",
        "amount",
        "notion",
        "matter",
        "subject",
        "object_",
        "content",
        "section",
        "branch",
    ),
    *("segment", "portion", "feature", "aspect", "element", "detail", "factor", "ground", "basis", "source", "origin"),
    *("target", "result", "outcome", "product", "effect", "answer", "reply", "signal", "marker", "pointer", "handle"),
)
"""Names that say nothing; the further ones are these with a number."""

KEPT = {"self", "cls", "_", "ctx"}
"""Names that are custom rather than choice."""


@dataclass
class Chosen:
    """The names that the author chose and that can be changed without changing what the program does."""

    variables: set[str] = field(default_factory=set)
    """Of variables, parameters, functions and classes."""
    attributes: set[str] = field(default_factory=set)
    """Of methods, fields and whatever else is stored on `self` or in a class."""

    def new_names(self, tree: ast.Module) -> dict[str, str]:
        """What each becomes, the same wherever it stands, in the order of their appearance."""
        taken = library_names() | _identifiers(tree)
        fresh = (name for name in _candidates() if name not in taken)
        wanted = self.variables | self.attributes
        classes = {node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
        seen = dict.fromkeys(name for name in _in_order(tree) if name in wanted)
        pairs = ((old, next(fresh)) for old in seen)
        return {old: _capitals(new) if old in classes else new for old, new in pairs}


_NAMED: dict[type[ast.AST], str] = {
    ast.Name: "id",
    ast.Attribute: "attr",
    ast.arg: "arg",
    ast.FunctionDef: "name",
    ast.AsyncFunctionDef: "name",
    ast.ClassDef: "name",
    ast.ExceptHandler: "name",
}
"""The nodes that bind or use a name, and the field that has it."""


def renamed(module: Module) -> tuple[Module, dict[str, str]]:
    """The module with other names, and what each name has become."""
    found = scopes(module.tree)
    chosen = _chosen(module.tree, found)
    new = chosen.new_names(module.tree)
    rewriting = Rewriting(module)
    in_classes = set(found.bound_in("class"))
    own = {name for name, scope in found.uses if scope.of(name.id)}
    methods = {f for c in ast.walk(module.tree) if isinstance(c, ast.ClassDef) for f in c.body}
    callees = _Callees(module.tree)
    for node in ast.walk(module.tree):
        if isinstance(node, (ast.Global, ast.Nonlocal)):
            rewriting.put_words(node, {n: new[n] for n in node.names if n in chosen.variables})
        elif isinstance(node, ast.Call):
            names = {"parameters": chosen.variables, "fields": chosen.attributes}.get(callees.takes(node), set())
            for keyword in node.keywords:
                if keyword.arg in names:
                    rewriting.put(keyword, new[keyword.arg])
        elif type(node) in _NAMED and not (isinstance(node, ast.Name) and node not in own):
            stored = isinstance(node, ast.Attribute) or node in in_classes or node in methods
            name = getattr(node, _NAMED[type(node)])
            if name in (chosen.attributes if stored else chosen.variables):
                rewriting.put(node, new[name])
    return rewriting.done(), new


def _chosen(tree: ast.Module, found: Scopes) -> Chosen:
    bound = {n for s in found.everything if s.kind != "class" for n in s.names}
    imported = {n for s in found.everything for n in s.imported}
    variables = {n for n in bound - imported - KEPT if not n.startswith("__")}
    foreign = (library_names() - _only_of_self(tree)) | set(_options(tree))
    attributes = {n for n in _own_attributes(tree) if not n.startswith("__")} - foreign
    callees = _Callees(tree)
    unclear = {k.arg for c in _calls(tree) if callees.takes(c) == "unclear" for k in c.keywords if k.arg}
    # The name of a module's attribute is a part of its parameters' names, which programs look for in strings.
    spelled = _spelled(tree)
    spelled |= _told(tree)
    return Chosen(variables - (unclear & _parameters(tree)) - spelled, attributes - unclear - spelled)


_TELLING = {"named_parameters", "named_modules", "named_children", "named_buffers", "state_dict"}


def _told(tree: ast.Module) -> set[str]:
    """Names of what modules hold, where the program asks modules for such names."""
    if not any(isinstance(n, ast.Attribute) and n.attr in _TELLING for n in ast.walk(tree)):
        return set()
    heirs = [n for n in ast.walk(tree) if isinstance(n, ast.ClassDef) and n.bases]
    stores = (n for c in heirs for n in ast.walk(c) if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Store))
    return {n.attr for n in stores}


class _Callees:
    """What a call's keywords name."""

    def __init__(self, tree: ast.Module) -> None:
        self.functions = {n.name for n in ast.walk(tree) if isinstance(n, Function)} - library_names()
        self.classes = {n.name: n for n in ast.walk(tree) if isinstance(n, ast.ClassDef)}
        self.imported = scopes(tree).module.imported

    def takes(self, call: ast.Call) -> str:
        """`parameters` or `fields` of the program's own, `foreign` ones, or `unclear`."""
        function = call.func
        if isinstance(function, ast.Name) and function.id in self.classes:
            return self._of_class(self.classes[function.id])
        name = function.id if isinstance(function, ast.Name) else getattr(function, "attr", "")
        if name in self.functions:
            return "parameters"
        if isinstance(function, ast.Name) and hasattr(builtins, name):
            return "foreign"
        root = function
        while isinstance(root, ast.Attribute):
            root = root.value
        known = isinstance(root, ast.Name) and root.id in self.imported and name not in ("partial", "Thread", "Process")
        return "foreign" if known or name in ("add_argument", "ArgumentParser") else "unclear"

    def _of_class(self, node: ast.ClassDef) -> str:
        methods = {s.name for s in node.body if isinstance(s, Function)}
        if "__init__" in methods:
            return "parameters"
        if any(isinstance(s, ast.AnnAssign) for s in node.body):
            return "fields"
        for base in node.bases:
            if isinstance(base, ast.Name) and base.id in self.classes:
                return self._of_class(self.classes[base.id])
        return "foreign" if node.bases else "unclear"


def _own_attributes(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            yield from (s.name for s in node.body if isinstance(s, (Function, ast.ClassDef)))
            targets = [t for s in node.body if isinstance(s, ast.Assign) for t in s.targets]
            targets += [s.target for s in node.body if isinstance(s, ast.AnnAssign)]
            yield from (t.id for t in targets if isinstance(t, ast.Name))
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and _of_self(node):
            yield node.attr


def _of_self(node: ast.Attribute) -> bool:
    return isinstance(node.value, ast.Name) and node.value.id == "self"


def _only_of_self(tree: ast.Module) -> set[str]:
    """What is only ever read and stored as an attribute of `self`, in classes that inherit nothing."""
    heirs = [n for n in ast.walk(tree) if isinstance(n, ast.ClassDef) and n.bases]
    inherited = {n.attr for c in heirs for n in ast.walk(c) if isinstance(n, ast.Attribute)}
    inherited |= {n.name for c in heirs for n in c.body if isinstance(n, Function)}
    seen = {n.attr: True for n in ast.walk(tree) if isinstance(n, ast.Attribute)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and not _of_self(node):
            seen[node.attr] = False
    return {name for name, alone in seen.items() if alone} - inherited


def _options(tree: ast.Module) -> Iterator[str]:
    for call in _calls(tree):
        if getattr(call.func, "attr", "") == "add_argument":
            texts = [a.value for a in [*call.args, *(k.value for k in call.keywords)] if isinstance(a, ast.Constant)]
            yield from (str(text).lstrip("-").replace("-", "_") for text in texts)


def _spelled(tree: ast.Module) -> set[str]:
    holders = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    documents = [n.body[0].value for n in ast.walk(tree) if isinstance(n, holders) and ast.get_docstring(n) is not None]  # type: ignore[attr-defined]
    printed = {part for n in ast.walk(tree) if isinstance(n, ast.JoinedStr) for part in ast.walk(n)}
    texts = (n for n in ast.walk(tree) if isinstance(n, ast.Constant) and n not in documents and n not in printed)
    return {word for n in texts if isinstance(n.value, str) for word in re.findall(r"\w+", n.value)}


def _parameters(tree: ast.Module) -> set[str]:
    return {a.arg for n in ast.walk(tree) if isinstance(n, Function) for a in all_arguments(n.args)}


def _calls(tree: ast.Module) -> Iterator[ast.Call]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.Call))


def _identifiers(tree: ast.Module) -> set[str]:
    return set(_in_order(tree))


def _in_order(tree: ast.Module) -> list[str]:
    return re.findall(r"\w+", ast.unparse(tree))


def _candidates() -> Iterator[str]:
    for number in itertools.count(1):
        for word in dict.fromkeys(WORDS):
            name = word if number == 1 else f"{word}_{number}"
            if not keyword.iskeyword(name) and not hasattr(builtins, name):
                yield name


def _capitals(name: str) -> str:
    return "".join(part.capitalize() for part in name.split("_"))

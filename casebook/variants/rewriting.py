"""Identifiers of a module put in the place of others, wherever the syntax tree has them."""

from __future__ import annotations

import ast
import copy
import re
from collections.abc import Iterator
from typing import Any

from casebook.variants.text import Edit, Module

Named = ast.Name | ast.Attribute | ast.arg | ast.keyword | ast.stmt | ast.ExceptHandler


class Rewriting:
    """What is to become of which node. Every node is rewritten at most once."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self._new: dict[ast.AST, str] = {}
        self._words: dict[ast.AST, dict[str, str]] = {}

    def put(self, node: Named, new: str) -> None:
        """Let a name, attribute, parameter, keyword, function, class or caught error be called something else."""
        self._new[node] = new

    def put_words(self, node: ast.Global | ast.Nonlocal, new: dict[str, str]) -> None:
        """Let names that are declared be called something else."""
        self._words[node] = new

    def done(self) -> Module:
        """The module with all of it done."""
        return self.module.edited(self.edits())

    def edits(self) -> list[Edit]:
        """All of it as edits. Within formatted strings Python 3.11 gives no places, so these are written anew."""
        strings = list(_outermost_strings(self.module.tree))
        within = {node for string in strings for node in ast.walk(string)}
        edits = [self._edit(node, new) for node, new in self._new.items() if node not in within]
        edits += [e for node, new in self._words.items() for e in self._word_edits(node, new)]
        for string in strings:
            changed = [node for node in ast.walk(string) if node in self._new]
            copies: dict[int, Any] = {}
            another = copy.deepcopy(string, copies)
            for node in changed:
                _rename(copies[id(node)], self._new[node])
            if changed:
                edits.append(self.module.edit(string, ast.unparse(another)))
        return edits

    def _edit(self, node: ast.AST, new: str) -> Edit:
        if isinstance(node, ast.Attribute):
            assert node.end_lineno is not None and node.end_col_offset is not None
            end = self.module.column(node.end_lineno, node.end_col_offset)
            return Edit(node.end_lineno, end - len(node.attr), node.end_lineno, end, new)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            return self._after(node.lineno, node.col_offset, r"(?:async\s+)?(?:def|class)\s+", node.name, new)
        if isinstance(node, ast.ExceptHandler):
            assert node.type is not None and node.name is not None and node.type.end_lineno is not None
            return self._after(node.type.end_lineno, node.type.end_col_offset or 0, r"\s+as\s+", node.name, new)
        old = node.id if isinstance(node, ast.Name) else node.arg  # type: ignore[attr-defined]
        line: int = node.lineno  # type: ignore[attr-defined]
        start = self.module.column(line, node.col_offset)  # type: ignore[attr-defined]
        return Edit(line, start, line, start + len(old), new)

    def _after(self, line: int, offset: int, before: str, old: str, new: str) -> Edit:
        start = self.module.column(line, offset)
        found = re.compile(before + re.escape(old)).match(self.module.lines[line - 1].text, start)
        if found is None:
            raise ValueError(f"line {line}: no {old!r} where the syntax tree has it")
        return Edit(line, found.end() - len(old), line, found.end(), new)

    def _word_edits(self, node: ast.AST, new: dict[str, str]) -> Iterator[Edit]:
        line: int = node.lineno  # type: ignore[attr-defined]
        for found in re.finditer(r"\w+", self.module.lines[line - 1].text):
            if found[0] in new:
                yield Edit(line, found.start(), line, found.end(), new[found[0]])


def _outermost_strings(node: ast.AST) -> Iterator[ast.JoinedStr]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.JoinedStr):
            yield child
        else:
            yield from _outermost_strings(child)


def _rename(node: ast.AST, new: str) -> None:
    field = "id" if isinstance(node, ast.Name) else "attr" if isinstance(node, ast.Attribute) else "arg"
    setattr(node, field, new)

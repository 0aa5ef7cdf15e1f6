"""The statements around a place, and what control does between them."""

from __future__ import annotations

import ast
from itertools import pairwise

import pytest

from torchvet.source import syntax
from torchvet.source.statements import blocks, leaves, path_to_line, path_to_node, spans

TEXT = """\
@decorated(
    by=this)
def outer():
    for x in xs:
        try:
            a = 1; b = 2
        except ValueError:
            match x:
                case 1:
                    c = 3
        else:
            d = 4
        finally:
            e = 5
    else:
        f = 6
    return lambda: 7
"""
TREE = ast.parse(TEXT)


@pytest.mark.parametrize(
    ("line", "fields"),
    [
        (1, ["body"]),
        (4, ["body", "body"]),
        (6, ["body", "body", "body", "body"]),
        (10, ["body", "body", "body", "handlers", "cases"]),
        (12, ["body", "body", "body", "orelse"]),
        (14, ["body", "body", "body", "finalbody"]),
        (16, ["body", "body", "orelse"]),
        (18, []),
    ],
)
def test_the_way_to_a_line_names_each_block(line: int, fields: list[str]) -> None:
    path = path_to_line(TREE, line)
    assert [place.field for place in path] == fields
    assert all(place.owner is above.statement for above, place in pairwise(path))


def test_statements_that_share_a_line_are_distinguished_by_node() -> None:
    second = next(n for n in ast.walk(TREE) if isinstance(n, ast.Constant) and n.value == 2)
    place = path_to_node(TREE, second)[-1]
    assert ast.unparse(place.statement) == "b = 2"
    assert [ast.unparse(s) for s in place.before] == ["a = 1"] and place.after == []
    assert path_to_line(TREE, second.lineno)[-1].before == []


def test_a_lambda_has_no_block() -> None:
    returned = path_to_line(TREE, 17)[-1].statement
    assert isinstance(returned, ast.Return) and isinstance(returned.value, ast.Lambda)
    assert list(blocks(returned.value)) == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [("if x: return", True), ("def f(): return 1", False), ("for x in y:\n    if x: break", True), ("x = 1", False)],
)
def test_a_nested_function_leaves_nothing(text: str, expected: bool) -> None:
    assert leaves(ast.parse(text).body[0]) is expected


def test_the_lines_of_a_block_begin_with_its_decorators() -> None:
    assert spans(TREE.body, 1) and spans(TREE.body, 17) and not spans(TREE.body, 18) and not spans([], 1)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x = y", [("x", "y", True)]),
        ("a, b = c, d", [("a", "c", True), ("b", "d", True)]),
        ("a, b = f()", [("a", "f()", False), ("b", "f()", False)]),
        ("a, (b, c) = d, (e, g)", [("a", "d", True), ("b", "e", True), ("c", "g", True)]),
        ("a, *b = c, d", [("a", "(c, d)", False), ("b", "(c, d)", False)]),
    ],
)
def test_an_assignment_is_taken_apart(text: str, expected: list[tuple[str, str, bool]]) -> None:
    statement = ast.parse(text).body[0]
    assert isinstance(statement, ast.Assign)
    found = syntax.pairs(statement.targets[0], statement.value)
    assert [(ast.unparse(target), ast.unparse(value), exact) for target, value, exact in found] == expected

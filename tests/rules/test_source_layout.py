"""A fault stays a fault however it is laid out: each rule's BAD example, written in another way, is still found."""

import ast
import io
import re
import tokenize
from collections.abc import Callable

import pytest

from torchvet.checking.engine import check_text, source_rules
from torchvet.fixing.edits import apply
from torchvet.rules import all_rules

RULES = {rule.code: rule for rule in source_rules(all_rules())}
_TIGHT = ("=", "+=", "-=", "*=", "/=", "+", "-", "*", "/", ",")


def annotated(text: str) -> str:
    """Every name is bound with an annotation."""

    class Annotate(ast.NodeTransformer):
        def visit_Assign(self, node: ast.Assign) -> ast.stmt:
            if len(node.targets) > 1 or not isinstance(node.targets[0], ast.Name):
                return node
            return ast.AnnAssign(node.targets[0], ast.Name("object", ast.Load()), node.value, simple=1)

    return ast.unparse(ast.fix_missing_locations(Annotate().visit(ast.parse(text))))


def aliased(text: str) -> str:
    """`import torch as th`."""

    class Alias(ast.NodeTransformer):
        def visit_Name(self, node: ast.Name) -> ast.Name:
            node.id = "th" if node.id == "torch" else node.id
            return node

        def visit_Import(self, node: ast.Import) -> ast.Import:
            for one in node.names:
                one.asname = "th" if one.name == "torch" else one.asname
            return node

    return ast.unparse(Alias().visit(ast.parse(text)))


def tight(text: str) -> str:
    """No blanks around operators and behind commas."""
    lines = ast.unparse(ast.parse(text)).splitlines(keepends=True)
    tokens = tokenize.generate_tokens(io.StringIO("".join(lines)).readline)
    for token in reversed([t for t in tokens if t.string in _TIGHT]):
        (row, start), (_, end) = token.start, token.end
        line = lines[row - 1]
        lines[row - 1] = line[:start].rstrip(" ") + line[start:end] + line[end:].lstrip(" ")
    return "".join(lines)


def on_lines(text: str) -> str:
    """Each argument of a call with several on a line of its own."""

    class Break(ast._Unparser):  # type: ignore[misc, name-defined]
        def visit_Call(self, node: ast.Call) -> None:
            given = [*node.args, *node.keywords]
            if len(given) < 2:
                return super().visit_Call(node)
            self.set_precedence(ast._Precedence.ATOM, node.func)  # type: ignore[attr-defined]
            self.traverse(node.func)
            self.write("(")
            for one in given:
                self.write("\n        ")
                self.traverse(one)
                self.write(",")
            self.write("\n    )")

    return str(Break().visit(ast.parse(text)))


def commented(text: str) -> str:
    """Comments with brackets and commas behind the arguments that stand on lines of their own."""
    plain = re.sub(r"print\(.*\)", "print()", ast.unparse(ast.parse(text)))  # f-strings of old take no comments
    return re.sub(r"(?m)(,|\()$", r"\1  # of the (whole, batch", on_lines(plain))


def tabbed(text: str) -> str:
    """Indented by tabs."""
    return re.sub(r"(?m)^(?: {4})+", lambda m: "\t" * (len(m[0]) // 4), ast.unparse(ast.parse(text)))


@pytest.mark.parametrize("code", RULES)
@pytest.mark.parametrize("written", [annotated, aliased, tight, on_lines, commented, tabbed])
def test_what_edits_leave_compiles_in_any_layout(written: Callable[[str], str], code: str) -> None:
    text = written(RULES[code].BAD)  # type: ignore[attr-defined]
    for finding in check_text("bad.py", text, [RULES[code]]).findings:
        compile(apply({"bad.py": text}, [finding])[0]["bad.py"], "bad.py", "exec")


@pytest.mark.parametrize("code", RULES)
@pytest.mark.parametrize("written", [annotated, aliased, tight, on_lines])
def test_the_layout_of_a_fault_does_not_hide_it(written: Callable[[str], str], code: str) -> None:
    text = written(RULES[code].BAD)  # type: ignore[attr-defined]
    compile(text, "bad.py", "exec")
    assert code in {f.code for f in check_text("bad.py", text, [RULES[code]]).findings}, text


@pytest.mark.parametrize("code", RULES)
@pytest.mark.parametrize("written", [annotated, aliased, tight, on_lines])
def test_the_layout_of_healthy_code_raises_no_alarm(written: Callable[[str], str], code: str) -> None:
    found = check_text("good.py", written(RULES[code].GOOD), [RULES[code]]).findings  # type: ignore[attr-defined]
    assert [f for f in found if f.code == code and f.severity != "info"] == []

"""The lines that can make NaN or an infinity of what a value is computed from."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence

import msgspec

from torchvet.source import syntax
from torchvet.source.program.backward import Backward, Wanted, returned
from torchvet.source.program.module import CallSite
from torchvet.source.program.mutations import Mutation
from torchvet.source.program.project import Project
from torchvet.source.program.scopes import Scope
from torchvet.source.stores.name_resolution import function_named
from torchvet.source.text import name_set

_CLEANS = name_set(
    "nan_to_num nan_to_num_ fillna dropna interpolate ffill bfill nanmean nansum nanmedian simple_impute"
)
_REDUCES = name_set("""
    std var mean median quantile percentile nanstd nanvar nanmean nanmedian nanquantile nanpercentile amax amin max min
    ptp norm std_mean var_mean sum nansum aminmax
""")
_LOGS = name_set("log log2 log10 log1p logit")
_ROOTS = name_set("sqrt arcsin arccos asin acos arctanh atanh rsqrt")
_EXPS = name_set("exp exp2 expm1 sinh cosh")
_OVERFLOWS = tuple(f"takes {name} of" for name in _EXPS)
_DIVIDES = name_set("divide true_divide div div_ truediv reciprocal")
_READS = name_set("""
    genfromtxt loadtxt fromstring fromfile read_csv read_table read_parquet read_excel read_feather read_json read_hdf
    load memmap loadmat to_numeric
""")
_GAPS = name_set("pct_change rolling shift reindex resample asfreq pivot pivot_table unstack")
"""Methods of pandas that leave gaps, which are NaN."""
_GUARDED = re.compile(r"\+ *[\d.]|\d *\+|clamp|clip|maximum|where|eps|\bmax\(|\bor\b")
"""What keeps a value above 0: a number is added, and not any other value."""
_DEEPEST, _MOST = 8, 2000
_NONFINITE = name_set("nan inf infinity")


class Maker(msgspec.Struct, frozen=True):
    """A line, and what it does: `divides by volume`."""

    path: str
    line: int
    function: str
    does: str


class Wrong(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of the values: which kinds they have, where they stand, and whether they fill a row or a column."""

    nans: bool = True
    infinities: bool = True
    fills: bool = True
    columns: Sequence[int] = ()
    width: int = 0
    keys: Sequence[str] = ()


class Made(msgspec.Struct, frozen=True, kw_only=True):
    """Where something was assigned, and the lines before it that may have made its values. Others may as well where it
    is not `complete`: there were too many ways back."""

    assigned: list[Maker]
    makers: list[Maker]
    complete: bool = True

    @property
    def alone(self) -> Maker | None:
        """The one line that can have made them."""
        return self.makers[0] if self.complete and len(self.makers) == 1 else None

    def __add__(self, other: Made) -> Made:
        """What either may have made."""
        return Made(
            assigned=_once([*self.assigned, *other.assigned]),
            makers=_once([*self.makers, *other.makers]),
            complete=self.complete and other.complete,
        )


class MakerSearch:
    """Asks a program's text for the lines that make what is not finite."""

    def __init__(self, project: Project, asked: Wrong) -> None:
        self._project = project
        self._asked = asked
        self._asked_of_divisors = 0

    def of_attribute(self, owner: str, attribute: str) -> Made:
        """Of an attribute of a class: of the program's, or of torch's as the program makes it."""
        back = self._backward()
        found = [m for m in back.of_class(owner, attribute) if m.value is not None]
        assigned = [_maker(m.node, m.scope, f"assigns {attribute}") for m in found]
        values = [(m.value, m.scope) for m in found if m.value is not None]
        if not found:
            # A dataclass has no text that assigns.
            for site in self._project.calls(owner):
                given = _field(self._project, owner, attribute, site)
                if given is not None:
                    values.append((given, site.scope))
                    assigned.append(_maker(site.node, site.scope, f"makes the {owner}"))
        return self._made(assigned, values)

    def of_argument(self, called: str, position: int, keyword: str) -> Made:
        """Of what the program gives to calls of a name, by a position or a keyword."""
        sites = list(self._project.calls(called))
        found = [
            (site, given) for site in sites if (given := syntax.argument(site.node, keyword, position)) is not None
        ]
        assigned = [_maker(site.node, site.scope, f"makes the {called}") for site, _ in found]
        return self._made(assigned, [(given, site.scope) for site, given in found])

    def of_function(self, path: str, function: str, line: int) -> Made:
        """Of what a function returns."""
        module = self._project.module(path)
        scope = (function_named(module, function) or module.function_at(line)) if module is not None else None
        if scope is None:
            return Made(assigned=[], makers=[])
        return self._made([], list(returned(scope)))

    def of_variable(self, path: str, line: int, name: str) -> Made:
        """Of a variable, as it is at a line."""
        module = self._project.module(path)
        if module is None:
            return Made(assigned=[], makers=[])
        scope = module.scope_at(line)
        before = [m for m in module.bindings_of(name, scope) if m.value is not None and m.rebinds]
        before = [m for m in before if m.scope is not scope or m.line <= line or m.loop is not None] or before
        node = ast.copy_location(ast.Name(name, ast.Load()), ast.Pass(lineno=line, col_offset=0))
        assigned = [_maker(m.node, m.scope, f"assigns {name}") for m in before]
        return self._made(assigned, [(node, scope)])

    def _backward(self) -> Backward:
        asked = self._asked
        return Backward(self._project, _CLEANS, Wanted(asked.columns, asked.width, asked.keys))

    def _made(self, assigned: list[Maker], values: list[tuple[ast.expr, Scope]]) -> Made:
        back = self._backward()
        found = [
            _maker(node, home, does)
            for value, scope in values
            for node, home in back.of(value, scope)
            if (does := self._does(node, home)) is not None
        ]
        # An overflow is the rarer: it counts where nothing else is there.
        makers = _once([one for one in found if not one.does.startswith(_OVERFLOWS)] or found)
        return Made(assigned=_once(assigned), makers=makers, complete=not back.cut)

    def _does(self, node: ast.expr, scope: Scope) -> str | None:
        """What an expression does that may make NaN or an infinity of the kind that was seen; None if nothing."""
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
            return self._division(node.right, scope)
        if isinstance(node, (ast.Attribute, ast.Name)):
            return self._writing(syntax.ident(node))
        if not isinstance(node, ast.Call):
            return None
        name = syntax.ident(node.func)
        if name in _DIVIDES:
            divisor = node.args[-1] if node.args else None
            return self._division(divisor, scope) if divisor is not None else None
        return self._call(node, name, scope)

    def _call(self, node: ast.Call, name: str, scope: Scope) -> str | None:
        asked, given = self._asked, node.args[0] if node.args else syntax.receiver(node)
        # The program's own function of that name is gone into instead.
        if scope.file.functions(name):
            return None
        if name == "float" and isinstance(given, ast.Constant) and isinstance(given.value, str):
            return self._writing(given.value.strip("+-"))
        if name in _READS:
            return "reads its values from outside the program"
        if name in _GAPS and asked.nans:
            return f"leaves gaps by {name}"
        if given is None or not self._is_singular(name) or self._is_guarded(given, scope):
            return None
        return f"takes {name} of {scope.file.source.segment(given)[:60]}"

    def _writing(self, word: str) -> str | None:
        """What a constant is of that name; NaN never becomes an infinity."""
        known = word.lower() in _NONFINITE and (self._asked.nans or word.lower() != "nan")
        return f"writes {word}" if known else None

    def _is_singular(self, name: str) -> bool:
        """Whether a function may give what was seen."""
        asked = self._asked
        return name in _LOGS or (asked.nans and name in _ROOTS) or (asked.infinities and name in _EXPS)

    def _division(self, divisor: ast.expr, scope: Scope) -> str | None:
        if isinstance(divisor, ast.Constant):
            return "divides by 0" if divisor.value == 0 else None
        if self._is_guarded(divisor, scope):
            return None
        # A constant of the program's, or a count that is one: `2.0 ** 15`, `len(x)`.
        if all(
            isinstance(n, (ast.Constant, ast.BinOp, ast.UnaryOp, ast.operator, ast.unaryop)) for n in ast.walk(divisor)
        ):
            return None
        if not self._asked.fills and self._is_reduced(divisor, scope):
            return None
        return f"divides by {scope.file.source.segment(divisor)[:60]}"

    def _is_guarded(self, node: ast.expr, scope: Scope, depth: int = 0) -> bool:
        """Whether the text keeps a value away from where it would be harmful."""
        if _GUARDED.search(scope.file.source.segment(node)):
            return True
        if depth > 2 or not isinstance(node, (ast.Name, ast.Attribute)):
            return False
        found = self._bindings(node, scope)
        if any(map(_replaces, found)):
            return True
        bound = [m for m in found if m.rebinds and m.value is not None]
        if len(bound) == 1 and isinstance(value := bound[0].value, ast.Constant):
            return bool(value.value)
        return bool(bound) and all(m.value is not None and self._is_guarded(m.value, m.scope, depth + 1) for m in bound)

    def _bindings(self, node: ast.Name | ast.Attribute, scope: Scope) -> list[Mutation]:
        """What the program does to a name, or to an attribute of the class at hand."""
        if isinstance(node, ast.Name):
            return scope.file.bindings_of(node.id, scope)
        home = scope.owner_class()
        return self._backward().of_class(home.name, node.attr) if home is not None else []

    def _is_reduced(self, node: ast.expr, scope: Scope, depth: int = 0) -> bool:
        """Whether a divisor is one number for many elements, as a spread is: at 0 it spoils all of them."""
        self._asked_of_divisors += 1
        if depth > _DEEPEST or self._asked_of_divisors > _MOST or isinstance(node, ast.Constant):
            return False
        if isinstance(node, ast.Call) and syntax.ident(node.func) in _REDUCES:
            return True
        if isinstance(node, ast.BinOp):
            above = [(node.left, scope), (node.right, scope)]
        else:
            above = Backward(self._project, _CLEANS).before(node, scope)
        telling = [
            (n, s) for n, s in above if not isinstance(n, ast.Constant) and syntax.ident(n) not in s.file.imports
        ]
        return bool(telling) and all(self._is_reduced(n, s, depth + 1) for n, s in telling)


def _replaces(found: Mutation) -> bool:
    """Whether a statement puts a number other than 0 where a condition holds."""
    if not found.keys or not isinstance(found.value, ast.Constant) or not found.value.value:
        return False
    targets = found.node.targets if isinstance(found.node, ast.Assign) else []
    masks = [t.slice for t in targets if isinstance(t, ast.Subscript)]
    return any(isinstance(m, (ast.Compare, ast.Name, ast.BinOp, ast.UnaryOp, ast.Call)) for m in masks)


def _maker(node: ast.expr | ast.stmt, scope: Scope, does: str) -> Maker:
    function = scope.function()
    return Maker(scope.file.path, node.lineno, function.qualname if function is not None else "<module>", does)


def _once(found: list[Maker]) -> list[Maker]:
    return list({(one.path, one.line): one for one in reversed(found)}.values())[::-1]


def _field(project: Project, owner: str, attribute: str, site: CallSite) -> ast.expr | None:
    """What a call gives for a field of a dataclass."""
    known = project.class_named(owner)
    body = known.node.body if known is not None and isinstance(known.node, ast.ClassDef) else []
    fields = [s.target.id for s in body if isinstance(s, ast.AnnAssign) and isinstance(s.target, ast.Name)]
    return syntax.argument(site.node, attribute, fields.index(attribute)) if attribute in fields else None

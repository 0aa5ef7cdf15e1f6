"""What an expression is about: its base name, its literal keys, whether it is empty or only a number."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator

from torchvet.source.text import name_set

Base = ast.Name | ast.Attribute
FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda

# Methods that give out what is stored.
_SEE_THROUGH = {"setdefault", "get", "values", "items", "__getitem__"}
_EMPTY_TYPES = name_set("""
    list dict set tuple bytearray deque defaultdict OrderedDict Counter ChainMap field Queue SimpleQueue LifoQueue
    PriorityQueue WeakValueDictionary WeakKeyDictionary WeakSet
""")
_NEW_TENSORS = name_set("""
    zeros ones empty full zeros_like ones_like empty_like full_like new_zeros new_ones new_empty new_full eye arange
""")
_KEEPS_FRESH = name_set("""
    to cuda cpu float half double bfloat16 long int clone detach type requires_grad_ contiguous expand repeat view
    reshape unsqueeze
""")
_NUMBERS = {"item", "tolist", "numel", "size", "format", "join", "as_dict"}
_NUMBER_CALLS = {"float", "int", "len", "str", "repr", "bool", "round", "time", "perf_counter", "monotonic", "type"}


_PARTS: dict[type[ast.AST], tuple[str, ...]] = {
    **dict.fromkeys((ast.List, ast.Tuple, ast.Set), ("elts",)),
    **dict.fromkeys((ast.ListComp, ast.SetComp, ast.GeneratorExp), ("elt",)),
    **dict.fromkeys((ast.NamedExpr, ast.Starred, ast.Await, ast.Subscript, ast.DictComp), ("value",)),
    **dict.fromkeys((ast.Dict, ast.BoolOp), ("values",)),
    ast.BinOp: ("left", "right"),
    ast.Compare: ("left", "comparators"),
    ast.IfExp: ("body", "orelse"),
    ast.UnaryOp: ("operand",),
}
"""The fields of an expression that its value is made of."""
DISPLAYS = (ast.List, ast.Tuple, ast.Set, ast.Dict)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.GeneratorExp, ast.DictComp)
_MADE_OF_PARTS = (*DISPLAYS, *COMPREHENSIONS, ast.UnaryOp, ast.BinOp, ast.IfExp)
"""Expressions that hold nothing but what their parts hold."""


def parts(node: ast.AST) -> list[ast.expr]:
    """The expressions that an expression's value is made of; none for names, calls and what computes otherwise."""
    found: list[ast.expr] = []
    for name in _PARTS.get(type(node), ()):
        value = getattr(node, name)
        found += value if isinstance(value, list) else [value]
    return found


def terminal(node: ast.AST | None) -> str:
    """The last identifier of a name, attribute or call of one: `step` of `self.optimizer.step()`."""
    # Not `isinstance`: this is asked for every call of every file.
    if node.__class__ is ast.Call:
        node = node.func
    if node.__class__ is ast.Attribute:
        return node.attr
    return node.id if node.__class__ is ast.Name else ""


def receiver(call: ast.Call) -> ast.expr | None:
    """What a method is called on; None for a plain function."""
    return call.func.value if isinstance(call.func, ast.Attribute) else None


def keyword(call: ast.Call, name: str) -> ast.expr | None:
    """What a call is given for a keyword; None without it."""
    return next((k.value for k in call.keywords if k.arg == name), None)


def given(call: ast.Call) -> list[ast.expr]:
    """All that a call is given, positional arguments first."""
    return [*call.args, *(k.value for k in call.keywords)]


def argument(call: ast.Call, name: str, position: int) -> ast.expr | None:
    """What a call gives for a parameter, by its name or at its position; a negative position is by name only."""
    by_name = keyword(call, name)
    if by_name is None and 0 <= position < len(call.args):
        return call.args[position]
    return by_name


def pairs(target: ast.expr, value: ast.expr) -> Iterator[tuple[ast.expr, ast.expr, bool]]:
    """What an assignment binds, tuples taken apart: target, value, and whether the value is the target's alone.

    A tuple on the left that has no like on the right gets parts of the whole value.
    """
    if isinstance(target, ast.Starred):
        yield from ((one, whole, False) for one, whole, _ in pairs(target.value, value))
    elif isinstance(target, (ast.Tuple, ast.List)):
        parts = value.elts if isinstance(value, (ast.Tuple, ast.List)) else []
        alike = len(parts) == len(target.elts) and not any(isinstance(e, ast.Starred) for e in target.elts)
        for index, element in enumerate(target.elts):
            for one, own, exact in pairs(element, parts[index] if alike else value):
                # A part of a tuple within a tuple is exact only if both levels agree.
                yield one, own, exact and alike
    else:
        yield target, value, True


def bindings(node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr, bool]]:
    """What an assignment, annotated or within an expression too, binds: see `pairs`. None for other nodes."""
    if isinstance(node, (ast.Assign, ast.AnnAssign, ast.NamedExpr)) and node.value is not None:
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            yield from pairs(target, node.value)


def parameters(node: FunctionNode) -> list[ast.arg]:
    """The parameters that take one value each, in order."""
    return [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]


def remainders(node: ast.AST) -> Iterator[ast.BinOp]:
    """The `a % b` in an expression."""
    return (n for n in ast.walk(node) if isinstance(n, ast.BinOp) and isinstance(n.op, ast.Mod))


def measured(node: ast.AST) -> Iterator[ast.expr]:
    """The objects whose lengths an expression asks for: `len(x)`, `x.qsize()`."""
    for call in ast.walk(node):
        if isinstance(call, ast.Call):
            name, on = ident(call.func), receiver(call)
            if name == "len" and call.args:
                yield call.args[0]
            elif name in ("qsize", "__len__", "currsize") and on is not None:
                yield on


def peel(node: ast.expr | None) -> tuple[Base | None, tuple[str | None, ...]]:
    """The name or attribute under subscripts and look-ups, and the literal keys on the way (None: not literal)."""
    keys: list[str | None] = []
    # From outside in, so the keys come in reverse.
    while isinstance(node, (ast.Subscript, ast.Starred, ast.Await, ast.Call)):
        if isinstance(node, ast.Call):
            by_name = _spelled(node)
            looked_up = isinstance(node.func, ast.Attribute) and node.func.attr in _SEE_THROUGH
            if by_name is None and looked_up:
                keys.append(literal(node.args[0]) if node.args else None)
            # Any other call computes something new: no name.
            node = by_name or (receiver(node) if looked_up else None)
        else:
            if isinstance(node, ast.Subscript):
                keys.append(literal(node.slice))
            node = node.value
    return (node, tuple(reversed(keys))) if isinstance(node, (ast.Name, ast.Attribute)) else (None, ())


def _spelled(call: ast.Call) -> ast.Attribute | None:
    """`getattr(x, "name")` as `x.name`, `vars(x)` as `x.__dict__`."""
    name = call.func.id if isinstance(call.func, ast.Name) else ""
    if name == "vars" and len(call.args) == 1:
        return attribute(call.args[0], "__dict__", call)
    if name == "getattr" and len(call.args) >= 2:
        key = call.args[1]
        if isinstance(key, ast.Constant) and isinstance(key.value, str):
            return attribute(call.args[0], key.value, call)
    return None


def attribute(value: ast.expr, name: str, at: ast.expr) -> ast.Attribute:
    """An attribute that the program spells otherwise, located where it does."""
    return ast.copy_location(ast.Attribute(value=value, attr=name, ctx=ast.Load()), at)


def literal(node: ast.expr) -> str | None:
    """A constant key as a holder's name shows it: its `repr`."""
    return repr(node.value) if isinstance(node, ast.Constant) else None


def ident(base: ast.AST | None) -> str:
    """The last identifier of a name or attribute; empty for anything else."""
    if isinstance(base, ast.Attribute):
        return base.attr
    return base.id if isinstance(base, ast.Name) else ""


def dotted(node: ast.expr) -> str:
    """`a.b.c` as written; what is called or indexed on the way shows as `()` or `[]`."""
    tail = ""
    while True:
        if isinstance(node, ast.Attribute):
            tail = f".{node.attr}{tail}"
            node = node.value
        elif isinstance(node, ast.Call):
            node, tail = node.func, f"(){tail}"
        elif isinstance(node, ast.Subscript):
            node, tail = node.value, f"[]{tail}"
        else:
            return (node.id if isinstance(node, ast.Name) else "<expression>") + tail


def same(left: ast.expr, right: ast.expr) -> bool:
    """Whether two names or attribute chains are written alike."""
    first, second = dotted(left), dotted(right)
    # Two `<expression>`s may be different ones.
    return first == second and "<" not in first


def mentions(node: ast.expr, base: ast.expr) -> bool:
    """Whether an expression reads the name or attribute `base`."""
    return any(isinstance(n, (ast.Name, ast.Attribute)) and same(n, base) for n in ast.walk(node))


def is_fresh(node: ast.expr | None, depth: int = 0) -> bool:
    """Whether a value is a constant, an empty container, a new tensor of constants or an object made of constants."""
    if node is None or isinstance(node, ast.Constant):
        return True
    # A literal of thousands of nested lists would exhaust the stack.
    if depth > 20:
        return False
    if isinstance(node, ast.Call):
        return _fresh_call(node, depth)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult) and isinstance(node.left, (ast.List, ast.Tuple)):
        return is_fresh(node.left, depth + 1)  # `[0] * n`
    return isinstance(node, _MADE_OF_PARTS) and all(is_fresh(part, depth + 1) for part in parts(node))


def _fresh_call(call: ast.Call, depth: int) -> bool:
    name = ident(call.func)
    constant = all(is_fresh(a, depth + 1) for a in call.args)
    if name in _EMPTY_TYPES:
        # Their argument is a factory or a size, and nothing that they hold.
        return constant or name in ("defaultdict", "Queue", "LifoQueue", "PriorityQueue")
    if name in _NEW_TENSORS or name.startswith(("init_", "initial", "zero_")) or name == "empty_cache":
        return True
    if name in ("tensor", "as_tensor", "float", "int"):
        return constant
    if name in _KEEPS_FRESH and isinstance(call.func, ast.Attribute):
        return is_fresh(call.func.value, depth + 1)
    keywords = all(is_fresh(k.value, depth + 1) for k in call.keywords)
    # A class made of constants, by the custom of names.
    return name[:1].isupper() and constant and keywords


def limit(node: ast.expr | None) -> bool:
    """Whether a value is a container that limits its own length: `deque(maxlen=n)`, `Queue(n)`."""
    if not isinstance(node, ast.Call):
        return False
    name = ident(node.func)
    given = {k.arg: k.value for k in node.keywords}
    if name == "deque":
        size = node.args[1] if len(node.args) > 1 else given.get("maxlen")
    elif name in ("Queue", "LifoQueue", "PriorityQueue"):
        size = node.args[0] if node.args else given.get("maxsize")
    elif name == "field":
        factory = given.get("default_factory")
        return isinstance(factory, ast.Lambda) and limit(factory.body)
    else:
        return False
    # `Queue(0)` has no limit.
    return size is not None and not (isinstance(size, ast.Constant) and size.value in (None, 0))


def is_number(node: ast.expr | None) -> bool:
    """Whether a value is surely no tensor: `.item()`, `float(…)`, text, a constant, or a row of such."""
    if isinstance(node, (ast.Constant, ast.JoinedStr)):
        return True
    if isinstance(node, (ast.Tuple, ast.List, ast.BinOp)):
        return all(map(is_number, parts(node)))
    if isinstance(node, ast.Call):
        if isinstance(node.func, ast.Attribute) and node.func.attr in _NUMBERS:
            return True
        # `time.time()`; `x.type(y)` gives a tensor.
        return ident(node.func) in _NUMBER_CALLS and (isinstance(node.func, ast.Name) or not node.args)
    return False


def parse(text: str) -> ast.Module | None:
    """The syntax tree of a text; None where Python cannot parse it."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of invalid escapes and the like: the text is the user's
            return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def expression(text: str) -> ast.expr | None:
    """The expression that a text is; None where it is none."""
    try:
        return ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError):
        return None


def bases(node: ast.expr | None) -> Iterator[tuple[Base, tuple[str | None, ...]]]:
    """The objects that an expression may stand for, through `or`, `and` and conditional expressions."""
    if isinstance(node, (ast.BoolOp, ast.IfExp, ast.NamedExpr)):
        for part in parts(node):
            yield from bases(part)
    else:
        base, keys = peel(node)
        if base is not None:
            yield base, keys

"""Every node below a node, except contexts and operators, which say nothing. Three times as fast as `ast.walk`: only so
can rules read expressions and stay near the cost of parsing."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from torchvet.source.text import name_set

_SILENT = (ast.expr_context, ast.operator, ast.unaryop, ast.boolop, ast.cmpop)
_PLAIN = name_set("""
    ctx op ops id attr n s value_kind kind name names asname module level arg lineno col_offset end_lineno
    end_col_offset type_comment conversion simple is_async rest kwd_attrs
""")
"""Fields that hold no nodes, or only silent ones. A constant's `value` is recognized by its class."""


def _children(kind: type[ast.AST]) -> tuple[str, ...]:
    if kind in (ast.Constant, ast.MatchSingleton, ast.Global, ast.Nonlocal) or issubclass(kind, _SILENT):
        return ()
    # There these hold nodes (aliases, a Name), elsewhere plain strings.
    keep = {"names"} if kind in (ast.Import, ast.ImportFrom) else {"name"} if kind.__name__ == "TypeAlias" else set()
    return tuple(f for f in kind._fields if f not in _PLAIN or f in keep)


CHILDREN: dict[type[ast.AST], tuple[str, ...]] = {
    kind: _children(kind)
    for kind in vars(ast).values()
    if isinstance(kind, type) and issubclass(kind, ast.AST) and "_fields" in vars(kind)
}
"""For every class of node the fields that hold nodes."""


def walk(node: ast.AST) -> list[ast.AST]:
    """A node and all below it, parents before their children."""
    found = [node]
    # The list grows while it is gone through: no recursion and no queue, which `ast.walk` has.
    for one in found:
        for name in CHILDREN[one.__class__]:
            value = getattr(one, name)
            if value.__class__ is list:
                found.extend([v for v in value if v is not None])
            elif value is not None:
                found.append(value)
    return found


Arm = tuple[ast.AST, int]
"""One arm of an `if`, `try`, `match` or conditional expression; two events in different arms exclude each other."""


def exclude(arms: tuple[Arm, ...], others: tuple[Arm, ...]) -> bool:
    """Whether no single pass goes through both."""
    if not arms or not others:
        return False
    mine = dict(arms)
    # A branch that the one is not in excludes nothing.
    return any(mine.get(branch, arm) != arm for branch, arm in others)


@dataclass(eq=False, slots=True)
class Loop:
    """A `for` or `while` statement, or a comprehension. `parent` is the loop around it in the same function."""

    node: ast.AST
    parent: Loop | None
    comprehension: bool = False

    @property
    def first(self) -> int:
        """The line that it begins on."""
        return int(self.node.lineno)  # type: ignore[attr-defined]

    @property
    def last(self) -> int:
        """The last line of its body. What follows in `else` runs once."""
        body: list[ast.AST] = getattr(self.node, "body", [self.node])
        return int(body[-1].end_lineno)  # type: ignore[attr-defined]

    def within(self, other: Loop) -> bool:
        """Whether this is `other` or lies in it."""
        loop: Loop | None = self
        while loop is not None and loop is not other:
            loop = loop.parent
        return loop is not None

    def statement(self) -> Loop | None:
        """This loop, or the nearest around it that is a statement."""
        loop: Loop | None = self
        while loop is not None and loop.comprehension:
            loop = loop.parent
        return loop

    def outer(self) -> Loop | None:
        """The nearest loop statement around this loop."""
        return self.parent.statement() if self.parent is not None else None


@dataclass(eq=False, slots=True)
class Context:
    """What is around events of one block: innermost loop, arms outermost first, `with` expressions outermost first.

    `guards` are the arms that nobody wrote: what follows `if test: continue` runs only where the test is false.
    """

    loop: Loop | None = None
    arms: tuple[Arm, ...] = ()
    withs: tuple[ast.expr, ...] = ()
    deferred: bool = False
    guards: tuple[Arm, ...] = ()

    def in_arm(self, branch: ast.AST, number: int, deferred: bool = False) -> Context:
        """The context within one arm of a branch; `deferred` where its code runs later, as a lambda's does."""
        arms = (*self.arms, (branch, number))
        return Context(self.loop, arms, self.withs, self.deferred or deferred, self.guards)


_LEAVES = frozenset((ast.Name, ast.Constant))
_LEAVING = frozenset((ast.Continue, ast.Break, ast.Return, ast.Raise))


class Walker:
    """Goes once through statements, in the order of evaluation, and hands every call, binding, return, yield and
    deletion to `emit`, with what is around it in `context`. Who walks says what a nested function or class is."""

    _statements: ClassVar[dict[type[ast.AST], Callable[[Any, Any, Context], tuple[Arm, ...] | None]]]
    _expressions: ClassVar[dict[type[ast.AST], Callable[[Any, Any, ast.AST], None]]]

    def __init_subclass__(cls) -> None:
        # Once for a class: looking a handler up by its name for every node would cost a tenth of the walk.
        cls._statements = {kind: getattr(cls, name) for kind, name in _STATEMENTS.items()}
        cls._expressions = {kind: getattr(cls, name) for kind, name in _EXPRESSIONS.items()}

    def __init__(self) -> None:
        self.context = Context()
        self.statement: ast.stmt = ast.Pass()

    def emit(self, node: ast.AST, parent: ast.AST) -> None:
        """Take what the walk has come to."""
        raise NotImplementedError

    def in_loop(self, node: ast.AST, comprehension: bool = False) -> Context:
        """The context within a loop that the walk has come to."""
        outer = self.context
        return Context(Loop(node, outer.loop, comprehension), outer.arms, outer.withs, outer.deferred, outer.guards)

    def block(self, statements: list[ast.stmt], context: Context) -> Context:
        """Walk statements one after another in a context; the context at the end has the guards met on the way."""
        for statement in statements:
            # Set anew for every statement: walking the one before has changed it.
            self.context = context
            self.statement = statement
            handler = self._statements.get(statement.__class__)
            if handler is None:
                self._fields(statement)
                continue
            guards = handler(self, statement, context)
            if guards and guards != context.guards:
                context = Context(context.loop, context.arms, context.withs, context.deferred, guards)
        return context

    # Statements: each handler gives the guards that hold after it, where it adds some -------------------------------

    def _definition(self, statement: Any, context: Context) -> None:
        """Decorators and defaults are evaluated here, the body is not."""
        for one in statement.decorator_list:
            self._expr(one, statement)
        if not isinstance(statement, ast.ClassDef):
            for default in (*statement.args.defaults, *statement.args.kw_defaults):
                if default is not None:
                    self._expr(default, statement)

    def _declaration(self, statement: Any, context: Context) -> None:
        """Nothing is evaluated."""

    def _alone(self, statement: Any, context: Context) -> None:
        self._expr(statement.value, statement)

    def _emitted(self, statement: Any, context: Context) -> None:
        self._fields(statement)
        self.emit(statement, statement)

    def _binding(self, statement: Any, context: Context) -> None:
        # The value first, as it is evaluated: of `x = f(x)` the call reads the old `x`.
        if statement.value is not None:
            self._expr(statement.value, statement)
        for target in statement.targets if statement.__class__ is ast.Assign else [statement.target]:
            # `x[f()] = y` calls `f`.
            if target.__class__ is not ast.Name:
                self._expr(target, statement)
        self.emit(statement, statement)

    def _if(self, statement: Any, context: Context) -> tuple[Arm, ...]:
        self._expr(statement.test, statement)
        for number, body in enumerate((statement.body, statement.orelse)):
            if body:
                self.block(body, context.in_arm(statement, number))
        # No arm, as nobody wrote one: a `continue` for a skipped batch would else part what every other pass does.
        leaves = statement.body[-1].__class__ in _LEAVING and not statement.orelse
        return (*context.guards, (statement, 1)) if leaves else ()

    def _for(self, statement: Any, context: Context) -> None:
        self._expr(statement.iter, statement)  # once, before the first turn
        self.context = loop = self.in_loop(statement)
        # After the items' expressions, before the body.
        self.emit(statement, statement)
        self.block(statement.body, loop)
        self.block(statement.orelse, context)

    def _while(self, statement: Any, context: Context) -> None:
        self.context = loop = self.in_loop(statement)  # the test is evaluated in every turn
        self._expr(statement.test, statement)
        self.block(statement.body, loop)
        self.block(statement.orelse, context)

    def _with(self, statement: Any, context: Context) -> tuple[Arm, ...]:
        for item in statement.items:
            self._expr(item.context_expr, statement)
        self.emit(statement, statement)
        withs = (*context.withs, *(item.context_expr for item in statement.items))
        inner = Context(context.loop, context.arms, withs, context.deferred, context.guards)
        return self.block(statement.body, inner).guards

    def _try(self, statement: Any, context: Context) -> None:
        # The body is no arm: a handler runs after a part of it, so that both may be done in one pass.
        self.block(statement.body, context)
        for number, handler in enumerate(statement.handlers):
            self.block(handler.body, context.in_arm(statement, number + 1))
        # `else` runs only where no handler does: arm 0 excludes theirs.
        self.block(statement.orelse, context.in_arm(statement, 0))
        self.block(statement.finalbody, context)

    def _match(self, statement: Any, context: Context) -> None:
        self._expr(statement.subject, statement)
        for number, case in enumerate(statement.cases):
            self.context = inner = context.in_arm(statement, number)
            if case.guard is not None:
                self._expr(case.guard, statement)
            self.block(case.body, inner)

    # Expressions, inner ones first, as they are evaluated ------------------------------------------------------------

    def _expr(self, node: ast.AST, parent: ast.AST) -> None:
        kind = node.__class__
        # A loop and no recursion: chains of attributes are common, and none of their links is emitted.
        while kind is ast.Attribute:
            node, parent = node.value, node  # type: ignore[attr-defined]
            kind = node.__class__
        if kind in _LEAVES:
            return
        if kind is ast.Call:
            # The same as `_emitted_expression`, written out: most of what is walked are calls.
            self._expr(node.func, node)  # type: ignore[attr-defined]
            for argument in node.args:  # type: ignore[attr-defined]
                if argument.__class__ not in _LEAVES:
                    self._expr(argument, node)
            for keyword in node.keywords:  # type: ignore[attr-defined]
                if keyword.value.__class__ not in _LEAVES:
                    self._expr(keyword.value, node)
            self.emit(node, parent)
        else:
            handler = self._expressions.get(kind)
            if handler is None:
                self._fields(node)
            else:
                handler(self, node, parent)

    def _emitted_expression(self, node: Any, parent: ast.AST) -> None:
        self._fields(node)
        self.emit(node, parent)

    def _lambda(self, node: Any, parent: ast.AST) -> None:
        outer = self.context
        # An arm of its own, since nobody knows whether and when a lambda is called.
        self.context = outer.in_arm(node, 0, deferred=True)
        self._expr(node.body, node)
        self.context = outer

    def _comprehension(self, node: Any, parent: ast.AST) -> None:
        outer = self.context
        self.context = self.in_loop(node, comprehension=True)
        # All as one loop: in `[f(x) for a in b for x in a]` how many there are matters to nobody.
        for generator in node.generators:
            self._expr(generator.iter, node)
            self.emit(generator, node)
            for condition in generator.ifs:
                self._expr(condition, node)
        for part in ("key", "value", "elt"):
            value = getattr(node, part, None)
            if value is not None:
                self._expr(value, node)
        self.context = outer

    def _conditional(self, node: Any, parent: ast.AST) -> None:
        outer = self.context
        self._expr(node.test, node)
        for number, part in enumerate((node.body, node.orelse)):
            self.context = outer.in_arm(node, number)
            self._expr(part, node)
        self.context = outer

    def _fields(self, node: ast.AST) -> None:
        for name in CHILDREN[node.__class__]:
            value = getattr(node, name)
            if value.__class__ is list:
                for one in value:
                    if one is not None and one.__class__ not in _LEAVES:
                        self._expr(one, node)
            elif value is not None and value.__class__ not in _LEAVES:
                self._expr(value, node)


_STATEMENTS: dict[type[ast.AST], str] = {
    **dict.fromkeys((ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef), "_definition"),
    **dict.fromkeys((ast.Import, ast.ImportFrom, ast.Global, ast.Nonlocal), "_declaration"),
    **dict.fromkeys((ast.Assign, ast.AnnAssign, ast.AugAssign), "_binding"),
    **dict.fromkeys((ast.Return, ast.Delete, ast.Raise), "_emitted"),
    **dict.fromkeys((ast.For, ast.AsyncFor), "_for"),
    **dict.fromkeys((ast.With, ast.AsyncWith), "_with"),
    **dict.fromkeys((ast.Try, getattr(ast, "TryStar", ast.Try)), "_try"),
    ast.Expr: "_alone",
    ast.If: "_if",
    ast.While: "_while",
    ast.Match: "_match",
}
"""The handlers of statements; any other's expressions are walked."""
_EXPRESSIONS: dict[type[ast.AST], str] = {
    **dict.fromkeys((ast.ListComp, ast.SetComp, ast.GeneratorExp, ast.DictComp), "_comprehension"),
    **dict.fromkeys((ast.NamedExpr, ast.Yield, ast.YieldFrom), "_emitted_expression"),
    ast.IfExp: "_conditional",
    ast.Lambda: "_lambda",
}

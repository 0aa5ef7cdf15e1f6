"""What a unit of code does, in the order of evaluation: calls, bindings, returns, each with the loops, branches and
`with` blocks around it."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torchvet.source.model.walking import CHILDREN

if TYPE_CHECKING:
    from torchvet.source.model.units import Unit

Arm = tuple[ast.AST, int]
"""One arm of an `if`, `try`, `match` or conditional expression; two events in different arms exclude each other."""


def exclude(arms: tuple[Arm, ...], others: tuple[Arm, ...]) -> bool:
    """Whether no single pass goes through both."""
    if not arms or not others:
        return False
    mine = dict(arms)
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

    def in_loop(self, node: ast.AST, comprehension: bool = False) -> Context:
        """The context within a loop."""
        loop = Loop(node, self.loop, comprehension)
        return Context(loop, self.arms, self.withs, self.deferred, self.guards)


@dataclass(eq=False, slots=True)
class Event:
    """One call, binding, return, yield or deletion. `index` counts in the order of evaluation within the unit.

    `parent` is the expression or statement right around the node, `statement` the statement that it belongs to.
    """

    node: ast.AST
    parent: ast.AST
    statement: ast.stmt
    context: Context
    unit: Unit
    index: int

    @property
    def loop(self) -> Loop | None:
        """The innermost loop around it within its unit."""
        return self.context.loop

    @property
    def line(self) -> int:
        """The first line of the node, or of its statement where the node has none of its own."""
        return int(getattr(self.node, "lineno", self.statement.lineno))

    @property
    def call(self) -> ast.Call:
        """The node of an event that is known to be a call."""
        return self.node  # type: ignore[return-value]

    def excludes(self, other: Event) -> bool:
        """Whether the two lie in different arms of one branch, so that one pass never runs both."""
        return exclude(self.context.arms, other.context.arms)

    def inside(self, loop: Loop | None) -> bool:
        """Whether it runs in every turn of a loop of its unit; None stands for the unit itself."""
        own = self.context.loop
        return loop is None or (own is not None and own.within(loop))

    def sure_after(self, other: Event) -> bool:
        """Whether a pass that reaches `self` has been through the branches of `other`."""
        mine, others = self.context.arms, other.context.arms
        return not others or all(arm in mine for arm in others)


_LEAVES = frozenset((ast.Name, ast.Constant))
_LEAVING = frozenset((ast.Continue, ast.Break, ast.Return, ast.Raise))


class Walker:
    """Goes once through a unit's statements. Nested functions and classes are units of their own and are skipped."""

    def __init__(self, unit: Unit) -> None:
        self.unit = unit
        self.events: list[Event] = []
        self._context = Context()
        self._statement: ast.stmt = ast.Pass()

    def _emit(self, node: ast.AST, parent: ast.AST) -> None:
        self.events.append(Event(node, parent, self._statement, self._context, self.unit, len(self.events)))

    def block(self, statements: list[ast.stmt], context: Context) -> Context:
        """Walk statements one after another in a context; the context at the end has the guards met on the way."""
        for statement in statements:
            self._context = context
            self._statement = statement
            handler = _STATEMENTS.get(statement.__class__)
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

    def _alone(self, statement: Any, context: Context) -> None:
        self._expr(statement.value, statement)

    def _emitted(self, statement: Any, context: Context) -> None:
        self._fields(statement)
        self._emit(statement, statement)

    def _binding(self, statement: Any, context: Context) -> None:
        if statement.value is not None:
            self._expr(statement.value, statement)
        for target in statement.targets if statement.__class__ is ast.Assign else [statement.target]:
            if target.__class__ is not ast.Name:
                self._expr(target, statement)
        self._emit(statement, statement)

    def _if(self, statement: Any, context: Context) -> tuple[Arm, ...]:
        self._expr(statement.test, statement)
        for number, body in enumerate((statement.body, statement.orelse)):
            if body:
                self.block(body, context.in_arm(statement, number))
        leaves = statement.body[-1].__class__ in _LEAVING and not statement.orelse
        return (*context.guards, (statement, 1)) if leaves else ()

    def _for(self, statement: Any, context: Context) -> None:
        self._expr(statement.iter, statement)
        self._context = loop = context.in_loop(statement)
        self._emit(statement, statement)
        self.block(statement.body, loop)
        self.block(statement.orelse, context)

    def _while(self, statement: Any, context: Context) -> None:
        self._context = loop = context.in_loop(statement)
        self._expr(statement.test, statement)
        self.block(statement.body, loop)
        self.block(statement.orelse, context)

    def _with(self, statement: Any, context: Context) -> tuple[Arm, ...]:
        for item in statement.items:
            self._expr(item.context_expr, statement)
        self._emit(statement, statement)
        withs = (*context.withs, *(item.context_expr for item in statement.items))
        inner = Context(context.loop, context.arms, withs, context.deferred, context.guards)
        return self.block(statement.body, inner).guards

    def _try(self, statement: Any, context: Context) -> None:
        self.block(statement.body, context)
        for number, handler in enumerate(statement.handlers):
            self.block(handler.body, context.in_arm(statement, number + 1))
        self.block(statement.orelse, context.in_arm(statement, 0))
        self.block(statement.finalbody, context)

    def _match(self, statement: Any, context: Context) -> None:
        self._expr(statement.subject, statement)
        for number, case in enumerate(statement.cases):
            self._context = inner = context.in_arm(statement, number)
            if case.guard is not None:
                self._expr(case.guard, statement)
            self.block(case.body, inner)

    # Expressions, inner ones first, as they are evaluated ------------------------------------------------------------

    def _expr(self, node: ast.AST, parent: ast.AST) -> None:
        kind = node.__class__
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
            self._emit(node, parent)
        else:
            _EXPRESSIONS.get(kind, Walker._other)(self, node, parent)

    def _other(self, node: Any, parent: ast.AST) -> None:
        self._fields(node)

    def _emitted_expression(self, node: Any, parent: ast.AST) -> None:
        self._fields(node)
        self._emit(node, parent)

    def _lambda(self, node: Any, parent: ast.AST) -> None:
        outer = self._context
        self._context = outer.in_arm(node, 0, deferred=True)
        self._expr(node.body, node)
        self._context = outer

    def _comprehension(self, node: Any, parent: ast.AST) -> None:
        outer = self._context
        self._context = outer.in_loop(node, comprehension=True)
        for generator in node.generators:
            self._expr(generator.iter, node)
            self._emit(generator, node)
            for condition in generator.ifs:
                self._expr(condition, node)
        for part in ("key", "value", "elt"):
            value = getattr(node, part, None)
            if value is not None:
                self._expr(value, node)
        self._context = outer

    def _conditional(self, node: Any, parent: ast.AST) -> None:
        outer = self._context
        self._expr(node.test, node)
        for number, part in enumerate((node.body, node.orelse)):
            self._context = outer.in_arm(node, number)
            self._expr(part, node)
        self._context = outer

    def _fields(self, node: ast.AST) -> None:
        for name in CHILDREN[node.__class__]:
            value = getattr(node, name)
            if value.__class__ is list:
                for one in value:
                    if one is not None and one.__class__ not in _LEAVES:
                        self._expr(one, node)
            elif value is not None and value.__class__ not in _LEAVES:
                self._expr(value, node)


_STATEMENTS: dict[type[ast.stmt], Callable[[Walker, Any, Context], tuple[Arm, ...] | None]] = {
    **dict.fromkeys((ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef), Walker._definition),
    **dict.fromkeys((ast.Assign, ast.AnnAssign, ast.AugAssign), Walker._binding),
    **dict.fromkeys((ast.Return, ast.Delete, ast.Raise), Walker._emitted),
    **dict.fromkeys((ast.For, ast.AsyncFor), Walker._for),
    **dict.fromkeys((ast.With, ast.AsyncWith), Walker._with),
    **dict.fromkeys((ast.Try, getattr(ast, "TryStar", ast.Try)), Walker._try),
    ast.Expr: Walker._alone,
    ast.If: Walker._if,
    ast.While: Walker._while,
    ast.Match: Walker._match,
}
_EXPRESSIONS: dict[type[ast.AST], Callable[[Walker, Any, ast.AST], None]] = {
    **dict.fromkeys((ast.ListComp, ast.SetComp, ast.GeneratorExp, ast.DictComp), Walker._comprehension),
    **dict.fromkeys((ast.NamedExpr, ast.Yield, ast.YieldFrom), Walker._emitted_expression),
    ast.IfExp: Walker._conditional,
    ast.Lambda: Walker._lambda,
}

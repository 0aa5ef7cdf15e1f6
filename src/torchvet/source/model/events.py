"""What a unit of code does, in the order of evaluation: calls, bindings, returns, each with the loops, branches and
`with` blocks around it."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import TYPE_CHECKING

from torchvet.source.model.walking import CHILDREN

if TYPE_CHECKING:
    from torchvet.source.model.units import Unit

Arm = tuple[ast.AST, int]
"""One arm of an `if`, `try`, `match` or conditional expression; two events in different arms exclude each other."""


class Loop:
    """A `for` or `while` statement, or a comprehension. `parent` is the loop around it in the same unit."""

    __slots__ = ("comprehension", "node", "parent")

    def __init__(self, node: ast.AST, parent: Loop | None, comprehension: bool = False) -> None:
        self.node = node
        self.parent = parent
        self.comprehension = comprehension

    def within(self, other: Loop) -> bool:
        """Whether this is `other` or lies in it."""
        loop: Loop | None = self
        while loop is not None and loop is not other:
            loop = loop.parent
        return loop is not None


class Context:
    """What is around events of one block: innermost loop, arms outermost first, `with` expressions outermost first.

    `guards` are the arms that nobody wrote: what follows `if test: continue` runs only where the test is false.
    """

    __slots__ = ("arms", "deferred", "guards", "loop", "withs")

    def __init__(self, loop: Loop | None = None, arms: tuple[Arm, ...] = (), withs: tuple[ast.expr, ...] = (),
                 deferred: bool = False, guards: tuple[Arm, ...] = ()) -> None:  # fmt: skip
        self.loop = loop
        self.arms = arms
        self.withs = withs
        self.deferred = deferred
        self.guards = guards

    def guarded(self, guards: tuple[Arm, ...]) -> Context:
        """The same with other guards."""
        return self if guards == self.guards else Context(self.loop, self.arms, self.withs, self.deferred, guards)


class Event:
    """One call, binding, return, yield or deletion. `index` counts in the order of evaluation within the unit.

    `parent` is the expression or statement right around the node, `statement` the statement that it belongs to.
    """

    __slots__ = ("context", "index", "node", "parent", "statement", "unit")

    def __init__(self, node: ast.AST, parent: ast.AST, statement: ast.stmt, context: Context, unit: Unit,
                 index: int) -> None:  # fmt: skip
        self.node = node
        self.parent = parent
        self.statement = statement
        self.context = context
        self.unit = unit
        self.index = index

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
        if not self.context.arms or not other.context.arms:
            return False
        mine = dict(self.context.arms)
        return any(mine.get(branch, arm) != arm for branch, arm in other.context.arms)

    def inside(self, loop: Loop | None) -> bool:
        """Whether it runs in every turn of a loop of its unit; None stands for the unit itself."""
        own = self.context.loop
        return loop is None or (own is not None and own.within(loop))

    def sure_after(self, other: Event) -> bool:
        """Whether a pass that reaches `self` has been through the branches of `other`."""
        mine, others = self.context.arms, other.context.arms
        return not others or all(arm in mine for arm in others)


_LEAVES = frozenset((ast.Name, ast.Constant))
_COMPREHENSIONS = frozenset((ast.ListComp, ast.SetComp, ast.GeneratorExp, ast.DictComp))
_BINDING = frozenset((ast.Assign, ast.AnnAssign, ast.AugAssign))
_EMITTED = frozenset((ast.Return, ast.Delete, ast.Raise))
_LEAVING = frozenset((ast.Continue, ast.Break, ast.Return, ast.Raise))
_NESTED = frozenset((ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))


class Walker:
    """Goes once through a unit's statements. Nested functions and classes are units of their own and are left out."""

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
            kind = statement.__class__
            handler = _HANDLERS.get(kind)
            if handler is not None:
                guards = handler(self, statement, context)
                if guards:
                    context = context.guarded(guards)
            elif kind is ast.Expr:
                self._expr(statement.value, statement)  # type: ignore[attr-defined]
            elif kind not in _NESTED:
                self._fields(statement)
                if kind in _EMITTED:
                    self._emit(statement, statement)
            else:
                self._definition(statement)
        return context

    def _definition(self, statement: ast.stmt) -> None:
        """Decorators and defaults are evaluated here, the body is not."""
        for one in statement.decorator_list:  # type: ignore[attr-defined]
            self._expr(one, statement)
        if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef)):
            for default in (*statement.args.defaults, *statement.args.kw_defaults):
                if default is not None:
                    self._expr(default, statement)

    def _binding(self, statement: ast.stmt, context: Context) -> None:
        value = statement.value  # type: ignore[attr-defined]
        if value is not None:
            self._expr(value, statement)
        for target in statement.targets if statement.__class__ is ast.Assign else [statement.target]:  # type: ignore[attr-defined]
            if target.__class__ is not ast.Name:
                self._expr(target, statement)
        self._emit(statement, statement)

    def _if(self, statement: ast.stmt, context: Context) -> tuple[Arm, ...]:
        assert isinstance(statement, ast.If)
        self._expr(statement.test, statement)
        for number, body in enumerate((statement.body, statement.orelse)):
            if body:
                self.block(body, self._arm(context, statement, number))
        leaves = statement.body[-1].__class__ in _LEAVING and not statement.orelse
        return (*context.guards, (statement, 1)) if leaves else ()

    def _arm(self, context: Context, branch: ast.AST, number: int) -> Context:
        arms = (*context.arms, (branch, number))
        return Context(context.loop, arms, context.withs, context.deferred, context.guards)

    def _for(self, statement: ast.stmt, context: Context) -> None:
        assert isinstance(statement, (ast.For, ast.AsyncFor))
        self._expr(statement.iter, statement)
        loop = self._loop(statement, context)
        self._context = loop
        self._emit(statement, statement)
        self.block(statement.body, loop)
        self.block(statement.orelse, context)

    def _while(self, statement: ast.stmt, context: Context) -> None:
        assert isinstance(statement, ast.While)
        loop = self._loop(statement, context)
        self._context = loop
        self._expr(statement.test, statement)
        self.block(statement.body, loop)
        self.block(statement.orelse, context)

    def _loop(self, node: ast.AST, context: Context, comprehension: bool = False) -> Context:
        loop = Loop(node, context.loop, comprehension)
        return Context(loop, context.arms, context.withs, context.deferred, context.guards)

    def _with(self, statement: ast.stmt, context: Context) -> tuple[Arm, ...]:
        assert isinstance(statement, (ast.With, ast.AsyncWith))
        withs = list(context.withs)
        for item in statement.items:
            self._expr(item.context_expr, statement)
            withs.append(item.context_expr)
        self._emit(statement, statement)
        inner = Context(context.loop, context.arms, tuple(withs), context.deferred, context.guards)
        return self.block(statement.body, inner).guards

    def _try(self, statement: ast.stmt, context: Context) -> None:
        self.block(statement.body, context)  # type: ignore[attr-defined]
        for number, handler in enumerate(statement.handlers):  # type: ignore[attr-defined]
            self.block(handler.body, self._arm(context, statement, number + 1))
        self.block(statement.orelse, self._arm(context, statement, 0))  # type: ignore[attr-defined]
        self.block(statement.finalbody, context)  # type: ignore[attr-defined]

    def _match(self, statement: ast.stmt, context: Context) -> None:
        assert isinstance(statement, ast.Match)
        self._expr(statement.subject, statement)
        for number, case in enumerate(statement.cases):
            inner = self._arm(context, statement, number)
            self._context = inner
            if case.guard is not None:
                self._expr(case.guard, statement)
            self.block(case.body, inner)

    def _expr(self, node: ast.AST, parent: ast.AST) -> None:
        kind = node.__class__
        while kind is ast.Attribute:
            node, parent = node.value, node  # type: ignore[attr-defined]
            kind = node.__class__
        if kind in _LEAVES:
            return
        if kind is ast.Call:
            if node.func.__class__ is not ast.Name:  # type: ignore[attr-defined]
                self._expr(node.func, node)  # type: ignore[attr-defined]
            for argument in node.args:  # type: ignore[attr-defined]
                if argument.__class__ not in _LEAVES:
                    self._expr(argument, node)
            for keyword in node.keywords:  # type: ignore[attr-defined]
                if keyword.value.__class__ not in _LEAVES:
                    self._expr(keyword.value, node)
            self._emit(node, parent)
        elif kind in _COMPREHENSIONS:
            self._comprehension(node)
        elif kind is ast.IfExp:
            self._conditional(node)
        elif kind is ast.Lambda:
            outer = self._context
            self._context = Context(outer.loop, (*outer.arms, (node, 0)), outer.withs, True, outer.guards)
            self._expr(node.body, node)  # type: ignore[attr-defined]
            self._context = outer
        else:
            self._fields(node)
            if kind in (ast.NamedExpr, ast.Yield, ast.YieldFrom):
                self._emit(node, parent)

    def _comprehension(self, node: ast.AST) -> None:
        outer = self._context
        self._context = self._loop(node, outer, comprehension=True)
        for generator in node.generators:  # type: ignore[attr-defined]
            self._expr(generator.iter, node)
            self._emit(generator, node)
            for condition in generator.ifs:
                self._expr(condition, node)
        for part in ("key", "value", "elt"):
            value = getattr(node, part, None)
            if value is not None:
                self._expr(value, node)
        self._context = outer

    def _conditional(self, node: ast.AST) -> None:
        outer = self._context
        self._expr(node.test, node)  # type: ignore[attr-defined]
        for number, part in enumerate((node.body, node.orelse)):  # type: ignore[attr-defined]
            self._context = self._arm(outer, node, number)
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


_HANDLERS: dict[type[ast.stmt], Callable[[Walker, ast.stmt, Context], tuple[Arm, ...] | None]] = {
    ast.Assign: Walker._binding, ast.AnnAssign: Walker._binding, ast.AugAssign: Walker._binding,
    ast.If: Walker._if, ast.For: Walker._for, ast.AsyncFor: Walker._for, ast.While: Walker._while,
    ast.With: Walker._with, ast.AsyncWith: Walker._with, ast.Try: Walker._try, ast.Match: Walker._match,
}  # fmt: skip
if hasattr(ast, "TryStar"):
    _HANDLERS[ast.TryStar] = Walker._try

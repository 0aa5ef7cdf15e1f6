"""What is done with an iterator: what goes through all of it, what takes a part, and what runs after what."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from torchvet.rules.kit import SourceFile
from torchvet.source.model import Event, Loop, Unit, holds, is_name, parents_in, terminal, torch_names, walk
from torchvet.source.text import name_set
from torchvet.source.walking import Arm

_WRAPS = name_set("enumerate map filter tqdm track trange chain from_iterable iter zip")
"""What gives an iterable that goes through what it is given."""
_WHOLE = name_set("""
    list tuple set frozenset dict sorted sum fsum prod max min deque Counter OrderedDict extend join
    clip_grad_norm_ clip_grad_norm clip_grad_value_ parameters_to_vector add_param_group ModuleList ParameterList
    Sequential get_total_norm clip_grads_with_norm_
""")
_NEUTRAL = name_set("print isinstance type id repr str callable hasattr debug info warning format")
_UNSURE = name_set("next anext islice takewhile dropwhile tee any all len getattr reversed")
"""What takes some of it, and what no iterator is given."""
_LEAVING = (ast.Return, ast.Raise)
LOOPS = (ast.For, ast.AsyncFor, ast.While)
_ALIKE = name_set("parameters named_parameters buffers named_buffers modules named_modules children")
_ENDS = ("exit", "_exit", "quit", "abort", "skip")
_DEEPEST = 3

Parents = dict[int, ast.AST]


@dataclass(frozen=True)
class Use:
    """One place that goes through an iterator. `whole`: to its end, whatever comes. `arms` and `loop` are around it."""

    node: ast.expr
    at: ast.AST
    """What goes through it: the call or the loop."""
    event: Event
    loop: Loop | None
    whole: bool

    @property
    def arms(self) -> tuple[Arm, ...]:
        """The arms of branches around it."""
        return self.event.context.arms

    @property
    def line(self) -> int:
        """The line of what goes through it."""
        return int(getattr(self.at, "lineno", self.node.lineno))


class Reader:
    """Reads what one unit does with iterators."""

    def __init__(self, unit: Unit) -> None:
        self.unit = unit
        self.file: SourceFile = unit.file
        self.parents: Parents = parents_in(unit.node)
        self._events = {id(e.node): e for e in unit.events}

    def uses(self, name: str, attribute: bool, depth: int = 0) -> list[Use] | None:
        """The uses of a name, or of an attribute of the method's object, in the order of evaluation; None where one of
        them says that it is gone through in parts, or that it is no iterator."""
        found = []
        for node in walk(self.unit.node):
            if not self._reads(node, name, attribute):
                continue
            around = self._within(node)
            if around is not None:
                # Another unit's, which is asked for itself; a lambda runs nobody knows when.
                if isinstance(around, (ast.FunctionDef, ast.AsyncFunctionDef)):
                    continue
                return None
            use = self._use(node, depth)
            if isinstance(use, str):
                if use == "unsure":
                    return None
            else:
                found.append(use)
        return sorted(found, key=lambda u: (u.event.index, u.node.lineno, u.node.col_offset))

    def _reads(self, node: ast.AST, name: str, attribute: bool) -> bool:
        if attribute:
            mine = isinstance(node, ast.Attribute) and node.attr == name
            return mine and is_name(node.value, self.unit.self_name()) and isinstance(node.ctx, ast.Load)  # type: ignore[attr-defined]
        return is_name(node, name) and isinstance(node.ctx, ast.Load)

    def _within(self, node: ast.AST) -> ast.AST | None:
        """The function, lambda or class within the unit that it is read in."""
        definitions = (ast.Lambda, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
        return next((n for n in self._around(node) if isinstance(n, definitions) and n is not self.unit.node), None)

    def _use(self, node: ast.AST, depth: int) -> Use | str:
        """How a read uses it: a `Use`, "nothing" that matters, or "unsure"."""
        read, whole, first = node, True, True
        for _ in range(12):
            parent = self.parents.get(id(node))
            if isinstance(parent, (ast.Starred, ast.keyword)):
                node, first = parent, first and isinstance(parent, ast.keyword)
                continue
            if isinstance(parent, ast.comprehension) and node is parent.iter:
                outer = self.parents[id(parent)]
                if isinstance(outer, ast.GeneratorExp) and parent is outer.generators[0]:
                    node = outer
                    continue
                return self._made(read, outer, parent, whole)
            if isinstance(parent, ast.Call):
                wrapped = self._wrapped(parent, node)
                if wrapped is not None:
                    node, whole = parent, whole and wrapped
                    continue
                return self._given(read, parent, node, whole, depth)
            if isinstance(parent, (ast.Dict, ast.List, ast.Tuple, ast.Set)) and not isinstance(node, ast.Starred):
                collected = self._collected(parent)
                return self._made(read, collected, collected, whole) if collected is not None else "nothing"
            return self._in_statement(read, parent, node, whole)
        return "unsure"

    def _wrapped(self, call: ast.Call, node: ast.AST) -> bool | None:
        """Whether what goes through a call's result goes through all of a node; None where it is no such call."""
        name = terminal(call)
        if name not in _WRAPS or node is call.func or isinstance(node, ast.keyword):
            return None
        if name in ("map", "filter") and (node is call.args[0] or not isinstance(call.func, ast.Name)):
            return None
        # The shortest ends a zip.
        return name != "zip" or (len(call.args) == 1 and not isinstance(node, ast.Starred)) or self._alike(call, node)

    def _alike(self, call: ast.Call, node: ast.AST) -> bool:
        """Whether what is zipped with a node is written like it, and so as long."""
        return node is call.args[0] and all(terminal(one) in _ALIKE for one in call.args[1:])

    def _given(self, read: ast.AST, call: ast.Call, node: ast.AST, whole: bool, depth: int) -> Use | str:
        name = terminal(call)
        if node is call.func or name in _UNSURE:
            return "unsure"
        if name in _NEUTRAL:
            return "nothing"
        if name in _WHOLE or isinstance(node, ast.Starred) or self._is_optimizer(call):
            return self._made(read, call, call, whole)
        event = self._events.get(id(call))
        callee = self.file.callee(event) if event is not None else None
        if event is None or callee is None or depth >= _DEEPEST:
            return self._made(read, call, call, False)
        return self._followed(read, call, node, callee, event, depth)

    def _followed(
        self, read: ast.AST, call: ast.Call, node: ast.AST, callee: Unit, event: Event, depth: int
    ) -> Use | str:
        """What a function of this file does with it."""
        value = node.value if isinstance(node, ast.keyword) else node
        names = [n for n in callee.given_parameters if any(v is value for v in self.file.passed(event, callee, n))]
        if len(names) != 1 or callee.bindings.get(names[0]):
            return "unsure"
        uses = Reader(callee).uses(names[0], False, depth + 1)
        if uses is None or any(isinstance(e.node, (ast.Yield, ast.YieldFrom)) for e in callee.events):
            return "unsure"
        return self._made(read, call, call, any(u.whole and not u.arms for u in uses)) if uses else "nothing"

    def _is_optimizer(self, call: ast.Call) -> bool:
        return "optimizer" in torch_names.role_of_call(self.file.dotted(call.func))

    def _collected(self, node: ast.AST) -> ast.Call | None:
        """The optimizer that is given a list of groups with it."""
        parent: ast.AST | None = node
        while isinstance(parent, (ast.Dict, ast.List, ast.Tuple, ast.Set, ast.keyword)):
            parent = self.parents.get(id(parent))
        known = isinstance(parent, ast.Call) and (self._is_optimizer(parent) or terminal(parent) == "add_param_group")
        return parent if known else None  # type: ignore[return-value]

    def _in_statement(self, read: ast.AST, parent: ast.AST | None, node: ast.AST, whole: bool) -> Use | str:
        if isinstance(parent, (ast.For, ast.AsyncFor)) and node is parent.iter:
            return self._made(read, parent, parent, whole and not _leaves_early(parent))
        if isinstance(parent, (ast.Assign, ast.AugAssign)) and node is parent.value:
            parts = isinstance(parent, ast.AugAssign) or isinstance(parent.targets[0], (ast.Tuple, ast.List))
            return self._made(read, parent, parent, whole) if parts else "nothing"
        if isinstance(parent, (ast.List, ast.Tuple, ast.Set)):  # starred in a display
            return self._made(read, parent, parent, whole)
        if isinstance(parent, (ast.Return, ast.YieldFrom)):
            return self._made(read, parent, parent, isinstance(parent, ast.YieldFrom) and whole)
        if isinstance(parent, (ast.Attribute, ast.Subscript, ast.BinOp, ast.Await, ast.Yield)):
            return "unsure"
        if isinstance(parent, ast.Compare):
            return "nothing" if all(isinstance(o, (ast.Is, ast.IsNot)) for o in parent.ops) else "unsure"
        return "nothing"

    def _made(self, read: ast.AST, at: ast.AST, where: ast.AST, whole: bool) -> Use | str:
        below, one = read, self.parents.get(id(read))
        while one is not None and (id(one) not in self._events or not holds(one, where)):
            below, one = one, self.parents.get(id(one))
        if one is None:
            return "unsure"
        event = self._events[id(one)]
        loop = event.context.loop
        # What a loop goes through is evaluated before its first turn.
        if loop is not None and self._before_the_turns(one, below):
            loop = loop.parent
        return Use(read, at, event, loop, whole)  # type: ignore[arg-type]

    def _before_the_turns(self, loop: ast.AST, part: ast.AST) -> bool:
        if isinstance(loop, (ast.For, ast.AsyncFor)):
            return part is loop.iter
        outer = self.parents.get(id(loop))
        return isinstance(loop, ast.comprehension) and part is loop.iter and loop is outer.generators[0]  # type: ignore[union-attr]

    # Order ----------------------------------------------------------------------------------------------------------

    def goes_on(self, use: Use, stop: ast.AST, turns: bool = False) -> bool:
        """Whether what comes after a use may run, within the node `stop`: nothing on the way leaves. With `turns` that
        is a loop, and what comes is its next turn."""
        one: ast.AST = use.event.statement
        while not isinstance(one, _LEAVING):
            parent = self.parents.get(id(one))
            if parent is None or (parent is stop and not turns):
                return True
            if any(self._leaves(s, stop, turns) for s in _behind(one, parent)):
                return False
            if parent is stop:
                return True
            one = parent
        return False

    def _leaves(self, statement: ast.stmt, stop: ast.AST, turns: bool) -> bool:
        if not isinstance(statement, (ast.Break, ast.Continue)):
            return isinstance(statement, _LEAVING) or _ends(statement)
        left = next((n for n in self._around(statement) if isinstance(n, LOOPS)), None)
        if turns and (left is not stop or isinstance(statement, ast.Continue)):
            return False
        return left is stop or any(n is left for n in self._around(stop))

    def _around(self, node: ast.AST) -> list[ast.AST]:
        found, one = [], self.parents.get(id(node))
        while one is not None and one is not self.unit.node:
            found.append(one)
            one = self.parents.get(id(one))
        return found

    def shared(self, one: ast.AST, other: ast.AST) -> ast.AST:
        """The innermost node that two nodes lie in."""
        mine = {id(n) for n in self._around(one)}
        return next((n for n in self._around(other) if id(n) in mine), self.unit.node)


def _behind(statement: ast.AST, parent: ast.AST) -> list[ast.stmt]:
    """The statements after one in its block."""
    for name in ("body", "orelse", "finalbody"):
        block = getattr(parent, name, None)
        if isinstance(block, list) and statement in block:
            return block[block.index(statement) + 1 :]
    return []


def _ends(statement: ast.stmt) -> bool:
    call = statement.value if isinstance(statement, ast.Expr) else None
    return isinstance(call, ast.Call) and terminal(call) in _ENDS


def _leaves_early(loop: ast.For | ast.AsyncFor) -> bool:
    """Whether a loop may end before what it goes through does."""
    waiting: list[ast.AST] = [*loop.body]
    while waiting:
        one = waiting.pop()
        if isinstance(one, (ast.Break, ast.Return, ast.Yield, ast.YieldFrom)):
            return True
        if isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
            continue
        nested = isinstance(one, (ast.For, ast.AsyncFor, ast.While))
        # `break` in a loop within leaves that one alone.
        inner = [n for n in walk(one) if isinstance(n, (ast.Return, ast.Yield, ast.YieldFrom))] if nested else []
        if inner:
            return True
        waiting += [] if nested else list(ast.iter_child_nodes(one))
    return False

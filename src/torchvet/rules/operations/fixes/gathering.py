"""Edits that gather parts in a list and join them once, in the place of joining in every turn of a loop."""

from __future__ import annotations

import ast
from typing import NamedTuple

from torchvet.rules.kit import Edit, SourceFile
from torchvet.rules.operations.fixes.hoisting import writes
from torchvet.source.model import Event, Loop, blocks, edits, receiver, terminal, walk
from torchvet.source.model.expressions import holds, is_call, is_literal, name_set, reads_of, value_bound
from torchvet.source.model.steps import text_of

_JOINS = ("cat", "concat", "concatenate")
_ALL_OF_IT = name_set(
    "detach view reshape squeeze unsqueeze flatten transpose permute t contiguous cpu cuda to float long int bool "
    "double half type view_as"
)
"""Methods that may give a view of all that they are called on: as new as that is."""
_MADE_NEW = name_set(
    "argmax argmin clone softmax log_softmax sigmoid tanh relu exp log sum mean norm mul add sub div eq ne gt lt ge le "
    "abs pow sqrt clamp round"
)
_TORCH_SHARES = _ALL_OF_IT | name_set("as_tensor from_numpy narrow select diagonal frombuffer asarray")
_STATIC = ("reduce-overhead", "max-autotune", "CUDAGraph", "graphed_callables", "cudagraph")
"""Graphs of CUDA write each turn's results where the last one's are."""
_DEEPEST = 4


class _Parts(NamedTuple):
    """What a turn adds, the statement that does it, and how the parts are joined: what stands behind the list."""

    part: ast.expr
    statement: ast.stmt
    joined: str
    from_nothing: bool


def gathered(file: SourceFile, event: Event, name: str, loop: Loop) -> list[Edit]:
    """`total = torch.cat([total, part])` as `total.append(part)` and one `total = torch.cat(total)` after the loop.

    Nothing unless the name is begun right before the loop and what is added is a tensor of its own in every turn.
    """
    parts, head = _parts(file, event, name), loop.node
    start = _start(file, event, name, loop, parts) if parts is not None else None
    if parts is None or start is None or not isinstance(head, (ast.For, ast.While)):
        return []
    if not _read_by_itself(event, name, head, parts, start):
        return []
    if file.mentions(*_STATIC) or not _is_own(file, parts.part, event, 0) or blocks.tried(event.unit.node, start):
        return []
    added = f"{name}.append({file.segment(parts.part)})"
    begun = "[]" if parts.from_nothing else f"[{file.segment(start.value)}]"
    whole = f"{file.segment(event.call.func)}({name}{parts.joined})"
    put = edits.after(file, head, f"{name} = {whole}{f' if {name} else None' if parts.from_nothing else ''}")
    if not put or not edits.stands_alone(file, parts.statement):
        return []
    return [edits.replace(file, start.value, begun), edits.replace(file, parts.statement, added), *put]


def _start(file: SourceFile, event: Event, name: str, loop: Loop, parts: _Parts) -> ast.Assign | None:
    """The one statement that binds the name before the loop, in the loop's block; None where there is no such, or the
    loop binds the name otherwise than by the joining and its first turn."""
    bound = event.unit.bindings.get(name, [])
    starts = [e for e in bound if not e.inside(loop)]
    if len(starts) != 1 or not all(holds(parts.statement, e.statement) for e in bound if e.inside(loop)):
        return None
    node = starts[0].node
    block = blocks.block_of(file.tree, starts[0].statement)
    if starts[0].index > event.index or loop.node not in block:
        return None
    return node if isinstance(node, ast.Assign) and _begins(file, node, name, parts) else None


def _parts(file: SourceFile, event: Event, name: str) -> _Parts | None:
    call = event.call
    match call.args, event.statement:
        case [ast.List([own, part]) | ast.Tuple([own, part]), *_], ast.Assign(value=value) if text_of(own) == name:
            joined = _behind_list(file, call)
        case _:
            return None
    if joined is None or isinstance(part, ast.Starred) or not is_call(call, *_JOINS):
        return None
    if value is call:
        first = _first_turn(file, event, name, part)
        return _Parts(part, first or event.statement, joined, first is not None)
    if not isinstance(value, ast.IfExp) or value.orelse is not call:
        return None
    begun = _is_none(value.test, name) and text_of(value.body) == text_of(part)
    return _Parts(part, event.statement, joined, True) if begun else None


def _behind_list(file: SourceFile, call: ast.Call) -> str | None:
    """What a call is given behind its list, where that is constants alone: it stands for all turns."""
    rest = [*call.args[1:], *call.keywords]
    constant = all(isinstance(n, (ast.keyword, ast.Constant, ast.UnaryOp)) for one in rest for n in walk(one))
    if not constant or any(k.arg in (None, "out") for k in call.keywords):
        return None
    return "".join(f", {file.segment(one)}" for one in rest)


def _first_turn(file: SourceFile, event: Event, name: str, part: ast.expr) -> ast.If | None:
    """`if total is None: total = part` of which the joining is the `else`."""
    branch = event.context.arms[-1][0] if event.context.arms else None
    if not isinstance(branch, ast.If) or branch.orelse != [event.statement] or len(branch.body) != 1:
        return None
    first = branch.body[0]
    if not isinstance(first, ast.Assign) or [text_of(t) for t in first.targets] != [name]:
        return None
    lines = "".join(file.lines[branch.lineno - 1 : branch.end_lineno])
    alike = _is_none(branch.test, name) and text_of(first.value) == text_of(part)
    chained = file.lines[branch.lineno - 1].lstrip().startswith("elif")
    return branch if alike and "#" not in lines and not chained else None


def _is_none(test: ast.expr, name: str) -> bool:
    if not isinstance(test, ast.Compare) or text_of(test.left) != name or not isinstance(test.ops[0], ast.Is):
        return False
    return is_literal(test.comparators[0], None)


def _begins(file: SourceFile, node: ast.Assign, name: str, parts: _Parts) -> bool:
    """Whether an assignment has its line to itself, and is of None where the first turn has a branch."""
    if len(node.targets) != 1 or text_of(node.targets[0]) != name:
        return False
    alone = edits.stands_alone(file, node) and node.lineno == node.end_lineno
    written = file.lines[node.lineno - 1].lstrip()
    begins = is_literal(node.value, None) == parts.from_nothing
    return alone and begins and written.startswith((f"{name} =", f"{name}="))


def _read_by_itself(event: Event, name: str, loop: ast.stmt, parts: _Parts, start: ast.Assign) -> bool:
    """Whether up to the end of the loop only the joining reads the name, and no function that is defined here does."""
    own = {id(n) for n in reads_of(parts.statement, name)}
    code = event.unit.node if not event.unit.is_module else event.unit.file.tree
    nested = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
    inner = (n for n in walk(code) if isinstance(n, nested) and n is not code)
    if any(reads_of(one, name) for one in inner):
        return False
    between = range(start.lineno + 1, blocks.last_line(loop) + 1)
    return not any(id(n) not in own and n.lineno in between for n in reads_of(code, name))


def _is_own(file: SourceFile, node: ast.expr | None, event: Event, depth: int) -> bool:
    """Whether an expression is a new tensor in every turn, which nothing writes to later."""
    if isinstance(node, (ast.BinOp, ast.Compare, ast.UnaryOp)):
        return True
    if isinstance(node, ast.Name):
        return depth < _DEEPEST and _bound_anew(file, node.id, event, depth)
    if isinstance(node, ast.Subscript):  # `batch["label"]` is all of a tensor, `batch[0]` may be a part of one
        key = node.slice
        named = isinstance(key, ast.Constant) and isinstance(key.value, str)
        return named and _is_own(file, node.value, event, depth + 1)
    if not isinstance(node, ast.Call):
        return False
    name, dotted, on = terminal(node), file.dotted(node.func), receiver(node)
    if dotted.startswith("torch."):
        return name not in _TORCH_SHARES and not name.endswith("_")
    if on is not None and name in _ALL_OF_IT:
        return _is_own(file, on, event, depth + 1)
    runs = "output" in file.roles.of(node, event.unit) or file.roles.hinted("module", node.func)
    return (on is not None and name in _MADE_NEW) or runs


def _bound_anew(file: SourceFile, name: str, event: Event, depth: int) -> bool:
    """Whether each turn binds a name to a tensor of its own and leaves it as it is."""
    loop = event.loop
    bound = event.unit.bindings.get(name, [])
    if loop is None or event.unit.home(name) is not event.unit or not bound or not all(b.inside(loop) for b in bound):
        return False
    if any(writes(e, {name}) for e in event.unit.events if e.inside(loop)):
        return False
    # What the loop itself binds is a batch of a loader.
    own = [b for b in bound if b.node is not loop.node]
    if any(b.index > event.index for b in own):
        return False
    return all(_is_own(file, value_bound(b.node, name), b, depth + 1) for b in own)

"""Edits that make several backward passes of a step one: from the sum of their losses."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from torchvet.rules.core.fixing import unit_of
from torchvet.rules.kit import Edits, Finding, SourceFile
from torchvet.source.model import Unit, edits, is_call, names_in, reads_of, receiver, target_names, walk

_FLAG = "retain_graph"
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp)
_BINDING = (ast.For, *_COMPREHENSIONS, ast.GeneratorExp)


def summed_at(file: SourceFile, finding: Finding) -> Edits:
    """One pass instead of a loop's, or of consecutive statements', of which the finding names the first.

    Nothing where a pass is given more than `retain_graph`, or anything else stands between the passes.
    """
    unit = unit_of(file, finding)
    line = finding.location.line if finding.location is not None else None
    others = [r for r in finding.related if r.role == "backward"]
    # A pass that stays would meet a graph that is freed: one of another file, or a gradient that is asked for now and
    # then, which the sampled steps need not have seen.
    if unit is None or any(r.path != file.path for r in others) or _asks_for_gradients(file, unit):
        return ()
    for body, at in _statements(unit):
        if body[at].lineno == line:
            if (loop := _loop_around(unit, body, at)) is not None:
                return _of_loop(file, unit, loop) if all(r.line == line for r in others) else ()
            return _of_statements(file, body[at:], {line, *(r.line for r in others)})
    return ()


def _asks_for_gradients(file: SourceFile, unit: Unit) -> bool:
    calls = (one for one in walk(unit.node) if isinstance(one, ast.Call))
    return any(file.dotted(one.func) == "torch.autograd.grad" for one in calls)


def _statements(unit: Unit) -> list[tuple[list[ast.stmt], int]]:
    """The statements of a unit that call backward and do nothing else, each by its block and its place there."""
    found = []
    for node in walk(unit.node):
        for name in ("body", "orelse", "finalbody"):
            body = getattr(node, name, None)
            if isinstance(body, list):
                found += [(body, at) for at, one in enumerate(body) if _loss_of(one) is not None]
    return found


def _loss_of(statement: ast.stmt) -> ast.expr | None:
    """What a statement calls `backward()` on, if that is all that it does."""
    call = statement.value if isinstance(statement, ast.Expr) else None
    if not isinstance(call, ast.Call) or not is_call(call, "backward") or call.args:
        return None
    # A gradient for the loss, or `inputs`: no plain sum does the same.
    if any(keyword.arg != _FLAG for keyword in call.keywords):
        return None
    on = receiver(call)
    return on if on is not None and _is_plain(on) else None


def _is_plain(node: ast.expr) -> bool:
    """Whether an expression can as well be computed before another's pass: no call but a scaler's."""
    calls = [one for one in walk(node) if isinstance(one, ast.Call)]
    return all(is_call(one, "scale") for one in calls) and not any(
        isinstance(one, (ast.NamedExpr, ast.Await, ast.Yield)) for one in walk(node)
    )


def _loop_around(unit: Unit, body: list[ast.stmt], at: int) -> ast.For | None:
    """The loop whose whole body a statement is."""
    loops = [one for one in walk(unit.node) if isinstance(one, ast.For) and one.body is body]
    return loops[0] if loops and len(body) == 1 and at == 0 and not loops[0].orelse else None


def _of_loop(file: SourceFile, unit: Unit, loop: ast.For) -> Edits:
    loss = _loss_of(loop.body[0])
    bound = target_names(loop)
    # What the last turn has bound would be missing.
    later = any(_is_read_outside(unit, name, loop) for name in bound)
    plain = loss is not None and not later and bound & names_in(loss)
    if not plain or loss is None or "#" in _text(file, loop) or not edits.stands_alone(file, loop):
        return ()
    each, target, source = file.segment(loss), file.segment(loop.target), file.segment(loop.iter)
    summed = source if each == target else f"{each} for {target} in {source}"
    text = f"sum({summed}).backward()"
    if "\n" in text:
        return ()
    # The sum of nothing is a number.
    if _may_be_empty(unit, loop.iter):
        asked = _of_values(loop.iter)
        if not isinstance(asked, ast.Name):
            return ()
        text = f"if {asked.id}:{file.newline}{edits.margin(file, loop)}    {text}"
    return [edits.replace(file, loop, text)]


def _may_be_empty(unit: Unit, losses: ast.expr, depth: int = 4) -> bool:
    """Whether a list or dict is known to have no losses at times: it is filled one by one, or by a filter."""
    losses = _of_values(losses)
    if isinstance(losses, ast.Call):
        return any(_may_be_empty(unit, one, depth) for one in losses.args if is_call(losses, "zip", "enumerate"))
    if isinstance(losses, _COMPREHENSIONS):
        return any(one.ifs or _may_be_empty(unit, one.iter, depth) for one in losses.generators)
    if isinstance(losses, (ast.List, ast.Dict)):
        return not (losses.elts if isinstance(losses, ast.List) else losses.keys)
    values = _values_of(unit, losses.id) if isinstance(losses, ast.Name) and depth else []
    return any(_may_be_empty(unit, value, depth - 1) for value in values)


def _values_of(unit: Unit, name: str) -> list[ast.expr]:
    """All that a name is bound to."""
    bound = [one.node for one in unit.bindings.get(name, ())]
    return [one.value for one in bound if isinstance(one, (ast.Assign, ast.AnnAssign)) and one.value is not None]


def _of_values(losses: ast.expr) -> ast.expr:
    """The dict whose values or items are gone through."""
    on = receiver(losses) if isinstance(losses, ast.Call) and is_call(losses, "values", "items") else None
    return losses if on is None else on


def _is_read_outside(unit: Unit, name: str, loop: ast.For) -> bool:
    """Whether what a loop binds to a name may be read outside of it: not within another that binds it anew."""
    others = [one for one in walk(unit.node) if isinstance(one, _BINDING) and name in _bound_by(one)]
    inside = {id(read) for one in [loop, *others] for read in reads_of(one, name)}
    return any(id(read) not in inside for read in reads_of(unit.node, name))


def _bound_by(node: ast.AST) -> set[str]:
    """What a loop or a comprehension binds for what is within it."""
    return {name for one in getattr(node, "generators", [node]) for name in target_names(one)}


def _of_statements(file: SourceFile, body: Sequence[ast.stmt], seen: set[int | None]) -> Edits:
    """The statements from the first on that stand one after the other."""
    losses: list[ast.expr] = []
    for one in body:
        loss = _loss_of(one)
        if loss is None or one.lineno not in seen or "#" in _text(file, one):
            break
        losses.append(loss)
    # All of them: a pass that stays needs the graph that the new one would free.
    if len(losses) < 2 or len(losses) < len(seen) or not all(edits.stands_alone(file, s) for s in body[: len(losses)]):
        return ()
    text = f"({' + '.join(_term(file, loss) for loss in losses)}).backward()"
    first, last = edits.start_of(file, body[0]), edits.end_of(file, body[len(losses) - 1])
    if "\n" in text or "#" in edits.text_between(file, first, last):
        return ()
    whole = edits.replace(file, body[0], text)
    return [type(whole)(path=file.path, start=first, end=last, text=text)]


def _text(file: SourceFile, statement: ast.stmt) -> str:
    return edits.text_between(file, edits.start_of(file, statement), edits.end_of(file, statement))


def _term(file: SourceFile, loss: ast.expr) -> str:
    """A loss as a part of a sum."""
    sums = isinstance(loss, ast.BinOp) and isinstance(loss.op, (ast.Add, ast.Sub, ast.Mult, ast.Div))
    return file.segment(loss) if sums else edits.operand(file, loss)

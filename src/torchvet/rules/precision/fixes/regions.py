"""Edits that give each forward pass an autocast region of its own, where one was opened around more than that."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from torchvet.rules.kit import Edit, Effect, Sequence, SourceFile, Step
from torchvet.rules.precision._scaling import starts_of
from torchvet.rules.precision.fixes.moves import together
from torchvet.rules.precision.fixes.region_openings import Opening, opening
from torchvet.rules.shared import autocast_regions as autocast
from torchvet.source.model import Event, Unit, blocks, calls_in, given, is_call, name_set, names_in, terminal, walk

_PLAIN = name_set(
    "zero_grad to cuda cpu train print len next item detach requires_grad_ randn rand zeros ones arange size"
)
"""Calls that compute nothing that autocast would cast: what stands before the forward pass may stay outside."""
_KEEPS = name_set(
    "update update_parameters save watch clip_grad_norm_ clip_grad_value_ isinstance hasattr getattr append print"
)
"""Calls that are given a module and run no forward pass of it."""
_PRODUCTS = name_set("matmul mm bmm addmm baddbmm einsum linear conv1d conv2d conv3d scaled_dot_product_attention")
_OF_A_LOSS = name_set("scale mean sum float backward")
_SIMPLE = (ast.Assign, ast.AugAssign, ast.Expr, ast.Return)
_ODD = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Yield, ast.YieldFrom)


@dataclass(frozen=True)
class Statements:
    """Neighboring statements that belong into a region, and the unit that they stand in."""

    unit: Unit
    all: list[ast.stmt]

    @property
    def lines(self) -> range:
        """The lines that they take."""
        return range(blocks.first_line(self.all[0]), blocks.last_line(self.all[-1]) + 1)


def spanned(unit: Unit, block: list[ast.stmt], events: Sequence[Event]) -> Statements | None:
    """The statements of a block from the first to the last that some events stand in; None where one is elsewhere."""
    places = [blocks.holding(block, e.statement) for e in events]
    known = [p for p in places if p is not None]
    return Statements(unit, block[min(known) : max(known) + 1]) if known and len(known) == len(places) else None


# The forward pass of a training step ---------------------------------------------------------------------------------


def _forward_pass(file: SourceFile, step: Step) -> Statements | None:
    """The statements that make the loss of a step's first backward, in the block where that stands or is called; None
    where these are not clear."""
    backward = next(iter(step.of("backward")), None)
    names = _loss_names(backward) if backward is not None else set()
    if backward is None or not names:
        return None
    event, made = backward.event, names - set(backward.event.unit.parameters)
    if not made and event is not backward.at:
        given = [n for name in names for n in file.passed(backward.at, event.unit, name)]
        event, made = backward.at, {n.id for n in given if isinstance(n, ast.Name)}
        if any(not isinstance(n, ast.Name) for n in given):
            return None
    return _made_before(file, event, made) if made else None


def _loss_names(backward: Effect) -> set[str]:
    """The names in the expression that a backward starts from; none where it computes more than a mean of them."""
    parts = [n for one in starts_of(backward) for n in walk(one)]
    if any(isinstance(n, ast.Call) and terminal(n) not in _OF_A_LOSS for n in parts):
        return set()
    aside = {id(n) for part in parts for n in _aside(part)}
    return {n.id for n in parts if isinstance(n, ast.Name) and id(n) not in aside}


def _aside(part: ast.AST) -> list[ast.AST]:
    """What in an expression is not its loss: the scaler, `self` of `self.loss` and `config` of `config.steps`."""
    if is_call(part, "scale"):
        return walk(part.func)
    return [part.value] if isinstance(part, ast.Attribute) and part.attr not in _OF_A_LOSS else []


def _made_before(file: SourceFile, event: Event, names: set[str]) -> Statements | None:
    unit = event.unit
    bound = [b.statement for n in names for b in unit.bindings.get(n, ()) if b.index < event.index]
    for block in blocks.blocks_around(unit.node, event.statement):
        stop = blocks.holding(block, event.statement)
        last = max((i for i, s in enumerate(block[:stop]) if any(blocks.within(b, s) for b in bound)), default=None)
        if last is not None:
            first = next((i for i, s in enumerate(block[: last + 1]) if _computes_something(s)), last)
            made = block[first : last + 1]
            # A function that is defined in the region may run outside of it.
            odd = any(isinstance(n, _ODD) for one in made for n in walk(one))
            return Statements(unit, made) if blocks.have_lines_of_their_own(file, made) and not odd else None
    return None


def _computes_something(statement: ast.stmt) -> bool:
    products = (n for n in walk(statement) if isinstance(n, ast.BinOp) and isinstance(n.op, ast.MatMult))
    return any(terminal(n) not in _PLAIN for n in calls_in(statement)) or any(products)


def computes(file: SourceFile, event: Event, depth: int = 0) -> bool:
    """Whether a call may run a forward pass, or a product that autocast would cast: it had better stay in a region."""
    if not isinstance(event.node, ast.Call):
        return False
    name, call = terminal(event.node), event.call
    if autocast.is_module_call(event) or (name in _PRODUCTS and file.dotted(call.func).startswith("torch.")):
        return True
    callee = file.callee(event)
    if callee is not None:
        return depth < 3 and any(computes(file, e, depth + 1) for e in callee.events)
    handed = [] if name in _KEEPS else given(call)
    return any("module" in file.roles.of(g, event.unit) for g in handed if isinstance(g, (ast.Name, ast.Attribute)))


# The region of a whole loop, in the loop -----------------------------------------------------------------------------


def into_the_loop(file: SourceFile, step: Step, at: Event, region: autocast.Region) -> list[Edit]:
    """A region that is opened around a training loop, or around a call of what has it, opened around the forward pass
    and the loss instead; nothing where more than that computes in it, or where that is not known."""
    made = _forward_pass(file, step)
    if made is None or region.framework:
        return []
    opened = opening(file, region.node, at.unit)
    around = [e for e in at.unit.events if opened is None or e.line in opened.lines]
    taken = opened.taken_away() if opened is not None else _decorator_taken(file, at.unit, region)
    if not _computes_alone(file, step, made, around):
        return []
    if opened is not None and made.unit is at.unit and made.lines[0] in opened.lines:
        return narrowed(opened, made)
    return together(taken, _opened_anew(file, made, region)) if taken else []


def narrowed(opened: Opening, made: Statements) -> list[Edit]:
    """A region opened around some statements within it alone; nothing where its expression would mean another thing
    there."""
    return together(opened.taken_away(made.lines), opened.header_before(made.all[0])) if opened.can_move else []


def _decorator_taken(file: SourceFile, unit: Unit, region: autocast.Region) -> list[Edit]:
    """The line of a decorator that opens a region taken out."""
    node, line = region.node, region.node.lineno
    decorated = not isinstance(unit.node, ast.Module) and node in unit.node.decorator_list
    whole = file.lines[line - 1].strip() == f"@{file.segment(node)}" and line == node.end_lineno
    if not decorated or not whole or not isinstance(node, ast.Call):
        return []
    return [Edit(path=file.path, start=(line, 1), end=(line + 1, 1), text="")]


def _opened_anew(file: SourceFile, made: Statements, region: autocast.Region) -> list[Edit]:
    """A region around the forward pass, in another function than that which had it, or in the one that it decorated."""
    node, unit = region.node, made.unit
    if any("#" in file.lines[n - 1] for n in range(node.lineno, node.end_lineno or node.lineno)):
        return []
    homes = {name: unit.home(name) for name in names_in(node)}
    # Each name must be the file's own or an import that no name of the function hides.
    if any(home is not file.top and (home or name not in file.imports.names) for name, home in homes.items()):
        return []
    owner = None if isinstance(unit.node, ast.Module) else unit.node
    more = blocks.step_of(file, unit.node.body, owner)
    return blocks.opened_around(file, made.all, f"with {file.segment(node)}:", more) if more else []


def opened_in(file: SourceFile, unit: Unit, region: autocast.Region) -> list[Edit]:
    """A region around the statements of a function that run a forward pass, where these stand in one block."""
    calls = [e for e in unit.events if autocast.is_module_call(e)]
    block = blocks.block_of(unit.node, calls[0].statement) if calls else []
    made = spanned(unit, block, calls)
    if made is None or region.framework or not isinstance(region.node, ast.Call):
        return []
    plain = all(isinstance(e.statement, _SIMPLE) and e.statement in block for e in calls)
    yields = any(isinstance(n, (ast.Yield, ast.YieldFrom)) for n in walk(unit.node))
    return _opened_anew(file, made, region) if plain and not yields else []


def _computes_alone(file: SourceFile, step: Step, made: Statements, around: list[Event]) -> bool:
    """Whether nothing but the forward pass computes where the region is taken away, and nobody else calls what it is
    put into."""
    units = (step.unit, made.unit)
    others = {id(u): u for u in units if not u.is_module and not any(u is e.unit for e in around)}.values()
    if not all(_has_one_caller(file, unit, step) for unit in others):
        return False
    events = [*around, *(e for unit in others for e in unit.events)]
    outside = [e for e in events if e.unit is not made.unit or e.line not in made.lines]
    return not any(file.callee(e) not in units and computes(file, e) for e in outside if isinstance(e.node, ast.Call))


def _has_one_caller(file: SourceFile, unit: Unit, step: Step) -> bool:
    """Whether a function is called once, a step's own helper by the step, and is handed to nobody."""
    callers = file.callers(unit)
    if len(callers) != 1 or (unit is not step.unit and callers[0].unit is not step.unit):
        return False
    kind, name = (ast.Name, "id") if unit.owner is None else (ast.Attribute, "attr")
    return [getattr(n, name) for n in walk(file.tree) if isinstance(n, kind)].count(unit.name) == 1

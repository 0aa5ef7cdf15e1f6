"""Edits that give each forward pass an autocast region of its own, where one was opened around more than that."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from torchvet.rules.kit import Edit, Effect, SourceFile, Step
from torchvet.rules.precision.fixes.region_openings import Opening, header_before, is_rebound, opening, taken_away
from torchvet.rules.shared import autocast_regions
from torchvet.source.model import Event, Unit, blocks, receiver, terminal, walk

_PLAIN = {"zero_grad", "to", "cuda", "cpu", "train", "print", "len", "next", "item", "detach", "requires_grad_",
          "randn", "rand", "zeros", "ones", "arange", "size"}  # fmt: skip
"""Calls that compute nothing that autocast would cast: what stands before the forward pass may stay outside."""
_KEEPS = {"update", "update_parameters", "save", "watch", "clip_grad_norm_", "clip_grad_value_", "isinstance",
          "hasattr", "getattr", "append", "print"}  # fmt: skip
"""Calls that are given a module and run no forward pass of it."""
_PRODUCTS = {"matmul", "mm", "bmm", "addmm", "baddbmm", "einsum", "linear", "conv1d", "conv2d", "conv3d",
             "scaled_dot_product_attention"}  # fmt: skip
_OF_A_LOSS = {"scale", "mean", "sum", "float", "backward"}


@dataclass(frozen=True)
class Pass:
    """The statements of one block that make a loss, and the unit that they stand in."""

    unit: Unit
    block: list[ast.stmt]
    first: int
    last: int

    @property
    def statements(self) -> list[ast.stmt]:
        """What belongs into a region."""
        return self.block[self.first : self.last + 1]

    def holds(self, event: Event) -> bool:
        """Whether an event lies within."""
        made = self.statements
        return event.unit is self.unit and blocks.first_line(made[0]) <= event.line <= blocks.last_line(made[-1])


# The forward pass of a training step ---------------------------------------------------------------------------------


def forward_pass(file: SourceFile, step: Step) -> Pass | None:
    """The statements that make the loss of a step's first backward, in the block where that stands or is called; None
    where they cannot be told from the rest."""
    backward = next(iter(step.of("backward")), None)
    names = _loss_names(backward) if backward is not None else set()
    if backward is None or not names:
        return None
    event, made = backward.event, names - set(backward.event.unit.parameters)
    if not made and event is not backward.at:
        given = [n for name in names for n in file.passed(backward.at, event.unit, name)]
        if not given or not all(isinstance(n, ast.Name) for n in given):
            return None
        event, made = backward.at, {n.id for n in given if isinstance(n, ast.Name)}
    return _made_before(file, event, made) if made else None


def _loss_names(backward: Effect) -> set[str]:
    """The names in the expression that a backward starts from; none where it computes more than a mean of them."""
    call = backward.event.call
    parts = [n for one in (receiver(call), *call.args[:1]) if one is not None for n in walk(one)]
    if any(isinstance(n, ast.Call) and terminal(n) not in _OF_A_LOSS for n in parts):
        return set()
    scaler = {id(n) for c in parts if isinstance(c, ast.Call) and terminal(c) == "scale" for n in walk(c.func)}
    return {n.id for n in parts if isinstance(n, ast.Name) and id(n) not in scaler and not _is_part_of(n, parts)}


def _is_part_of(name: ast.Name, parts: list[ast.AST]) -> bool:
    """Whether a name is only where something else is asked of: `self` of `self.loss`, `config` of `config.steps`."""
    return any(isinstance(n, ast.Attribute) and n.value is name and n.attr not in _OF_A_LOSS for n in parts)


def _made_before(file: SourceFile, event: Event, names: set[str]) -> Pass | None:
    unit = event.unit
    bound = [b.statement for n in names for b in unit.bindings.get(n, ()) if b.index < event.index]
    for block in blocks.blocks_around(unit.node, event.statement):
        stop = blocks.holding(block, event.statement)
        places = [i for i, s in enumerate(block[:stop]) if any(one is b for b in bound for one in walk(s))]
        if places:
            return _within(file, unit, block, max(places))
    return None


def _within(file: SourceFile, unit: Unit, block: list[ast.stmt], last: int) -> Pass | None:
    first = next((i for i, s in enumerate(block[: last + 1]) if _computes_something(s)), last)
    made = Pass(unit, block, first, last)
    odd = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Yield, ast.YieldFrom)
    sure = blocks.have_lines_of_their_own(file, made.statements)
    sure = sure and not any(isinstance(n, odd) for one in made.statements for n in walk(one))
    return made if sure else None


def _computes_something(statement: ast.stmt) -> bool:
    return any(
        (isinstance(n, ast.Call) and terminal(n) not in _PLAIN)
        or (isinstance(n, ast.BinOp) and isinstance(n.op, ast.MatMult)) for n in walk(statement)
    )  # fmt: skip


def computes(file: SourceFile, event: Event, depth: int = 0) -> bool:
    """Whether a call may run a forward pass, or a product that autocast would cast: it had better stay in a region."""
    if not isinstance(event.node, ast.Call):
        return False
    name, call = terminal(event.node), event.call
    if autocast_regions.is_module_call(event) or (name in _PRODUCTS and file.dotted(call.func).startswith("torch.")):
        return True
    callee = file.callee(event)
    if callee is not None:
        return depth < 3 and any(computes(file, e, depth + 1) for e in callee.events)
    if name in _KEEPS:
        return False
    given = [*call.args, *(k.value for k in call.keywords)]
    return any("module" in file.roles.of(g, event.unit) for g in given if isinstance(g, (ast.Name, ast.Attribute)))


# The region of a whole loop, in the loop -----------------------------------------------------------------------------


def into_the_loop(file: SourceFile, step: Step, at: Event, region: autocast_regions.Region) -> list[Edit]:
    """A region that is opened around a training loop, or around a call of what has it, opened around the forward pass
    and the loss instead; nothing where more than that computes in it, or where it cannot be told."""
    made = forward_pass(file, step)
    if made is None or region.framework:
        return []
    opened = opening(file, region.node, at.unit)
    if opened is None:
        return _from_decorator(file, step, at.unit, made, region)
    body = range(opened.lines[1] + 1, blocks.last_line(opened.node) + 1)
    around = [e for e in at.unit.events if e.line in body]
    if not _alone(file, step, made, [around]):
        return []
    inside = made.unit is at.unit and blocks.first_line(made.statements[0]) in body
    if not inside:
        return _elsewhere(file, step, made, region, opened)
    return narrowed(file, opened, made)


def narrowed(file: SourceFile, opened: Opening, made: Pass) -> list[Edit]:
    """A region opened around some statements within it alone; nothing where its expression would mean another thing
    there."""
    if is_rebound(file, opened):
        return []
    head = header_before(file, opened, made.statements[0])
    lines = range(blocks.first_line(made.statements[0]), blocks.last_line(made.statements[-1]) + 1)
    taken = taken_away(file, opened, lines)
    return [*taken, head] if taken is not None and head is not None else []


def _elsewhere(
    file: SourceFile, step: Step, made: Pass, region: autocast_regions.Region, opened: Opening
) -> list[Edit]:
    taken = taken_away(file, opened)
    put = _opened_anew(file, made, region) if taken is not None else []
    return [*taken, *put] if taken is not None and put else []


def _from_decorator(
    file: SourceFile, step: Step, unit: Unit, made: Pass, region: autocast_regions.Region
) -> list[Edit]:  # fmt: skip
    node = region.node
    decorated = not isinstance(unit.node, ast.Module) and any(d is node for d in unit.node.decorator_list)
    whole = file.lines[node.lineno - 1].strip() == f"@{file.segment(node)}" and node.lineno == node.end_lineno
    if not decorated or not whole or not isinstance(node, ast.Call) or not _alone(file, step, made, [unit.events]):
        return []
    put = _opened_anew(file, made, region)
    taken = Edit(path=file.path, start=(node.lineno, 1), end=(node.lineno + 1, 1), text="")
    return [taken, *put] if put else []


def _opened_anew(file: SourceFile, made: Pass, region: autocast_regions.Region) -> list[Edit]:
    """A region around the forward pass, in another function than that which had it, or in the one that it decorated."""
    node = region.node
    if any("#" in file.lines[n - 1] for n in range(node.lineno, node.end_lineno or node.lineno)):
        return []
    if not all(_means_the_same(file, n.id, made.unit) for n in walk(node) if isinstance(n, ast.Name)):
        return []
    owner = None if isinstance(made.unit.node, ast.Module) else made.unit.node
    body = owner.body if owner is not None else made.block
    more = blocks.step_of(file, body, owner)
    return blocks.opened_around(file, made.statements, f"with {file.segment(node)}:", more) if more else []


def opened_in(file: SourceFile, unit: Unit, region: autocast_regions.Region) -> list[Edit]:
    """A region around the statements of a function that run a forward pass, where these stand in one block."""
    calls = [e for e in unit.events if autocast_regions.is_module_call(e)]
    block = blocks.block_of(unit.node, calls[0].statement) if calls else []
    places = [blocks.holding(block, e.statement) for e in calls]
    known = [p for p in places if p is not None]
    plain = all(isinstance(block[p], (ast.Assign, ast.AugAssign, ast.Expr, ast.Return)) for p in known)
    if region.framework or not known or len(known) != len(places) or not plain or not isinstance(region.node, ast.Call):
        return []
    yields = any(isinstance(n, (ast.Yield, ast.YieldFrom)) for n in walk(unit.node))
    return [] if yields else _opened_anew(file, Pass(unit, block, min(known), max(known)), region)


def _means_the_same(file: SourceFile, name: str, unit: Unit) -> bool:
    """Whether a name is the file's own or an import, and no name of a function hides it."""
    home = unit.home(name)
    return home is file.top or (home is None and name in file.imports.names)


def _alone(file: SourceFile, step: Step, made: Pass, scopes: list[list[Event]]) -> bool:
    """Whether nothing but the forward pass computes where the region is taken away, and nobody else calls what it is
    put into."""
    units = [step.unit, made.unit]
    through = [u for u in units if not u.is_module]
    for unit in {id(u): u for u in through if not any(u is e.unit for events in scopes for e in events)}.values():
        scopes.append(list(unit.events))
        if not _has_one_caller(file, unit, step):
            return False
    for event in (e for events in scopes for e in events):
        if made.holds(event) or not isinstance(event.node, ast.Call):
            continue
        leads = file.callee(event)
        if not any(leads is u for u in units) and computes(file, event):
            return False
    return True


def _has_one_caller(file: SourceFile, unit: Unit, step: Step) -> bool:
    """Whether a function is called once, a step's own helper by the step, and is handed to nobody."""
    callers = file.callers(unit)
    if len(callers) != 1 or (unit is not step.unit and callers[0].unit is not step.unit):
        return False
    kind, name = (ast.Name, "id") if unit.owner is None else (ast.Attribute, "attr")
    return [getattr(n, name) for n in walk(file.tree) if isinstance(n, kind)].count(unit.name) == 1

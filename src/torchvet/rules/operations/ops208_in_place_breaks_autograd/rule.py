"""OPS208: an operation changes in place what autograd needs as it was."""

from __future__ import annotations

import ast
import re

from torchvet.rules.kit import Edit, Finding, Iterator, Rule, Severity, SourceFile
from torchvet.rules.operations._leaf_views import is_of_kept_layer, is_registered_again, is_run_here, viewed
from torchvet.source.model import (
    Event,
    Unit,
    calls_in,
    edits,
    is_call,
    is_literal,
    is_name,
    keyword,
    name_set,
    receiver,
    targets_of,
    terminal,
)
from torchvet.source.model.destinations import Destinations
from torchvet.source.model.expressions import names_in, value_bound

_SAVE_OUTPUT = name_set("exp sigmoid tanh relu sqrt rsqrt reciprocal softmax log_softmax expm1 tan logsumexp")
"""Operations whose backward reads their own result: each was tried with `y += 1` before the backward."""
_FOR_ITSELF = name_set("add_ sub_ mul_ div_ clamp_ masked_fill_ clamp_min_ neg_ exp_")
"""Methods that work in place and have a twin which gives a new tensor."""
_IN_PLACE = _FOR_ITSELF | name_set("fill_ zero_ copy_ normal_ uniform_")
_MODULES = ("modules", "named_modules", "children", "named_children")
_SAVES = re.compile(r"\.(?:" + "|".join(sorted(_SAVE_OUTPUT)) + r")\(")
_SIGNS = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/"}
_LAYERS = ("Sigmoid", "Tanh", "ReLU", "Softmax", "LogSoftmax")
"""Layers of `torch.nn` whose backward reads their own result."""
_HELD = re.compile(r"self\.(\w+)[ \t]*(?::[^\n=]+)?=[ \t]*[\w.]*(?:" + "|".join(_LAYERS) + r")\(")
"""What a layer that saves its result is kept as."""
_PARTS = re.compile(r"[ \t]+[\w.]+\[[^\n=]*\][ \t]*=(?!=)")
_ASSIGNED = re.compile(r"\][ \t]*=(?!=)")


_LEAVES = ("requires_grad", "Parameter(", ".parameters()", "modules()", "children()", ".weight", ".bias")


class InPlaceBreaksAutograd(Rule):
    """An operation changes in place what autograd needs as it was."""

    severity = "error"
    words = ("requires_grad", "Parameter(", "parameters()", "modules()", "children()", "backward", "forward")
    bad_raises = "modified by an inplace operation"

    def in_file(self, file: SourceFile) -> Iterator[Finding]:
        """In-place work on a parameter, or on a saved result, where gradients are recorded."""
        changing = _units_that_change(file)
        if changing and file.mentions(*_LEAVES):
            yield from self._on_leaves(file, changing)
        if changing and file.mentions("backward", "forward"):
            yield from self._on_saved(file, changing)

    # Leaves ----------------------------------------------------------------------------------------------------------

    def _on_leaves(self, file: SourceFile, changing: list[Unit]) -> Iterator[Finding]:
        leaves = _units_with_leaves(file)
        seen: set[ast.AST] = set()
        # Two cheap looks first, at words and at lines: the events of most units are never made.
        for event in (e for unit in changing if id(unit) in leaves for e in unit.events):
            changed = _changed(event)
            if changed is None or event.context.deferred or file.gradients.enabled(event) != "yes":
                continue
            if _is_leaf(file, changed, event):
                yield self._leaf_finding(file, event, changed)
                continue
            found = _leaf_behind(file, changed, event)
            # What follows the first change does not run.
            if found is not None and found[0] not in seen:
                seen.add(found[0])
                yield self._view_finding(file, event, changed, *found)

    def _view_finding(
        self, file: SourceFile, event: Event, changed: ast.expr, leaf: ast.expr, severity: Severity
    ) -> Finding:
        name, base = file.segment(changed), file.segment(leaf)
        what = f"{name} is a view of {base}" if changed is not leaf else base
        message = f"{what}, a leaf that requires a gradient: changing it in place raises"
        if severity != "error":
            message += f", if {base} is a parameter already and autograd records"
        return self.suspect(
            file,
            event,
            message if changed is not leaf else message.replace(", a leaf", " is a leaf", 1),
            cause="autograd records here, and neither a leaf nor a view of it may be changed",
            advice=f"change {base}.data, or do it under `with torch.no_grad():`",
            severity=severity,
            # In a forward the values would lose their gradient.
            edits=[edits.replace(file, leaf, f"{base}.detach()")] if event.unit.name != "forward" else (),
        )

    def _leaf_finding(self, file: SourceFile, event: Event, changed: ast.expr) -> Finding:
        name = file.segment(changed)
        message = f"{name} is a leaf that requires a gradient: changing it in place raises"
        cause = "autograd records here, and a leaf cannot have a history"
        advice = "do it under `with torch.no_grad():`"
        return self.suspect(file, event, message, cause=cause, advice=advice)

    # Saved results ---------------------------------------------------------------------------------------------------

    def _on_saved(self, file: SourceFile, changing: list[Unit]) -> Iterator[Finding]:
        steps = {id(step.unit) for step in file.steps}
        worth = [unit for unit in changing if unit.name == "forward" or id(unit) in steps]
        saving = _SAVE_OUTPUT | ({match[1] for match in _HELD.finditer(file.text)} if worth else set())
        for event in (e for unit in worth for e in unit.calls_of(saving)):
            name = self._bound_to(file, event)
            if name and (terminal(event.node) in _SAVE_OUTPUT or _is_saving_layer(file, event)):
                later = self._changed_later(file, event, name)
                if later is not None:
                    yield self._saved_finding(file, later, event, name)

    @staticmethod
    def _changed_later(file: SourceFile, saving: Event, name: str) -> Event | None:
        """The first event that changes a saved result in place while autograd records."""
        later = (e for e in saving.unit.events[saving.index + 1 :] if is_name(_changed(e), name))
        changes = [e for e in later if not e.excludes(saving)]
        if not changes or file.gradients.carries(saving.node, saving) != "yes":
            return None
        for event in changes:
            # Only where the name still holds the very result: bound anew, the saved tensor is left as it was.
            reaching = file.devices.reaching(name, event)
            same = len(reaching) == 1 and reaching[0].node is saving.statement
            if same and file.gradients.enabled(event) == "yes" and not _only_read(file, saving):
                return event
        return None

    @staticmethod
    def _bound_to(file: SourceFile, event: Event) -> str:
        """The name that the saved result is bound to."""
        statement, call = event.statement, event.call
        if not isinstance(statement, ast.Assign) or statement.value is not event.node:
            return ""
        dotted = file.dotted(call.func)
        own = dotted.startswith("torch.") and dotted.count(".") <= 3 and not dotted.startswith("torch.special")
        target = targets_of(statement)
        method = isinstance(receiver(call), (ast.Name, ast.Call)) and not dotted.startswith(("numpy.", "math.", "np."))
        return target[0].id if (own or method) and len(target) == 1 and isinstance(target[0], ast.Name) else ""

    def _saved_finding(self, file: SourceFile, event: Event, saving: Event, name: str) -> Finding:
        made = terminal(saving.node)
        message = f"{name} is changed in place, and the backward of {made} needs it as it was"
        cause = f"{made} in line {saving.line} saves its result for the gradient; backward() will raise"
        advice = f"make a new tensor: `{name} = {name} …`"
        related, anew = self.also(file, "saved", saving, file.segment(saving.node)), _made_anew(file, event, name)
        return self.suspect(file, event, message, cause=cause, advice=advice, edits=anew, related=[related])


def _units_with_leaves(file: SourceFile) -> set[int]:
    """Units whose words may mean a leaf, by `id`."""
    words = ["requires_grad", "Parameter", "parameters"]
    if file.mentions("modules()", "children()"):
        words += ["modules", "named_modules", "children"]
    if file.mentions(".weight", ".bias"):
        words += ["weight", "bias"]
    leaves = {id(unit) for word in words for unit in file.units_with(word)}
    if file.mentions("Parameter("):
        leaves |= {id(unit) for unit in file.functions("forward")}
    return leaves


def _leaf_behind(file: SourceFile, changed: ast.expr, event: Event) -> tuple[ast.expr, Severity] | None:
    """The leaf that is changed through a view or through the layer that keeps it, and how sure that is."""
    base = viewed(changed, event)
    leaf, at = base if base is not None else (changed, event)
    if file.gradients.enabled(at) != "yes":
        return None
    if (base is not None and _is_leaf(file, leaf, at)) or is_of_kept_layer(file, leaf, at):
        return leaf, "error" if is_run_here(event) else "info"
    if base is not None and is_registered_again(file, leaf, at):
        return leaf, "warning" if is_run_here(event) else "info"
    return None


def _is_leaf(file: SourceFile, node: ast.expr, event: Event) -> bool:
    """Whether a name, all of whose bindings that can reach here say so, is a leaf that requires a gradient."""
    if isinstance(node, ast.Attribute):
        return _is_leaf_attribute(file, node, event)
    if not event.is_own(node):
        return False
    reaching = file.devices.reaching(node.id, event)
    leaves = all(_binds_leaf(file, binding.node, node.id) for binding in reaching)
    return bool(reaching) and leaves and not _switched_off(event)


def _is_leaf_attribute(file: SourceFile, node: ast.Attribute, event: Event) -> bool:
    if _of_layer(file, node, event):
        return not file.mentions("requires_grad_(False", "requires_grad = False", "requires_grad=False")
    values, unit = file.roles.values(node, event.unit), event.unit
    # In its constructor a parameter has to be there already.
    before = unit.name == "__init__" and any(u is unit and v.lineno < event.line for v, u in values)
    here = unit.name == "forward" or before
    return bool(values) and here and all(_is_parameter(file, v) for v, _ in values)


def _binds_leaf(file: SourceFile, node: ast.AST, name: str) -> bool:
    if isinstance(node, ast.For):
        return isinstance(node.target, ast.Name) and is_call(node.iter, "parameters")
    value = value_bound(node, name)
    return value is not None and _is_parameter(file, value)


def _made_anew(file: SourceFile, event: Event, name: str) -> list[Edit]:
    """`x = x.mul(y)` for `x.mul_(y)`, `x = x + (y)` for `x += y`; nothing for what goes over several lines."""
    node, statement = event.node, event.statement
    if not edits.on_one_line(statement):
        return []
    if isinstance(node, ast.AugAssign):
        sign, value = _SIGNS.get(node.op.__class__, ""), node.value
        text = file.segment(value) if isinstance(value, ast.Constant) else edits.operand(file, value)
        plain = sign and isinstance(node.target, ast.Name)
        return [edits.replace(file, statement, f"{name} = {name} {sign} {text}")] if plain else []
    method = terminal(node)
    if not isinstance(event.parent, ast.Expr) or method not in _FOR_ITSELF:
        return []
    given = file.segment(node).removeprefix(f"{name}.{method}")
    return [edits.replace(file, statement, f"{name} = {name}.{method[:-1]}{given}")]


def _units_that_change(file: SourceFile) -> list[Unit]:
    """Units whose lines may change something in place: looking is cheaper than walking them."""
    methods = [f".{name}(" for name in _IN_PLACE & file.words.identifiers]
    places = [p for sign in (*methods, "+=", "-=", "*=", "/=") for p in file.words.positions(sign)]
    found = file.units_at({file.line_of(place) for place in places})
    if file.mentions("]") and file.mentions("forward", "backward"):
        parts = file.units_at(file.line_of(m.start()) for m in file.words.lines_like(_PARTS, _ASSIGNED))
        found += [unit for unit in parts if unit not in found and _may_matter(file, unit)]
    return found


def _may_matter(file: SourceFile, unit: Unit) -> bool:
    """Whether `name[…] = …` may change a parameter or what an operation has saved: most change lists and batches."""
    if unit.is_module:
        return False
    text = "\n".join(file.lines[unit.first - 1 : unit.last])
    if unit.name != "forward" and "backward" not in text:
        return False
    return _SAVES.search(text) is not None or (unit.name == "forward" and file.mentions("Parameter("))


def _changed(event: Event) -> ast.expr | None:
    """What an event changes in place: a name, or the name whose part is assigned to."""
    node = event.node
    if isinstance(node, ast.AugAssign):
        target: ast.expr = node.target
        return target.value if isinstance(target, ast.Subscript) else target
    if isinstance(node, ast.Call) and terminal(node) in _IN_PLACE:
        return receiver(node)
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript):
        return node.targets[0].value
    return None


def _is_saving_layer(file: SourceFile, event: Event) -> bool:
    values = [v for v, _ in file.roles.values(event.call.func, event.unit)]
    return bool(values) and all(
        isinstance(v, ast.Call) and file.dotted(v.func).startswith("torch.nn.") and terminal(v) in _LAYERS
        for v in values
    )


def _of_layer(file: SourceFile, node: ast.Attribute, event: Event) -> bool:
    """Whether it is `layer.weight` or `layer.bias` of a torch layer that a loop over modules goes through, the class
    being asked for: `if isinstance(layer, nn.Linear)`."""
    name, loop = terminal(node.value), event.loop.node if event.loop is not None else None
    if node.attr not in ("weight", "bias") or not is_name(node.value, name):
        return False
    if terminal(getattr(loop, "iter", None)) not in _MODULES or name not in names_in(getattr(loop, "target", None)):
        return False
    tests = (getattr(branch, "test", branch) for branch, arm in event.context.arms if arm == 0)
    listed = [kinds for test in tests for kinds in _kinds_asked(test, name)]
    return bool(listed) and all(file.dotted(one).startswith("torch.nn.") for one in listed)


def _kinds_asked(test: ast.AST, name: str) -> Iterator[ast.expr]:
    """The classes that a condition asks a variable for: `isinstance(name, (nn.Linear, nn.Conv2d))`."""
    for call in calls_in(test):
        if is_call(call, "isinstance") and len(call.args) == 2 and terminal(call.args[0]) == name:
            yield from call.args[1].elts if isinstance(call.args[1], ast.Tuple) else [call.args[1]]


def _is_parameter(file: SourceFile, value: ast.expr) -> bool:
    """A leaf that surely requires a gradient."""
    if not isinstance(value, ast.Call):
        return False
    dotted, required = file.dotted(value.func), keyword(value, "requires_grad")
    surely = is_literal(required, True)
    if dotted == "torch.nn.Parameter":
        return required is None or surely
    return surely and dotted.startswith("torch.") and dotted.count(".") == 1 and dotted != "torch.tensor_split"


def _switched_off(event: Event) -> bool:
    """Whether `requires_grad` of anything is set in the unit: then it is not sure what a name is here."""
    set_there = (t for e in event.unit.events for t in targets_of(e.node))
    methods = {"requires_grad_", "detach_"} & event.unit.calls.keys()
    return bool(methods) or any(isinstance(t, ast.Attribute) and t.attr == "requires_grad" for t in set_there)


def _only_read(file: SourceFile, saving: Event) -> bool:
    """Whether a function that evaluates reads the result and nothing goes backward through it."""
    if not any(e.unit is saving.unit and e.index < saving.index for e in file.calls("eval")):
        return False
    flow = Destinations(file)
    flow.made_by(saving)
    flow.follow()
    return not (flow.backward or flow.escaped)

"""OPS208: an operation changes in place what autograd needs as it was."""

from __future__ import annotations

import ast
import re

from torchvet.rules.kit import Edit, Finding, Iterator, Rule, SourceFile
from torchvet.source.model import Event, Unit, edits, receiver, targets_of, terminal, value_bound, walk
from torchvet.source.model.destinations import Destinations

_SAVE_OUTPUT = frozenset(("exp", "sigmoid", "tanh", "relu", "sqrt", "rsqrt", "reciprocal", "softmax", "log_softmax",
                          "expm1", "tan", "logsumexp"))  # fmt: skip
"""Operations whose backward reads their own result: each was tried with `y += 1` before the backward."""
_IN_PLACE = frozenset(("add_", "sub_", "mul_", "div_", "clamp_", "fill_", "zero_", "copy_", "masked_fill_", "normal_",
                       "uniform_", "clamp_min_", "neg_", "exp_"))  # fmt: skip
_FOR_ITSELF = ("add_", "sub_", "mul_", "div_", "clamp_", "masked_fill_", "clamp_min_", "neg_", "exp_")
"""Those that have a twin which gives a new tensor."""
_MODULES = ("modules", "named_modules", "children", "named_children")
_SAVES = re.compile(r"\.(?:" + "|".join(sorted(_SAVE_OUTPUT)) + r")\(")
_SIGNS = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/"}
_CHANGING = frozenset((ast.AugAssign, ast.Call, ast.Assign))
_LAYERS = ("Sigmoid", "Tanh", "ReLU", "Softmax", "LogSoftmax")
"""Layers of `torch.nn` whose backward reads their own result."""
_HELD = re.compile(r"self\.(\w+)[ \t]*(?::[^\n=]+)?=[ \t]*[\w.]*(?:" + "|".join(_LAYERS) + r")\(")
_PARTS = re.compile(r"[ \t]+[\w.]+\[[^\n=]*\][ \t]*=(?!=)")
_ASSIGNED = re.compile(r"\][ \t]*=(?!=)")


class InPlaceBreaksAutograd(Rule):
    """An operation changes in place what autograd needs as it was."""

    code = "OPS208"
    name = "in-place-breaks-autograd"
    summary = "An operation changes in place what autograd needs as it was"
    severity = "error"
    words = ("requires_grad", "Parameter(", "parameters()", "modules()", "children()", "backward", "forward")

    bad_raises = "modified by an inplace operation"

    def in_file(self, file: SourceFile) -> Iterator[Finding]:
        """In-place work on a parameter, or on a saved result, where gradients are recorded."""
        changing = _units_that_change(file)
        if changing and file.mentions("requires_grad", "Parameter(", ".parameters()", "modules()", "children()"):
            yield from self._on_leaves(file, changing)
        if changing and file.mentions("backward", "forward"):
            yield from self._on_saved(file, changing)

    # Leaves ----------------------------------------------------------------------------------------------------------

    def _on_leaves(self, file: SourceFile, changing: list[Unit]) -> Iterator[Finding]:
        words = [u for w in ("requires_grad", "Parameter", "parameters") for u in file.units_with(w)]
        leaves = {id(u) for u in (*words, *(file.functions("forward") if file.mentions("Parameter(") else ()))}
        if file.mentions("modules()", "children()"):
            leaves |= {id(u) for w in ("modules", "named_modules", "children") for u in file.units_with(w)}
        for unit in (u for u in changing if id(u) in leaves):
            found = [e for e in unit.events if e.node.__class__ is ast.AugAssign]
            found += [e for w in _IN_PLACE & unit.calls.keys() for e in unit.calls[w]]
            found += [e for e in unit.events if e.node.__class__ is ast.Assign and _changed(e) is not None]
            for event in found:
                changed = _changed(event)
                if changed is None or event.context.deferred or not self._is_leaf(file, changed, event):
                    continue
                if file.gradients.enabled(event) == "yes":
                    yield self._leaf_finding(file, event, changed)

    @staticmethod
    def _is_leaf(file: SourceFile, node: ast.expr, event: Event) -> bool:
        """Whether a name, all of whose bindings that can reach here say so, is a leaf that requires a gradient."""
        if isinstance(node, ast.Attribute):
            if _of_layer(file, node, event):
                return not file.mentions("requires_grad_(False", "requires_grad = False", "requires_grad=False")
            values = file.roles.values(node, event.unit)
            # In its constructor a parameter has to be there already.
            here = event.unit.name == "forward" or (
                event.unit.name == "__init__" and any(u is event.unit and v.lineno < event.line for v, u in values)
            )
            return bool(values) and here and all(_is_parameter(file, v) for v, _ in values)
        if not isinstance(node, ast.Name) or event.unit.home(node.id) is not event.unit:
            return False
        reaching = file.devices.reaching(node.id, event)
        if not reaching:
            return False
        for binding in reaching:
            if isinstance(binding.node, ast.For):
                if not _over_parameters(binding.node):
                    return False
                continue
            value = value_bound(binding.node, node.id)
            if value is None or not _is_parameter(file, value):
                return False
        return not _switched_off(event, node.id)

    def _leaf_finding(self, file: SourceFile, event: Event, changed: ast.expr) -> Finding:
        name = file.segment(changed)
        message = f"{name} is a leaf that requires a gradient: changing it in place raises"
        cause = "autograd records here, and a leaf cannot have a history"
        advice = "do it under `with torch.no_grad():`"
        return self.suspect(file, event, message, cause=cause, advice=advice)

    # Saved results ---------------------------------------------------------------------------------------------------

    def _on_saved(self, file: SourceFile, changing: list[Unit]) -> Iterator[Finding]:
        steps = {id(s.unit) for s in file.steps}
        worth = [u for u in changing if u.name == "forward" or id(u) in steps]
        layers = _saving_layers(file) if worth else set()
        for saving in (e for u in worth for w in sorted((_SAVE_OUTPUT | layers) & u.calls.keys()) for e in u.calls[w]):
            if terminal(saving.node) not in _SAVE_OUTPUT and not _is_saving_layer(file, saving):
                continue
            name = self._bound_to(file, saving)
            if not name:
                continue
            for event in saving.unit.events:
                later = event.index > saving.index and event.node.__class__ in _CHANGING
                changed = _changed(event) if later else None
                if isinstance(changed, ast.Name) and changed.id == name and not event.excludes(saving):
                    if file.gradients.carries(saving.node, saving) != "yes":
                        break
                    reaching = file.devices.reaching(name, event)
                    same = len(reaching) == 1 and reaching[0].node is saving.statement
                    if same and self._records(file, event) and not _only_read(file, saving):
                        yield self._saved_finding(file, event, saving, name)
                        break

    @staticmethod
    def _records(file: SourceFile, event: Event) -> bool:
        return file.gradients.enabled(event) == "yes"

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
        return self.suspect(
            file,
            event,
            message,
            cause=cause,
            advice=advice,
            edits=_made_anew(file, event, name),
            related=[self.also(file, "saved", saving, file.segment(saving.node))],
        )


def _made_anew(file: SourceFile, event: Event, name: str) -> list[Edit]:
    """`x = x.mul(y)` for `x.mul_(y)`, `x = x + (y)` for `x += y`; nothing for what goes over several lines."""
    node, statement = event.node, event.statement
    if statement.lineno != statement.end_lineno:
        return []
    if isinstance(node, ast.AugAssign):
        sign = _SIGNS.get(node.op.__class__, "")
        value = file.segment(node.value)
        simple = isinstance(node.value, (ast.Name, ast.Attribute, ast.Call, ast.Subscript, ast.Constant))
        text = f"{name} = {name} {sign} {value if simple else f'({value})'}"
        return [edits.replace(file, statement, text)] if sign and isinstance(node.target, ast.Name) else []
    method = terminal(node)
    if not isinstance(event.parent, ast.Expr) or method not in _FOR_ITSELF:
        return []
    given = file.segment(node).removeprefix(f"{name}.{method}")
    return [edits.replace(file, statement, f"{name} = {name}.{method[:-1]}{given}")]


def _units_that_change(file: SourceFile) -> list[Unit]:
    """Units whose lines may change something in place: looking is cheaper than walking them."""
    methods = [f".{name}(" for name in _IN_PLACE & file.words.identifiers]
    places = [p for sign in (*methods, "+=", "-=", "*=", "/=") for p in file.words.positions(sign)]
    found = {id(u): u for u in map(file.unit_at, {file.line_of(p) for p in places})}
    if file.mentions("]") and file.mentions("forward", "backward"):
        starts = (m.start() for m in file.words.lines_like(_PARTS, _ASSIGNED))
        parts = {id(u): u for u in (file.unit_at(file.line_of(start)) for start in starts)}
        found.update((key, unit) for key, unit in parts.items() if key not in found and _may_matter(file, unit))
    return list(found.values())


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


def _saving_layers(file: SourceFile) -> set[str]:
    """Names of attributes that may hold a layer of torch which saves its result."""
    return {match[1] for match in _HELD.finditer(file.text)}


def _is_saving_layer(file: SourceFile, event: Event) -> bool:
    values = [v for v, _ in file.roles.values(event.call.func, event.unit)]
    return bool(values) and all(
        isinstance(v, ast.Call) and file.dotted(v.func).startswith("torch.nn.") and terminal(v) in _LAYERS
        for v in values
    )


def _of_layer(file: SourceFile, node: ast.Attribute, event: Event) -> bool:
    """Whether it is `layer.weight` or `layer.bias` of a torch layer that a loop over modules goes through, the class
    being asked for: `if isinstance(layer, nn.Linear)`."""
    on, loop = node.value, event.loop
    if node.attr not in ("weight", "bias") or not isinstance(on, ast.Name) or loop is None:
        return False
    over = getattr(loop.node, "iter", None)
    if terminal(over) not in _MODULES or on.id not in {n.id for n in walk(loop.node.target) if isinstance(n, ast.Name)}:  # type: ignore[attr-defined]
        return False
    asked = [n for branch, arm in event.context.arms if arm == 0 for n in walk(getattr(branch, "test", branch))]
    classes = [
        one
        for n in asked
        if isinstance(n, ast.Call) and terminal(n) == "isinstance" and len(n.args) == 2 and terminal(n.args[0]) == on.id
        for one in (n.args[1].elts if isinstance(n.args[1], ast.Tuple) else [n.args[1]])
    ]
    return bool(classes) and all(file.dotted(c).startswith("torch.nn.") for c in classes)


def _over_parameters(loop: ast.For) -> bool:
    over = loop.iter
    return isinstance(loop.target, ast.Name) and isinstance(over, ast.Call) and terminal(over) == "parameters"


def _is_parameter(file: SourceFile, value: ast.expr) -> bool:
    """A leaf that surely requires a gradient."""
    if not isinstance(value, ast.Call):
        return False
    dotted = file.dotted(value.func)
    required = [k.value for k in value.keywords if k.arg == "requires_grad"]
    if dotted == "torch.nn.Parameter":
        return not required or (isinstance(required[0], ast.Constant) and required[0].value is True)
    made = dotted.startswith("torch.") and dotted.count(".") == 1 and dotted != "torch.tensor_split"
    return made and bool(required) and isinstance(required[0], ast.Constant) and required[0].value is True


def _switched_off(event: Event, name: str) -> bool:
    """Whether `requires_grad` of the name is set anywhere in the unit: then it is not sure what it is here."""
    for other in event.unit.events:
        for target in targets_of(other.node):
            if isinstance(target, ast.Attribute) and target.attr == "requires_grad":
                return True
        if isinstance(other.node, ast.Call) and terminal(other.node) in ("requires_grad_", "detach_"):
            return True
    return False


def _only_read(file: SourceFile, saving: Event) -> bool:
    """Whether a function that evaluates reads the result and nothing goes backward through it."""
    if not any(e.unit is saving.unit and e.index < saving.index for e in file.calls("eval")):
        return False
    flow = Destinations(file)
    flow.made_by(saving)
    flow.follow()
    return not (flow.backward or flow.escaped)

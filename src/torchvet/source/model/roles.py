"""What an expression is (an optimizer, a loss...): by what made it, its annotation, what callers pass, its name."""

from __future__ import annotations

import ast
import re
from functools import lru_cache
from typing import TYPE_CHECKING

from torchvet.source.model import torch_names as names
from torchvet.source.model.expressions import value_bound
from torchvet.source.model.units import ClassModel, Unit, receiver, terminal
from torchvet.source.syntax import expression, parts
from torchvet.source.text import name_set

if TYPE_CHECKING:
    from torchvet.source.model.events import Event
    from torchvet.source.model.file import SourceFile

Roles = frozenset[str]
NOTHING: Roles = frozenset()
_TENSORS: Roles = frozenset({"loss", "tensor", "output"})
_DEEPEST = 6

_HINTS = {
    "optimizer": re.compile(r"optim|^opt$|^opts$|^opt_|_opt$|^opt[A-Z]|^(adam|sgd)$"),
    "scheduler": re.compile(r"sched|^lr_?(decay|policy)|^warmup"),
    "scaler": re.compile(r"(^|_)(grad_?|loss_?|amp_?)?scaler$"),
    "loader": re.compile(r"loader|^((train|val|valid|test|eval)_?)?dl$"),
    "criterion": re.compile(r"criteri|^loss_?(fn|func|function|f)$|_loss_fn$|^crit$"),
    "module": re.compile(
        r"^(model|net|network|generator|discriminator|critic|actor|policy|encoder|decoder|backbone)$"
        r"|_(model|net)$|^net[A-Z]$|^(student|teacher)$"
    ),
    # `loss_weight` and `loss_type` are settings of one.
    "loss": re.compile(
        r"(^|_)loss(es)?(_(?!(\w+_)?(weight|coef|coeff|scale|sigma|type|name|factor|ratio|lambda|alpha|beta|gamma|margin"
        r"|eps|temperature)s?$)|$)|^err[DG]?"
    ),
}
"""Names that people give to things. Only asked where nothing else is known."""

KEEPS_ROLE = name_set("""
    to cuda cpu train eval half float double bfloat16 requires_grad_ type share_memory to_empty compile set_epoch
""")
WRAPPERS = name_set("""
    compile DataParallel DistributedDataParallel FullyShardedDataParallel FSDP DDP prepare prepare_model setup
    script jit deepcopy convert_sync_batchnorm prepare_optimizer prepare_data_loader setup_dataloaders EMA
""")


_OF_OUTPUT = ("logits", "last_hidden_state", "pooler_output")
"""Tensors of the output objects of pretrained models."""


@lru_cache(maxsize=8192)
def _reads_like(role: str, name: str) -> bool:
    pattern = _HINTS[role]
    # As written first: `netG` and `errD` are told by their capitals.
    return bool(name) and bool(pattern.search(name) or pattern.search(name.lower()))


class RoleFinder:
    """Answers for one file; what was found for a node is remembered."""

    def __init__(self, file: SourceFile) -> None:
        self._file = file
        self._known: dict[tuple[int, int], Roles] = {}
        self._classes: dict[tuple[int, str], ClassModel | None] = {}
        self._bound: dict[tuple[int, str], list[tuple[ast.expr, Unit]]] = {}

    def of(self, node: ast.AST | None, unit: Unit) -> Roles:
        """Everything that an expression is known to be in a unit; empty where nothing is known."""
        return self._of(node, unit, 0)

    def is_a(self, role: str, node: ast.AST | None, unit: Unit) -> bool:
        """Whether it is known to be that, or nothing is known and its name says so."""
        found = self.of(node, unit)
        return role in found or (not found and self.hinted(role, node))

    @staticmethod
    def hinted(role: str, node: ast.AST | None) -> bool:
        """Whether the last identifier reads like a thing of that role; `optimizers[0]` is one of `optimizers`."""
        while isinstance(node, ast.Subscript):
            node = node.value
        return _reads_like(role, terminal(node))

    def _of(self, node: ast.AST | None, unit: Unit, depth: int) -> Roles:
        if node is None or depth > _DEEPEST:
            return NOTHING
        key = (id(node), id(unit))
        found = self._known.get(key)
        if found is None:
            # `x = f(x)` in a loop asks for itself.
            self._known[key] = NOTHING  # recursion ends here
            found = self._known[key] = self._find(node, unit, depth)
        return found

    def _find(self, node: ast.AST, unit: Unit, depth: int) -> Roles:
        if isinstance(node, ast.Call):
            return self._of_call(node, unit, depth)
        if isinstance(node, ast.Name):
            return self._of_name(node.id, unit, depth)
        if isinstance(node, ast.Attribute):
            return self._of_attribute(node, unit, depth)
        if not isinstance(node, (ast.IfExp, ast.BoolOp, ast.NamedExpr, ast.Await, ast.BinOp, ast.UnaryOp)):
            return _of_literal(node)
        found = NOTHING.union(*(self._of(part, unit, depth + 1) for part in parts(node)))
        if isinstance(node, ast.UnaryOp):
            # `-loss` is one; `not model` is no model.
            return found & {*_TENSORS, "number"}
        return found & _TENSORS if isinstance(node, ast.BinOp) else found

    def _of_call(self, node: ast.Call, unit: Unit, depth: int) -> Roles:
        made = names.role_of_call(self._file.dotted(node.func))
        if made:
            # What torch says of the name goes before any class of this file that is called so.
            return made
        known = self.class_named(node.func)
        if known is not None:
            return self.of_class(known)
        name, on = terminal(node), receiver(node)
        before = self._of(on, unit, depth + 1)
        # A method of something known keeps its own meaning: `model.compile()` wraps nothing that it is given.
        # A wrapper gives what it wraps, in most cases as its first argument.
        if name in WRAPPERS and node.args and not before:
            return self._of(node.args[0], unit, depth + 1)
        by_name = self._of_method(name, before, on, unit) if on is not None else None
        if by_name is not None:
            return by_name
        # Calling a module gives its output, calling a criterion a loss.
        called = self._of(node.func, unit, depth + 1)
        if "criterion" in called or (not called and self.hinted("criterion", node.func)):
            return frozenset({"loss", "tensor"})
        return frozenset({"output", "tensor"}) if "module" in called else NOTHING

    def _of_method(self, name: str, before: Roles, on: ast.expr, unit: Unit) -> Roles | None:
        """What a method gives, by its name and what it is called on; None where these do not say."""
        if name in KEEPS_ROLE:
            return before
        if name in names.NUMBER_METHODS:
            return frozenset({"number"})
        if name in names.TENSOR_METHODS and before & _TENSORS:
            return before & _TENSORS
        scales = name == "scale" and self.is_a("scaler", on, unit)
        return frozenset({"loss", "scaled"}) if scales else None

    def of_class(self, model: ClassModel) -> Roles:
        """What instances of a class of this file are."""
        # "object" and not nothing: it is known to be neither optimizer nor loss, whatever its name.
        return NOTHING.union(*map(names.role_of_base, model.ancestors)) or frozenset({"object"})

    def class_named(self, node: ast.AST, unit: Unit | None = None) -> ClassModel | None:
        """The class of this file that a name means."""
        return self._file.classes.get(node.id) if isinstance(node, ast.Name) else None

    def class_of(self, node: ast.AST | None, unit: Unit) -> ClassModel | None:
        """The class of this file that an expression is an instance of."""
        if isinstance(node, ast.Name) and node.id == unit.self_name():
            return unit.method_class()
        for value, _ in self.values(node, unit):
            known = self._class_made(value)
            if known is not None:
                return known
        # A parameter that is bound anew may be something else by now.
        if isinstance(node, ast.Name) and not unit.bindings.get(node.id) and node.id in unit.parameters:
            return self._class_of_parameter(node.id, unit)
        return None

    def _class_made(self, value: ast.expr) -> ClassModel | None:
        """The class of this file that a call makes an instance of, wrappers and moves seen through."""
        while isinstance(value, ast.Call):
            known = self.class_named(value.func)
            if known is not None:
                return known
            on = receiver(value)
            if terminal(value) in KEEPS_ROLE and on is not None:
                value = on
            elif terminal(value) in WRAPPERS and value.args:
                value = value.args[0]
            else:
                break
        return None

    def _class_of_parameter(self, name: str, unit: Unit) -> ClassModel | None:
        """The class that a parameter is annotated with, or that all callers of this file pass an instance of."""
        key = (id(unit), name)
        if key not in self._classes:
            self._classes[key] = None  # recursion ends here
            annotated = unit.annotation(name)
            found = self.class_named(annotated) if annotated is not None else None
            if found is None:
                passed = {id(c): c for c in (self.class_of(v, u) for v, u in self._file.arguments(unit, name))}
                # Callers that pass instances of several classes leave it open.
                found = next(iter(passed.values())) if len(passed) == 1 else None
            self._classes[key] = found
        return self._classes[key]

    def values(self, node: ast.AST | None, unit: Unit) -> list[tuple[ast.expr, Unit]]:
        """The expressions that a name or `self` attribute is bound to anywhere, each with its unit."""
        if isinstance(node, ast.Call):
            return [(node, unit)]
        if isinstance(node, ast.Name):
            home = unit.home(node.id)
            key = (id(home), node.id)
            # Asked for the same names by every rule.
            known = self._bound.get(key)
            if known is None:
                given = [value_bound(event.node, node.id) for event in home.bindings.get(node.id, ())] if home else []
                known = self._bound[key] = [(value, home or unit) for value in given if value is not None]
            return known
        if isinstance(node, ast.Attribute):
            owner = self._owner(node.value, unit)
            found = owner.attributes.get(node.attr, []) if owner is not None else []
            return [(value, event.unit) for event, value in found if value is not None]
        return []

    def _owner(self, node: ast.expr, unit: Unit) -> ClassModel | None:
        if isinstance(node, ast.Name) and node.id == unit.self_name():
            return unit.method_class()
        return self.class_of(node, unit)

    def _of_name(self, name: str, unit: Unit, depth: int) -> Roles:
        home = unit.home(name)
        if home is None:
            return names.role_of_call(self._file.dotted(ast.Name(id=name)), calling=False)
        found = [self._of_binding(event, name, home, depth) for event in home.bindings.get(name, ())]
        # A parameter that is bound anew is both: what callers give, and what the function makes of it.
        if name in home.parameters:
            found.append(self._of_parameter(home, name, depth))
        return NOTHING.union(*found)

    def _of_attribute(self, node: ast.Attribute, unit: Unit, depth: int) -> Roles:
        owner = self._owner(node.value, unit)
        if owner is None and node.attr in _OF_OUTPUT and "output" in self._of(node.value, unit, depth + 1):
            return frozenset({"output", "tensor"})
        if owner is None:
            return names.role_of_call(self._file.dotted(node), calling=False)
        found: set[str] = set()
        for event, value in owner.attributes.get(node.attr, ()):
            found |= self._of(value, event.unit, depth + 1) or self._unpacked(event, node.attr, depth)
        return frozenset(found)

    def _of_binding(self, event: Event, name: str, home: Unit, depth: int) -> Roles:
        node = event.node
        if isinstance(node, (ast.With, ast.AsyncWith)):
            return NOTHING
        value = value_bound(node, name)
        if value is not None:
            return self._of(value, home, depth + 1)
        if isinstance(node, ast.AugAssign):
            return self._of(node.value, home, depth + 1) & _TENSORS
        return self._unpacked(event, name, depth)

    def _unpacked(self, event: Event, name: str, depth: int) -> Roles:
        """`model, opt = accelerator.prepare(model, opt)`: each gets what was given in its place."""
        node = event.node
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and terminal(node.value) in WRAPPERS:
            target, given = node.targets[0], node.value.args
            for element, one in zip(getattr(target, "elts", ()), given, strict=False):
                if isinstance(target, ast.Tuple) and len(target.elts) == len(given) and terminal(element) == name:
                    return self._of(one, event.unit, depth + 1)
        return NOTHING

    def _of_parameter(self, unit: Unit, name: str, depth: int) -> Roles:
        annotated = unit.annotation(name)
        found = self._of_annotation(annotated) if annotated is not None else NOTHING
        # Callers' arguments lead to their callers': two levels of functions are enough.
        if found or depth > 2:
            return found
        passed = self._file.arguments(unit, name)
        for value, caller in passed:
            found |= self._of(value, caller, depth + 2) or {role for role in _HINTS if self.hinted(role, value)}
        return found

    def _of_annotation(self, node: ast.expr) -> Roles:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            node = expression(node.value) or node
        if isinstance(node, ast.Subscript) and terminal(node.value) == "Optional":
            node = node.slice
        if isinstance(node, ast.BinOp):
            return self._of_annotation(node.left) | self._of_annotation(node.right)
        known = self.class_named(node)
        return self.of_class(known) if known is not None else names.role_of_annotation(self._file.dotted(node))


def _of_literal(node: ast.AST) -> Roles:
    if isinstance(node, ast.Constant):
        return frozenset({"number"}) if isinstance(node.value, (int, float)) else frozenset({"constant"})
    if isinstance(node, (ast.List, ast.ListComp, ast.Dict, ast.Set, ast.DictComp, ast.Tuple)):
        return frozenset({"container"})
    return NOTHING

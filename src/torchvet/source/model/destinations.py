"""Where values end up within a file: followed from bindings through expressions, containers, calls and returns."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from itertools import zip_longest
from typing import TYPE_CHECKING, TypeGuard

from torchvet.source.model import torch_names as names
from torchvet.source.model.events import Event
from torchvet.source.model.forwards import INDICES
from torchvet.source.model.units import Unit, receiver, targets_of, terminal
from torchvet.source.syntax import bindings, given, parts
from torchvet.source.text import name_set
from torchvet.source.walking import walk

if TYPE_CHECKING:
    from torchvet.source.model.file import SourceFile

# A round follows a value one unit further at least; more hops than that are not seen in programs.
_ROUNDS = 12
_TO_NUMBERS = name_set("""
    print len float int str repr round isinstance type id hash format bool hasattr range warnings.warn
""")
_PASS_ON = name_set("""
    sum max min list tuple zip enumerate reversed sorted dict set map next iter filter abs copy.copy copy.deepcopy
    collections.deque collections.OrderedDict getattr slice tqdm.tqdm any all
""")
_LIBRARIES = name_set("""
    numpy. math. matplotlib. wandb. logging. json. tqdm. time. statistics. pandas. seaborn. sklearn. scipy. mlflow.
    PIL. pprint. torchvision.utils. torch.save plt. np.
""")
"""What these are given is read, not kept: no gradient comes back from there."""
_READERS = name_set("""
    add_scalar add_scalars add_histogram add_image add_images add_figure set_postfix set_description set_postfix_str
    info debug warning error write format log_metric log_metrics plot imshow scatter savefig join report
    isEnabledFor log_dict writerow add_text print imwrite echo
""")
_ADDING = {"append", "appendleft", "extend", "extendleft", "add", "insert", "put", "put_nowait", "setdefault"}
"""Methods that put their arguments into what they are called on."""
_OTHERS = name_set("""
    eq ne gt lt ge le equal allclose isclose expand_as view_as reshape_as topk dot outer maximum minimum
    masked_select logical_and logical_or lerp cosine_similarity where addmm baddbmm cross fmod remainder true_divide
""")
"""More methods of tensors: what goes into them comes out again, or not at all."""
# `x.data` and `x.grad` share no graph with `x`, and sizes are numbers.
_NO_GRAPH = {"shape", "dtype", "device", "ndim", "grad_fn", "requires_grad", "is_cuda", "data", "grad", "size"}
_CUTTING = name_set("detach detach_ item tolist numpy argmax argmin argsort")
"""Methods that give a value on without its graph."""


def reaching(name: str, event: Event) -> list[Event]:
    """The bindings of a name whose value an event may read; none for what a parameter or an outer unit gives."""
    bindings = event.unit.bindings.get(name, [])
    found = last_bindings(bindings, event)
    # The last one is sure to have run in every pass: what a loop around both binds later does not come back to here.
    stop = found[-1] if found and is_sure(found[-1], event) else None
    around = event.loop
    # In a loop around both, what stands further down is read in the next turn.
    while around is not None and not (stop is not None and stop.inside(around)):
        # `>=`: `loss = f(loss)` reads what it has bound in the turn before.
        later = (b for b in bindings if b.index >= event.index and b.inside(around))
        found += [b for b in later if b not in found]
        around = around.parent
    return found


def last_bindings(bindings: Iterable[Event], event: Event) -> list[Event]:
    """The bindings before an event that it may see, the latest first, back to one that every way to the event takes."""
    found: list[Event] = []
    for binding in reversed([b for b in bindings if b.index < event.index and not b.excludes(event)]):
        found.append(binding)
        if is_sure(binding, event):
            break
    return found


def is_sure(binding: Event, event: Event) -> bool:
    """Whether every way to an event takes a binding."""
    return event.sure_after(binding) and event.inside(binding.loop)


class Destinations:
    """Follows values from where they are bound. `backward`: some backward may go through them. `escaped`: they go
    somewhere that this file does not show. `loose`: a function returns them that this file does not call. With
    `trusting` the functions of other files are taken to keep nothing: what they give back is followed."""

    def __init__(self, file: SourceFile, trusting: bool = False) -> None:
        self._file = file
        self._trusting = trusting
        self.backward = False
        self.escaped = False
        self.loose = False
        self.tensor_use = False
        """Whether something is done with them that a number cannot do."""
        self.cuts: dict[int, ast.expr] = {}
        """Where they are given on without their graph, by the `id` of the expression."""
        self.nodes: set[int] = set()
        self.bindings: set[int] = set()
        self.parameters: set[tuple[int, str]] = set()
        self.attributes: set[str] = set()
        self._returning: set[int] = set()
        self._units: dict[int, Unit] = {}
        self._begun: set[int] = set()
        """Units in which something was followed from its beginning."""

    @property
    def harmless(self) -> bool:
        """Whether every use is seen and none of them is a backward."""
        return not (self.backward or self.escaped or self.loose)

    # Seeds -----------------------------------------------------------------------------------------------------------

    def bound_by(self, binding: Event) -> None:
        """Follow what a binding binds."""
        self.bindings.add(id(binding))
        self._begun.add(id(binding.unit))
        self._involve(binding.unit)
        for target in targets_of(binding.node):
            self._taint(target, binding)

    def made_by(self, event: Event) -> None:
        """Follow what a call gives."""
        self.nodes.add(id(event.node))
        self._begun.add(id(event.unit))
        self._involve(event.unit)

    def held_by(self, node: ast.expr, event: Event) -> None:
        """Follow what is put into a name, an attribute or a subscript of one."""
        self._begun.add(id(event.unit))
        while isinstance(node, (ast.Subscript, ast.Call)):
            # `stats["loss"].append(x)`, `self.meters().add(x)`: down to what holds it all.
            node = node.value if isinstance(node, ast.Subscript) else (receiver(node) or node.func)
        if isinstance(node, ast.Attribute):
            self._attribute(node.attr)
        elif isinstance(node, ast.Name):
            self._name(node.id, event)
        else:
            self.escaped = True

    def _name(self, name: str, event: Event) -> None:
        home = event.unit.home(name)
        if home is None:
            self.escaped = True
            return
        # In another unit nobody knows which binding is the one: all of them are.
        found = reaching(name, event) if home is event.unit else home.bindings.get(name, [])
        self.bindings.update(map(id, found))
        if not found and (id(home), name) not in self.parameters:
            self.parameters.add((id(home), name))
            self.escaped = True  # a container that a caller passed: it is the caller's
        self._involve(home)
        self._involve_readers(name, home, event)

    def _involve_readers(self, name: str, home: Unit, event: Event) -> None:
        """Go through the units that may read a name of another unit than the event's."""
        for unit in self._file.units_with(name) if home is not event.unit or home.is_module else ():
            self._involve(unit)

    def _attribute(self, name: str) -> None:
        # By name, whatever object has it: that follows too much at times, and so proves less, but never too little.
        if name not in self.attributes:
            self.attributes.add(name)
            for unit in self._file.units_with(name):
                self._involve(unit)

    def _involve(self, unit: Unit) -> None:
        self._units.setdefault(id(unit), unit)

    def _taint(self, target: ast.expr, event: Event) -> None:
        if not isinstance(target, ast.Name):
            self.held_by(target, event)
            return
        self.bindings.add(id(event))
        home = event.unit.home(target.id)
        # A name that no unit binds comes from `import *` or the builtins.
        if home is not None:
            self._involve_readers(target.id, home, event)
        # A function that is defined in this one may read the name as a closure.
        for nested in self._file.units_with(target.id):
            if nested.parent is event.unit:
                self._involve(nested)

    # Following -------------------------------------------------------------------------------------------------------

    def follow(self, while_harmless: bool = False) -> Destinations:
        """Go on until nothing new is reached, or as long as it is harmless."""
        for _ in range(_ROUNDS):
            # What a later line binds may reach an earlier one: the units are gone through again until nothing is new.
            before = self._state()
            for unit in list(self._units.values()):
                for event in unit.events:
                    self._follow_event(event)
                # Nothing that follows makes them harmless again.
                if self.backward or self.escaped or (while_harmless and self.loose):
                    return self
            # Nothing new in a whole round: nothing will ever be.
            if self._state() == before:
                return self
        self.escaped = True  # no end in sight: not proven harmless
        return self

    def _state(self) -> tuple[int, ...]:
        # These only grow, so equal sizes mean equal sets.
        return (len(self.bindings), len(self.parameters), len(self.attributes), len(self._returning), len(self._units))

    def _follow_event(self, event: Event) -> None:
        node = event.node
        if isinstance(node, ast.Call):
            self._call(node, event)
        elif isinstance(node, ast.Return):
            if self.flows(node.value, event):
                self._return(event.unit)
        elif isinstance(node, (ast.Yield, ast.YieldFrom)):
            # Who consumes a generator, and when, is not followed.
            self.escaped |= self.flows(node.value, event)
        else:
            if _takes_apart(node) and self.flows(node.value, event):
                self._cut(node.value)
            for target, sources in _given(node):
                if any(self.flows(one, event) for one in sources):
                    self._taint(target, event)

    def _cut(self, node: ast.expr) -> None:
        self.cuts.setdefault(id(node), node)

    def _return(self, unit: Unit) -> None:
        if id(unit) in self._returning:
            return
        self._returning.add(id(unit))
        # It is read like an attribute: no call leads to it.
        if "property" in unit.decorators:
            self._attribute(unit.name)
            return
        callers = self._file.callers(unit)
        self.loose |= not callers
        # A module is handed on, wrapped and kept in dicts: who else runs it is not seen.
        # Also where callers are seen.
        self.escaped |= unit.name == "forward" and unit.owner is not None
        for event in callers:
            self._involve(event.unit)

    def _call(self, call: ast.Call, event: Event) -> None:
        on, name = receiver(call), terminal(call)
        tainted = any(self.flows(one, event) for one in given(call))
        receives = on is not None and self.flows(on, event)
        if not tainted and not receives:
            return
        dotted = self._file.dotted(call.func)
        self.backward |= name in ("backward", "manual_backward") or dotted == "torch.autograd.grad"
        if name in _CUTTING or dotted == "float":
            self._cut(call)
        if receives and name not in _ADDING:  # a list has `add` and `append` too
            self.tensor_use |= name in names.TENSOR_METHODS or name in names.DETACHING
        if tainted:
            self.tensor_use |= dotted.startswith("torch.")
            self._give(call, dotted, event)

    def _give(self, call: ast.Call, dotted: str, event: Event) -> None:
        """Follow what a call is given: into a container, into a function of the file, or out of sight."""
        on, callee = receiver(call), self._file.callee(event)
        # First: `self.losses.append` is no function of the file, whatever else is called `append`.
        if on is not None and terminal(call) in _ADDING:
            self.held_by(on, event)
        elif callee is not None:
            self._enter(callee, call, event)
        elif not self._is_known(call, dotted, event):
            self._hand_out(call, event)

    def _hand_out(self, call: ast.Call, event: Event) -> None:
        """Follow what a call of code that is not seen here is given."""
        on = receiver(call)
        if not self._trusting:
            self.escaped = True
        # A variable's method may put it into the variable; a function, or a part of a model, only gives something back.
        elif isinstance(on, ast.Name) and self._file.imports.names.get(on.id) is None:
            self.held_by(on, event)
        elif isinstance(on, ast.Attribute):
            self.escaped |= not self._file.roles.is_a("module", on, event.unit)

    def _is_known(self, call: ast.Call, dotted: str, event: Event) -> bool:
        """Whether a call does nothing with its arguments but read them, or give them on as its result."""
        name, on, roles = terminal(call), receiver(call), self._file.roles
        if dotted in _TO_NUMBERS or dotted in _PASS_ON or dotted.startswith((*_LIBRARIES, "torch.")):
            return True
        if name in _READERS or name in names.TENSOR_METHODS or name in _OTHERS:
            return True
        if on is not None and name == "step":
            # `scheduler.step(loss)` compares numbers; an optimizer's closure is another matter.
            return roles.is_a("scheduler", on, event.unit)
        # Lightning's `self.log` only reads, and `scaler.scale` gives on what it was given.
        if on is not None and name in ("log", "scale"):
            return True
        # On what is followed already: its holder is known, and so is what comes out.
        if on is not None and name in ("update", "items", "get") and self.flows(on, event):
            return True
        return bool(roles.of(call.func, event.unit) & {"module", "criterion"}) or roles.hinted("criterion", call.func)

    def _enter(self, callee: Unit, call: ast.Call, event: Event) -> None:
        """Tainted arguments become tainted parameters."""
        parameters = callee.given_parameters
        # Longest: more arguments than parameters go into `*args`.
        by_position = zip_longest(call.args, parameters[: len(call.args)])
        by_name = ((k.value, k.arg if k.arg in parameters else None) for k in call.keywords)
        for value, name in (*by_position, *by_name):
            if self.flows(value, event):
                # By `*args` or `**options` it goes into a parameter that is not known.
                if name is None or isinstance(value, ast.Starred):
                    self.escaped = True
                else:
                    self.parameters.add((id(callee), name))
        self._involve(callee)

    # Expressions -----------------------------------------------------------------------------------------------------

    def flows(self, node: ast.AST | None, event: Event) -> bool:
        """Whether the value of an expression, read at an event, may hold on to what is followed."""
        # Comparisons of tensors are tensors of bools, which carry no gradient.
        if node is None or isinstance(node, (ast.Constant, ast.Compare, ast.JoinedStr)):
            return False
        if isinstance(node, ast.Name):
            return self._name_flows(node.id, event)
        if isinstance(node, ast.Attribute):
            # By name whatever it is on, as in `_attribute`.
            if node.attr in self.attributes:
                return True
            if node.attr == "data" and self.flows(node.value, event):
                self._cut(node)
            return node.attr not in _NO_GRAPH and self.flows(node.value, event)
        if isinstance(node, ast.Call):
            return self._call_flows(node, event)
        return any(self.flows(part, event) for part in _parts(node))

    def _name_flows(self, name: str, event: Event) -> bool:
        # The unit whose variable it is: another unit's bindings count whatever their order.
        home = event.unit.home(name)
        if home is None:
            return False
        own = home is event.unit
        found = reaching(name, event) if own else home.bindings.get(name, [])
        if any(id(b) in self.bindings for b in found):
            return True
        # A binding that has surely run hides what the caller gave.
        sure = own and any(event.sure_after(b) and b.index < event.index for b in found)
        return not sure and (id(home), name) in self.parameters

    def _call_flows(self, node: ast.Call, event: Event) -> bool:
        # The call that was asked about gives what is followed, whatever it is given.
        if id(node) in self.nodes:
            return True
        name, on = terminal(node), receiver(node)
        dotted = self._file.dotted(node.func)
        if name in names.DETACHING or dotted in _TO_NUMBERS or dotted.startswith(("numpy.", "math.", "statistics.")):
            return False
        own = event.unit.call_of(node)
        callee = self._file.callee(own) if own is not None else None
        if callee is not None and (id(callee) not in self._returning or not self._only_gives_on(callee)):
            return id(callee) in self._returning
        return any(self.flows(one, event) for one in (on, *given(node)))

    def _only_gives_on(self, unit: Unit) -> bool:
        """Whether what a function returns is followed only where what it is given is: a helper that reshapes, say."""
        if id(unit) in self._begun:
            return False
        for node in walk(unit.node):
            # Calls of what stands in the file may bring it in; so may names from around, and attributes.
            if isinstance(node, ast.Call) and self._file.functions(terminal(node)):
                return False
            if isinstance(node, ast.Attribute) and node.attr in self.attributes:
                return False
            home = unit.home(node.id) if isinstance(node, ast.Name) else unit
            if home is not unit and home is not None and self._is_tainted(node.id, home):  # type: ignore[attr-defined]
                return False
        return True

    def _is_tainted(self, name: str, home: Unit) -> bool:
        found = home.bindings.get(name, ())
        return (id(home), name) in self.parameters or any(id(b) in self.bindings for b in found)


def _takes_apart(node: ast.AST) -> TypeGuard[ast.Assign]:
    """`values, indices = x.max(1)`; `torch.max(x, y)` gives one tensor, with the graphs of both."""
    if not isinstance(node, ast.Assign) or terminal(node.value) not in INDICES:
        return False
    return isinstance(node.targets[0], (ast.Tuple, ast.List))


def _given(node: ast.AST) -> Iterator[tuple[ast.expr, tuple[ast.expr, ...]]]:
    """The targets of a binding, each with the expressions that its value is made of."""
    if isinstance(node, (ast.For, ast.AsyncFor, ast.comprehension)):
        yield from ((target, (node.iter,)) for target in targets_of(node))
    elif isinstance(node, ast.AugAssign):
        # `x += y` keeps what was in `x`.
        yield node.target, (node.target, node.value)
    for number, (target, value, _) in enumerate(bindings(node)):
        # The indices of `values, indices = x.max(1)`; and nobody reads `_`, which one binding binds with them.
        if terminal(value) not in INDICES or (number != 1 and terminal(target) != "_"):
            yield target, (value,)


def _parts(node: ast.AST) -> Iterable[ast.AST]:
    """The expressions within an expression whose values may be part of its value."""
    if isinstance(node, ast.Lambda):
        # A lambda holds on to the variables that it reads, whatever it computes of them.
        return [n for n in walk(node.body) if isinstance(n, ast.Name)]
    if isinstance(node, ast.DictComp):
        return [node.key, node.value]
    return (parts(node) if not isinstance(node, ast.Dict) else []) or ast.iter_child_nodes(node)

"""Where a file runs under autocast: regions, their device, dtype and whether they are on."""

from __future__ import annotations

import ast
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal, TypeGuard

from torchvet.rules.kit import Iterable, Severity, SourceFile
from torchvet.source.model import ClassModel, Event, Unit, is_attribute, is_call, receiver, terminal

Enabled = Literal["yes", "no", "unknown"]

_ARGUMENTS = {
    "torch.autocast": ("device_type", "dtype", "enabled", "cache_enabled"),
    "torch.amp.autocast": ("device_type", "dtype", "enabled", "cache_enabled"),
    "torch.cuda.amp.autocast": ("enabled", "dtype", "cache_enabled"),
    "torch.cpu.amp.autocast": ("enabled", "dtype", "cache_enabled"),
}
_OWN_DEVICE = {"torch.cuda.amp.autocast": "cuda", "torch.cpu.amp.autocast": "cpu"}
# What autocast computes in where no dtype is given.
_DEFAULT = {"cuda": "fp16", "cpu": "bf16"}
DTYPES = {"torch.float16": "fp16", "torch.half": "fp16", "torch.bfloat16": "bf16"}
_NOTHING = ("nullcontext", "suppress")
_DEEPEST = 6


@dataclass(frozen=True)
class Region:
    """A `with autocast(...)`: `node` is the expression of the `with` or the decorator that opens it.

    `device` and `dtype` ("fp16", "bf16") are empty where the text does not say. `framework` is true for
    `accelerator.autocast()` and the like, which does what its owner says.
    """

    node: ast.expr
    call: ast.Call | None
    enabled: Enabled
    device: str = ""
    dtype: str = ""
    cached: bool = True
    framework: bool = False

    @property
    def may_be_on(self) -> bool:
        """Whether it casts operators in some run, by what this file says."""
        return self.enabled != "no" and not self.framework


def arguments(file: SourceFile, call: ast.Call) -> dict[str, ast.expr]:
    """What an autocast call is given, by parameter; empty for another call."""
    names = _ARGUMENTS.get(file.dotted(call.func))
    if names is None:
        return {}
    given = dict(zip(names, call.args, strict=False))
    # `**options` is left out: what it holds nobody knows here.
    given.update({k.arg: k.value for k in call.keywords if k.arg})
    return given


def argument(file: SourceFile, at: Region, name: str) -> ast.expr | None:
    """What the call that opens a region is given for a parameter."""
    return arguments(file, at.call).get(name) if at.call is not None else None


def constants(file: SourceFile, node: ast.expr | None, unit: Unit) -> list[object]:
    """The values that an expression can have, where all are literals; empty where that is not known."""
    if isinstance(node, ast.Constant):
        return [node.value]
    if not isinstance(node, (ast.Name, ast.Attribute)):
        return []
    values, bound = file.roles.values(node, unit), 1
    if isinstance(node, ast.Name) and (home := unit.home(node.id)) is not None:
        if node.id in home.parameters:
            return []
        # A loop's variable is bound and has no value: then there are fewer values than bindings.
        bound = len(home.bindings.get(node.id, ()))
    found: list[object] = [v.value for v, _ in values if isinstance(v, ast.Constant)]
    return found if len(found) == len(values) >= bound else []


def devices(file: SourceFile, node: ast.expr | None, unit: Unit, depth: int = 0) -> set[str]:
    """The kinds of device that an expression can mean (`cuda`, `cpu`, `mps`); empty where that is not known."""
    if depth > _DEEPEST:
        return set()  # `self.device = torch.device(self.device)` leads back to itself
    if is_attribute(node, "type"):
        return devices(file, node.value, unit, depth + 1)
    if _makes_device(node, file) and node.args:
        return devices(file, node.args[0], unit, depth + 1)
    known = constants(file, node, unit)
    if known:
        return {str(v).partition(":")[0] for v in known} if all(isinstance(v, str) for v in known) else set()
    if not isinstance(node, (ast.Name, ast.Attribute)) or _is_given(node, unit):
        return set()
    values = file.roles.values(node, unit)
    found = [devices(file, v, where, depth + 1) if _makes_device(v, file) else set() for v, where in values]
    # One that is not known, and it could be any device.
    return set().union(*found) if all(found) else set()


def _makes_device(node: ast.expr | None, file: SourceFile) -> TypeGuard[ast.Call]:
    return isinstance(node, ast.Call) and file.dotted(node.func) == "torch.device"


def _is_given(node: ast.expr, unit: Unit) -> bool:
    """Whether a name is a parameter, or bound nowhere in the file."""
    if not isinstance(node, ast.Name):
        return False
    home = unit.home(node.id)
    return home is None or node.id in home.parameters


def named(file: SourceFile, node: ast.expr | None, unit: Unit) -> str:
    """The half dtype that an expression names: "fp16", "bf16", empty for another or an unknown one."""
    if node is None:
        return ""
    dotted = file.dotted(node)
    if dotted in DTYPES:
        return DTYPES[dotted]
    if not isinstance(node, ast.Name) or (home := unit.home(node.id)) is None or node.id in home.parameters:
        return ""
    values = file.roles.values(node, unit)
    kinds = {DTYPES.get(file.dotted(v), "") for v, _ in values}
    return kinds.pop() if len(kinds) == 1 and len(values) == len(home.bindings.get(node.id, ())) else ""


def _enabled(file: SourceFile, node: ast.expr | None, unit: Unit) -> Enabled:
    if node is None:
        return "yes"
    known = constants(file, node, unit)
    if known and all(v is True for v in known):
        return "yes"
    return "no" if known and all(v is False for v in known) else "unknown"


def _of_call(file: SourceFile, node: ast.expr, call: ast.Call, unit: Unit) -> Region:
    given = arguments(file, call)
    name = file.dotted(call.func)
    kinds = devices(file, given.get("device_type"), unit)
    device = _OWN_DEVICE.get(name) or (kinds.pop() if len(kinds) == 1 else "")
    cached = constants(file, given.get("cache_enabled"), unit) != [False]
    enabled = _enabled(file, given.get("enabled"), unit)
    asked = given.get("dtype")
    dtype = named(file, asked, unit) if asked is not None else _DEFAULT.get(device, "")
    return Region(node, call, enabled, device, dtype, cached)


def region(file: SourceFile, node: ast.expr, unit: Unit, depth: int = 0) -> Region | None:
    """The region that a context expression opens; None for what is no autocast, or not known to be one."""
    if depth > 3:
        return None
    if isinstance(node, ast.Call):
        if file.dotted(node.func) in _ARGUMENTS:
            return _of_call(file, node, node, unit)
        # `accelerator.autocast()`, `fabric.autocast()`.
        if terminal(node) == "autocast" and receiver(node) is not None:
            return Region(node, None, "unknown", framework=True)
        return _by_name(file, node, node.func, unit, depth)
    if isinstance(node, ast.IfExp):
        return _either(file, node, [(node.body, unit), (node.orelse, unit)], depth)
    return _by_name(file, node, node, unit, depth)


def _by_name(file: SourceFile, node: ast.expr, name: ast.expr, unit: Unit, depth: int) -> Region | None:
    """`ctx`, `self.ctx`, or `amp_autocast()` where that is bound to autocast, or to a partial of it."""
    if not isinstance(name, (ast.Name, ast.Attribute)):
        return None
    return _either(file, node, file.roles.values(name, unit), depth)


def _either(file: SourceFile, node: ast.expr, values: list[tuple[ast.expr, Unit]], depth: int) -> Region | None:
    found: list[Region] = []
    for value, where in values:
        made = _of_value(file, value, where, depth + 1)
        # In this order: what is autocast counts, whatever else there is.
        if made is not None:
            found.append(made)
        elif terminal(value) not in _NOTHING:
            # One of the values is something unknown: then nothing is known of the region.
            return None
    if not found:
        return None
    first = replace(found[0], node=node)
    # `autocast() if use_amp else nullcontext()`: on or off is decided by the run.
    # Fewer: one of them was a `nullcontext()`.
    alike = len(found) == len(values) and all(f.enabled == first.enabled for f in found)
    same = all((f.device, f.dtype) == (first.device, first.dtype) for f in found)
    first = first if same else replace(first, device="", dtype="")
    return first if alike else replace(first, enabled="unknown")


def _of_value(file: SourceFile, value: ast.expr, unit: Unit, depth: int) -> Region | None:
    if file.dotted(value) in _ARGUMENTS:
        return Region(value, None, "yes", _OWN_DEVICE.get(file.dotted(value), ""))
    if is_call(value, "partial") and value.args:
        inner = value.args[0]
        if file.dotted(inner) not in _ARGUMENTS:
            return None
        # `partial(torch.autocast, dtype=...)` is read as the call that it will become.
        call = ast.copy_location(ast.Call(func=inner, args=value.args[1:], keywords=value.keywords), value)
        return _of_call(file, value, call, unit)
    return region(file, value, unit, depth)


def regions(event: Event) -> list[Region]:
    """The autocast regions around an event within its unit, outermost first; the unit's decorators count."""
    file, unit = event.unit.file, event.unit
    found: list[Region | None] = []
    node = unit.node
    if not isinstance(node, ast.Module):
        # A decorator's names are those of the scope around the function.
        found += [region(file, d, unit.parent or unit) for d in node.decorator_list if terminal(d) == "autocast"]
    found += [region(file, w, unit) for w in event.context.withs]
    return [r for r in found if r is not None]


def state(event: Event) -> Region | None:
    """The innermost region around an event; None where its unit says nothing about autocast."""
    found = regions(event)
    return found[-1] if found else None


def of_forward(known: ClassModel | None) -> Region | None:
    """The region, on or maybe on, that a module's `forward` opens itself and returns from: by its decorator or a `with`
    around every return."""
    forward = known.method("forward") if known is not None else None
    if forward is None or not forward.file.mentions("autocast"):
        return None
    # By the returns: what is returned from outside of the region may have been cast back.
    found = [active(e) for e in forward.events if isinstance(e.node, ast.Return)]
    return found[0] if found and all(f is not None and f == found[0] for f in found) else None


def active(event: Event) -> Region | None:
    """The innermost region around an event, if it is on or may be."""
    found = state(event)
    return found if found is not None and found.enabled != "no" else None


def statement_of(unit: Unit, at: Region) -> ast.With | ast.AsyncWith | None:
    """The `with` statement that opens a region."""
    nodes = (e.node for e in unit.events if isinstance(e.node, (ast.With, ast.AsyncWith)))
    return next((node for node in nodes if any(i.context_expr is at.node for i in node.items)), None)


# One: rules are asked file by file.
@lru_cache(maxsize=1)
def opened(file: SourceFile) -> list[tuple[Region, Event, ast.With | ast.AsyncWith]]:
    """Every `with` of a file that opens a region; kept for the file that was asked about last."""
    every: list[tuple[Region, Event, ast.With | ast.AsyncWith]] = []
    for unit in file.units if file.mentions("autocast") else ():
        for event in unit.events if _may_open(file, unit) else ():
            if isinstance(event.node, (ast.With, ast.AsyncWith)):
                found = [region(file, item.context_expr, unit) for item in event.node.items]
                every += [(one, event, event.node) for one in found if one is not None]
    return every


def _may_open(file: SourceFile, unit: Unit) -> bool:
    lines = file.lines[unit.first - 1 : unit.last]
    # By text, as most units have no `with` and need not be walked.
    return any(line.lstrip().startswith(("with ", "with(", "async with")) for line in lines)


def inside(unit: Unit, at: Region) -> list[Event]:
    """Events of a unit that lie within a region, those of regions nested in it included."""
    return [e for e in unit.events if any(w is at.node for w in e.context.withs)]


def are_some_off(unit: Unit, withs: Iterable[ast.expr]) -> bool:
    """Whether one of the `with` items of a unit opens a region that is off."""
    found = (region(unit.file, item, unit) for item in {id(w): w for w in withs}.values())
    return any(one is not None and one.enabled == "no" for one in found)


def calls_inside(unit: Unit, at: Region) -> list[Event]:
    """Calls of a unit that lie within a region."""
    return [e for e in inside(unit, at) if e.node.__class__ is ast.Call]


def module_calls(unit: Unit, at: Region) -> list[Event]:
    """Calls of modules within a region."""
    return [e for e in inside(unit, at) if is_module_call(e)]


def severity_of_stale_weights(region: Region, unit: Unit) -> Severity:
    """How grave it is where weights change within a region: its copies are of single-precision weights. Of what other
    files build or load, this one does not show the dtype."""
    forwards = unit.file.gradients.forwards
    funcs = [e.call for e in unit.events if is_module_call(e)]
    # Made in this file, its weights are float32 unless the text says otherwise.
    built = any(forwards.kind(call.func, unit) or forwards.class_run(call, unit) for call in funcs)
    return "error" if built and region.enabled == "yes" else "warning"


def is_module_call(event: Event) -> bool:
    """Whether an event calls a module: what is known to be one, or is named like one."""
    if not isinstance(event.node, ast.Call):
        return False
    file, function = event.unit.file, event.node.func
    known = file.roles.of(function, event.unit)
    if known:
        return "module" in known and "criterion" not in known
    if not isinstance(function, (ast.Name, ast.Attribute)) or file.callee(event) is not None:
        return False
    return file.roles.hinted("module", function) or _has_parameters(function, event.unit)


def _has_parameters(node: ast.Name | ast.Attribute, unit: Unit) -> bool:
    """Whether the same thing is asked for its parameters: what is called `D` and has some is a module."""
    # `D` and `netG` read like no module; who asks for `D.parameters()` knows it to be one.
    text, owner = ast.unparse(node), unit.method_class()
    for asked in unit.file.calls("parameters", "named_parameters"):
        on = receiver(asked.call)
        # The last name first: `ast.unparse` is slow.
        if on is None or terminal(on) != terminal(node) or ast.unparse(on) != text:
            continue
        if isinstance(node, ast.Attribute) and owner is not None and asked.unit.method_class() is owner:
            return True
        if isinstance(node, ast.Name) and asked.unit.home(node.id) is unit.home(node.id):
            return True
    return False

"""Statements that compute a tensor from another one and drop it: they do nothing."""

from __future__ import annotations

import ast
import re
from typing import NamedTuple

from torchvet.rules.kit import Iterator, SourceFile
from torchvet.rules.shared.sure_tensors import surely_tensor
from torchvet.source import timing
from torchvet.source.model import Event, Unit, is_name, name_set, receiver, terminal, value_bound, walk
from torchvet.source.statements import Place, path_to_node

_OWN = name_set("""
    masked_fill masked_scatter masked_select unsqueeze clamp clamp_min clamp_max permute view_as expand_as reshape_as
    type_as log_softmax repeat_interleave logsumexp index_fill index_copy index_add scatter_add scatter_reduce
""")
"""Methods that of what is in common use tensors alone have."""
_SHARED = name_set("""
    detach squeeze view reshape transpose contiguous expand repeat flatten unflatten clone softmax sigmoid tanh relu
    exp log sqrt rsqrt abs neg mul add sub div pow square round floor ceil clip nan_to_num flip roll cumsum sort gather
    scatter tril triu bool int short byte type movedim swapaxes
""")
"""Further methods that give a new tensor and leave their own alone. Other types have methods of these names."""
_FUNCTIONS = (_OWN | _SHARED | name_set("where lerp normalize")) - name_set("""
    sort bool int short byte type clone view repeat expand view_as expand_as reshape_as type_as contiguous
""")
_FUNCTIONALS = name_set("""
    relu gelu silu elu leaky_relu softplus sigmoid tanh softmax log_softmax logsigmoid normalize pad interpolate dropout
    one_hot
""")
_COMPUTED = frozenset(
    f"torch.{name}" for name in ("einsum", "matmul", "bmm", "mm", "baddbmm", "cat", "stack", *_FUNCTIONS)
)
_NAMES = "|".join(sorted(_OWN | _SHARED | _FUNCTIONS | _FUNCTIONALS))
_SIGN = re.compile(rf"\.(?:{_NAMES})\(")
_BEGINS = re.compile(rf"[ \t]*(?:[^\n#=]*[;:][ \t]*)?[A-Za-z_][\w.]*(?:\[[^\]\n]*\])?\.({_NAMES})\(")
"""A statement that begins with such a call, also behind a semicolon or on the line of its `if`."""
_GOES_ON = ("(", "[", "{", ",", "=", "+", "-", "*", "/", "|", "&", "\\", " and", " or", " not", " in")
"""Ends of lines after which no statement begins."""
_ON_PURPOSE = re.compile(
    r"raises|warn|assert|profil|tim(?:e|ing)|bench|mode|trac|captur|graph|hook|suppress|expect", re.I
)
"""Names of blocks in which a call alone has an effect."""
_TRIAL = re.compile(r"bench|warm|profil|timeit|smoke|(?:^|_)(?:check|verify|ensure|assert)(?:_|$)", re.I)
_TESTED = re.compile(r"(?:^|/)(?:conftest|test_[^/]*|[^/]*_test|[^/]*bench[^/]*)\.py$|(?:^|/)bench(?:mark)?s?/", re.I)
_IN_PLACE = ("inplace", "out")
_NAMED = (ast.Name, ast.Attribute, ast.Subscript)
_SHORT = 2
"""Statements of a `try` that is there for what one of them raises. Chosen, not measured."""


class Unused(NamedTuple):
    """One such statement: the call, what it was computed from, and whether that is sure to be a tensor."""

    event: Event
    subject: ast.expr
    sure: bool


def unused_results(file: SourceFile) -> Iterator[Unused]:
    """Every such statement of a file, but those that are there for their time or for what they raise."""
    if is_trial(file) or file.mentions("__torch_function__", "__torch_dispatch__", "TorchDispatchMode"):
        return  # what sees each call may be what a call is there for
    for event in _statements(file):
        found = _unused(file, event)
        if found is not None and not _on_purpose(file, event):
            yield found


def is_trial(file: SourceFile) -> bool:
    """Whether a file holds tests or benchmarks, which call things for the call alone."""
    return bool(_TESTED.search(file.path.replace("\\", "/"))) or file.mentions("import pytest", "import unittest")


def goes_on(found: Unused) -> bool:
    """Whether the program reads the tensor again, as it was."""
    if not isinstance(found.subject, ast.Name):
        return True
    name, event = found.subject.id, found.event
    last = event.statement.end_lineno or event.line
    loop = event.loop.first if event.loop is not None else last + 1
    reads = (n for n in walk(event.unit.node) if is_name(n, name))
    return any(isinstance(n.ctx, ast.Load) and (n.lineno > last or loop <= n.lineno < event.line) for n in reads)


def _statements(file: SourceFile) -> Iterator[Event]:
    for match in file.words.lines_like(_BEGINS, _SIGN):
        line = file.line_of(match.start(1))
        above = file.lines[line - 2].rstrip() if line > 1 else ""
        # An argument on a line of its own, which most such lines are: nothing is walked for it.
        if not above.endswith(_GOES_ON):
            yield from (e for e in file.events_on(line) if _is_statement(e))


def _is_statement(event: Event) -> bool:
    return event.node.__class__ is ast.Call and event.parent.__class__ is ast.Expr is event.statement.__class__


def _unused(file: SourceFile, event: Event) -> Unused | None:
    """What a call computes from, if all that it does is to give a new tensor."""
    call = event.call
    # `**options` may hold `out` as well.
    if any(k.arg is None or k.arg in _IN_PLACE for k in call.keywords):
        return None
    module, _, function = file.dotted(call.func).rpartition(".")
    if module not in ("torch", "torch.nn.functional"):
        return _by_methods(file, event)
    known = _FUNCTIONS if module == "torch" else _FUNCTIONALS
    plain = bool(call.args) and isinstance(call.args[0], _NAMED)
    return Unused(event, call.args[0], sure=True) if plain and function in known else None


def _by_methods(file: SourceFile, event: Event) -> Unused | None:
    """One method or several of a name: `x.view(-1).clamp(0)`."""
    subject: ast.expr | None = event.call
    names: list[str] = []
    while isinstance(subject, ast.Call):
        names.append(terminal(subject))
        subject = receiver(subject)
    if not isinstance(subject, _NAMED) or not _OWN.union(_SHARED).issuperset(names):
        return None
    if _is_of_own_class(event, subject):
        return None
    # By its use alone an accelerator (`backward`, `log`) or a graph (`view`) would be one too.
    told = names[0] in _OWN or "tensor" in file.roles.of(subject, event.unit)
    if told and (surely_tensor(file, subject, event) or _computed_by_torch(file, subject, event)):
        return Unused(event, subject, sure=True)
    may_be = not _OWN.isdisjoint(names) and _may_be_tensor(file, subject, event, names)
    return Unused(event, subject, sure=False) if may_be else None


def _is_of_own_class(event: Event, node: ast.expr) -> bool:
    """Whether it is `self` of a class of this file: its methods of these names may change the object."""
    return isinstance(node, ast.Name) and node.id == event.unit.self_name() != ""


def _computed_by_torch(file: SourceFile, node: ast.expr, event: Event) -> bool:
    """Whether every binding that can reach here is arithmetic on what a function of torch gives."""
    if not isinstance(node, ast.Name) or event.unit.home(node.id) is not event.unit or node.id in event.unit.parameters:
        return False
    found = [value_bound(binding.node, node.id) for binding in file.devices.reaching(node.id, event)]
    return bool(found) and all(_is_computed(file, value) for value in found)


def _is_computed(file: SourceFile, value: ast.expr | None) -> bool:
    if isinstance(value, ast.BinOp):
        return _is_computed(file, value.left) or _is_computed(file, value.right)
    return isinstance(value, ast.Call) and file.dotted(value.func) in _COMPUTED


def _may_be_tensor(file: SourceFile, node: ast.expr, event: Event, names: list[str]) -> bool:
    """Whether nothing shows that it is something else, whose methods may do anything."""
    root = node
    while isinstance(root, (ast.Attribute, ast.Subscript)):
        root = root.value
    if not isinstance(root, ast.Name) or root.id in file.imports.names or any(map(file.functions, names)):
        return False
    if file.imports.uses("tensordict") or file.roles.of(node, event.unit) & {"module", "object", "container"}:
        return False
    if (
        isinstance(root, ast.Name)
        and root.id in event.unit.parameters
        and not _annotated_as_tensor(event.unit, root.id)
    ):
        return False
    return not any(_makes_object(file, value) for value, _ in file.roles.values(node, event.unit))


def _annotated_as_tensor(unit: Unit, name: str) -> bool:
    """Whether a parameter's annotation, if it has one, speaks of tensors."""
    given = unit.annotation(name)
    return given is None or "Tensor" in ast.unparse(given)


def _makes_object(file: SourceFile, value: ast.expr) -> bool:
    """`Boxes(…)`, `Boxes.empty(…)`: an instance of a class that is not torch's."""
    if not isinstance(value, ast.Call):
        return False
    dotted = file.dotted(value.func)
    return not dotted.startswith("torch.") and any(part[:1].isupper() for part in dotted.split("."))


def _on_purpose(file: SourceFile, event: Event) -> bool:
    """Whether the call is there for its time, for what it raises, or to be shown."""
    unit, context = event.unit, event.context
    if _TRIAL.search(unit.name) or any(_ON_PURPOSE.search(file.segment(w)) for w in context.withs):
        return True
    if any(_is_trial(place) for place in path_to_node(unit.node, event.call)):
        return True
    if event.loop is not None and len(getattr(event.loop.node, "body", ())) == 1 and _counts(event.loop.node):
        return True
    shown = unit.is_module and event.loop is None
    cells = file.path.endswith(".ipynb") or file.mentions("# %%", "#%%", "# In[")
    return (shown and cells) or timing.is_timed(unit.node, event.call)


def _is_trial(place: Place) -> bool:
    handled = bool(getattr(place.owner, "handlers", ()))
    return handled and place.field == "body" and len(place.block) <= _SHORT


def _counts(node: ast.AST) -> bool:
    """`for _ in range(n)`: the same again and again."""
    return isinstance(node, ast.For) and terminal(node.iter) == "range"

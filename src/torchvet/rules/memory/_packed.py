"""Cycles through C++: a hook for saved tensors hands back the tensor itself, and that is its own node's output.

A node that saves its own output keeps it without its `grad_fn`. What a pack hook hands back is kept as it is: the
output leads to its node and the node to the output, out of the sight of Python's collector.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from torchvet.rules.kit import Edits, Finding, Findings, Location, Recording, Rule, SourceFile, records
from torchvet.rules.shared.unreachable_storages import stranger_findings
from torchvet.source.model import edits, is_name, terminal
from torchvet.source.statements import first_line

_Function = ast.FunctionDef | ast.Lambda
_CAUSE = (
    "the pack hook hands back the tensor itself: of an operator that saves its own output ({nodes}) that is a cycle "
    "through C++, output -> grad_fn -> saved tensor -> output. Python's collector cannot see it, and only a backward "
    "pass through the node breaks it"
)
_ADVICE = (
    "return `{name}.detach()` from the pack hook (it shares the memory and has no grad_fn), or run what no backward "
    "follows under `torch.no_grad()`, or outside the hooks"
)


def packed_as_they_are(rule: Rule, recording: Recording) -> Findings:
    """Storages without a name that live on because their own node has them from a hook."""
    who = [
        s
        for r in recording.ranks
        for c in r.all(records.base.Census)
        for s in c.strangers
        if s.owner == records.base.SAVED_HOOKS
    ]
    if not who:
        return
    nodes = ", ".join(dict.fromkeys(s.attribute for s in who if s.attribute))
    packs = _packs(who, recording)
    # With several candidates any line would be a guess.
    at = _line_of(packs[0], recording) if len(packs) == 1 else None
    name = _given(packs[0][1]) if len(packs) == 1 else "tensor"
    cause, advice = _CAUSE.format(nodes=nodes), _ADVICE.format(name=name)
    yield from stranger_findings(rule, recording, "native", cause, advice, location=at, owner=records.base.SAVED_HOOKS)


def is_packed(finding: Finding) -> bool:
    """Whether a finding is about such a cycle."""
    return finding.holder is not None and finding.holder.name.startswith(f"{records.base.SAVED_HOOKS}.")


def detached_when_packed(file: SourceFile, finding: Finding) -> Edits:
    """`.detach()` of what the pack hook on the finding's line hands back."""
    at = finding.location
    if at is None or at.path != file.path:
        return ()
    for call in _calls(file.tree):
        hook = _defined(file.tree, call.args[0])
        returned = _handed_back(hook) if hook is not None else None
        if returned is not None and returned.lineno == at.line:
            return [edits.replace(file, returned, f"{returned.id}.detach()")]
    return ()


def _packs(who: Sequence[records.base.Stranger], recording: Recording) -> list[tuple[str, _Function]]:
    """The program's pack hooks that hand back what they are given, each with its file: those that are made beside the
    unpack hook that the run has seen, where it is known."""
    found: list[tuple[bool, str, _Function]] = []
    # By text: most programs use no such hooks, and no file need be parsed.
    used = any(records.base.SAVED_HOOKS in text for text in recording.sources.values())
    unpacked = {(s.path, s.line) for s in who if s.path is not None}
    for path in recording.sources if used else ():
        if (file := recording.model(path)) is None:
            continue
        for hook, unpack in _pairs(file.tree):
            # A run sees a node's unpack hook alone: torch keeps no pack hook once it has run.
            found.append((unpack is not None and (path, first_line(unpack)) in unpacked, path, hook))
    # Several pairs of hooks may hand tensors back; the run knows of some nodes which unpack hook they have.
    sure = [f for f in found if f[0] or not unpacked]
    return list({id(hook): (path, hook) for _, path, hook in sure}.values())


def _pairs(tree: ast.Module) -> Iterator[tuple[_Function, _Function | None]]:
    """The pack hooks that hand back what they are given, each with the unpack hook beside it."""
    for call in _calls(tree):
        hook = _defined(tree, call.args[0])
        if hook is not None and _handed_back(hook) is not None:
            yield hook, _defined(tree, next(iter(call.args[1:]), None))


def _calls(tree: ast.AST) -> Iterator[ast.Call]:
    """Where hooks for saved tensors are put in place."""
    return (n for n in ast.walk(tree) if isinstance(n, ast.Call) and terminal(n) == records.base.SAVED_HOOKS and n.args)


def _defined(tree: ast.AST, hook: ast.expr | None) -> _Function | None:
    """The function that an expression names, where the file has but one of the name."""
    if hook is None or isinstance(hook, ast.Lambda):
        return hook
    name = terminal(hook)
    found = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) and n.name == name]
    # Two functions of one name: which is meant depends on scopes, which are not followed here.
    return found[0] if len(found) == 1 else None


def _given(function: _Function) -> str:
    """The parameter that is the tensor: the last one, after `self`."""
    args = [*function.args.posonlyargs, *function.args.args]
    return args[-1].arg if args else ""


def _handed_back(function: _Function) -> ast.Name | None:
    """Where a function returns its own parameter as it is."""
    if isinstance(function, ast.Lambda):
        values: list[ast.expr | None] = [function.body]
    else:
        values = [n.value for n in ast.walk(function) if isinstance(n, ast.Return)]
    own = [v for v in values if is_name(v, _given(function))]
    return own[0] if own else None


def _line_of(pack: tuple[str, _Function], recording: Recording) -> Location | None:
    path, hook = pack
    returned = _handed_back(hook)
    if returned is None:
        return None
    function = recording.index.function_at(path, returned.lineno)
    return Location(path=path, line=returned.lineno, function=function.qualname if function is not None else None)

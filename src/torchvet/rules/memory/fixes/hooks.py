"""Edits for a hook that is registered at every step: its handle is kept, and removed before the next or at the end of
the loop's body."""

from __future__ import annotations

import ast

from torchvet.rules.kit import Edit, Edits, Finding, SourceFile, calls_at
from torchvet.rules.memory._hooks import ON_MODULES, ON_TENSORS, base_of, hook_of
from torchvet.source.model import Event, edits, receiver, targets_of, terminal


def handle_removed(file: SourceFile, finding: Finding) -> Edits:
    """What a registration whose handle is thrown away needs; nothing where the hook may be wanted for longer."""
    here = [event for event, _ in calls_at(file, finding, *ON_MODULES, *ON_TENSORS)]
    if here and not any(isinstance(event.parent, ast.Expr) for event in here):
        # The handle of the one that was named is kept: those beside it whose handle is not are what piles up.
        here = list(file.calls(*{terminal(event.node) for event in here}))
    for event in here:
        if isinstance(event.parent, ast.Expr) and edits.stands_alone(file, event.parent):
            found = _removal(file, event)
            if found is not None:
                return found
    return ()


def _removal(file: SourceFile, event: Event) -> Edits | None:
    """The edits for one registration; None where it runs once, or only at times."""
    if _goes_over_modules(event) or _is_of_others(event):
        return _on_the_module(file, event)
    # Under a condition the handle might be removed before it exists.
    if event.context.arms:
        return None
    if event.loop is None:
        # A method without a loop runs again with each call.
        repeated = event.unit.owner is not None and event.unit.name != "__init__"
        return _before_the_next(file, event) if repeated else None
    node = event.loop.node
    return _at_the_end(file, event, node) if isinstance(node, (ast.For, ast.While)) else None


def _root(event: Event) -> str:
    """`layer` of `layer.conv.register_forward_hook(hook)`."""
    return terminal(base_of(receiver(event.call)))


def _goes_over_modules(event: Event) -> bool:
    """Whether the loop right around gives what the hook is registered on: the hook is for later."""
    loop = event.loop.node if event.loop is not None else None
    return isinstance(loop, ast.For) and _root(event) in {terminal(t) for t in targets_of(loop)}


def _is_of_others(event: Event) -> bool:
    """Whether a function is given what it registers a hook on."""
    own = event.unit.self_name()
    return event.loop is None and _root(event) in event.unit.parameters and _root(event) != own


def _on_the_module(file: SourceFile, event: Event) -> Edits:
    """The handle kept where the hook is, so that the next one from the same line takes its place."""
    on = receiver(event.call)
    hook = hook_of(event)
    if not isinstance(on, (ast.Name, ast.Attribute)):
        return ()
    named = terminal(hook).strip("_") if isinstance(hook, (ast.Name, ast.Attribute, ast.Call)) else ""
    return _kept_in(file, event, file.segment(on), _free(file, f"_{named or 'hook'}_handle"))


def _kept_in(file: SourceFile, event: Event, owner: str, name: str) -> Edits:
    """The handle kept as an attribute, and the one that was kept there removed before."""
    line, column = start = edits.start_of(file, event.call)
    margin = file.lines[line - 1][: column - 1]
    deeper = margin + ("\t" if margin.endswith("\t") else "    ")
    rows = [f'{margin}if hasattr({owner}, "{name}"):', f"{deeper}{owner}.{name}.remove()", f"{margin}{owner}.{name} = "]
    return [Edit(path=file.path, start=(line, 1), end=start, text=file.newline.join(rows))]


def _free(file: SourceFile, name: str) -> str:
    # A new name must shadow nothing.
    while file.mentions(name):
        name += "_"
    return name


def _at_the_end(file: SourceFile, event: Event, loop: ast.For | ast.While) -> Edits:
    """`handle = …` in a loop, and `handle.remove()` after the last statement of its body."""
    # Deeper, or before an `else`, the end of the body is not reached by each turn that registers.
    if event.parent not in loop.body or loop.orelse:
        return ()
    handle, start = _free(file, "handle"), edits.start_of(file, event.call)
    removed = edits.after(file, loop.body[-1], f"{handle}.remove()")
    kept = Edit(path=file.path, start=start, end=start, text=f"{handle} = ")
    return [kept, *removed] if removed else ()


def _before_the_next(file: SourceFile, event: Event) -> Edits:
    """In a method: the hook of the last call goes before this one's is registered."""
    own = event.unit.self_name()
    return _kept_in(file, event, own, _free(file, "hook_handle")) if own else ()

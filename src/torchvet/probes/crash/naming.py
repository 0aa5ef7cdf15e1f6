"""What the program calls a tensor of the frames that an error passed through, and what the tensor is to it."""

from __future__ import annotations

import ast
from types import CodeType
from typing import Any

import msgspec
import torch

from torchvet.probes.base.callers import PROGRAM
from torchvet.probes.base.kit import Place, frames
from torchvet.probes.base.persistent_state import KnownMemory
from torchvet.probes.crash import expressions
from torchvet.probes.crash.attributes import assigned, modules_within, plain_attributes
from torchvet.probes.crash.raised import Level, of_program
from torchvet.recording.records.device import Placed


class Names:
    """The names of one failure; made for it and thrown away."""

    def __init__(self, known: KnownMemory, levels: list[Level]) -> None:
        self._known = known
        self._levels = levels
        self._own = of_program(levels)
        self.roots = known.live_roots()

    def placed(self, tensor: torch.Tensor, text: str, argument: str = "") -> Placed:
        """What is to be said of a tensor. `text` is the expression that had it, in the innermost frame."""
        device, dtype = str(tensor.device), str(tensor.dtype).removeprefix("torch.")
        shape = tuple(int(n) for n in tensor.shape)

        def said(name: str, role: Any, owner: str = "", made: Place | None = None) -> Placed:
            found = Placed(name=name, role=role, device=device, dtype=dtype, shape=shape, argument=argument)
            return msgspec.structs.replace(found, owner=owner, made=made)

        return (
            # From the name that says most (a parameter's path) to the one that says least (the text of
            # the expression).
            self._registered(tensor, said)
            or self._of_an_optimizer(tensor, said)
            or self._attribute(tensor, said)
            or self._variable(tensor, said)
            or said(text, "variable" if text.isidentifier() else "expression")
        )

    def root_name(self, root: torch.nn.Module) -> str:
        """The program's name for a module, else its class."""
        for level in self._own:
            for name, value in level.names.items():
                # Within its own methods every module is `self`, which names none.
                if value is root and name != "self":
                    return name
        for level in self._own:
            owner = level.local("self")
            for name, value in plain_attributes(owner) if owner is not None else ():
                if value is root:
                    return f"self.{name}"
        return type(root).__name__

    def module_path(self, module: torch.nn.Module) -> str:
        """A module's path below the root that has it, by the program's names."""
        for root in self.roots:
            for path, one in root.named_modules():
                if one is module:
                    return f"{self.root_name(root)}.{path}" if path else self.root_name(root)
        hidden = self.hidden(module)
        return hidden[0] if hidden is not None else self.root_name(module)

    def module_at_work(self) -> torch.nn.Module | None:
        """The innermost module whose forward was running."""
        for level in reversed(self._levels):
            owner = level.local("self")
            if isinstance(owner, torch.nn.Module):
                return owner
        return None

    def hidden(self, module: torch.nn.Module) -> tuple[str, Place | None] | None:
        """Where a module stands in a plain list or dict of another's: its name, and the line that puts the list
        there."""
        for owner in self._modules():
            for name, value in plain_attributes(owner):
                for suffix, one in modules_within(value):
                    inside = next((p for p, m in one.named_modules() if m is module), None)
                    if inside is not None:
                        path = f"{self.module_path(owner)}.{name}{suffix}"
                        return (f"{path}.{inside}" if inside else path), assigned(type(owner), name)
        return None

    def _modules(self) -> list[torch.nn.Module]:
        """Every module of the roots, and those whose methods were running."""
        running = [level.local("self") for level in self._levels]
        starts = [*self.roots, *(m for m in running if isinstance(m, torch.nn.Module))]
        return list({id(m): m for start in starts for m in start.modules()}.values())

    def _registered(self, tensor: torch.Tensor, said: Any) -> Placed | None:
        for root in self.roots:
            for kind, named in (("parameter", root.named_parameters()), ("buffer", root.named_buffers())):
                name = next((n for n, one in named if one is tensor), None)
                if name is not None:
                    owner = self.root_name(root)
                    found: Placed = said(f"{owner}.{name}", kind, owner)
                    return found
        for module in self._modules():
            for name, one in [*module._parameters.items(), *module._buffers.items()]:
                if one is tensor:
                    where = self.hidden(module)
                    kind = "parameter" if isinstance(one, torch.nn.Parameter) else "buffer"
                    path = where[0] if where is not None else self.root_name(module)
                    return said(f"{path}.{name}", "unregistered" if where else kind, path, where and where[1])  # type: ignore[no-any-return]
        return None

    def _of_an_optimizer(self, tensor: torch.Tensor, said: Any) -> Placed | None:
        names = self._known.parameter_names()
        for optimizer in self._known.live_optimizers():
            for parameter, state in optimizer.state.items():
                if not isinstance(state, dict):
                    continue
                key = next((k for k, v in state.items() if v is tensor), None)
                if key is not None:
                    whose = names.get(id(parameter), "a parameter")
                    kind = type(optimizer).__name__
                    found: Placed = said(f"{kind}'s {key} of {whose}", "optimizer state", kind)
                    loaded, built_on = self._known.loaded.get(tensor), self._known.built_on.get(optimizer, "")
                    return msgspec.structs.replace(found, loaded=loaded, built_on=built_on)
        return None

    def _attribute(self, tensor: torch.Tensor, said: Any) -> Placed | None:
        for owner in self._modules():
            for name, value in plain_attributes(owner):
                texts = [name] if value is tensor else _inside(value, tensor, name)
                if texts:
                    path = self.module_path(owner)
                    return said(f"{path}.{texts[0]}", "attribute", path, assigned(type(owner), name))  # type: ignore[no-any-return]
        return None

    def _variable(self, tensor: torch.Tensor, said: Any) -> Placed | None:
        """By its name where it came from: as long as a function was given it, by that of the function's caller."""
        found: Placed | None = None
        # Innermost first; it goes on outward only while the name is a parameter of its function.
        for level in self._own:
            text = _text_at(level, tensor)
            if text is not None:
                found = said(text, "variable", made=level.place)
                code = level.frame.f_code
                # A name that is no parameter was bound here: no caller has an earlier one.
                if text not in code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]:
                    return found
            # The caller has no name for it: it was made in the call's argument, and the inner name is all
            # there is.
            elif found is not None:
                return found
        text = self._given(tensor) if found is None else ""
        return said(text, "expression") if text else found

    def argument(self, name: str) -> str:
        """The text of what the program gave the function that it called as an argument of this name."""
        for at, level in enumerate(self._levels[:-1]):
            inner = self._levels[at + 1]
            node = level.expression()
            if level.whose in PROGRAM and inner.whose == frames.TORCH:
                text = _argument_of(node, inner.frame.f_code, name)
                if text:
                    return text
        return ""

    def _given(self, tensor: torch.Tensor) -> str:
        """The text of the argument that a tensor without a name came as, into the function that the program called."""
        for at in reversed(range(len(self._levels) - 1)):
            if self._levels[at].whose not in PROGRAM:
                continue
            node = self._levels[at].expression()
            for inner in self._levels[at + 1 :]:
                if inner.whose != frames.TORCH:
                    break
                code = inner.frame.f_code
                given = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
                mine = [n for n in given if inner.local(n) is tensor]
                text = _argument_of(node, code, mine[0]) if mine else ""
                if text:
                    return text
        return ""


def _text_at(level: Level, tensor: torch.Tensor) -> str | None:
    """What a function calls a tensor: by the expression that was evaluated, else by a variable or by an attribute of
    its object."""
    node = level.expression()
    texts = [t for t, one in expressions.tensors_in(node, level.names) if one is tensor] if node else []
    # After the expression's own text: of several names for one tensor the line's own is what the user looks at.
    texts += [n for n, value in level.names.items() if value is tensor]
    owner = level.local("self")
    own = plain_attributes(owner) if owner is not None else ()
    texts += [f"self.{n}" for n, value in own if value is tensor]
    return texts[0] if texts else None


def _argument_of(node: Any, code: CodeType, name: str) -> str:
    """The text of the argument of a call that a function takes under a name; empty where the call does not show it."""
    given = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    if not isinstance(node, ast.Call) or name not in given:
        return ""
    # The call does not write `self`.
    position = given.index(name) - (given[:1] == ("self",))
    found = next((k.value for k in node.keywords if k.arg == name), None)
    if found is None and 0 <= position < len(node.args):
        found = node.args[position]
    # `f(*args)`: which argument it was cannot be read off the call.
    return "" if found is None or isinstance(found, ast.Starred) else ast.unparse(found)


def _inside(value: Any, tensor: torch.Tensor, name: str) -> list[str]:
    if issubclass(type(value), (list, tuple, dict)):
        node = ast.Name(name)
        return [t for t, one in expressions.tensors_in(node, {name: value}) if one is tensor]
    return []

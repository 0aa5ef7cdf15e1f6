"""Names for the tensors of a replay: the program's variables, parameters and buffers, and what came with the batch."""

from __future__ import annotations

import sys
from typing import Any

import torch

from torchvet.probes.base.kit import frames, of_program
from torchvet.probes.base.persistent_state import KnownMemory
from torchvet.probes.objects.containers import tensors_in
from torchvet.probes.objects.variables import frame_locals
from torchvet.recording.records.nonfinite import Reason


class Names:
    """Asked while an operator runs: the variables of the nearest frame of the program count first."""

    def __init__(self, known: KnownMemory, own: dict[str, Any], batch: Any, missing: dict[str, str]) -> None:
        self._parameters: dict[int, str] = {}
        self._buffers: dict[int, str] = {}
        for root in known.live_roots():
            # What `torch.compile` puts into names.
            self._parameters.update((id(p), n.replace("_orig_mod.", "")) for n, p in root.named_parameters())
            self._buffers.update((id(b), n.replace("_orig_mod.", "")) for n, b in root.named_buffers())
        for parameter in known.parameters():
            self._parameters.setdefault(id(parameter), "")
        # Meta and empty tensors share the address 0, by which any of them would pass for a parameter.
        plain = (p for p in known.parameters() if type(p) is torch.nn.Parameter and not p.is_meta and p.numel())
        self._of_weights = {_address(p) for p in plain}
        """Views of parameters, and what a layer flattens them to, are parameters."""
        self._own = own
        self._batch = {_address(t) for t in tensors_in(batch, 4)}
        self._missing = missing

    def of(self, tensor: torch.Tensor) -> str | None:
        """A tensor's name, or None."""
        named = _in_frames(tensor) or self._parameters.get(id(tensor)) or self._buffers.get(id(tensor))
        return named or _variable(tensor, self._own)

    def origin(self, tensor: torch.Tensor) -> Reason:
        """What something that was not finite before any operator ran is."""
        # In the order of certainty: a parameter by identity, then by its memory.
        own = id(tensor) in self._parameters or isinstance(tensor, torch.nn.Parameter)
        if own or (self._of_weights and type(tensor) is torch.Tensor and _address(tensor) in self._of_weights):
            return "bad-parameter"
        if id(tensor) in self._buffers:
            return "bad-buffer"
        if _address(tensor) in self._batch:
            return "bad-data"
        name = _variable(tensor, self._own)
        # A state that the loop carries and has overwritten: what it was at the start of the step is lost.
        carried = name is not None and self._missing.get(name) == "overwritten"
        return "bad-state" if carried else "bad-data"

    def known(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor is a parameter, a buffer, or came with the batch."""
        mine = id(tensor) in self._parameters or id(tensor) in self._buffers
        return mine or _address(tensor) in self._batch


def _address(tensor: torch.Tensor) -> int:
    # By memory: what the program makes of a batch by views is still the batch.
    return tensor.untyped_storage().data_ptr() if tensor.layout is torch.strided else id(tensor)


def _in_frames(tensor: torch.Tensor) -> str | None:
    """By the nearest frame of the program's that has a variable for it."""
    own = (one for one in of_program(sys._getframe(2)) if one.f_code.co_name not in frames.HANDLERS)
    frame = next(own, None)
    return _variable(tensor, frame_locals(frame) or {}) if frame is not None else None


def _item(value: Any, tensor: torch.Tensor) -> Any:
    """The key or index of a tensor in a small dict, list or tuple."""
    if not isinstance(value, (dict, list, tuple)) or len(value) >= 64:
        return None
    pairs = value.items() if isinstance(value, dict) else enumerate(value)
    return next((key for key, held in pairs if held is tensor and isinstance(key, (str, int))), None)


def _variable(tensor: torch.Tensor, names: dict[str, Any]) -> str | None:
    for name, value in names.items():
        if name.startswith("__"):
            continue
        # Identity: `==` of tensors compares elements.
        if value is tensor:
            return name
        inside = _item(value, tensor)
        if inside is not None:
            return f"{name}[{inside!r}]"
        attribute = _attribute(value, tensor) if name == "self" else None
        if attribute is not None:
            return f"self.{attribute}"
    return None


def _attribute(owner: Any, tensor: torch.Tensor) -> str | None:
    space = getattr(owner, "__dict__", None)
    if not isinstance(space, dict):
        return None
    tables = (space, space.get("_parameters") or {}, space.get("_buffers") or {})
    return next((name for table in tables for name, held in table.items() if held is tensor), None)

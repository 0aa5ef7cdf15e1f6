"""Times a call of attention by its math and by a fused implementation, after the program has ended, on made tensors."""

from __future__ import annotations

import time
from contextlib import ExitStack
from functools import partial

import torch
from torch.nn.functional import scaled_dot_product_attention

from torchvet.probes.base.host import memory_available
from torchvet.probes.base.kit import Unchecked
from torchvet.probes.internals import private
from torchvet.probes.time.attention_changes import CHANGES, MATH, Call, Form, Shape, set_switches, switches
from torchvet.probes.time.real_time import medians
from torchvet.recording.records.timing import Change

CHECK = "what attention would take by a fused implementation"
_LEAST = 0.0003
"""Seconds of a step that the calls must take by the math implementation."""
_LARGEST = 64 << 20
"""Bytes of the scores that are timed; of a larger batch a part is."""
_COPIES = 8
"""Tensors as large as the scores that the math implementation and its backward pass make, or more."""
_SECONDS = 0.4
"""That timing a line takes, about."""


def timed(shape: Shape, change: Change, calls: float) -> tuple[float, float] | Unchecked | None:
    """Seconds of a call as it is, and with the change made first. None where `calls` of them, those of a step, are a
    trifle, or torch chooses otherwise now."""
    part = _fitting(shape)
    times = shape.work / part.work
    size = part.work * part.query.dtype.itemsize
    if size > 2 * _LARGEST or _COPIES * size > _free(part.query.device):
        return Unchecked(
            check=CHECK,
            reason=f"the scores of one row of a batch take {size / (1 << 20):,.0f} MiB, or memory is short",
        )
    with ExitStack() as around:
        if private.modes_on():
            return None
        around.enter_context(private.DisableTorchFunction())
        around.enter_context(torch.inference_mode(False))
        around.enter_context(torch.set_grad_enabled(part.backward))
        around.enter_context(torch.autocast(part.query.device.type, enabled=False))
        if part.options[0]:  # what is dropped is drawn by chance
            around.enter_context(torch.random.fork_rng([part.query.device] if part.query.device.type == "cuda" else []))
        around.callback(set_switches, switches())
        set_switches(part.switches)
        call = part.call(Form.filled)
        changed = CHANGES[change](call)
        if changed is None or call.choice() != MATH or changed.choice() == MATH:
            return None
        if _seconds(call, None) * times * calls < _LEAST:
            return None
        math, fused = _in_turns(call, change)
        return times * math, times * fused


def _fitting(shape: Shape) -> Shape:
    """As many rows of the batch as are timed."""
    rows = shape.query.shape[0]
    fit = max(1, int(rows * _LARGEST / (shape.work * shape.query.dtype.itemsize)))
    if fit >= rows:
        return shape

    def cut(form: Form) -> Form:
        whole = len(form.shape) == len(shape.query.shape) and form.shape[0] == rows
        return form._replace(shape=(fit, *form.shape[1:])) if whole else form

    query, key, value = map(cut, (shape.query, shape.key, shape.value))
    return shape._replace(query=query, key=key, value=value, mask=None if shape.mask is None else cut(shape.mask))


def _free(device: torch.device) -> int:
    """Bytes; where the system does not say, enough."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    return memory_available() or 1 << 60


def _in_turns(call: Call, change: Change) -> tuple[float, float]:
    """Medians of both."""
    plain, changed = medians([partial(_seconds, call, None), partial(_seconds, call, change)], _SECONDS)
    return plain, changed


def _seconds(call: Call, change: Change | None) -> float:
    """Of one call with its backward pass, and of the change that is made first."""
    device = call.query.device
    learning = [one for one in (*call.tensors(), call.mask) if one is not None and one.requires_grad]
    _wait(device)
    start = time.perf_counter()
    given = call if change is None else CHANGES[change](call)
    assert given is not None
    out = scaled_dot_product_attention(
        *given.tensors(), given.mask, given.dropout, given.causal, scale=given.scale, enable_gqa=given.gqa
    )
    if learning and out.requires_grad:
        torch.autograd.grad(out, learning, torch.ones_like(out), allow_unused=True)
    _wait(device)
    return time.perf_counter() - start


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)

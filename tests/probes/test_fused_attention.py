"""torch is asked which implementation attention takes, and what alone would change that; both are timed after a run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from example_runs import RECORDING, forked
from hosts import ByHand
from torch.nn import functional

from torchvet.probes.internals import private
from torchvet.probes.time import attention_times, fused_attention
from torchvet.probes.time.attention_changes import Call, Form, Shape, is_causal, reason, set_switches, switches
from torchvet.probes.time.fused_attention import FusedAttention
from torchvet.recording import read
from torchvet.recording.records.timing import AttentionFallback, Change
from torchvet.recording.records.training import Unchecked

CPU = torch.device("cpu")
B, H, L, E = 2, 4, 8, 16


def of(*shape: int, **more: Any) -> torch.Tensor:
    return torch.zeros(*shape, **more)


FULL, ODD = of(B, H, L, E), of(B, H, E, L).transpose(-1, -2)
LOWER = torch.ones(L, L, dtype=torch.bool).tril()


def asked(
    query: Any = FULL, key: Any = FULL, value: Any = FULL, mask: Any = None, dropout: float = 0.0, gqa: bool = False,
    learned: bool = False,
) -> tuple[Change, tuple[str, ...], str] | None:  # fmt: skip
    call = Call(query, key, value, mask, dropout, False, None, gqa)
    if call.choice() != 0:
        return None
    return reason(call, lambda: mask is not None and is_causal(mask), lambda: learned)


ALL = ("query", "key", "value")


@pytest.mark.parametrize(
    ("given", "change", "operands"),
    [
        ({"query": ODD}, "strides", ("query",)),
        ({"key": ODD, "value": ODD}, "strides", ("key", "value")),
        ({"query": FULL[0], "key": FULL[0], "value": FULL[0]}, "rank", ALL),
        ({"query": FULL[0, 0], "key": FULL[0, 0], "value": FULL[0, 0], "mask": LOWER}, "rank", ALL),
        ({"query": FULL[0], "key": FULL[0], "value": FULL[0], "mask": of(H, L, L)}, "rank", ALL),
        ({"key": FULL[:1], "value": FULL[:1]}, "broadcast", ALL),
        ({"key": FULL[:, :1], "value": FULL[:, :1]}, "broadcast", ALL),
        ({"mask": of(H, L, L)}, "mask-shape", ("attn_mask",)),
        ({"value": of(B, H, L, E // 2)}, "widths", ALL),
        ({"mask": of(L, L, requires_grad=True)}, "mask-gradient", ("attn_mask",)),
        ({"dropout": 0.1}, "dropout", ()),
    ],
)
def test_the_one_change_that_makes_a_fused_implementation_possible(
    given: dict[str, Any], change: str, operands: tuple[str, ...]
) -> None:
    assert asked(**given) == (change, operands, "flash")


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"mask": LOWER},
        {"mask": of(L, L)},
        {"query": ODD, "dropout": 0.1},
        {"query": of(B, H, L, E).requires_grad_(), "mask": of(B, 1, 1, L)},
        {"key": FULL[:, :2], "value": FULL[:, :2], "gqa": True},
        {"mask": of(L, L, requires_grad=True), "learned": True},
    ],
)
def test_fused_attention_and_what_no_single_change_helps_is_silent(given: dict[str, Any]) -> None:
    assert asked(**given) is None


def test_a_mask_is_causal_by_its_values() -> None:
    added = of(L, L).masked_fill(~LOWER, -torch.inf)
    assert is_causal(LOWER) and is_causal(added) and is_causal(added.expand(B, 1, L, L))
    biased, shifted = added.clone(), LOWER.clone()
    biased[3, 1], shifted[0, 1] = 0.5, True
    assert not is_causal(biased) and not is_causal(shifted) and not is_causal(torch.ones_like(LOWER))


def test_what_says_as_much_as_a_mask_comes_before_what_changes_the_result() -> None:
    learning = torch.where(LOWER, 0.0, -torch.inf).requires_grad_()
    found = asked(mask=learning)
    assert found is not None and found[0] == "causal"
    assert asked(mask=learning, learned=True) is None


@pytest.fixture
def flash_switched_off() -> Iterator[None]:
    before = switches()
    set_switches((False, *before[1:]))
    yield
    set_switches(before)


@pytest.mark.usefixtures("flash_switched_off")
def test_where_the_program_has_switched_fused_implementations_off_nothing_is_said() -> None:
    assert asked(query=ODD) is None


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(attention_times, "_LEAST", 0.0)
    found: Any = ByHand()
    found.sampling, found.sampled_steps = True, 4
    found.made_at = lambda tensor: None
    return found


def attend(query: torch.Tensor, **more: Any) -> torch.Tensor:
    value = torch.ones(B, H, L, E, requires_grad=True)
    out = functional.scaled_dot_product_attention(query, query, value, **more)
    out.sum().backward()
    return out.detach()


def watched(host: Any, *calls: Any, how: str = "finished") -> list[AttentionFallback]:
    """What is written of calls in a sampled step."""
    probe = FusedAttention(host)
    probe.install()
    assert host.ledger.enter()
    try:
        for given, more in calls:
            attend(given, **more)
    finally:
        host.ledger.leave()
    assert host.ledger.broken is None
    probe.last_look(how, None)
    return [one for one in host.written if isinstance(one, AttentionFallback)]


def test_calls_of_a_line_are_counted_and_timed(host: Any) -> None:
    original = functional.scaled_dot_product_attention
    (found,) = watched(host, *[(ODD, {})] * 8, (FULL, {}))
    assert functional.scaled_dot_product_attention is original
    assert (found.change, found.operands, found.fused) == ("strides", ["query", "key"], "flash")
    assert (found.calls, found.sampled, found.backward, found.inner) == (8, 4, True, None)
    assert found.shapes[0] == (B, H, L, E) and found.strides[0] == (H * L * E, L * E, 1, L)
    assert found.place.path == __file__ and found.place.function == "attend"
    assert found.math > 0 and found.changed > 0


def test_an_average_length_is_timed_for_all(host: Any) -> None:
    probe = FusedAttention(host)
    probe.install()
    host.ledger.enter()
    for length in (4, 8, 8, 16):
        query = of(1, 2, E, length).transpose(-1, -2)
        functional.scaled_dot_product_attention(query, query, query)
    host.ledger.leave()
    (site,) = probe._sites.values()
    assert site.work == 2 * (16 + 64 + 64 + 256) and site.usual.query.shape == (1, 2, 8, E)


def test_outside_of_sampled_steps_and_on_other_torch_nothing_is_asked(
    host: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    host.sampling = False
    assert not watched(host, (ODD, {}))
    monkeypatch.setattr(private, "fused_sdp_choice", private.Lacking("torch._fused_sdp_choice"))
    host.sampling, host.ledger.asides = True, []
    assert not watched(host, (ODD, {})) and not host.ledger.asides


def test_a_program_that_was_stopped_is_not_timed(host: Any) -> None:
    assert not watched(host, (ODD, {}), how="interrupted")
    assert [one.reason for one in host.written if isinstance(one, Unchecked)] == [
        "1 line took the math implementation, and the program did not come to its end"
    ]


def test_lines_beyond_those_that_are_timed_are_said(host: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fused_attention, "_SITES", 1)
    assert len(watched(host, (ODD, {}), (FULL, {"dropout_p": 0.1}))) == 1
    assert ["beyond 1" in one.reason for one in host.written if isinstance(one, Unchecked)] == [True]


def test_what_takes_little_of_a_step_is_not_timed(host: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention_times, "_LEAST", 1e6)
    assert not watched(host, (ODD, {}))


def test_results_random_numbers_and_gradients_are_as_without(host: Any) -> None:
    given = torch.rand(B, H, E, L).transpose(-1, -2)
    results = []
    for watching in (False, True):
        torch.manual_seed(3)
        if watching:
            host.ledger.asides.clear()
            probe = FusedAttention(host)
            probe.install()
            assert host.ledger.enter()
        out = attend(given, dropout_p=0.3), attend(FULL, dropout_p=0.3), attend(given)
        if watching:
            host.ledger.leave()
            probe.last_look("finished", None)
            assert {one.change for one in host.written} == {"dropout", "strides"}
        results.append((*out, torch.rand(4)))
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))


def test_under_autocast_the_copies_are_asked_about(host: Any) -> None:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        (found,) = watched(host, (ODD, {}))
    assert (found.change, found.dtype) == ("strides", "bfloat16")


def test_of_a_large_batch_a_part_is_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    form = Form.of(ODD)
    shape = Shape(form, form, form, Form.of(of(B, 1, L, L)), (0.0, False, None, False), False, switches())
    assert attention_times._fitting(shape) is shape
    monkeypatch.setattr(attention_times, "_LEAST", 0.0)
    monkeypatch.setattr(attention_times, "_LARGEST", 4 * H * L * L)
    part = attention_times._fitting(shape)
    assert part.query.shape == (1, H, L, E) and part.query.stride == form.stride and part.mask is not None
    assert part.mask.shape == (1, 1, L, L) and part.work == H * L * L
    assert isinstance(attention_times.timed(shape, "strides", 1.0), tuple)
    monkeypatch.setattr(attention_times, "_LARGEST", 1)
    assert isinstance(attention_times.timed(shape, "strides", 1.0), Unchecked)


PROGRAM = """
import torch
from torch.nn.functional import scaled_dot_product_attention
torch.manual_seed(0)
weights = torch.nn.Parameter(torch.rand(1, 2, 16, 512))
bias = torch.nn.Parameter(torch.zeros(512, 512))
optimizer = torch.optim.SGD([weights, bias], lr=1e-4)
for step in range(12):
    odd = (weights * 2).transpose(-1, -2)
    out = scaled_dot_product_attention(odd, odd, odd)
    out = out + scaled_dot_product_attention(out, out, out)
    out = out + scaled_dot_product_attention(out, out, out, attn_mask=bias)
    loss = out.square().sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def test_a_run_has_the_line_and_where_the_operand_was_made(tmp_path: Path) -> None:
    forked(PROGRAM, tmp_path)
    (found,) = read(tmp_path / RECORDING).ranks[0].all(AttentionFallback)
    lines = PROGRAM.splitlines()
    assert lines[found.place.line - 1].strip() == "out = scaled_dot_product_attention(odd, odd, odd)"
    assert found.made is not None and lines[found.made.line - 1].strip().startswith("odd = ")
    assert found.calls == found.sampled and found.backward

"""The ledger notes every storage once, when it is born and when it dies, and changes nothing."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from looking import key_of
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode_stack
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import FlopCounterMode

from torchvet.probes.base.costs import Costs, Look
from torchvet.probes.base.ledger import Birth, Ledger, sum_by_site
from torchvet.probes.base.schedule import Schedule
from torchvet.probes.internals.private import LacksName

bug = pytest.mark.xfail
FLOAT = 4


@pytest.fixture
def ledger() -> Iterator[Ledger]:
    """A ledger that is on; off again after the test, whatever happened."""
    one = Ledger()
    assert one.enter()
    yield one
    one.leave()


def sizes(ledger: Ledger) -> list[int]:
    return [b.nbytes for b in ledger.births]


def ops(ledger: Ledger) -> list[str]:
    return [str(b.op) for b in ledger.births]


def live_bytes(ledger: Ledger) -> int:
    return sum(b.nbytes for b in ledger.live.values())


# Births --------------------------------------------------------------------------------------------------------------


def test_every_result_is_born_once_with_its_size(ledger: Ledger) -> None:
    x = torch.zeros(10)
    y = x + 1
    z = (y * 2).double()
    assert sizes(ledger) == [40, 40, 40, 80]
    assert set(map(key_of, (x, y, z))) == set(ledger.live)


def test_nested_tensors_are_noted_though_they_have_no_one_shape(ledger: Ledger) -> None:
    for layout in (torch.strided, torch.jagged):
        before = len(ledger.births)
        nested = torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(3, 3)], layout=layout)
        assert (nested * 2).is_nested and ledger.broken is None
        assert 15 * FLOAT in sizes(ledger)[before:]


def test_views_are_not_births(ledger: Ledger) -> None:
    x = torch.zeros(4, 4)
    views = [x[0], x.t(), x.view(16), x.detach(), x.unsqueeze(0), x.narrow(0, 1, 2), *x.split(2), x.expand(2, 4, 4)]
    assert len(ledger.births) == 1 and views


def test_changes_in_place_are_not_births(ledger: Ledger) -> None:
    x = torch.zeros(4)
    x += 1
    x.mul_(2).clamp_(0, 1)
    x[0] = 5
    torch.add(x, x, out=x)
    x.zero_()
    assert [b.nbytes for b in ledger.births if b.nbytes > FLOAT] == [16]
    assert sum(b.key == key_of(x) for b in ledger.births) == 1


def test_a_tensor_from_a_list_is_born(ledger: Ledger) -> None:
    made = torch.tensor([1.0, 2.0, 3.0])
    assert sizes(ledger) == [12], "torch.tensor makes its storage out of the dispatcher's sight"
    assert made.numel() == 3


def test_a_tensor_from_numpy_is_followed_from_its_first_use(ledger: Ledger) -> None:
    shared = torch.from_numpy(np.zeros(5, dtype=np.float32))
    shared + 1
    assert ledger.live[key_of(shared)].nbytes == 20
    del shared
    assert not ledger.live


def test_operators_with_several_results(ledger: Ledger) -> None:
    values, indices = torch.arange(8.0).topk(3)
    assert {key_of(values), key_of(indices)} <= set(ledger.live)
    assert sorted(b.nbytes for b in ledger.live.values()) == [12, 24]


def test_sparse_results_are_born_in_their_parts(ledger: Ledger) -> None:
    sparse = torch.eye(3).to_sparse()
    assert sum(ledger.live[s].nbytes for s in (key_of(sparse._indices()), key_of(sparse._values()))) > 0


@bug(
    strict=True,
    reason="ledger: a storage that grows after its birth (out=, resize_) keeps the size that it was born with",
)
def test_a_storage_that_grows_is_counted_at_its_size(ledger: Ledger) -> None:
    out = torch.empty(0)
    torch.add(torch.ones(1000), 1, out=out)
    assert ledger.live[key_of(out)].nbytes == 4000


def test_the_line_is_the_users_and_the_site_says_what(ledger: Ledger) -> None:
    model = torch.nn.Linear(4, 3)
    ledger.forget_window()
    x = torch.ones(2, 4)
    line = sys._getframe().f_lineno + 1
    model(x)
    (birth,) = [b for b in ledger.births if "addmm" in str(b.op)]
    site = birth.site()
    assert site.place is not None and (site.place.path, site.place.line) == (__file__, line)
    assert (site.shape, site.dtype, site.device, site.op) == ((2, 3), "float32", "cpu", "aten.addmm")
    assert "the_line_is_the_users" in site.place.function


def test_backward_births_are_told_apart(ledger: Ledger) -> None:
    x = torch.ones(100, requires_grad=True)
    loss = torch.exp(x).sum()
    forward = len(ledger.births)
    loss.backward()
    assert {b.phase for b in ledger.births[:forward]} == {"forward"}
    assert {b.phase for b in ledger.births[forward:] if b.nbytes == 400} == {"backward"}


def test_a_phase_that_was_set_wins(ledger: Ledger) -> None:
    ledger.phase = "optimizer"
    torch.zeros(3)
    assert [b.phase for b in ledger.births] == ["optimizer"]


def test_sums_by_site_are_the_largest_first(ledger: Ledger) -> None:
    kept = [torch.zeros(100) for _ in range(3)]
    kept.append(torch.ones(10))
    rows = sum_by_site(ledger.births)
    assert [(r.bytes, r.storages) for r in rows] == [(1200, 3), (40, 1)]
    assert len(sum_by_site(ledger.births, 1)) == 1
    assert sum_by_site([]) == []


# Deaths --------------------------------------------------------------------------------------------------------------


def test_deaths_are_exact(ledger: Ledger) -> None:
    x = torch.zeros(10)
    birth = ledger.live[key_of(x)]
    assert birth.died is None and live_bytes(ledger) == 40
    del x
    assert birth.died is not None and live_bytes(ledger) == 0
    assert [change for _, change in ledger.events] == [40, -40]


def test_a_storage_that_only_a_view_holds_lives(ledger: Ledger) -> None:
    x = torch.zeros(10)
    small = x[:1]
    del x
    assert live_bytes(ledger) == 40
    del small
    assert live_bytes(ledger) == 0


def test_a_storage_that_only_a_graph_holds_lives_until_backward(ledger: Ledger) -> None:
    x = torch.ones(100, requires_grad=True)
    hidden = torch.exp(x)
    key = key_of(hidden)
    loss = hidden.sum()
    del hidden
    gc.collect()
    assert key in ledger.live, "Python sees nobody who holds it"
    loss.backward()
    assert key not in ledger.live


def test_what_is_in_a_cycle_dies_with_the_collector(ledger: Ledger) -> None:
    gc.collect()
    ring: list[Any] = [torch.zeros(10)]
    key = key_of(ring[0])
    ring.append(ring)
    del ring
    assert key in ledger.live
    gc.collect()
    assert key not in ledger.live


def test_the_ledger_keeps_nothing_alive_and_is_kept_alive_by_nothing(ledger: Ledger) -> None:
    survivors = [torch.zeros(10)]
    for _ in range(100):
        torch.zeros(1000)
    assert live_bytes(ledger) == 40 and len(survivors) == 1


def test_deaths_after_the_ledger_has_gone() -> None:
    one = Ledger()
    one.enter()
    x = torch.zeros(10)
    birth = one.births[0]
    one.leave()
    del one
    gc.collect()
    del x
    assert birth.died == -1


def test_survivors_are_known_after_the_window(ledger: Ledger) -> None:
    kept = torch.zeros(10)
    torch.zeros(20)
    ledger.leave()
    births = list(ledger.births)
    ledger.forget_window()
    assert [b.nbytes for b in births if b.died is None] == [40]
    del kept
    assert all(b.died is not None for b in births)


def test_an_address_that_is_used_again_is_a_new_birth(ledger: Ledger) -> None:
    for _ in range(50):
        torch.zeros(1000)
    assert len(ledger.births) == 50 and all(b.died is not None for b in ledger.births)


def test_adopted_storages_are_watched_and_not_born(ledger: Ledger) -> None:
    ledger.leave()
    old = torch.zeros(10)
    ledger.adopt(old)
    ledger.adopt(old)
    assert [(b.op, b.nbytes) for b in ledger.births] == [("adopted", 40)]
    del old
    assert not ledger.live


# On and off ----------------------------------------------------------------------------------------------------------


def test_pausing(ledger: Ledger) -> None:
    ledger.pausing.on = True
    torch.zeros(10)
    ledger.pausing.on = False
    torch.zeros(20)
    assert sizes(ledger) == [80]


def test_after_leaving_nothing_is_noted(ledger: Ledger) -> None:
    ledger.leave()
    ledger.leave()
    torch.zeros(10)
    assert ledger.births == [] and _get_current_dispatch_mode_stack() == []


def test_it_does_not_enter_where_others_are_on() -> None:
    one = Ledger()
    with FlopCounterMode(display=False):
        assert not one.enter()
    assert one.enter()
    one.leave()


class Doubles(TorchDispatchMode):
    """A program's own mode, with an effect that shows whether it is on."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        return out * 2 if func is torch.ops.aten.ones.default else out


def test_leaving_from_below_another_mode_leaves_that_one_on(ledger: Ledger) -> None:
    with Doubles():
        assert torch.ones(1).item() == 2
        ledger.leave()
        assert torch.ones(1).item() == 2
        assert [type(m) for m in _get_current_dispatch_mode_stack()] == [Doubles]
    assert _get_current_dispatch_mode_stack() == []
    assert torch.ones(1).item() == 1


def test_entering_many_times_costs_nothing_that_stays() -> None:
    one = Ledger()
    for _ in range(50):
        assert one.enter()
        torch.zeros(1)
        one.leave()
    assert len(one.births) == 50


def test_what_goes_wrong_inside_does_not_reach_the_program(ledger: Ledger) -> None:
    def fails() -> str:
        raise RuntimeError("a bug of ours")

    ledger.module = fails
    assert torch.zeros(3).sum().item() == 0
    assert isinstance(ledger.broken, RuntimeError)
    ledger.module = lambda: None


def test_what_goes_wrong_in_the_program_reaches_it(ledger: Ledger) -> None:
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        torch.zeros(2, 3) @ torch.zeros(2, 3)
    assert ledger.broken is None


# Reads and writes ----------------------------------------------------------------------------------------------------


def test_reads_are_noted_by_storage(ledger: Ledger) -> None:
    a, b, c = torch.zeros(3), torch.zeros(3), torch.zeros(3)
    ledger.read = set()
    torch.stack([a, b[:1].expand(3)])
    assert {ledger.live[key_of(a)], ledger.live[key_of(b)]} <= ledger.read and ledger.live[key_of(c)] not in ledger.read


def test_a_key_that_is_used_again_is_no_read_of_the_dead(ledger: Ledger) -> None:
    """What the allocator hands out again and an operator reads said that the step before was still needed."""
    first = [torch.zeros(32, 32) for _ in range(50)]
    dead = [ledger.live[key_of(t)] for t in first]
    ledger.read = set()
    del first
    again = [torch.zeros(32, 32) for _ in range(50)]
    assert {key_of(t) for t in again} & {b.key for b in dead}, "no key was used again: this tests nothing"
    torch.stack(again)
    assert not ledger.read & set(dead)


# The program's results -----------------------------------------------------------------------------------------------


def train() -> list[torch.Tensor]:
    """Dropout, batch norm, several optimizers, sparse gradients, views, in-place: four steps."""
    torch.manual_seed(0)
    body = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.BatchNorm1d(8), torch.nn.Dropout(0.5), torch.nn.ReLU())
    words = torch.nn.Embedding(10, 8, sparse=True)
    optimizers = [torch.optim.AdamW(body.parameters()), torch.optim.SparseAdam(words.parameters())]
    seen: list[torch.Tensor] = []
    for _ in range(4):
        for optimizer in optimizers:
            optimizer.zero_grad()
        x = words(torch.randint(0, 10, (6,)))
        loss = body(x).pow(2).mean() + x[:, :1].abs().sum()
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
        seen.append(loss.detach())
    return [*seen, *(p.detach().clone() for p in body.parameters()), torch.random.get_rng_state()]


def test_results_and_random_state_are_the_same_bit_by_bit() -> None:
    alone = train()
    one = Ledger()
    one.enter()
    try:
        watched = train()
    finally:
        one.leave()
    assert one.broken is None and len(one.births) > 100
    assert all(torch.equal(a, b) for a, b in zip(alone, watched, strict=True))


@pytest.mark.parametrize("use", [
    lambda: torch.vmap(torch.sin)(torch.ones(3, 2)),
    lambda: torch.func.grad(lambda x: (x**2).sum())(torch.ones(3)),
    lambda: checkpoint(torch.exp, torch.ones(3, requires_grad=True), use_reentrant=False).sum().backward(),
    lambda: torch.nn.functional.scaled_dot_product_attention(*[torch.ones(1, 2, 4, 8)] * 3),
    lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged),
    lambda: torch.zeros(10, device="meta") + 1,
    lambda: torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8),
    lambda: torch.nn.LSTM(2, 3)(torch.ones(4, 1, 2)),
    lambda: torch.complex(torch.ones(2), torch.ones(2)).conj().resolve_conj(),
], ids=["vmap", "func.grad", "checkpoint", "attention", "jagged", "meta", "quantized", "lstm", "complex"])  # fmt: skip
@pytest.mark.filterwarnings("ignore")
def test_unusual_parts_of_torch_work_and_do_not_break_it(ledger: Ledger, use: Callable[[], Any]) -> None:
    use()
    assert ledger.broken is None, repr(ledger.broken)


WITHOUT_DYNAMO = """
import sys, torch
from torchvet.probes.base.schedule import Schedule
from torchvet.probes.base.ledger import Ledger
before = "torch._dynamo" in sys.modules
ledger = Ledger()
assert ledger.enter()
x = torch.ones(3, requires_grad=True)
x.exp().sum().backward()
ledger.leave()
print(before, "torch._dynamo" in sys.modules, len(ledger.births) > 2)
"""


def test_it_does_not_import_the_compiler() -> None:
    ran = subprocess.run([sys.executable, "-c", WITHOUT_DYNAMO], capture_output=True, text=True, check=False)
    assert ran.stdout.split() == ["False", "False", "True"], ran.stdout + ran.stderr


def test_a_birth_resolves_its_line_late() -> None:
    birth = Birth(1, 8, 3, 0)
    birth.op, birth.tensor = torch.ops.aten.add.Tensor, ((2,), "float32", "cpu")
    assert birth.site().op == "aten.add.Tensor" and birth.site().place is None


def test_what_listeners_compute_is_not_noted_and_one_that_fails_stops_nobody(ledger: Ledger) -> None:
    """A guard around each call would cost more than the calls; nevertheless a failure goes to it."""
    heard: list[str] = []
    failed: list[str] = []

    class Guard:
        def __init__(self, what: str) -> None:
            self.what = what

        def __enter__(self) -> None: ...

        def __exit__(self, kind: Any, error: Any, traceback: Any) -> bool:
            failed.append(f"{self.what}: {error}")
            return True

    def computes(func: Any, args: Any, kwargs: Any, out: Any) -> None:
        heard.append(str(out.exp().sum().item()))

    def fails(func: Any, args: Any, kwargs: Any, out: Any) -> None:
        raise ValueError("no")

    def lacks(func: Any, args: Any, kwargs: Any, out: Any) -> None:
        raise LacksName("a name")

    operator = torch.ops.aten.mul.Tensor
    for listener in (fails, lacks, computes):
        ledger.hear([operator], listener, Guard)
    x = torch.ones(4) * 2
    y = torch.ones(4) * 3
    ledger.leave()
    assert ops(ledger).count("aten.mul.Tensor") == 2 and "aten.exp" not in ops(ledger)
    assert len(heard) == 2 and ledger.broken is None and x.sum() + y.sum() == 20
    assert [one.partition(": ")[0][-7:-1] for one in failed].count("(fails") == 2
    assert sum("a name" in one for one in failed) == 1, "who lacks a name is not called again"


def test_looks_of_two_threads_that_overlap_leave_the_ledger_on() -> None:
    ledger, costs = Ledger(), Costs(Schedule())
    entered, left = threading.Event(), threading.Event()

    def look() -> None:
        with Look(costs, "events", pausing=ledger.pausing):
            entered.set()
            left.wait(30)

    other = threading.Thread(target=look)
    with Look(costs, "events", pausing=ledger.pausing):
        other.start()
        assert entered.wait(30) and ledger.pausing.on
    assert not ledger.pausing.on, "the other thread's look is its own"
    left.set()
    other.join()
    assert not ledger.pausing.on

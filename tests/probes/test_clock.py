"""Steps are found in every kind of loop: the events of the loop go in, the steps must come out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchvet.probes.base.clock import StepClock
from torchvet.recording.records.base import StepKind

Event = Callable[[StepClock], StepKind | None]
MODEL, OTHER = 1, 2


def ask(clock: StepClock) -> StepKind | None:
    """A loader is asked while module calls are being reported."""
    return clock.batch_asked(True)


def ask_blind(clock: StepClock) -> StepKind | None:
    """A loader is asked while they are not."""
    return clock.batch_asked(False)


def forward(clock: StepClock) -> StepKind | None:
    return clock.forward_started(MODEL)


def backward(clock: StepClock) -> StepKind | None:
    return clock.backward_ended()


def step(clock: StepClock, key: int = 7) -> StepKind | None:
    return clock.optimizer_stepped(key)


def step_for(first: int, key: int = 7) -> Event:
    """An optimizer's step whose groups begin with this parameter."""
    return lambda clock: clock.optimizer_stepped(key, 0, first)


def step_of(key: int) -> Event:
    return lambda clock: clock.optimizer_stepped(key)


def made(key: int) -> Event:
    return lambda clock: clock.optimizer_made(key)


def begin(clock: StepClock) -> StepKind | None:
    """A new iterator is asked for its first batch."""
    return clock.batch_asked(False, first=True)


def switch(training: bool) -> Event:
    return lambda clock: clock.mode_changed(training)


def play(events: list[Event], clock: StepClock | None = None) -> tuple[StepClock, list[StepKind]]:
    """Let the events happen; the boundaries since the clock last started anew."""
    clock = clock or StepClock()
    found: list[StepKind] = []
    for event in events:
        kind = event(clock)
        if kind is not None:
            found = [kind] if clock.restarted else [*found, kind]
    return clock, found


@pytest.mark.parametrize("loader", [[], [ask], [ask_blind]], ids=["no loader", "loader", "loader, modules unseen"])
def test_a_plain_loop_has_a_step_an_iteration(loader: list[Event]) -> None:
    clock, found = play([*loader, forward, backward, step] * 20)
    assert found == ["training"] * 20
    assert (clock.n, clock.counts) == (20, {"training": 20})


@pytest.mark.parametrize("micro", range(1, 9))
@pytest.mark.parametrize("loader", [[], [ask], [ask_blind]], ids=["no loader", "loader", "loader, modules unseen"])
def test_accumulation_has_one_step_for_all_its_micro_steps(micro: int, loader: list[Event]) -> None:
    clock, found = play([*[*loader, forward, backward] * micro, step] * 10)
    assert found == ["training"] * 10
    assert clock.n == 10


@pytest.mark.parametrize("seen", [True, False])
@pytest.mark.parametrize("ahead", [4, 8])
def test_batches_asked_for_in_advance_are_no_evaluation(seen: bool, ahead: int) -> None:
    """As trainers do that need the whole accumulation's batches to count its tokens."""
    _, found = play([*[ask if seen else ask_blind] * ahead, *[forward, backward] * ahead, step] * 10)
    assert found == ["training"] * 10


@pytest.mark.parametrize("ahead", [1, 2])
def test_one_or_two_batches_ahead_are_no_evaluation(ahead: int) -> None:
    assert play([*[ask_blind] * ahead, *[forward, backward] * ahead, step] * 10)[1] == ["training"] * 10


@pytest.mark.parametrize("order", [(1, 2), (2, 1)])
def test_two_optimizers_in_one_iteration_make_one_step(order: tuple[int, int]) -> None:
    first, second = order
    iteration = [ask, forward, backward, step_of(first), forward, backward, step_of(second)]
    assert play(iteration * 15)[1] == ["training"] * 15


def test_one_optimizer_a_parameter_makes_one_step() -> None:
    """Optimizers that step inside backward, a hundred of them."""
    assert play([forward, backward, *map(step_of, range(100))] * 5)[1] == ["training"] * 5


@pytest.mark.parametrize("critic_first", [True, False])
def test_a_critic_that_steps_five_times_gives_a_steady_rate(critic_first: bool) -> None:
    critic, generator = [forward, backward, step_of(1)] * 5, [forward, backward, step_of(2)]
    one = [*critic, *generator] if critic_first else [*generator, *critic]
    clock, _ = play(one * 4)
    before = clock.n
    play(one * 10, clock)
    assert clock.n - before == 50, "five in every iteration, whichever comes first"


def test_a_new_optimizer_every_step_still_makes_steps() -> None:
    """Kept alive by a scheduler or a list, so that no identity is used twice."""
    clock, _ = play([e for key in range(20) for e in (made(key), forward, backward, step_of(key))])
    assert clock.n == 20


def test_an_optimizer_rebound_every_step_makes_a_step_each() -> None:
    """Two identities in turn: the old one dies only after the new one is made."""
    clock, _ = play([e for i in range(20) for e in (made(i % 2), forward, backward, step_of(i % 2))])
    assert clock.n == 20


def test_a_new_optimizer_an_epoch_loses_no_step() -> None:
    epochs = [[made(epoch), *[forward, backward, step_of(epoch)] * 10] for epoch in range(5)]
    assert play([e for epoch in epochs for e in epoch])[0].n == 50


def test_two_optimizers_made_anew_together_still_make_one_step() -> None:
    iterations = [[made(i), made(-i), backward, step_of(i), backward, step_of(-i)] for i in range(1, 11)]
    assert play([e for iteration in iterations for e in iteration])[0].n == 10


def test_closures_run_several_backwards_in_one_step() -> None:
    """LBFGS: the observer reports a backward inside `step` as `busy`, no more."""

    def closure(clock: StepClock) -> None:
        clock.forward_started(MODEL)
        clock.busy()

    clock = StepClock()
    for _ in range(8):
        for _ in range(20):
            closure(clock)
        step(clock)
    assert clock.counts.get("training") == 8


TRAIN: list[Event] = [ask, forward, backward, step]
TRAIN_BLIND: list[Event] = [ask_blind, backward, step]


@pytest.mark.parametrize("blind", [False, True])
@pytest.mark.parametrize("batches", [1, 3, 20])
@pytest.mark.parametrize("sign", ["eval()", "no_grad", "neither"])
def test_evaluation_inside_training_counts_every_batch(blind: bool, batches: int, sign: str) -> None:
    """Also without a sign, if it is long enough; a few batches without any may be accumulation's."""

    def asked(clock: StepClock) -> StepKind | None:
        return clock.batch_asked(not blind, no_grad=sign == "no_grad")

    one = TRAIN_BLIND if blind else TRAIN
    train = [begin, *one[1:], *one * 9, one[0]]
    evaluate: list[Event] = [begin, *([asked] if blind else [forward, asked]) * batches]
    signed = [switch(False), *evaluate, switch(True)] if sign == "eval()" else evaluate
    clock, _ = play([*train, *signed] * 4)
    assert clock.counts["training"] == 40
    assert clock.counts.get("evaluation", 0) == (0 if sign == "neither" and batches < 9 else 4 * batches)


def test_a_frozen_teacher_does_not_make_training_an_evaluation() -> None:
    clock, _ = play([switch(False), *TRAIN * 5, *[ask_blind] * 4, *[forward, backward] * 4, step])
    assert "evaluation" not in clock.counts


def test_a_single_evaluation_batch_now_and_then_changes_nothing() -> None:
    assert play([*TRAIN * 5, ask, forward] * 6)[1] == ["training"] * 30


@pytest.mark.parametrize("seen", [True, False])
def test_a_pure_evaluation_loop_with_a_loader_counts_batches(seen: bool) -> None:
    one = ask if seen else ask_blind
    clock, found = play([begin, *([forward, one] if seen else [one]) * 30])
    assert found == ["evaluation"] * 30 and clock.n == 30


def test_a_pure_evaluation_loop_without_a_loader_counts_forward_passes() -> None:
    clock, found = play([forward] * 30)
    assert set(found) == {"forward"}
    assert 29 <= clock.n <= 30


def test_teacher_and_student_are_one_forward_step() -> None:
    clock, _ = play([forward, lambda c: c.forward_started(OTHER)] * 30)
    assert 29 <= clock.n <= 30


def test_two_forward_passes_before_every_step_are_no_steps() -> None:
    assert play([forward, forward, backward, step] * 10)[1] == ["training"] * 10


def test_backward_alone_counts() -> None:
    """Parameters changed by hand, or a saliency loop."""
    clock, found = play([forward, backward] * 12)
    assert found == ["backward"] * 12 and clock.n == 12


def test_the_programs_own_steps_count_alone() -> None:
    clock, found = play([*[ask, forward, backward] * 3, step, StepClock.manual] * 10)
    assert found[1:] == ["manual"] * len(found[1:])
    assert clock.counts["manual"] == 10
    before = clock.n
    play([*TRAIN * 3, *[ask, forward] * 9], clock)
    assert clock.n == before, "neither training nor evaluation counts any more"


def test_it_starts_anew_when_the_optimizer_appears_late() -> None:
    clock, _ = play([forward, backward] * 7)
    assert clock.n == 7
    assert step(clock) == "training"
    assert clock.restarted and clock.n == 1 and clock.counts == {"training": 1}
    assert step(clock) == "training"
    assert not clock.restarted and clock.n == 2


def test_training_after_an_evaluation_is_counted_exactly() -> None:
    """A sanity check of a few batches comes first in many trainers."""
    clock, _ = play([*[ask, forward] * 10, ask])
    assert clock.counts["evaluation"] >= 9
    play(TRAIN * 5, clock)
    assert clock.counts["training"] == 5


EVENTS: list[Event] = [ask, ask_blind, forward, lambda c: c.forward_started(OTHER), backward, step, step_of(8)]


def boundaries(clock: StepClock, events: list[Event]) -> Iterator[tuple[int, StepKind | None]]:
    for event in events:
        before = clock.n
        yield before, event(clock)


@given(st.lists(st.sampled_from([*EVENTS, StepClock.manual]), max_size=80))
def test_whatever_happens_the_count_goes_up_by_one(events: list[Event]) -> None:
    clock = StepClock()
    seen: Counter[StepKind] = Counter()
    for before, kind in boundaries(clock, events):
        if kind is None:
            assert clock.n == before
            continue
        if clock.restarted:
            seen.clear()
            assert clock.n == 1
        else:
            assert clock.n == before + 1
        seen[kind] += clock.steps
        assert clock.counts == dict(seen), "counts are what was returned since the last start, all positive"


@given(st.lists(st.sampled_from(EVENTS), max_size=60))
def test_whatever_came_before_a_training_loop_is_found(before: list[Event]) -> None:
    clock, _ = play(before)
    play(TRAIN * 2, clock)
    start = clock.counts["training"]
    play(TRAIN * 10, clock)
    assert clock.counts["training"] - start == 10


def test_steps_are_provisional_while_an_optimizer_has_yet_to_step() -> None:
    """LBFGS calls backward many times before its first step is over."""
    clock = StepClock()
    clock.optimizer_made(1)
    for _ in range(20):
        assert clock.backward_ended() == "backward" and clock.provisional
    assert clock.optimizer_stepped(1) == "training" and not clock.provisional
    clock.optimizer_made(2)
    assert not clock.provisional, "the steps are known by now"


def test_an_optimizer_that_never_steps_is_not_waited_for_for_ever() -> None:
    clock = StepClock()
    clock.optimizer_made(1)
    for _ in range(200):
        clock.backward_ended()
    assert not clock.provisional


def inference(clock: StepClock) -> StepKind | None:
    return clock.forward_started(MODEL, no_grad=True)


@pytest.mark.parametrize(
    "passes",
    [[inference], [switch(False), forward], [ask, inference], [switch(False), ask_blind]],
    ids=["no gradients", "eval mode", "a loader", "modules unseen"],
)
def test_passes_that_no_backward_can_follow_are_no_parts_of_a_step_to_come(passes: list[Event]) -> None:
    clock, found = play([made(1), *passes * 10])
    assert len(found) >= 9 and not clock.provisional and clock.under_way == clock.n + 1


@pytest.mark.parametrize("passes", [[forward], [ask, forward], [ask_blind]])
def test_passes_that_a_backward_may_follow_are_waited_for(passes: list[Event]) -> None:
    clock, found = play([made(1), *passes * 10])
    assert found and clock.provisional and clock.under_way == 1


def test_a_backward_after_passes_without_gradients_is_part_of_a_step_to_come() -> None:
    """A first evaluation, or a frozen teacher, before gradients are accumulated."""
    clock, _ = play([made(1), switch(False), *[inference] * 10, *[forward, backward] * 5])
    assert clock.level == "backward" and clock.provisional


def test_without_an_optimizer_backward_calls_are_the_steps() -> None:
    clock = StepClock()
    clock.backward_ended()
    assert not clock.provisional


def by(thread: int, key: int) -> list[Event]:
    return [lambda clock: clock.backward_ended(thread), lambda clock: clock.optimizer_stepped(key, thread)]


def test_weights_updated_by_hand_after_an_optimizer_fell_silent_make_steps() -> None:
    clock, _ = play([*[backward, step] * 20, *[backward] * 400])
    assert clock.counts == {"training": 20, "backward": 400}
    assert (clock.main_steps, clock.outside_steps) == (420, 0)


def test_gradients_that_only_autograd_grad_computes_later_make_steps_too() -> None:
    grad: Event = lambda clock: clock.backward_ended(0, True)  # noqa: E731
    clock, _ = play([*[backward, step] * 20, *[grad] * 100])
    assert clock.counts == {"training": 20, "backward": 100}
    clock, _ = play([*[backward] * 20, *[grad] * 100])
    assert clock.counts == {"backward": 120}, "without an optimizer likewise"


@pytest.mark.parametrize("micro", [2, 40, 100])
def test_what_a_step_takes_in_is_never_counted_beside_it(micro: int) -> None:
    clock, _ = play([*[backward] * micro, step] * 10)
    assert clock.counts == {"training": 10}
    assert clock.outside_steps == 0


def test_a_long_loop_before_the_first_optimizer_step_is_outside_the_steps() -> None:
    clock, _ = play([*[backward] * 300, *[backward, step] * 50])
    assert (clock.counts, clock.outside_steps) == ({"training": 50}, 301)


def test_a_loop_after_the_last_step_that_is_too_short_to_tell_is_outside_the_steps() -> None:
    clock, _ = play([*[backward, step] * 50, *[backward] * 30])
    assert (clock.counts, clock.outside_steps) == ({"training": 50}, 30)


def test_threads_make_steps_of_their_own() -> None:
    clock, _ = play([*by(1, 7), *by(2, 8)] * 50)
    assert clock.counts == {"training": 100}


def test_weights_updated_by_hand_beside_a_thread_with_an_optimizer_make_steps() -> None:
    hand: Event = lambda clock: clock.backward_ended(2)  # noqa: E731
    clock, _ = play([*by(1, 7), hand] * 100)
    assert clock.counts == {"training": 100, "backward": 100}


def test_optimizers_within_backward_make_one_step_of_it() -> None:
    within: Event = lambda clock: clock.optimizer_stepped_within()  # noqa: E731
    clock, found = play([*[within] * 6, backward] * 30)
    assert (clock.counts, clock.outside_steps) == ({"training": 30}, 0)
    assert found == ["training"] * 30


def test_an_optimizer_that_is_stepped_group_by_group_makes_one_step() -> None:
    """As libraries do that shard its state."""
    clock, kinds = play([forward, backward, step_for(1), step_for(2), step_for(3)] * 5)
    assert kinds == ["training"] * 5 and clock.counts["training"] == 5


def test_groups_that_have_a_backward_pass_each_are_heard_as_before() -> None:
    clock, _ = play([forward, backward, step_for(1), forward, backward, step_for(1)] * 3)
    assert clock.counts["training"] == 6
    clock, _ = play([backward, step_for(1), step_for(1)] * 3)
    assert clock.counts["training"] == 6, "the same parameters again: a step of its own"


def test_two_optimizers_stepped_group_by_group_make_one_step() -> None:
    one = [backward, step_for(1), step_for(2), backward, step_for(3, OTHER), step_for(4, OTHER)]
    clock, _ = play(one * 4)
    assert clock.counts["training"] == 4


def test_steady_steps_are_counted_group_by_group_as_well() -> None:
    clock, _ = play([backward, step_for(1), step_for(2)] * 3)
    one = clock.of_thread(0)
    for _ in range(3):
        clock.backward_again(one)
        assert clock.optimizer_stepped_again(one, 7, 1) and not clock.optimizer_stepped_again(one, 7, 2)
    assert clock.counts["training"] == 6

"""Forward passes outside training that build a graph for nobody."""

from __future__ import annotations

from typing import Any

import torch
from hosts import ByHand, Knows, entered

from torchvet.probes.training.evaluation import EvaluationProbe
from torchvet.recording.records.training import EvaluationForward

X = torch.ones(10, 4)


def model(training: bool) -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Linear(4, 1)).train(training)


def observed(seconds: float = 1e9) -> EvaluationProbe:
    """The probe, told of events by hand; following graphs may take `seconds`."""
    host: Any = ByHand()
    host.seconds = seconds
    return EvaluationProbe(host)


def known(module: torch.nn.Module) -> Knows:
    return Knows(X.untyped_storage()._cdata, *(p.untyped_storage()._cdata for p in module.parameters()))


def ended(probe: EvaluationProbe, module: torch.nn.Module, out: torch.Tensor, tick: int) -> None:
    host: Any = probe.host
    host.tick, host.known = tick, known(module)
    probe.forward_ended(module, out)


def forward(probe: EvaluationProbe, module: torch.nn.Module, tick: int) -> torch.Tensor:
    out: torch.Tensor = module(X)
    ended(probe, module, out, tick)
    return out


def at_end(probe: EvaluationProbe, tick: int) -> None:
    host: Any = probe.host
    host.tick = tick
    probe.last_look("finished", None)


def only(probe: EvaluationProbe) -> EvaluationForward:
    (record,) = probe.totals(1)
    return record


def test_evaluation_with_gradients_is_reported_with_what_its_graph_saved() -> None:
    probe, net = observed(), model(training=False)
    for tick in range(1, 6):
        out = forward(probe, net, tick)
        del out
        probe.settle(tick, "evaluation")
    record = only(probe)
    assert (record.module, record.training_mode, record.calls, record.backwarded) == ("Sequential", False, 5, 0)
    assert record.graph == 10 * 4 * 4, "the ReLU's result; parameters and inputs are there anyway"
    assert record.place.path == __file__


def test_evaluation_without_gradients_is_not() -> None:
    probe, net = observed(), model(training=False)
    for tick in range(1, 6):
        with torch.no_grad() if tick % 2 else torch.inference_mode():
            forward(probe, net, tick)
        probe.settle(tick, "evaluation")
    assert probe.totals(1) == []


def test_training_is_not_reported() -> None:
    probe, net = observed(), model(training=True)
    for tick in range(1, 6):
        out = forward(probe, net, tick)
        probe.graph_entered(entered(out))
        out.sum().backward()
        del out
        probe.settle(tick, "training")
    assert probe.totals(1) == []


def test_evaluation_in_training_mode_is_known_by_the_kind_of_step() -> None:
    probe, net = observed(), model(training=True)
    for tick in range(1, 6):
        forward(probe, net, tick)
        probe.settle(tick, "evaluation")
    assert only(probe).training_mode and only(probe).calls == 5


def test_a_graph_that_is_used_is_not_blamed() -> None:
    """Adversarial examples, saliency: a frozen model in evaluation mode, and a backward through it."""
    probe, net = observed(), model(training=False)
    for tick in range(1, 6):
        out = forward(probe, net, tick)
        loss = out.sum()
        probe.graph_entered(entered(loss))
        loss.backward()
        del out, loss
        probe.settle(tick, "backward")
    assert all(r.calls == 0 or r.backwarded >= r.calls for r in probe.totals(1))


def through_the_first_layer(wide: int) -> EvaluationForward:
    """A model in evaluation mode of which a backward uses what a hook has kept: the output of its first layers."""
    probe, kept = observed(), []
    net = torch.nn.Sequential(
        torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Linear(4, wide), torch.nn.Sigmoid(), torch.nn.Linear(wide, 1)
    ).eval()
    net[1].register_forward_hook(lambda module, inputs, output: kept.append(output))
    for tick in range(1, 6):
        out = forward(probe, net, tick)
        loss = kept.pop().sum()
        probe.graph_entered(entered(loss))
        loss.backward()
        del out, loss
        probe.settle(tick, "backward")
    return only(probe)


def test_a_graph_that_is_used_from_its_middle_is_used() -> None:
    """Feature inversion, perceptual losses, Grad-CAM: hooks keep inner outputs, and the module's own is dropped."""
    record = through_the_first_layer(wide=1)
    assert (record.calls, record.entered) == (0, 5)
    assert record.left == 10 * 1 * 4, "the sigmoid's result; the ReLU's is needed by the backward"


def test_what_follows_the_part_that_is_used_is_counted() -> None:
    record = through_the_first_layer(wide=50)
    assert (record.calls, record.entered, record.left) == (0, 5, 10 * 50 * 4)


def test_a_second_backward_uses_more_of_the_graph() -> None:
    probe, net, kept = observed(), model(training=False), []
    net[1].register_forward_hook(lambda module, inputs, output: kept.append(output))  # type: ignore[index]
    for tick in range(1, 4):
        out = forward(probe, net, tick)
        for loss in (kept.pop().sum(), out.sum()):
            probe.graph_entered(entered(loss))
            loss.backward(retain_graph=True)
        del out, loss
        probe.settle(tick, "backward")
    assert probe.totals(1) == []


def kept_for_long() -> tuple[EvaluationProbe, list[torch.Tensor]]:
    probe, net, kept = observed(), model(training=False), []
    for tick in range(1, 9):
        kept.append(forward(probe, net, tick))
        probe.settle(tick, "evaluation")
    assert probe.totals(1) == [], "they may yet go backward together"
    return probe, kept


def test_outputs_that_are_kept_while_training_goes_on_are_reported() -> None:
    probe, kept = kept_for_long()
    loss = model(training=True)(X).sum()
    probe.graph_entered(entered(loss))
    probe.settle(9, "training")
    assert only(probe).calls == len(kept)


def test_outputs_that_are_kept_to_the_end_are_reported() -> None:
    probe, kept = kept_for_long()
    at_end(probe, 11)
    assert only(probe).calls == len(kept)


def test_losses_of_many_batches_that_go_backward_together_are_used() -> None:
    """Batches that are collected for one backward look like an evaluation as long as it takes."""
    probe, kept = kept_for_long()
    probe.graph_entered(entered(torch.stack(kept).mean()))
    probe.settle(9, "training")
    at_end(probe, 12)
    assert probe.totals(1) == []


def test_a_frozen_model_builds_no_graph() -> None:
    probe, net = observed(), model(training=False).requires_grad_(False)
    forward(probe, net, 1)
    at_end(probe, 1)
    assert probe.totals(1) == []


def test_outputs_in_dictionaries_and_tuples_are_seen() -> None:
    probe, net = observed(), model(training=False)
    out = {"logits": [net(X)], "n": 1}
    ended(probe, net, out, 1)
    del out
    probe.settle(1, "evaluation")
    assert only(probe).calls == 1


def test_the_probe_keeps_nothing_alive_and_does_not_grow() -> None:
    probe, net, kept = observed(), model(training=True), []
    for _ in range(500):
        kept.append(forward(probe, net, 1))
    assert len(probe._pending) <= 64
    probe.settle(1, "training")
    kept.clear()
    probe.settle(2, "training")
    assert probe._pending == []


# The middle of an evaluation ---------------------------------------------------------------------------------------


def looks(probe: EvaluationProbe, net: torch.nn.Module, passes: int, keep: bool) -> list[int]:
    """At how many living graphs names are to be counted, over one evaluation."""
    kept: list[torch.Tensor] = []
    found = []
    for _ in range(passes):
        out = forward(probe, net, 3)
        told: list[Any] = probe.host.heard  # type: ignore[attr-defined]
        found += [passes for _, _, passes, _ in told]
        told.clear()
        kept = [*kept, out] if keep else [out]
    return [count for count in found if count]


def test_graphs_that_pile_up_are_an_occasion_to_count_names_twice() -> None:
    assert looks(observed(), model(training=False), 9, keep=True) == [3, 5]


def test_one_graph_that_the_loop_still_binds_is_none() -> None:
    assert looks(observed(), model(training=False), 9, keep=False) == []


def test_a_model_in_training_mode_is_none() -> None:
    """Losses that are summed before one backward pass look the same until it comes."""
    assert looks(observed(), model(training=True), 9, keep=True) == []


def test_each_evaluation_is_counted_apart_and_the_looks_are_limited() -> None:
    probe, net = observed(), model(training=False)
    found = []
    for _ in range(6):
        found += looks(probe, net, 7, keep=True)
        probe.settle(5, "training")
    assert found == [3, 5] * 3 and probe.stretch == 7


def test_modules_are_worth_watching_only_while_graphs_may_pile_up() -> None:
    probe, net = observed(), model(training=False)
    assert not probe.wants_modules()
    kept = [forward(probe, net, 3) for _ in range(2)]
    assert probe.wants_modules()
    kept += [forward(probe, net, 3) for _ in range(3)]
    assert not probe.wants_modules(), "the second look has come"
    probe.settle(4, "training")
    assert not probe.wants_modules()


def test_graphs_that_there_was_no_time_to_follow_are_said_to_be_unchecked() -> None:
    probe, net = observed(), model(training=False)
    out = forward(probe, net, 1)
    assert not list(probe.unchecked())
    probe.graph_entered(entered(out, late=lambda: True))
    assert len(list(probe.unchecked())) == 1
    for training, said in ((True, 0), (False, 1)):
        fresh, net = observed(seconds=0.0), model(training)
        fresh.forward_ended(net, net(X))
        with torch.no_grad():
            fresh.forward_ended(net.eval(), net(X))
        assert len(list(fresh.unchecked())) == said


def test_training_batches_that_are_left_out_are_no_evaluation() -> None:
    """The same calls led to passes that went backward; a validation loop calls the model from elsewhere."""
    probe, net = observed(), model(training=True)
    for tick in range(1, 9):
        out = forward(probe, net, tick)
        if tick % 4 == 0:
            probe.graph_entered(entered(out))
        del out
        probe.settle(tick, "evaluation")
    (use,) = probe.totals(9)
    assert use.backwarded
    for tick in range(9, 12):
        out = forward(probe, net, tick)
        del out
        probe.settle(tick, "evaluation")
    assert not only(probe).backwarded

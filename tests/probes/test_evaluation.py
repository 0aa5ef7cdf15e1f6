"""Forward passes outside training that build a graph for nobody."""

from __future__ import annotations

import torch

from torchvet.probes.training.evaluation import EvaluationProbe
from torchvet.recording.records.training import EvaluationForward

X = torch.ones(10, 4)


def model(training: bool) -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Linear(4, 1)).train(training)


def known(module: torch.nn.Module) -> set[int]:
    return {p.untyped_storage()._cdata for p in module.parameters()} | {X.untyped_storage()._cdata}


def forward(probe: EvaluationProbe, module: torch.nn.Module, tick: int) -> torch.Tensor:
    out: torch.Tensor = module(X)
    probe.forward_ended(module, out, tick, known(module))
    return out


def only(probe: EvaluationProbe) -> EvaluationForward:
    (record,) = probe.records()
    return record


def test_evaluation_with_gradients_is_reported_with_what_its_graph_saved() -> None:
    probe, net = EvaluationProbe(), model(training=False)
    for tick in range(1, 6):
        out = forward(probe, net, tick)
        del out
        probe.boundary("evaluation", tick)
    record = only(probe)
    assert (record.module, record.training_mode, record.calls, record.backwarded) == ("Sequential", False, 5, 0)
    assert record.graph == 10 * 4 * 4, "the ReLU's result; parameters and inputs are there anyway"
    assert record.place.path == __file__


def test_evaluation_without_gradients_is_not() -> None:
    probe, net = EvaluationProbe(), model(training=False)
    for tick in range(1, 6):
        with torch.no_grad() if tick % 2 else torch.inference_mode():
            forward(probe, net, tick)
        probe.boundary("evaluation", tick)
    assert probe.records() == []


def test_training_is_not_reported() -> None:
    probe, net = EvaluationProbe(), model(training=True)
    for tick in range(1, 6):
        out = forward(probe, net, tick)
        probe.backward_starts([out.grad_fn])
        out.sum().backward()
        del out
        probe.boundary("training", tick)
    assert probe.records() == []


def test_evaluation_in_training_mode_is_known_by_the_kind_of_step() -> None:
    probe, net = EvaluationProbe(), model(training=True)
    for tick in range(1, 6):
        forward(probe, net, tick)
        probe.boundary("evaluation", tick)
    assert only(probe).training_mode and only(probe).calls == 5


def test_a_graph_that_is_used_is_not_blamed() -> None:
    """Adversarial examples, saliency: a frozen model in evaluation mode, and a backward through it."""
    probe, net = EvaluationProbe(), model(training=False)
    for tick in range(1, 6):
        out = forward(probe, net, tick)
        loss = out.sum()
        probe.backward_starts([loss.grad_fn])
        loss.backward()
        del out, loss
        probe.boundary("backward", tick)
    assert all(r.calls == 0 or r.backwarded >= r.calls for r in probe.records())


def through_the_first_layer(wide: int) -> EvaluationForward:
    """A model in evaluation mode of which a backward uses what a hook has kept: the output of its first layers."""
    probe, kept = EvaluationProbe(), []
    net = torch.nn.Sequential(
        torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Linear(4, wide), torch.nn.Sigmoid(), torch.nn.Linear(wide, 1)
    ).eval()
    net[1].register_forward_hook(lambda module, inputs, output: kept.append(output))
    for tick in range(1, 6):
        out = forward(probe, net, tick)
        loss = kept.pop().sum()
        probe.backward_starts([loss.grad_fn])
        loss.backward()
        del out, loss
        probe.boundary("backward", tick)
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
    probe, net, kept = EvaluationProbe(), model(training=False), []
    net[1].register_forward_hook(lambda module, inputs, output: kept.append(output))  # type: ignore[index]
    for tick in range(1, 4):
        out = forward(probe, net, tick)
        for loss in (kept.pop().sum(), out.sum()):
            probe.backward_starts([loss.grad_fn])
            loss.backward(retain_graph=True)
        del out, loss
        probe.boundary("backward", tick)
    assert probe.records() == []


def kept_for_long() -> tuple[EvaluationProbe, list[torch.Tensor]]:
    probe, net, kept = EvaluationProbe(), model(training=False), []
    for tick in range(1, 9):
        kept.append(forward(probe, net, tick))
        probe.boundary("evaluation", tick)
    assert probe.records() == [], "they may yet go backward together"
    return probe, kept


def test_outputs_that_are_kept_while_training_goes_on_are_reported() -> None:
    probe, kept = kept_for_long()
    loss = model(training=True)(X).sum()
    probe.backward_starts([loss.grad_fn])
    probe.boundary("training", 9)
    assert only(probe).calls == len(kept)


def test_outputs_that_are_kept_to_the_end_are_reported() -> None:
    probe, kept = kept_for_long()
    probe.boundary("evaluation", 11, final=True)
    assert only(probe).calls == len(kept)


def test_losses_of_many_batches_that_go_backward_together_are_used() -> None:
    """Batches that are collected for one backward look like an evaluation as long as it takes."""
    probe, kept = kept_for_long()
    probe.backward_starts([torch.stack(kept).mean().grad_fn])
    probe.boundary("training", 9)
    probe.boundary("training", 12, final=True)
    assert probe.records() == []


def test_a_frozen_model_builds_no_graph() -> None:
    probe, net = EvaluationProbe(), model(training=False).requires_grad_(False)
    forward(probe, net, 1)
    probe.boundary("evaluation", 1, final=True)
    assert probe.records() == []


def test_outputs_in_dictionaries_and_tuples_are_seen() -> None:
    probe, net = EvaluationProbe(), model(training=False)
    out = {"logits": [net(X)], "n": 1}
    probe.forward_ended(net, out, 1, known(net))
    del out
    probe.boundary("evaluation", 1)
    assert only(probe).calls == 1


def test_the_probe_keeps_nothing_alive_and_does_not_grow() -> None:
    probe, net, kept = EvaluationProbe(), model(training=True), []
    for _ in range(500):
        kept.append(forward(probe, net, 1))
    assert len(probe._pending) <= 64
    probe.boundary("training", 1)
    kept.clear()
    probe.boundary("training", 2)
    assert probe._pending == []


# The middle of an evaluation ---------------------------------------------------------------------------------------


def looks(probe: EvaluationProbe, net: torch.nn.Module, passes: int, keep: bool) -> list[int]:
    """At how many living graphs names are to be counted, over one evaluation."""
    kept: list[torch.Tensor] = []
    found = []
    for _ in range(passes):
        out = forward(probe, net, 3)
        found.append(probe.due())
        kept = [*kept, out] if keep else [out]
    return [count for count in found if count]


def test_graphs_that_pile_up_are_an_occasion_to_count_names_twice() -> None:
    assert looks(EvaluationProbe(), model(training=False), 9, keep=True) == [3, 5]


def test_one_graph_that_the_loop_still_binds_is_none() -> None:
    assert looks(EvaluationProbe(), model(training=False), 9, keep=False) == []


def test_a_model_in_training_mode_is_none() -> None:
    """Losses that are summed before one backward pass look the same until it comes."""
    assert looks(EvaluationProbe(), model(training=True), 9, keep=True) == []


def test_each_evaluation_is_counted_apart_and_the_looks_are_limited() -> None:
    probe, net = EvaluationProbe(), model(training=False)
    found = []
    for _ in range(6):
        found += looks(probe, net, 7, keep=True)
        probe.boundary("training", 5)
    assert found == [3, 5] * 3 and probe.stretch == 7


def test_modules_are_worth_watching_only_while_graphs_may_pile_up() -> None:
    probe, net = EvaluationProbe(), model(training=False)
    assert not probe.accumulating
    kept = [forward(probe, net, 3) for _ in range(2)]
    assert probe.accumulating
    kept += [forward(probe, net, 3) for _ in range(3)]
    assert not probe.accumulating, "the second look has come"
    probe.boundary("training", 4)
    assert not probe.accumulating


def test_graphs_that_there_was_no_time_to_follow_are_said_to_be_unchecked() -> None:
    probe, net = EvaluationProbe(), model(training=False)
    out = forward(probe, net, 1)
    assert not list(probe.unchecked())
    probe.backward_starts([out.grad_fn], late=lambda: True)
    assert len(list(probe.unchecked())) == 1
    for training, said in ((True, 0), (False, 1)):
        fresh = EvaluationProbe()
        fresh.passed_by(model(training=training))
        with torch.no_grad():
            fresh.passed_by(model(training=False))
        assert len(list(fresh.unchecked())) == said

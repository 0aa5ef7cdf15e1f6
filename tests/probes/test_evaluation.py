"""Forward passes outside training that build a graph for nobody."""

from __future__ import annotations

import torch

from torchvet.probes.evaluation import EvaluationProbe
from torchvet.recording.training_records import EvaluationForward

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


def test_outputs_that_are_kept_are_reported_after_a_while() -> None:
    probe, net, kept = EvaluationProbe(), model(training=False), []
    for tick in range(1, 9):
        kept.append(forward(probe, net, tick))
        probe.boundary("evaluation", tick)
    assert only(probe).calls >= 4


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

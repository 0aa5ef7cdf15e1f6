"""The casebook's faulty programs: asked for the holder that a run finds, the first candidate is the line to change."""

from __future__ import annotations

import pytest

from casebook.case import CASES, load
from casebook.twins import built
from torchvet.source.stores import SourceIndex

ASKED = [
    ("mem101_history", "history", "__main__"),
    ("mem101_replay_buffer", "agent._value", "__main__.main"),
    ("mem101_trainer_stats", "trainer.stats.loss_sum", "__main__.main"),
    ("mem102_logger_thread", "logger.received", "__main__.main"),
    ("mem102_logger_thread", "self.received", "__main__.Logger.run (thread Thread-1)"),
    ("mem102_predictions", "self.predictions", "__main__.Trainer.fit"),
    ("mem102_snapshots", "registry", "__main__"),
    ("mem102_snapshots", "registry['snapshots']", "__main__"),
    ("mem103_lstm_state", "state", "__main__.main"),
    ("mem103_lstm_state", "state[0]", "__main__.main"),
    ("mem103_module_memory", "model.memory", "__main__.run"),
    ("mem106_activation_records", "report.<closure>.records", "__main__.main"),
    ("mem106_activation_records", "model.conv1._forward_hooks[3].<closure>.records['conv1']", "__main__.main"),
    ("mem106_hook_each_step", "trainer.first.weight._backward_hooks", "__main__.main"),
    ("mem107_ctx_attributes", "losses[0].grad_fn.ctx.x", "__main__.main"),
    ("mem108_failures", "runner.failures", "__main__.main"),
    ("mem108_failures", "runner.failures[3].__traceback__ → fused(): hidden", "__main__.main"),
    ("mem111_cached_method", "Featurizer.encode (lru_cache)", "__main__"),
    ("mem112_losses_after_backward", "losses", "__main__.main"),
    ("mem113_attention_trace", "probe.trace", "__main__.main"),
    ("mem113_loss_scalar", "curve", "__main__.fit"),
    ("mem114_cycled_loader", "batches (itertools.cycle)", "__main__.main"),
]


def expected(case: str) -> str:
    """The line that a case's file says is the one to change."""
    return load(CASES / case).expect.line


def faulty(case: str) -> tuple[SourceIndex, str]:
    """The faulty program's files, and the one that is started."""
    paths = load(CASES / case).faulty.files
    start = next(p for p in paths if p.name in ("faulty.py", "__main__.py"))
    return SourceIndex({str(p): p.read_text("utf-8") for p in paths}), str(start)


@pytest.mark.parametrize(("case", "name", "scope"), ASKED)
def test_the_first_candidate(case: str, name: str, scope: str) -> None:
    index, path = faulty(case)
    found = index.stores(name, scope, path)
    assert found and found[0].text == expected(case)


def test_a_buffer_behind_a_method_leads_to_its_caller() -> None:
    index, path = faulty("mem101_replay_buffer")
    found = index.stores("agent.memory.buffer", "__main__.main", path)
    assert [s.function for s in found] == ["Replay.push"]
    assert [s.function for s in index.passed_by(found[0])] == ["Agent.remember"]
    assert [r.kind for r in index.removals("agent.memory.buffer", "__main__.main", path)] == ["maxlen"]


@pytest.mark.parametrize(
    ("program", "name", "scope", "kinds"),
    [
        ("mem101_history/lookalike_cleared_each_epoch", "pending", "__main__.main", {"clear", "fresh"}),
        ("mem101_trainer_stats/lookalike_window", "step.<closure>.recent", "__main__.main", {"maxlen"}),
        ("mem102_predictions/lookalike_window", "self.predictions", "__main__.Trainer.fit", {"maxlen"}),
        ("mem102_snapshots/lookalike_best_replaced", "registry['snapshots']", "__main__", {"clear"}),
        ("mem102_logger_thread/lookalike_bounded_queue", "logger.inbox", "__main__.main", {"maxlen", "get"}),
        ("mem106_activation_records/lookalike_handle_removed", "net._forward_hooks", "__main__.main", {"remove"}),
    ],
)
def test_what_bounds_the_look_alikes(program: str, name: str, scope: str, kinds: set[str]) -> None:
    case, _, script = program.partition("/")
    path = built(CASES / case) / f"{script}.py"
    found = SourceIndex({str(path): path.read_text("utf-8")}).removals(name, scope, str(path))
    assert found and {r.kind for r in found} <= kinds


@pytest.mark.parametrize(("case", "name", "scope"), ASKED)
def test_nothing_bounds_what_grows(case: str, name: str, scope: str) -> None:
    index, path = faulty(case)
    assert index.removals(name, scope, path) == []

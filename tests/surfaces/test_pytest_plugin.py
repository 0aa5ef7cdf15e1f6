"""The pytest plugin, by tests within tests. They run in this process: torch is imported already."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from example_runs import OBSERVING

import torchvet
import torchvet.surfaces.expectations
import torchvet.surfaces.pytest_plugin
from torchvet.probes.base import host

pytest_plugins = "pytester"

SETUP = """
import pytest, torch
import torch.nn.functional as F

def make(device="cpu"):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 4)).to(device)
    return model, torch.optim.AdamW(model.parameters(), lr=1e-3)

def batch(device="cpu"):
    return torch.randn(256, 64, device=device), torch.randint(0, 4, (256,), device=device)

def train(steps, after=lambda model, loss: None, device="cpu", zero=True):
    model, optimizer = make(device)
    for _ in range(steps):
        x, y = batch(device)
        loss = F.cross_entropy(model(x), y)
        if zero:
            optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        after(model, loss)

def keeping(kept):
    return lambda model, loss: kept.append(F.cross_entropy(model(batch()[0]), batch()[1]))
"""

Run = Callable[..., pytest.RunResult]


@pytest.fixture(scope="module", autouse=True)
def _loaded() -> None:
    """What a watch imports stays imported: the tests within tests forget what they import themselves."""
    for name in OBSERVING:
        importlib.import_module(name)
    kept: list[torch.Tensor] = []
    weight = torch.ones(64, 64, requires_grad=True)
    with torchvet.watch(every_step=True) as watch:
        for _ in range(12):
            kept.append(weight @ weight)
            watch.step()
    assert watch.report is not None
    assert torchvet.surfaces.expectations.failure_text(watch.report, [torchvet.surfaces.expectations.no_fault])


@pytest.fixture
def run(pytester: pytest.Pytester) -> Run:
    """Run tests with the plugin, once, whether this torchvet is installed with its entry point or not."""

    def run(tests: str, *options: str) -> pytest.RunResult:
        pytester.makepyfile(SETUP + textwrap.dedent(tests))
        return pytester.runpytest_inprocess("-p", "no:torchvet", "-p", "torchvet.surfaces.pytest_plugin", *options)

    return run


def test_a_leak_fails_its_test_alone_and_the_failure_is_the_finding(run: Run) -> None:
    result = run(
        """
        @pytest.mark.no_leak(steps=20)
        def test_leaky():
            kept = []
            train(24, keeping(kept))

        @pytest.mark.no_leak(steps=20)
        def test_healthy():
            kept = []
            train(24, lambda model, loss: kept.append(loss.item()))
        """
    )
    result.assert_outcomes(passed=1, failed=1)
    text = result.stdout.str()
    assert "torchvet: error MEM101 graph-retained (observed)" in text
    assert "test_leaky: kept" in text and "kept.append(" in text
    assert "pytest_plugin.py" not in text, "the message is the finding, and no traceback of torchvet's"


def test_too_few_steps_and_no_steps_fail_with_the_reason(run: Run) -> None:
    result = run(
        """
        @pytest.mark.no_leak(steps=20)
        def test_few():
            train(5)

        @pytest.mark.no_leak
        def test_none():
            pass
        """
    )
    result.assert_outcomes(failed=2)
    result.stdout.fnmatch_lines(["*torchvet: 5 steps seen, 20 expected*", "*torchvet: 0 steps seen, 20 expected*"])


def test_steps_that_only_the_test_knows_are_marked_through_the_fixture(run: Run) -> None:
    result = run(
        """
        @pytest.mark.no_leak(steps=20)
        @pytest.mark.parametrize("leaky", [True, False])
        def test_inference(torchvet, leaky):
            weight, kept = torch.randn(64, 64), []
            for _ in range(30):
                out = weight @ torch.randn(64, 512)
                if leaky:
                    kept.append(out)
                torchvet.step()
        """
    )
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*MEM102*", "*kept keeps * more alive every step*", "FAILED *test_inference?True?*"])


def test_the_fixture_alone_vets_the_whole_test(run: Run) -> None:
    result = run(
        """
        def test_gradients_pile_up(torchvet):
            train(24, zero=False)

        def test_fine(torchvet):
            train(24)

        def test_short(torchvet):
            train(3)
        """
    )
    result.assert_outcomes(passed=1, failed=2)
    result.stdout.fnmatch_lines(["*TRN101*", "*could not judge: 3 steps are too few*"])


def test_the_option_vets_all_tests_and_counts_those_that_it_cannot_judge(run: Run) -> None:
    tests = """
        import unittest

        def test_gradients_pile_up():
            train(24, zero=False)

        def test_fine():
            train(24)

        def test_sum():
            assert 1 + 1 == 2

        def test_skipped():
            pytest.skip("later")

        class TestOld(unittest.TestCase):
            def test_leaky(self):
                kept = []
                train(24, keeping(kept))

            def test_short(self):
                self.assertEqual(1, 1)

            def test_wrong(self):
                self.assertEqual(1, 2)
        """
    run(tests).assert_outcomes(passed=5, skipped=1, failed=1)
    result = run(tests, "--torchvet")
    result.assert_outcomes(passed=3, skipped=1, failed=3)
    result.stdout.fnmatch_lines(["*torchvet: [23] vetted tests could not be judged*"])
    assert "AssertionError: 1 != 2" in result.stdout.str()


def test_a_test_that_fails_shows_its_own_failure_and_the_finding_in_a_section(run: Run) -> None:
    result = run(
        """
        @pytest.mark.no_leak
        def test_both():
            kept = []
            train(24, keeping(kept))
            assert len(kept) == 5, "my own"

        @pytest.mark.no_leak
        def test_own():
            train(2)
            assert False, "mine"
        """
    )
    result.assert_outcomes(failed=2)
    text = result.stdout.str()
    assert "AssertionError: my own" in text and "AssertionError: mine" in text
    assert text.count("Captured torchvet call") == 1 and "MEM101" in text
    assert "steps seen" not in text


def test_marks_stand_on_classes_and_expected_failures_stay_expected(run: Run) -> None:
    result = run(
        """
        @pytest.mark.no_leak(steps=10)
        class TestTraining:
            @pytest.fixture
            def steps(self):
                return 24

            def test_fine(self, steps):
                train(steps)

            @pytest.mark.xfail(strict=True)
            def test_known(self, steps):
                kept = []
                train(steps, keeping(kept))
        """
    )
    result.assert_outcomes(passed=1, xfailed=1)


def test_the_peak_of_tensors_on_the_cpu_is_limited(run: Run) -> None:
    result = run(
        """
        @pytest.mark.limit_peak("50 kB")
        def test_large():
            train(5)

        @pytest.mark.limit_peak(20 * 2**20)
        def test_small():
            train(5)

        @pytest.mark.limit_peak("1 MB")
        def test_one_pass():
            torch.randn(1000, 1000)
        """
    )
    result.assert_outcomes(passed=1, failed=2)
    result.stdout.fnmatch_lines(
        ["*the peak of the tensors on the CPU* is * over 50.0 kB*", "*the peak of the tensors* is 4.0 MB, 3.0 MB over*"]
    )


def test_waits_need_a_gpu(run: Run) -> None:
    result = run(
        """
        @pytest.mark.no_sync
        def test_it():
            train(5, lambda model, loss: loss.item())
        """
    )
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*no GPU was used; --torchvet-gpu l4 simulates one*"])


@pytest.mark.parametrize(
    ("mark", "said"),
    [
        ("limit_peak('much')", "*'much' is not a size*"),
        ("limit_peak", "*limit_peak*missing 1 required positional argument*"),
        ("no_leak(count=3)", "*no_leak*unexpected keyword argument 'count'*"),
        ("no_leak(steps=0)", "*no_leak*at least 1*"),
        ("no_sync(1)", "*no_sync*takes 0 positional arguments*"),
    ],
)
def test_a_mark_that_makes_no_sense_is_said(run: Run, mark: str, said: str) -> None:
    result = run(f"@pytest.mark.{mark}\ndef test_it():\n    pass\n")
    assert result.ret != 0
    result.stdout.fnmatch_lines([said])


def test_a_card_that_is_not_known_is_a_usage_error(run: Run) -> None:
    result = run("def test_it(): pass", "--torchvet-gpu", "gtx1")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*--torchvet-gpu: gtx1: neither a size*"])


def test_the_plugin_loads_nothing_of_torchvets_but_itself() -> None:
    """Everybody's tests load it who has torchvet: this keeps it below a millisecond."""
    declared = (Path(__file__).parents[2] / "pyproject.toml").read_text("utf-8")
    (module,) = re.findall(r'\[project.entry-points.pytest11\]\ntorchvet = "(.*)"', declared)
    code = f"import pytest, sys; import {module}; print(*sorted(m for m in sys.modules if 'torch' in m))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert loaded.split() == ["torchvet", "torchvet._version", "torchvet.surfaces", module]


def test_without_marks_nothing_is_watched(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torchvet.Watch, "start", None)
    run("def test_it():\n    train(3)\n", "-p", "no:cacheprovider", "--strict-markers").assert_outcomes(passed=1)


def test_it_works_in_workers(run: Run) -> None:
    result = run(
        """
        @pytest.mark.no_leak(steps=20)
        def test_leaky():
            kept = []
            train(24, keeping(kept))

        def test_short():
            train(3)
        """,
        *("--torchvet", "-n", "1"),
    )
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*MEM101*", "*torchvet: [12] vetted tests could not be judged*"])


def test_a_leak_is_graded_alike_on_machines_of_any_size(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "memory_limit", lambda: (1 << 50, "a large machine"))
    result = run(
        """
        @pytest.mark.no_leak(steps=20)
        def test_leaky():
            kept = []
            train(24, lambda model, loss: kept.append(torch.zeros(2500)))
        """
    )
    result.assert_outcomes(failed=1)

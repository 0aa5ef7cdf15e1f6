"""The pytest plugin: marks, a fixture and an option that watch a test. Loads nothing of torch until one is used."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from torchvet.api.watch import Watch
    from torchvet.surfaces.expectations import Expectation

_MARKS = {
    "no_leak": "no_leak(steps=20): fail if memory grows from step to step, over at least so many steps",
    "limit_peak": "limit_peak(size): fail if the tensors take more than this at a time: '1.5 GiB' or bytes",
    "no_sync": "no_sync: fail if a step makes the host wait for the GPU; use --torchvet-gpu where there is none",
}
_watches = pytest.StashKey["Watch"]()
_LIMIT = 24 << 30
"""Bytes that growth is graded against: a test must not pass on a machine only because that one has more memory."""
_NOT_JUDGED = "torchvet: not judged"
"""The property of a test, also in JUnit's XML, that `--torchvet` could not judge."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options."""
    group = parser.getgroup("torchvet")
    group.addoption("--torchvet", action="store_true", help="vet every test: a fault in its training steps fails it")
    group.addoption("--torchvet-gpu", metavar="CARD", help="simulate a GPU in all tests: l4, h100, 24GiB, ...")


def pytest_configure(config: pytest.Config) -> None:
    """Register the marks; put the GPU in before any test module asks for one."""
    for text in _MARKS.values():
        config.addinivalue_line("markers", text)
    card = config.getoption("--torchvet-gpu")
    if card:
        from torchvet.api.simulate import simulate_gpu
        from torchvet.errors import TorchvetError

        try:
            simulate_gpu(card)
        except TorchvetError as error:
            raise pytest.UsageError(f"--torchvet-gpu: {error}") from None


@pytest.fixture
def torchvet(request: pytest.FixtureRequest) -> Watch:
    """The watch of this test, which is vetted: `step()` marks the end of a step that torchvet cannot find itself."""
    return _watch_of(request.node)


def _watch_of(item: Any) -> Watch:
    from torchvet.api.watch import Watch

    if _watches not in item.stash:
        marks = {mark.name for mark in item.iter_markers()} & set(_MARKS)
        # Who asks for a verdict gets one, whatever that costs; a suite is not to take several times as long.
        thorough = "no_leak" in marks or "torchvet" in item.fixturenames
        exact = bool({"limit_peak", "no_sync"} & marks)
        item.stash[_watches] = Watch(program=item.path, memory_limit=_LIMIT, every_step=exact, thorough=thorough)
    watch: Watch = item.stash[_watches]
    return watch


def _expectations(item: pytest.Item) -> list[Expectation]:
    """What the marks of a test ask for; of a test that only has the fixture, or the option, all."""
    marks = [item.get_closest_marker(name) for name in _MARKS]
    if not any(marks) and _watches not in item.stash and not item.config.getoption("--torchvet"):
        return []
    from torchvet.surfaces import expectations

    try:
        asked: list[Expectation] = [
            getattr(expectations, mark.name)(*mark.args, **mark.kwargs) for mark in marks if mark is not None
        ]
    except (TypeError, ValueError) as error:
        pytest.fail(f"torchvet: a mark makes no sense: {error}", pytrace=False)
    return asked or [expectations.no_fault if _watches in item.stash else expectations.only_findings]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Watch the test, and fail it for what was found. A test that fails itself shows its own failure first."""
    expected = _expectations(item)
    if not expected:
        return (yield)
    from torchvet.surfaces import expectations

    watch = _watch_of(item)
    watch.start()
    try:
        result = yield
    except BaseException as error:
        text = expectations.failure_text(watch.stop(error), expected, findings_only=True)
        if text:
            item.add_report_section("call", "torchvet", text)
        raise
    report = watch.stop()
    text = expectations.failure_text(report, expected)
    if text:
        pytest.fail(text, pytrace=False)
    if expected == [expectations.only_findings] and (reason := expectations.not_judged(report)):
        item.user_properties.append((_NOT_JUDGED, reason))
    return result


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """How many tests `--torchvet` could not judge: that they passed is no evidence."""
    passed = terminalreporter.stats.get("passed", ())
    reasons = [why for test in passed for name, why in test.user_properties if name == _NOT_JUDGED]
    if reasons:
        terminalreporter.write_line(f"torchvet: {len(reasons)} vetted tests could not be judged; first: {reasons[0]}")

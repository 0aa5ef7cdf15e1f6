"""What ranks run with is held side by side: code and torch's version in a finding, the rest among the facts."""

from __future__ import annotations

import sys
from typing import Any

import pytest
import torch
from handmade import outcome, program, rank, steps

from torchvet.analysis.unlike_ranks import NOT_SET, unlike_facts
from torchvet.diagnosis.diagnose import diagnose
from torchvet.finding import Finding, Report
from torchvet.probes.ranks.membership import Membership
from torchvet.recording import RankRecording, Recording
from torchvet.recording.records.base import Source
from torchvet.recording.records.ranks import Member, Surroundings
from torchvet.renderers import renderer_for

TEXT = "import torch\n\n\ndef scaled(x):\n    return x * 2\n"


def one(number: int, *records: Any, world: int = 2) -> RankRecording:
    member = Member(rank=number, world_size=world, host=f"host{number}")
    return rank(member, program(), steps(20), *records, outcome(20), number=number)


def report(*ranks: RankRecording) -> Report:
    return diagnose(Recording(list(ranks)))


def found(*ranks: RankRecording) -> list[Finding]:
    return [f for f in report(*ranks).findings if f.code == "DST112"]


def about(number: int, torch: str = "2.13.0", seed: int | None = 0, **variables: str) -> RankRecording:
    return one(number, Surroundings(versions={"torch": torch}, variables=variables, seed=seed))


def text_on(number: int, text: str, module: str = "scaling", world: int = 2) -> RankRecording:
    path = f"/home/host{number}/scaling.py"
    return one(number, Source(path=path, text=text, module=module), world=world)


def test_unlike_code_is_found_with_the_first_line_that_differs_and_the_ranks_that_have_it() -> None:
    other = TEXT.replace("x * 2", "x * 3")
    texts = [TEXT, other, TEXT, TEXT]
    (finding,) = found(*(text_on(n, text, world=4) for n, text in enumerate(texts)))
    assert finding.location is not None
    assert (finding.severity, finding.rank) == ("warning", 1)
    assert (finding.location.path, finding.location.line) == ("/home/host1/scaling.py", 5)
    assert "`scaling` has one text on ranks 0, 2, 3, another on rank 1" in finding.message


def test_a_text_that_ends_earlier_differs_from_its_next_line_on() -> None:
    (finding,) = found(text_on(0, TEXT), text_on(1, TEXT + "\nprint(1)\n"))
    assert finding.location is not None and finding.location.line == 6


@pytest.mark.parametrize(
    "ranks",
    [
        (text_on(0, TEXT), text_on(1, TEXT)),
        (text_on(0, TEXT), one(1)),
        (text_on(0, TEXT, "server"), text_on(1, TEXT + "x = 1\n", "worker")),
        (about(0), about(1)),
        (about(0), one(1)),
        (text_on(0, TEXT),),
    ],
    ids=["one text", "only one rank has it", "other modules", "one version", "an older recording", "one rank"],
)
def test_ranks_that_are_alike_or_cannot_be_compared_are_passed_over(ranks: tuple[RankRecording, ...]) -> None:
    assert found(*ranks) == []


def test_unlike_versions_of_torch_are_found() -> None:
    (finding,) = found(about(0), about(1, "2.12.1"))
    assert (finding.severity, finding.rank) == ("warning", 1)
    assert "2.13.0 on rank 0, 2.12.1 on rank 1" in finding.message


def test_variables_and_seeds_are_facts_without_a_finding() -> None:
    said = report(about(0, OMP_NUM_THREADS="1"), about(1, seed=7))
    assert [f.code for f in said.findings if f.code.startswith("DST")] == []
    assert said.facts["unlike"] == [{"kind": "variable", "name": "OMP_NUM_THREADS", "values": {"1": [0], NOT_SET: [1]}}]
    assert said.facts["seeds"] == {"0": [0], "7": [1]}
    page = renderer_for("text").render(said, width=110)
    assert "OMP_NUM_THREADS is not the same: 1 on rank 0, not set on rank 1" in page
    assert "torch's seed: 0 on rank 0, 7 on rank 1" in page


def test_one_seed_is_said_once() -> None:
    assert "torch's seed: 3 on all 2 ranks" in renderer_for("text").render(report(about(0, seed=3), about(1, seed=3)))


def test_a_launcher_may_give_each_rank_a_device_of_its_own() -> None:
    alike = [about(n, CUDA_VISIBLE_DEVICES=str(n)) for n in (0, 1)]
    assert unlike_facts(alike)["unlike"] == []
    unlike = [about(0, CUDA_VISIBLE_DEVICES="0,1"), about(1, CUDA_VISIBLE_DEVICES="2")]
    assert unlike_facts(unlike)["unlike"][0]["values"] == {"2 devices": [0], "1 device": [1]}


class ByHand:
    """A host that keeps what is written."""

    def __init__(self) -> None:
        self.written: list[Any] = []

    def write(self, record: Any) -> None:
        self.written.append(record)


def test_a_rank_describes_itself_at_once_and_its_seed_at_its_first_step(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"RANK": "1", "WORLD_SIZE": "2", "OMP_NUM_THREADS": "3", "HOME": "/secret"}.items():
        monkeypatch.setenv(name, value)
    host = ByHand()
    probe = Membership(host)  # type: ignore[arg-type]
    probe.install()
    state = torch.random.get_rng_state()
    for tick in (1, 2):
        probe.settle(tick, "training")
    assert torch.equal(state, torch.random.get_rng_state())
    first, last = (record for record in host.written if isinstance(record, Surroundings))
    assert (first.seed, last.seed) == (None, torch.initial_seed())
    assert last.versions["torch"] == torch.__version__
    assert last.versions["Python"] == ".".join(map(str, sys.version_info[:3]))
    assert last.variables["OMP_NUM_THREADS"] == "3" and "HOME" not in last.variables


def test_a_process_on_its_own_describes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    host = ByHand()
    probe = Membership(host)  # type: ignore[arg-type]
    probe.install()
    probe.settle(1, "training")
    assert host.written == []

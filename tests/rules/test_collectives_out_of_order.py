"""DST109: where each rank stood when the program ended says why none went on."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from handmade import FILE, outcome, program, rank, steps

from torchvet.diagnosis.diagnose import diagnose
from torchvet.finding import Finding
from torchvet.recording import RankRecording, Recording
from torchvet.recording.records.base import Place
from torchvet.recording.records.ranks import Called, CalledIn, Member, Standstill

CLOSED = "RuntimeError: [pair.cc:553] Connection closed by peer [127.0.0.1]:1"


def at(line: int) -> Place:
    return Place(FILE, line, "main")


def ended(count: int = 20, **changes: Any) -> Any:
    return msgspec.structs.replace(outcome(count), **changes)


def waits(line: int, call: str, count: int = 20, waits: bool = True) -> Standstill:
    return Standstill(tick=count, seconds=20.0, place=at(line), call=call, waits=waits)


def one(number: int, *records: Any, count: int = 20) -> RankRecording:
    return rank(Member(rank=number, world_size=2, host="a"), program(), steps(count), *records, number=number)


def found(*ranks: RankRecording) -> list[Finding]:
    return [f for f in diagnose(Recording(list(ranks))).findings if f.code == "DST109"]


LOST = ended(how="exception", status=1, error=CLOSED, place=at(14))
KILLED = ended(how="killed", status=-15)


def test_different_collectives_are_named_with_both_lines() -> None:
    (finding,) = found(one(0, waits(21, "barrier"), KILLED), one(1, waits(14, "backward"), KILLED))
    assert (finding.location and finding.location.line, finding.rank) == (21, 0)
    assert [(r.line, "rank 1" in r.message) for r in finding.related] == [(14, True)]
    assert "rank 0 in `barrier` at line 21, rank 1 in `backward` at line 14" in finding.message


def test_a_wait_that_ended_in_an_error_counts() -> None:
    (finding,) = found(one(0, waits(21, "all_reduce"), ended(how="killed", status=-6)), one(1, LOST))
    assert (finding.location and finding.location.line, [r.line for r in finding.related]) == (21, [14])


def test_a_rank_that_has_ended_is_waited_for() -> None:
    (finding,) = found(one(0, LOST), one(1, ended(), count=20))
    assert "rank 0 waits at line 14 in step 21, while rank 1 ended after 20 steps" in finding.message


def test_a_rank_that_stands_still_is_at_fault() -> None:
    (finding,) = found(one(0, LOST), one(1, waits(17, "", waits=False), KILLED))
    assert (finding.rank, finding.location and finding.location.line) == (1, 17)


def test_waiting_that_went_on_is_no_fault() -> None:
    assert found(one(0, waits(21, "barrier"), ended()), one(1, waits(30, "save", waits=False), ended())) == []


def test_waiting_that_went_on_to_another_line_is_not_where_it_ended() -> None:
    assert found(one(0, waits(21, "barrier"), LOST), one(1, LOST)) == []


def test_a_rank_that_broke_by_itself_is_the_cause() -> None:
    broke = ended(how="exception", status=1, error="ValueError: bad batch", place=at(30))
    assert found(one(0, LOST), one(1, broke)) == []
    assert found(one(0, waits(14, "backward"), KILLED), one(1, ended(how="killed", status=-9))) == []


def test_all_in_one_collective_is_no_mix_up() -> None:
    assert found(one(0, waits(14, "backward"), KILLED), one(1, waits(14, "backward"), KILLED)) == []


def calls(*stretches: tuple[int, int], total: int = 5) -> Called:
    """So many collectives a step, up to each of these steps."""
    return Called(step=1, total=total, stretches=[CalledIn(last=last, calls=each) for last, each in stretches])


ALIKE, SKIPS = calls((20, 3)), calls((13, 3), (14, 2), (20, 3))


def test_a_call_that_a_rank_left_out_long_before_is_told_by_its_step() -> None:
    (finding,) = found(one(0, LOST, ALIKE), one(1, ended(), SKIPS))
    assert "the ranks parted in step 14, where rank 1 called 2 collectives and rank 0 called 3" in finding.cause
    assert "drop_last" not in (finding.remedy.summary if finding.remedy else "")


def test_ranks_that_parted_do_not_wait_for_the_same_though_they_stand_at_one_line() -> None:
    stands = waits(14, "all_reduce")
    (finding,) = found(one(0, stands, ALIKE, KILLED), one(1, stands, SKIPS, KILLED))
    assert "all ranks wait in `all_reduce` at line 14, and not for the same collective" in finding.message
    assert found(one(0, stands, ALIKE, KILLED), one(1, stands, ALIKE, KILLED)) == []


@pytest.mark.parametrize(
    "other",
    [
        calls((20, 3), total=4),  # never together: it began with one call fewer
        calls((20, 2)),  # a stage of a pipeline, which always calls fewer
        calls((13, 3), (14, 2), (15, 4), (20, 3)),  # together again: an evaluation that one rank does a step later
        calls((12, 3)),  # it was seen for fewer steps, and alike in those
        None,
    ],
)
def test_calls_that_do_not_tell_of_a_step_leave_the_cause_as_it_is(other: Called | None) -> None:
    (finding,) = found(one(0, LOST, ALIKE), one(1, ended(), *([other] if other is not None else [])))
    assert "has fewer batches" in finding.cause

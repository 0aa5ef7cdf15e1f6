"""Which of several mends help, and in how many runs that is known."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from trials_by_hand import finding, trial

from torchvet.finding import Finding, Measured
from torchvet.verifying.search import ALONE, Fix, Search, Verified
from torchvet.verifying.trial import Trial

A, B, C = (finding(code, line, 1000.0, name) for code, line, name in (
    ("MEM101", 3, "a"), ("MEM102", 4, "b"), ("MEM113", 5, "c"),
))  # fmt: skip
HALVED: list[float | None] = [0.5 / (n + 1) for n in range(40)]


class Program:
    """A program with three leaks. `behaves` makes the trial of a run in which some mends were made."""

    def __init__(self, behaves: Callable[[set[str]], Trial], *leaks: Finding) -> None:
        self.behaves = behaves
        self.ran: list[str] = []
        self.before = trial(*leaks)

    def run(self, made: Sequence[Finding]) -> Trial:
        names = sorted(f.holder.name for f in made if f.holder)
        self.ran.append("".join(names))
        return self.behaves(set(names))

    def search(self, *fixes: Fix) -> Verified:
        return Search(self.before, self.run).run(fixes)


def leaks_left(made: set[str], *leaks: Finding, helpless: str = "") -> list[Finding]:
    return [f for f in leaks if f.holder and (f.holder.name not in made or f.holder.name in helpless)]


def proven(found: Verified) -> str:
    return "".join(m.finding.holder.name for m, _ in found.proven if m.finding.holder)


def refused(found: Verified) -> dict[str, str]:
    return {m.finding.holder.name: why for m, why in found.refused if m.finding.holder}


def test_fixes_that_all_help_take_one_run_more() -> None:
    program = Program(lambda made: trial(*leaks_left(made, A, B, C)), A, B, C)
    found = program.search(Fix(A), Fix(B), Fix(C))
    assert (proven(found), found.refused, program.ran, found.runs) == ("abc", [], ["abc"], 2)
    assert found.proven[0][1].agreement.equal and found.final is not None and not found.final.findings


def test_a_fix_after_which_a_thread_fails_is_refused() -> None:
    dead = {"AttributeError": "'tuple' object has no attribute 'detach'"}
    program = Program(lambda made: trial(*leaks_left(made, A), threads=dead if made else {}), A)
    assert refused(program.search(Fix(A))) == {
        "a": "a thread of the fixed program failed: AttributeError: 'tuple' object has no attribute 'detach'"
    }
    program.before = trial(A, threads={"AttributeError": "as it always did"})
    assert proven(program.search(Fix(A))) == "a"


def test_what_ended_before_it_had_a_loss_only_has_to_go_on() -> None:
    fault = finding("OPS209", 3)
    ended = {"steps": 0, "curve": [], "failure": "RuntimeError: view size", "outputs": {"stdout": "reading\n"}}

    def search(**after: Any) -> Verified:
        return Search(trial(fault, **ended), lambda made: trial(**after)).run([Fix(fault)])

    assert len(search(outputs={"stdout": "reading\nepoch 1\n"}).proven) == 1
    assert len(search(curve=[], outputs={"stdout": "reading\ndone\n"}).proven) == 1
    assert search(curve=[], outputs={"stdout": "something else\n"}).refused


def test_where_time_alone_speaks_against_a_fix_both_are_run_again_in_turns() -> None:
    slow = finding("OPS302", 3, measured=Measured(seconds_per_step=0.010, share=0.5, steps=90))

    def search(*seconds: float, left: bool = False) -> tuple[Verified, list[bool]]:
        times, ran = iter(seconds), []

        def run(made: Sequence[Finding]) -> Trial:
            ran.append(bool(made))
            return trial(*([slow] if left or not made else []), seconds_per_step=next(times))

        return Search(trial(slow, seconds_per_step=0.022), run).run([Fix(slow)]), ran

    found, ran = search(0.030, 0.020, 0.011)
    assert (len(found.proven), ran, found.runs) == (1, [True, False, True], 4)
    assert found.proven[0][1].seconds_per_step == (0.020, 0.011)
    assert "were to be saved" in search(0.030, 0.020, 0.019)[0].refused[0][1]
    # What is still there needs no second look, and what is quicker at once none either.
    assert [search(0.030, left=True)[1], search(0.011)[1]] == [[True], [True]]


def test_one_that_does_not_help_is_refused_and_the_others_are_run_without_it() -> None:
    program = Program(lambda made: trial(*leaks_left(made, A, B, helpless="b")), A, B)
    found = program.search(Fix(A), Fix(B))
    assert (proven(found), program.ran) == ("a", ["ab", "a"])
    assert "b still grows by 1.0 kB per step" in refused(found)["b"]


def test_one_that_changes_the_losses_is_found_by_trying_each_alone() -> None:
    def behaves(made: set[str]) -> Trial:
        return trial(*leaks_left(made, A, B, C), curve=HALVED if "b" in made else None)

    program = Program(behaves, A, B, C)
    found = program.search(Fix(A), Fix(B), Fix(C))
    assert proven(found) == "ac"
    assert program.ran == ["abc", "", "a", "b", "c", "ac"]  # as it is once more: it differs by nothing from itself
    why = refused(found)["b"]
    assert "the losses differ by up to 0.5" in why and "two unchanged runs do not" in why


def test_a_difference_that_two_runs_as_it_is_have_too_is_no_fault_of_the_fix() -> None:
    near: list[float | None] = [1.001 / (n + 1) for n in range(40)]
    program = Program(lambda made: trial(*leaks_left(made, A), curve=near), A)
    found = program.search(Fix(A))
    assert proven(found) == "a" and program.ran == ["a", ""]
    assert found.proven[0][1].noise is not None and 9e-4 < found.proven[0][1].noise < 1.1e-3


def test_losses_of_a_program_that_differs_from_itself_prove_nothing() -> None:
    program = Program(lambda made: trial(*leaks_left(made, A), curve=HALVED), A)
    found = program.search(Fix(A))
    assert not found.proven and program.ran == ["a", ""]
    assert "differ by 0.5 of their size; seed what is random" in refused(found)["a"]


def test_a_program_that_goes_on_from_what_it_wrote_is_not_blamed_on_the_fix() -> None:
    program = Program(lambda made: trial(*leaks_left(made, A), steps=9), A)
    why = refused(program.search(Fix(A)))["a"]
    assert why.startswith("cannot judge: the unchanged program took 40 steps, and 9")
    ends = Program(lambda made: trial(*leaks_left(made, A), steps=9 if made else 40), A)
    assert refused(ends.search(Fix(A)))["a"] == "the fixed program ended after 9 steps, not 40"


@pytest.mark.parametrize("changes", [True, False])
def test_a_fix_with_which_the_program_does_not_end_is_refused(changes: bool) -> None:
    """Where the unchanged one ended by itself; one that was stopped, too, or that failed, says nothing of it."""
    goes_on = Program(lambda made: trial(*leaks_left(made, A), steps=200 if made else 40, stopped=bool(made)), A)
    why = refused(goes_on.search(Fix(A, changes)))["a"]
    assert why == "the fixed program had not ended after 200 steps; the unchanged one took 40"
    cured = Program(lambda made: trial(*leaks_left(made, A), steps=200, stopped=True), A)
    cured.before = trial(A, failure="MemoryError")
    assert "not ended" not in str(refused(cured.search(Fix(A, changes))))


def test_where_the_fault_is_in_the_mathematics_other_losses_are_no_fault() -> None:
    program = Program(lambda made: trial(*leaks_left(made, A, B), curve=HALVED if "b" in made else None), A, B)
    found = program.search(Fix(A), Fix(B, changes=True))
    assert (proven(found), program.ran) == ("ab", ["a", "ab"])
    assert found.proven[0][1].agreement.equal and not found.proven[1][1].agreement.equal


def test_losses_that_are_lost_are_a_fault_even_there() -> None:
    program = Program(lambda made: trial(curve=[1.0, None]), A)
    found = program.search(Fix(A, changes=True))
    assert "not finite" in refused(found)["a"] or "ended" in refused(found)["a"]
    lost = [*HALVED[:-1], None]
    found = Program(lambda made: trial(curve=lost), A).search(Fix(A, changes=True))
    assert "1 losses of the fixed program are not finite" in refused(found)["a"]


def test_a_fixed_program_that_fails_or_has_a_new_fault_is_refused() -> None:
    found = Program(lambda made: trial(A, failure="RuntimeError: x" if made else ""), A).search(Fix(A))
    assert refused(found) == {"a": "the fixed program failed: RuntimeError: x"}
    found = Program(lambda made: trial(finding("TRN106")), A).search(Fix(A))
    assert "has a new finding: TRN106" in refused(found)["a"]
    found = Program(lambda made: trial(steps=12 if made else 40), A).search(Fix(A))
    assert "ended after 12 steps, not 40" in refused(found)["a"]


def test_without_losses_the_output_is_what_is_compared() -> None:
    before = trial(A, curve=[], outputs={"stdout": "accuracy 0.5"})
    for printed, expected in (("accuracy 0.5", "a"), ("accuracy 0.6", "")):
        after = trial(curve=[], outputs={"stdout": printed})
        assert proven(Search(before, lambda made, after=after: after).run([Fix(A)])) == expected  # type: ignore[misc]


def test_a_fix_that_changes_what_is_written_needs_leave() -> None:
    """The losses are the same; the mean that is printed of what one of the fixes cuts short is another."""

    def behaves(made: set[str]) -> Trial:
        mean = 0.7 if "b" in made else 0.5
        return trial(*leaks_left(made, A, B), outputs={"stdout": f"mean {mean}", "best.pt": b"1"})

    program = Program(behaves, A, B)
    program.before = behaves(set())
    found = program.search(Fix(A), Fix(B))
    assert proven(found) == "a" and program.ran == ["ab", "", "a", "b"]
    assert "stdout differs in 1 line: `mean 0.5` became `mean 0.7` (--unsafe-fixes allows" in refused(found)["b"]
    assert found.proven[0][1].output.compared == ["stdout", "best.pt"] and found.proven[0][1].output.same
    program.ran.clear()
    found = Search(program.before, program.run, unsafe=True).run([Fix(A), Fix(B)])
    assert proven(found) == "ab" and program.ran == ["ab", ""]
    assert [d.name for d in found.proven[0][1].output.differ] == ["stdout"]


def test_files_that_are_no_text_are_compared_where_the_losses_are_the_same_to_the_last_bit() -> None:
    close = [(1.0 + 1e-6) / (n + 1) for n in range(40)]
    for curve, expected in ((None, ""), (close, "a")):

        def behaves(made: set[str], curve: list[float | None] | None = curve) -> Trial:
            return trial(*leaks_left(made, A), curve=curve if made else None, outputs={"x.pt": b"2" if made else b"1"})

        program = Program(behaves, A)
        program.before = behaves(set())
        assert proven(program.search(Fix(A))) == expected


def test_the_runs_are_bounded() -> None:
    many = [finding("MEM101", n + 1, 1000.0, chr(97 + n)) for n in range(ALONE + 4)]
    program = Program(lambda made: trial(*many, curve=HALVED if made else None), *many)
    found = program.search(*[Fix(f) for f in many])
    assert not found.proven and len(found.refused) == len(many)
    assert found.runs <= ALONE + 3
    assert "not tried alone" in found.refused[-1][1]


def test_one_fault_that_feeds_two_names_is_fixed_together() -> None:
    """Of a graph that two names share only the first is seen to hold it; the second comes to light without it."""

    def behaves(made: set[str]) -> Trial:
        return trial(*([] if made == {"a", "b"} else [B] if "a" in made else [A]))

    def uncover(after: Trial, made: Sequence[Finding]) -> list[Fix]:
        return [Fix(f, seen=after, as_seen=f) for f in after.findings]

    program = Program(behaves, A)
    found = Search(program.before, program.run, uncover=uncover).run([Fix(A)])
    assert (proven(found), found.refused, program.ran) == ("ab", [], ["a", "ab", "b"])
    assert refused(Search(program.before, program.run).run([Fix(A)]))["a"].startswith("the fixed program has a new")


def test_what_a_joint_set_does_not_take_is_dropped() -> None:
    def behaves(made: set[str]) -> Trial:
        return trial(*([] if "b" in made else [B] if "a" in made else [A]))

    program = Program(behaves, A)
    uncover = lambda after, made: [Fix(f, seen=after, as_seen=f) for f in after.findings]  # noqa: E731
    found = Search(program.before, program.run, uncover=uncover).run([Fix(A)])
    assert (proven(found), found.refused, program.ran[-1]) == ("b", [], "b")


def test_what_an_accepted_run_still_shows_goes_on_in_the_next_round() -> None:
    """A graph that is detached leaves the tensors themselves under the same name: they are another rule's."""
    rest = finding("MEM102", 4, 500.0, "a")

    def run(made: Sequence[Finding]) -> Trial:
        codes = {f.code for f in made}
        return trial() if codes == {"MEM101", "MEM102"} else trial(rest, graphs={"a": 0.0})

    before = trial(A, graphs={"a": 900.0}, rates={"a": 1000.0})
    uncover = lambda after, made: [Fix(f, seen=after, as_seen=f) for f in after.findings]  # noqa: E731
    found = Search(before, run, uncover=uncover).run([Fix(A)])
    assert [m.finding.code for m, _ in found.proven] == ["MEM101", "MEM102"]
    assert found.final is not None and not found.final.findings
    assert found.proven[1][1].judgement.before == "500 bytes per step"


def test_a_later_round_may_not_bring_back_what_an_earlier_one_has_fixed() -> None:
    rest = finding("MEM102", 4, 50.0, "b")

    def run(made: Sequence[Finding]) -> Trial:
        return trial(A) if {f.code for f in made} == {"MEM101", "MEM102"} else trial(rest)

    uncover = lambda after, made: [Fix(f, seen=after, as_seen=f) for f in after.findings]  # noqa: E731
    found = Search(trial(A, finding("MEM102", 4, 50.0, "b")), run, uncover=uncover).run([Fix(A)])
    assert proven(found) == "a"


def test_a_pass_from_the_sum_of_a_steps_losses_is_proven_by_that_sum() -> None:
    parts: list[list[float | None]] = [[1.0 / (n + 1), 0.5] for n in range(40)]
    curve = [one for step in parts for one in step]
    before: dict[str, Any] = {"curve": curve, "by_step": parts, "gradients": [2.0] * 40}

    def search(add: float = 0.0, norm: float = 2.0, unsafe: bool = False) -> Verified:
        after: list[list[float | None]] = [[1.0 / (n + 1) + 0.5 + add * n] for n in range(40)]
        joined: dict[str, Any] = {
            "curve": [one for step in after for one in step],
            "by_step": after,
            "gradients": [norm] * 40,
        }
        fault = finding("OPS319", 3)
        runner = lambda made: trial(**joined) if made else trial(fault, **before)  # noqa: E731
        return Search(trial(fault, **before), runner, unsafe=unsafe).run([Fix(fault)])

    (made,) = search().proven
    assert made[1].agreement.joined == (80, 40)
    # Rounding grows. Where results may change, it is enough that the first steps agree.
    grown = search(add=1e-5).refused[0][1]
    assert "the sums of each step's losses differ by up to" in grown and "it may be rounding that has grown" in grown
    assert search(add=1e-5, unsafe=True).proven
    assert "those of the first 1 step agree" in search(add=0.01, unsafe=True).refused[0][1]
    # The same losses with other gradients are another program.
    assert search(norm=1.0).refused[0][1] == "80 backward passes became 40"

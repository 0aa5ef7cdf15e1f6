"""What two runs print and write: the same, or different in more than the run itself."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchvet.verifying.outputs import UNREAD, compare_output, same_output

STEPS = "".join(f"step {n} loss {1 / n:.4f}\n" for n in range(1, 41))


@pytest.mark.parametrize(
    ("before", "after", "same"),
    [
        ("", "", True),
        ("took 0 s, drift -0.000", "took 0.0 s, drift 0.000", True),
        ("step 10 loss 0.5012\n", "step 10 loss 0.5012\n", True),
        ("step 10 loss 0.50120\n", "step 10 loss 0.50121\n", True),
        ("step 10 loss 0.5012\n", "step 10 loss 0.6012\n", False),
        ("step 10\n", "step 10 done\n", False),
        ("tensor(0.5, grad_fn=<AddBackward0>)", "tensor(0.5)", False),
    ],
)
def test_outputs(before: str, after: str, same: bool) -> None:
    assert same_output(before, after) is same


@pytest.mark.parametrize(
    ("before", "after", "differ"),
    [
        ("epoch 1 loss 0.5  3.1s\ndone in 12 s", "epoch 1 loss 0.5  9.7s\ndone in 40 s", 0),
        ("peak 812.5 MB at 10:31:07", "peak 90 kB at 11:02:40", 0),
        ("<Net at 0x7f1a2b3c>", "<Net at 0x55bc0aa1>", 0),
        ("flags 0x1f", "flags 0x2f", 1),
        ("tensor(0.87, grad_fn=<DivBackward0>)", "tensor(0.87)", 0),
        ("tensor([1.0], requires_grad=True)", "tensor([1.0])", 0),
        ("memory 1,234.5 MB", "memory 980.1 MB", 0),
        ('{"gpu_memory": 81, "max_mem_mb": 12.5}', '{"gpu_memory": 9, "max_mem_mb": 2.5}', 0),
        ("current_mem 70,448 bytes", "current_mem 70,452 bytes", 0),
        ("held 512 bytes, RAM used: 81", "held 12 bytes, RAM used: 9", 0),
        ("took 1m 3s", "took 58s", 0),
        ("9.5e-05 s", "0.00012 s", 0),
        ("max 0.93 min 0.21", "max 0.95 min 0.21", 1),
        ("peak: 0.93", "peak: 0.95", 1),
        ("elapsed: 12, 311.2 samples/s", "elapsed: 7, 512 samples/s", 0),
        ('{"acc": 0.5, "time": 12.5}', '{"acc": 0.5, "time": 7.1}', 0),
        ("score 0.1824\nscore 0.2", "score 0.0182\nscore 0.2", 1),
        ("score 0.5\n", "score 0.5\nscore 0.6\n", 1),
        ("loss nan", "loss 0.5", 1),
        ("loss 1e999", "loss 1.0", 1),
        ("a\nb\nc 1", "b\nc 1", 1),
        ("rows 41", "rows 42", 1),
    ],
)
def test_lines_that_differ_in_more_than_times_and_sizes(before: str, after: str, differ: int) -> None:
    found = compare_output({"stdout": before}, {"stdout": after})
    assert sum(d.lines for d in found.differ) == differ and found.same is (differ == 0)
    assert found.compared == ["stdout"] and found.lines == len(before.splitlines())


def test_one_number_in_many_may_be_rounded_the_other_way_and_no_more() -> None:
    one = compare_output({"stdout": STEPS}, {"stdout": STEPS.replace("0.5000", "0.5001")})
    assert one.same and one.rounded == 1 and not one.differ
    many = STEPS.replace("0.0", "0.1", 30)
    assert not compare_output({"stdout": STEPS}, {"stdout": many}).same
    assert not compare_output({"stdout": STEPS}, {"stdout": STEPS.replace("0.5000", "0.5003")}).same
    assert not compare_output({"stdout": "accuracy 0.91"}, {"stdout": "accuracy 0.92"}).same
    # Not among the numbers of others.
    assert not compare_output({"stdout": STEPS, "r.json": "auc 0.5"}, {"stdout": STEPS, "r.json": "auc 0.6"}).same
    assert not compare_output({"stdout": STEPS, "r": "auc 0.5000"}, {"stdout": STEPS, "r": "auc 0.5001"}).same


def test_what_two_unchanged_runs_differ_in_says_nothing() -> None:
    def text(rate: float, score: float) -> str:
        return f"step 10 rate {rate} score {score}\nstep 20 rate 5.0 score {score}\n"

    before, again = {"stdout": text(3.0, 0.5)}, {"stdout": text(4.0, 0.5)}
    assert not compare_output(before, {"stdout": text(9.0, 0.5)}).same
    assert compare_output(before, {"stdout": text(9.0, 0.5)}, again).same
    changed = compare_output(before, {"stdout": text(9.0, 0.7)}, again)
    assert [str(d) for d in changed.differ] == [
        "stdout differs in 2 lines: `step 10 rate 3.0 score 0.5` became `step 10 rate 9.0 score 0.7`"
    ]
    unsteady = compare_output(before, {"stdout": ""}, {"stdout": "other words"})
    assert unsteady.same and unsteady.unsteady == ["stdout"] and not unsteady.compared


def test_lines_whose_words_differ_between_two_unchanged_runs_cost_only_themselves() -> None:
    def text(name: str, score: float) -> str:
        return f"run {name}\nscore {score}\nbest {score}\nsaved {name}\n"

    before, again = {"stdout": text("abc", 0.5)}, {"stdout": text("defg", 0.5)}
    same = compare_output(before, {"stdout": text("hij", 0.5)}, again)
    assert same.same and same.compared == ["stdout"] and same.noise == {"stdout": 2} and same.lines == 2
    worse = compare_output(before, {"stdout": text("hij", 0.7)}, again)
    assert [d.first for d in worse.differ] == [("score 0.5", "score 0.7")]
    # One line is gone, or more are new than may be noise.
    assert not compare_output(before, {"stdout": text("hij", 0.5).replace("best 0.5\n", "")}, again).same
    assert not compare_output(before, {"stdout": text("hij", 0.5) + "one\nmore\n"}, again).same


def test_lines_that_two_threads_print_in_any_order() -> None:
    def text(rows: str, score: float) -> dict[str, str]:
        return {"stdout": "\n".join([*(f"{row} is loaded" for row in rows), f"score {score}"])}

    before, again = text("abcd", 0.5), text("badc", 0.5)
    found = compare_output(before, text("dcba", 0.5), again)
    assert found.same and found.lines == 5 and not found.noise
    assert not compare_output(before, text("dcba", 0.6), again).same


def test_a_folder_that_has_the_minute_in_its_name_is_compared() -> None:
    before = {"runs/2026-11-29_18-30/log.csv": "1,0.5\n", "epoch_3.txt": "x"}
    later = {"runs/2026-11-29_18-31/log.csv": "1,0.5\n", "epoch_3.txt": "x"}
    assert compare_output(before, later).same and compare_output(before, later).compared == [*before]
    worse = {**later, "runs/2026-11-29_18-31/log.csv": "1,0.7\n"}
    assert [d.name for d in compare_output(before, worse).differ] == ["runs/2026-11-29_18-30/log.csv"]
    # A number that is no date says what the program did.
    assert not compare_output(before, {**before, "epoch_4.txt": "x"}).same
    other = {name.replace("epoch_3", "epoch_4"): content for name, content in before.items()}
    assert {d.name for d in compare_output(before, other).differ} == {"epoch_3.txt", "epoch_4.txt"}
    # Unless two unchanged runs differ in it.
    assert compare_output({"log.17": "x"}, {"log.19": "x"}, {"log.18": "x"}).compared == ["log.17"]
    assert not compare_output({"log.17": "x"}, {"log.19": "y"}, {"log.18": "x"}).same


def test_a_warning_that_a_fix_ends_is_no_difference_and_other_numbers_in_a_log_are() -> None:
    warned = "a.py:9: UserWarning: do not\n  loss.item()\nINFO score 0.5\n"
    assert compare_output({"stderr": warned}, {"stderr": "INFO score 0.5\n"}).same
    assert compare_output({"stderr": warned}, {"stderr": warned.replace("a.py:9", "a.py:10")}).same
    assert not compare_output({"stderr": warned}, {"stderr": "INFO score 0.4\n"}).same


@pytest.mark.parametrize("at", range(4))
def test_the_rest_of_a_log_is_compared_with_what_it_was(at: int) -> None:
    lines = [f"INFO epoch {n} loss {n / 7:.4f}" for n in range(4)]
    warned = [*lines[:at], "a.py:9: UserWarning: do not", *lines[at:]]
    assert compare_output({"stderr": "\n".join(warned)}, {"stderr": "\n".join(lines)}).same


@pytest.mark.parametrize("line", ["01" * 5_000, "deadbeef" * 5_000, "1." * 5_000, "ab/s 1,1,1" * 1_000])
def test_long_rows_of_digits_take_no_time(line: str) -> None:
    assert compare_output({"x": line}, {"x": f"{line}x"}).lines == 1


def test_files_that_only_one_run_has_or_that_are_no_text() -> None:
    before: dict[str, str | bytes] = {"best.pt": b"1", "a.json": "{}"}
    assert compare_output(before, dict(before)).same
    assert [str(d) for d in compare_output(before, {"best.pt": b"2", "a.json": "{}"}).differ] == ["best.pt differs"]
    late = compare_output(before, {"best.pt": b"2", "a.json": "{}"}, binary=False)
    assert late.same and late.compared == ["a.json"] and late.skipped == ["best.pt"]
    unread = compare_output({**before, "big": UNREAD}, {**before, "big": UNREAD})
    assert unread.same and unread.skipped == ["big"] and "big" not in unread.compared
    assert [d.name for d in compare_output(before, {"best.pt": b"1"}).differ] == ["a.json"]
    assert [d.name for d in compare_output(before, {**before, "more": "x"}).differ] == ["more"]
    # Names with something random in them.
    found = compare_output({"run-a": "x"}, {"run-c": "x"}, {"run-b": "x"})
    assert found.same and found.unsteady == ["run-a", "run-c"]
    assert compare_output(before, {**before, "best.pt": b"2"}, {**before, "best.pt": b"3"}).unsteady == ["best.pt"]


def test_a_line_that_one_of_two_long_texts_lacks() -> None:
    lines = [f"step {n} loss 0.5" for n in range(50_000)]
    one, other = "\n".join(lines), "\n".join([*lines[:700], "saved", *lines[700:]])
    (found,) = compare_output({"x": one}, {"x": other}).differ
    assert (found.lines, found.first) == (1, ("", "saved"))
    # Everything is another: compared, and not aligned.
    assert compare_output({"x": one}, {"x": "\n".join(f"row {n}" for n in range(50_000))}).differ[0].lines == 50_000


def test_long_lines_are_shown_where_they_differ() -> None:
    one, other = f"{'a' * 500} 1 {'b' * 500}", f"{'a' * 500} 2 {'b' * 500}"
    said = str(compare_output({"x": one}, {"x": other}).differ[0])
    assert len(said) < 250 and "a 1 b" in said and "a 2 b" in said


@given(st.text(max_size=60), st.text(max_size=60))
def test_any_text_agrees_with_itself_and_none_is_too_odd_to_compare(one: str, other: str) -> None:
    assert compare_output({"x": one}, {"x": one}).same
    compare_output({"x": one}, {"x": other}, {"x": other})

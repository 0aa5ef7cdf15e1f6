"""Work of a step that is done many times, or for rows that nobody needs: graded by the time of its lines."""

from __future__ import annotations

from typing import Any, get_args

from torchvet.diagnosis.diagnose import diagnose
from torchvet.finding import Finding
from torchvet.recording import RankRecording, Recording
from torchvet.recording.records.base import Place, Program, Record, Source
from torchvet.recording.records.timing import (
    AttentionFallback,
    Change,
    ComputedAgain,
    DenormalState,
    DenseTable,
    IgnoredRows,
    LineOperations,
    LineTime,
    LineTimes,
    OperatorsAt,
    PaddedColumns,
    PairDifferences,
    Phase,
    PrefixComputedAgain,
    RepeatedPasses,
    RowCalls,
    RowsSeenAgain,
    ThrownAway,
)

PATH = "/home/user/train.py"
TEXT = """import torch
def train(model, optimizer):
    for x, y in data:
        out = model(x)
        rows = [
            torch.autograd.grad(out[i], x, retain_graph=True)
            for i in range(100)]
        loss = f(out, y)
        loss.backward()
        optimizer.step()
"""
AT = Place(PATH, 6, "train.<locals>.<listcomp>")


def spent(seconds: float, line: int, phase: Phase = "forward") -> LineTime:
    return LineTime(place=Place(PATH, line, "train"), seconds=seconds, looks=80, steps=80, phase=phase)


def found(
    code: str, record: Record, *lines: LineTime, also: tuple[Record, ...] = (), text: str = TEXT, **more: Any
) -> list[Finding]:
    ran = Program(argv=[], path=PATH, cwd="", python="3.11", torch="2.13.0", device="cpu", started=0.0, pid=1, **more)
    seconds = sum(x.seconds for x in lines)
    times = LineTimes(seconds=seconds, steps=100, looks=400, interval=0.01, own=0.0, lines=list(lines))
    recording = Recording([RankRecording(0, [ran, Source(path=PATH, text=text), times, record, *also])])
    return [f for f in diagnose(recording, select=[code]).findings if f.code == code]


def repeated(rows: float, nodes: int = 20, **more: Any) -> list[Finding]:
    record = RepeatedPasses(place=AT, steps=4, graphs=4, passes=400, nodes=nodes, **more)
    return found("OPS308", record, spent(rows, 6, "backward"), spent(1.0, 9, "backward"), spent(1.0, 4))


def test_rows_of_a_jacobian_are_told_with_the_time_of_their_line() -> None:
    (finding,) = repeated(2.0)
    assert (finding.severity, finding.location and finding.location.line) == ("warning", 6)
    assert (
        finding.message
        == "backward runs through the same graph 100 times in a step: 20.0 ms of a step of 40.0 ms (50 %)"
    )
    assert "is_grads_batched" in finding.remedy.summary and "2.0 times faster at most" in finding.cause
    assert "vectorize=True" in repeated(2.0, by_torch=True)[0].remedy.summary
    assert "backward()` of the sum" in repeated(2.0, is_grad=False)[0].remedy.summary


def test_rows_whose_time_is_arithmetic_or_little_are_a_note_or_silent() -> None:
    (finding,) = repeated(2.0, nodes=5)
    assert finding.severity == "info" and "takes 40 us, which is arithmetic" in finding.cause
    assert [f.severity for f in repeated(0.4)] == ["info"]
    assert not repeated(0.05)


def test_without_times_nothing_is_said() -> None:
    record = RepeatedPasses(place=AT, steps=4, graphs=4, passes=400, nodes=20)
    assert not found("OPS308", record)
    assert not found("OPS308", record, spent(2.0, 6), simulated="l4")


def ignored(head: float = 2.0, operators: int = 5, calls: int = 10, rows: int = 850, **more: Any) -> list[Finding]:
    record = IgnoredRows(
        place=Place(PATH, 4, "train"), loss=Place(PATH, 8, "train"), columns=8000, calls=calls, rows=1000, ignored=rows,
        **{"least": 0.8, **more},
    )  # fmt: skip
    at = [OperatorsAt(place=Place(PATH, line, "train"), count=number * 10) for line, number in ((4, operators), (8, 5))]
    lines = [spent(head, 4), spent(1.0, 8), spent(3.0, 4, "backward"), spent(4.0 - head, 9, "backward")]
    return found("OPS309", record, *lines, also=(LineOperations(sampled=10, lines=at),))


def test_ignored_rows_are_told_with_their_share_of_the_forward_pass() -> None:
    (finding,) = ignored()
    assert (finding.severity, finding.location and finding.location.line) == ("warning", 4)
    assert "ignores 85 %" in finding.message
    # 85 % of the last layer's line and of the loss's.
    assert "25.5 ms of a step of 80.0 ms (32 %)" in finding.message
    assert [related.line for related in finding.related] == [8]


def test_a_line_with_other_products_counts_by_its_part() -> None:
    assert "15.3 ms" in ignored(part=0.6)[0].message
    assert not ignored(part=0.4)


def test_few_rows_batches_that_vary_and_whole_models_on_one_line_are_silent() -> None:
    assert not ignored(rows=450)
    assert not ignored(least=0.1)
    assert not ignored(calls=2)
    assert not ignored(operators=200)


def test_ignored_rows_of_a_small_last_layer_are_a_note_or_silent() -> None:
    record = IgnoredRows(place=AT, loss=AT, columns=80, calls=9, rows=100, ignored=90, least=0.8)
    seen = LineOperations(sampled=10, lines=[OperatorsAt(place=AT, count=50)])
    beside = spent(8.0, 9, "backward")
    assert [f.severity for f in found("OPS309", record, spent(1.0, 6), beside, also=(seen,))] == ["info"]
    assert not found("OPS309", record, spent(0.2, 6), beside, also=(seen,))
    assert not found("OPS309", record, also=(seen,))


def padded(
    columns: int, rest: float = 0.5, least: float = 0.3, calls: int = 10, made: Place | None = None
) -> list[Finding]:
    record = PaddedColumns(
        place=AT,
        made=made,
        padding=0,
        calls=calls,
        columns=100 * calls,
        padded=columns * calls,
        least=least,
        width=100,
        widest=40,
    )
    return found("OPS310", record, spent(1.0, 4), spent(2.0, 9, "backward"), spent(rest, 10, "optimizer"))


def test_padding_is_told_with_its_part_of_forward_and_backward() -> None:
    (finding,) = padded(60)
    assert (finding.severity, finding.location and finding.location.line) == ("warning", 6)
    assert "60 % of the columns" in finding.message and "86 % of a step, is" in finding.message
    assert "18.0 ms of a step of 35.0 ms (51 %)" in finding.message
    assert "100 columns wide" in finding.cause and "longer than 40" in finding.cause
    (made,) = padded(60, made=Place(PATH, 3, "batches"))
    assert [(one.role, one.line) for one in made.related] == [("made", 3)]
    (here,) = padded(60, made=AT)
    assert not finding.related and not here.related


def test_less_padding_batches_that_vary_and_a_small_model_are_a_note() -> None:
    assert [f.severity for f in padded(40)] == ["info"]
    assert [f.severity for f in padded(60, least=0.1)] == ["info"]
    assert [f.severity for f in padded(60, rest=4.0)] == ["info"]


def test_little_padding_is_silent() -> None:
    assert not padded(20) and not padded(60, calls=2)


FORM: dict[str, Any] = {"shapes": [(2, 4, 512, 64)], "strides": [(131072, 32768, 1, 512)], "dtype": "float32"}


def fallen(math: float, changed: float, change: Change = "strides", *also: Record, **more: Any) -> list[Finding]:
    record = AttentionFallback(
        place=AT, change=change, fused="flash", math=math, changed=changed, calls=22, sampled=11, backward=True,
        **{"operands": ["query"], **FORM, **more},
    )  # fmt: skip
    return found("OPS311", record, spent(2.0, 4), spent(2.0, 9, "backward"), spent(1.0, 3, "data"), also=also)


def test_attention_that_falls_back_is_told_with_what_was_measured() -> None:
    (finding,) = fallen(0.03, 0.01, made=Place(PATH, 4, "train"), inner=Place("/lib/llama.py", 7, "attend"))
    assert (finding.severity, finding.location and finding.location.line) == ("warning", 6)
    assert "since the last dimension of its query has a stride other than 1" in finding.message
    assert "would save 20.0 ms of a step of 50.0 ms (40 %)" in finding.message
    assert "query (2, 4, 512, 64) with strides (131072, 32768, 1, 512), in float32" in finding.cause
    assert "2 calls in a step, forward and backward: 30.0 ms as they are, 10.0 ms" in finding.cause
    assert "`.contiguous()` on query" in finding.remedy.summary and "make it in" in finding.remedy.summary
    assert [(related.role, related.line) for related in finding.related] == [("called-from", 7), ("made", 4)]


def test_training_and_evaluation_on_one_line_are_one_finding() -> None:
    other = AttentionFallback(
        place=AT, change="strides", fused="flash", math=0.006, changed=0.001, calls=11, sampled=11, backward=False,
        operands=["query"], **FORM,
    )  # fmt: skip
    (finding,) = fallen(0.03, 0.01, "strides", other)
    assert "25.0 ms of a step" in finding.message


def test_each_reason_has_its_words() -> None:
    for change in get_args(Change):
        (finding,) = fallen(0.03, 0.01, change)
        assert "{" not in finding.message + finding.cause + finding.remedy.summary
    assert "have 3 dimensions" in fallen(0.03, 0.01, "rank", shapes=[(8, 512, 64)])[0].message


def test_dropout_of_weights_and_little_gain_are_a_note_or_silent() -> None:
    assert [f.severity for f in fallen(0.03, 0.01, "dropout")] == ["info"]
    assert [f.severity for f in fallen(0.010, 0.004)] == ["info"]
    assert not fallen(0.03, 0.027) and not fallen(0.01, 0.012)
    assert not fallen(0.003, 0.001)


def again(share: float, **more: Any) -> list[Finding]:
    """Of a line that takes half of 4 s; what its operators took does not matter, but which part of it was again."""
    counts: dict[str, Any] = {"seconds": 0.5, "within": 0.0, "backward": 0.0, "calls": 20, "steps": 9, "sampled": 10}
    record = ComputedAgain(
        id=1, place=Place(PATH, 4, "train"), operator="mm", lines=[(4, share)], **{**counts, **more}
    )  # fmt: skip
    return found("OPS312", record, spent(2.0, 4), spent(1.0, 8), spent(1.0, 9, "backward"))


def test_results_that_are_the_same_in_each_step() -> None:
    (finding,) = again(0.8, module="encoder")
    assert (finding.severity, finding.location and finding.location.line) == ("warning", 4)
    assert finding.message == (
        "the same result is computed in each step (`mm` in `encoder`): 16.0 ms of a step of 40.0 ms (40 %)"
    )
    assert "in 9 of 10 sampled steps" in finding.cause and "register_buffer" in finding.remedy.summary
    assert "(`mm` in `train`, in the backward pass)" in again(0.8, backward=0.4)[0].message
    (twice,) = again(0.8, within=0.4)
    assert twice.message.startswith("a result of the same step is computed again") and "use it twice" in str(
        twice.remedy.summary
    )


def test_backward_through_results_that_were_there_counts_too() -> None:
    (finding,) = again(0.8, within=0.5, calls=90, led_back=0.25, passes=0.5)
    # 80 % of 20 ms, and half of the 10 ms of the backward pass.
    assert "21.0 ms of a step of 40.0 ms" in finding.message and "50 % of the backward pass" in finding.cause
    assert "parametrize.cached()" in finding.remedy.summary


def test_what_is_rarely_the_same_or_takes_little_is_a_note_or_silent() -> None:
    assert not again(0.8, steps=2) and not again(0.8, steps=4)
    assert [f.severity for f in again(0.3)] == ["info"] and not again(0.02)


def table(touched: int = 640, **more: Any) -> list[Finding]:
    record = DenseTable(
        place=Place(PATH, 4, "train"), rows=100_000, columns=32, looks=4, touched=touched, seconds=0.1, calls=10,
        sampled=10, optimizer="SGD", step_place=Place(PATH, 10, "train"), **{"part": 0.5, "exact": True, **more},
    )  # fmt: skip
    return found("OPS314", record, spent(1.0, 4), spent(2.0, 9, "backward"), spent(1.0, 10, "optimizer"))


def test_a_table_whose_gradient_has_all_rows() -> None:
    (finding,) = table()
    assert (finding.severity, finding.location and finding.location.line) == ("warning", 4)
    assert "making it and stepping on it takes 15.0 ms of a step of 40.0 ms (38 %)" in finding.message
    assert "12.8 MB in 10.0 ms, 99 % of it with zeros, and SGD goes through all of it in 5.0 ms" in finding.cause


def test_where_a_sparse_gradient_learns_something_else_it_is_a_note() -> None:
    (finding,) = table(exact=False)
    assert finding.severity == "info" and "changes what is learned" in finding.remedy.summary
    assert not table(touched=20_000)


def denormal(plain: float, flushed: float) -> list[Finding]:
    at = Place(PATH, 10, "train")
    record = DenormalState(name="Adam", place=at, share=0.4, elements=1000, plain=plain, flushed=flushed)
    return found("OPS315", record, spent(2.0, 4), spent(2.0, 10, "optimizer"))


def test_denormal_numbers_in_an_optimizer() -> None:
    (finding,) = denormal(0.02, 0.005)
    assert (finding.severity, finding.location and finding.location.line) == ("warning", 10)
    assert "40 % of the state of Adam is denormal" in finding.message
    assert "that costs 15.0 ms of a step of 40.0 ms (38 %)" in finding.message
    assert not denormal(0.02, 0.018)


def rows_again(*also: Record, line: float = 2.0, rest: float = 2.0, **more: Any) -> list[Finding]:
    """A frozen part that is called once a step, for 15 ms, by a line that takes `line` of the seconds of 100 steps."""
    record = RowsSeenAgain(
        **{
            **{"id": 0, "module": "Embedder", "places": [Place(PATH, 4, "train")], "steps": 300, "calls": 300},
            **{"looked": 250, "seconds": 4.5, "rows": 2000, "again": 1800, "later": 1000, "later_again": 990},
            **{"distinct": 200, "row_bytes": 5000, **more},
        }
    )
    return found("OPS312", record, spent(line, 4), spent(rest, 9, "backward"), also=also)


def test_rows_that_a_frozen_part_computes_again_are_told_with_the_time_of_its_calls() -> None:
    (finding,) = rows_again()
    assert (finding.severity, finding.location and finding.location.line) == ("warning", 4)
    # 90 % of 15 ms: the line calls more than this part.
    assert finding.message == (
        "`Embedder` is frozen and computes rows that it has computed before (1,800 of 2,000 rows): "
        "13.5 ms of a step of 40.0 ms (34 %)"
    )
    assert "990 of 1,000 rows in the later half of 250 calls" in finding.cause
    assert "about 1.0 MB" in finding.remedy.summary


def test_a_frozen_part_costs_no_more_than_its_line() -> None:
    (finding,) = rows_again(line=1.0)
    assert "10.0 ms of a step of 30.0 ms (33 %)" in finding.message


def test_frozen_layers_on_one_line_are_one_finding() -> None:
    at = {"places": [Place(PATH, 4, "train")], "steps": 300, "calls": 300, "looked": 300, "distinct": 200}
    much = {"rows": 2000, "again": 1800, "later": 1000, "later_again": 990, "row_bytes": 5000}
    (finding,) = rows_again(RowsSeenAgain(id=1, module="Layer", seconds=0.9, **at, **much))
    assert "`Embedder` and 1 other part are frozen and compute rows that they have" in finding.message
    assert "16.2 ms of a step" in finding.message and "about 2.0 MB" in finding.remedy.summary


def test_rows_that_seldom_come_again_are_silent() -> None:
    assert not rows_again(later_again=790)
    assert not rows_again(distinct=7)
    assert not rows_again(looked=2) and not rows_again(looked=50)
    # Its weights changed after all.
    assert not rows_again(rows=0, again=0, later=0, later_again=0, distinct=0, looked=0)


def test_a_frozen_part_that_takes_little_is_a_note_or_silent() -> None:
    assert [f.severity for f in rows_again(seconds=0.9)] == ["info"]
    assert not rows_again(seconds=0.3)
    assert not rows_again(places=[Place(PATH, 5, "train")])


def test_one_storage_in_each_step_is_told_once() -> None:
    again = ComputedAgain(
        id=0, place=Place(PATH, 4, "train"), operator="mm", seconds=1.0, within=0.0, backward=0.0, calls=20, steps=10,
        sampled=11, lines=[(4, 0.9)],
    )  # fmt: skip
    (finding,) = rows_again(again)
    assert finding.message.startswith("the same result is computed in each step")


def thrown(backward: float, share: float = 0.8, made: Place | None = AT, **more: Any) -> list[Finding]:
    record = ThrownAway(
        id=0, place=Place(PATH, 9, "train"), made=made, optimizer="Adam", share=share,
        **{"optimizer_place": Place(PATH, 2, "train"), "judged": 4, "thrown": 4, "steps": 4, **more},
    )  # fmt: skip
    return found("OPS313", record, spent(backward, 9, "backward"), spent(2.0, 4), spent(1.0, 10, "optimizer"))


def test_a_backward_that_is_thrown_away_is_told_with_its_share_of_the_line() -> None:
    (finding,) = thrown(5.0)
    assert (finding.severity, finding.location and finding.location.line) == ("warning", 6)
    assert "the backward pass of line 9" in finding.message
    # 80 % of 50 ms.
    assert "40.0 ms of a step of 80.0 ms (50 %)" in finding.message
    assert "(Adam of line 2)" in finding.cause and "each of 4 passes in 4 sampled steps" in finding.cause
    assert [(related.role, related.line) for related in finding.related] == [("backward", 9), ("optimizer", 2)]


def test_where_the_value_is_made_may_be_unknown_or_the_same_line() -> None:
    (finding,) = thrown(5.0, made=None)
    assert finding.location and finding.location.line == 9
    assert finding.message.startswith("this backward pass computes gradients, which")
    (finding,) = thrown(5.0, made=Place(PATH, 9, "train"), optimizer_place=None)
    assert "of this line" in finding.message and "alone, whose" in finding.cause


def test_what_is_used_now_and_then_and_what_takes_little_is_a_note_or_silent() -> None:
    assert [f.severity for f in thrown(0.6)] == ["info"]
    assert not thrown(5.0, judged=5) and not thrown(5.0, steps=2, judged=2, thrown=2)
    assert not thrown(0.6, share=0.1)


def differences(product: float = 0.002, *also: Record, **more: Any) -> list[Finding]:
    """Of 100 steps of 40 ms: operators of 30 ms in a step of 40 ms of operators."""
    record = PairDifferences(
        place=Place(PATH, 4, "train"), left=(256, 1, 48), right=(1, 300, 48), rows=(256, 300), width=48,
        dtype="float32", calls=10, sampled=10, plain=0.02, product=product, reduced=Place(PATH, 8, "train"),
        **{"distance": "squares", "forward": 0.1, "backward": 0.2, "every": 0.4, "subtracting": 0.008, **more},
    )  # fmt: skip
    return found("OPS316", record, spent(2.0, 4), spent(2.0, 9, "backward"), spent(1.0, 3, "data"), also=also)


def test_differences_of_all_pairs_are_told_with_what_was_measured() -> None:
    (finding,) = differences()
    assert (finding.severity, finding.location and finding.location.line) == ("warning", 4)
    assert "all pairs of 256 and 300 rows" in finding.message
    # 90 % of 30 ms.
    assert "would save 27.0 ms of a step of 50.0 ms (54 %)" in finding.message
    assert "has 14.7 MB, 48 times as much as the distances" in finding.cause and "once in a step" in finding.cause
    assert "forward and backward: 20.0 ms as it is, 2.0 ms by a matrix product, 8.0 ms by" in finding.cause
    assert "clamp_min(0)" in finding.remedy.summary and ".square()`" in finding.remedy.summary
    assert [related.line for related in finding.related] == [8]


def test_sampled_steps_that_take_longer_than_others_promise_no_more() -> None:
    # All of 60 ms of operators are these: of the 40 ms of a step that is not sampled.
    (finding,) = differences(0.01, forward=0.3, backward=0.3, every=0.6, subtracting=0.01)
    assert "would save 20.0 ms" in finding.message


def test_what_the_other_ways_lose_is_said() -> None:
    (finding,) = differences(distance="root", backward=0.0)
    assert "torch.cdist(x, y)" in finding.remedy.summary and "26 rows" in finding.remedy.summary
    assert ", forward: 20.0 ms" in finding.cause
    (finding,) = differences(distance="absolute", product=0.008)
    assert "p=1" in finding.remedy.summary and "digits" not in finding.remedy.summary
    assert "Autocast" in differences(autocast=True)[0].remedy.summary


def test_a_mean_and_factors_belong_to_the_same_distances() -> None:
    plain, mean, scaled = (differences(**more)[0].remedy.summary for more in ({}, {"mean": True}, {"scaled": True}))
    assert ", divided by 48, x and y" in mean and "divided" not in plain
    assert "factors of a row's elements go to both rows before" in scaled and "factors" not in plain


def test_a_gradient_that_is_differentiated_again_has_the_product_alone() -> None:
    (finding,) = differences(twice=True)
    assert "differentiated again" in finding.remedy.summary and "donot_use" not in finding.remedy.summary
    assert not differences(twice=True, distance="absolute")


def test_differences_without_a_gain_or_of_little_time_are_a_note_or_silent() -> None:
    assert not differences(0.017, subtracting=0.018)
    assert [f.severity for f in differences(forward=0.02, backward=0.06)] == ["info"]
    assert not differences(forward=0.01, backward=0.01)


def test_several_forms_of_one_line_are_one_finding() -> None:
    (finding,) = differences(0.002)
    other = PairDifferences(
        place=Place(PATH, 4, "train"), distance="squares", left=(56, 1, 48), right=(1, 300, 48), rows=(56, 300),
        width=48, dtype="float32", calls=1, sampled=10, forward=0.02, backward=0.0, every=0.4, plain=0.02,
        product=0.002, subtracting=0.008,
    )  # fmt: skip
    (both,) = differences(0.002, other)
    assert "28.8 ms" in both.message and finding.location == both.location


def prefix(text: str = TEXT, **more: Any) -> list[Finding]:
    """Of 100 steps of 30 ms: 20 ms on the line, three fourths of which a cache would save."""
    given: dict[str, Any] = {
        "id": 0, "place": Place(PATH, 4, "train"), "module": "Model", "row": 21, "calls": 210, "columns": 6000,
        "again": 5790, "steps": 10, "sampled": 10, "compared": 180, "same": 180, "timed": 1800, "seconds": 1.6,
        "saved": 1.2, **more,
    }  # fmt: skip
    return found("OPS317", PrefixComputedAgain(**given), spent(2.0, 4), spent(1.0, 9, "backward"), text=text)


def test_a_prefix_that_is_computed_again_is_told_with_what_a_cache_would_save() -> None:
    (finding,) = prefix()
    assert (finding.severity, finding.location and finding.location.line) == ("warning", 4)
    assert "`Model` computes all earlier columns again" in finding.message and "21 calls in a row" in finding.message
    assert "would save 15.0 ms of a step of 30.0 ms (50 %)" in finding.message
    assert "180 of 180 calls" in finding.cause and "use_cache=True" in finding.remedy.summary


def test_the_lines_that_turn_the_cache_off_are_named() -> None:
    text = TEXT + (
        "def prepare(model):\n"
        "    model.config.use_cache = False\n"
        "    model.config.use_cache = True\n"
        "    return Config(use_cache=False), load(use_kv_cache=False)\n"
        "class Config:\n"
        "    use_cache: bool = False\n"
        "    def forward(self, ids, use_cache=False): ...\n"
    )
    (finding,) = prefix(text=text)
    off = [one.line for one in finding.related if one.role == "turned-off"]
    assert off == [12, 14, 16] and "`model.config.use_cache = False`" in finding.related[0].message
    assert not [one for one in prefix()[0].related if one.role == "turned-off"]


def test_a_model_whose_earlier_columns_change_needs_no_cache() -> None:
    assert prefix(same=100) == [] and prefix(compared=0, same=0) == []


def test_operators_of_sampled_steps_promise_no_more_than_they_take() -> None:
    # 5 ms in a step: the line takes 20 ms, most of it in Python.
    (finding,) = prefix(timed=0, seconds=0.06, saved=0.05)
    assert "would save 5.0 ms" in finding.message


def test_a_short_text_now_and_then_is_a_trifle() -> None:
    assert prefix(saved=0.02) == []


def by_row(together: float = 0.002, *also: Record, **more: Any) -> list[Finding]:
    """Of 100 steps of 50 ms: 20 ms in a loop, 20 ms in the backward pass, of which nine tenths are the loop's."""
    measured: dict[str, Any] = {"rows": 64, "loops": 10, "sampled": 10, "one": 0.0005, "timed": 64}
    record = RowCalls(
        place=Place(PATH, 4, "train"),
        module="Net",
        together=together,
        **{**measured, "differentiated": "summed", "late": 0.9, **more},
    )
    lines = [OperatorsAt(place=Place(PATH, line, "train"), count=9) for line in (4, 6, 8, 9)]
    times = [spent(1.5, 4), spent(0.5, 6), spent(2.0, 9, "backward"), spent(1.0, 12)]
    return found("OPS318", record, *times, also=(LineOperations(sampled=10, lines=lines), *also), text=LOOP)


LOOP = """import torch
def train(model, optimizer):
    for row in x:
        out = model(
            row)
        loss = loss + f(out, y)
        log(loss)

    loss.backward()
    optimizer.step()
def log(loss):
    print(loss)
"""


def test_a_model_called_row_by_row_is_told_with_what_was_measured() -> None:
    (finding,) = by_row()
    assert (finding.severity, finding.location and finding.location.line) == ("warning", 4)
    assert "Net is called for one row at a time, 64 times in a step" in finding.message
    # Of 38 ms.
    assert "would save 35.6 ms of a step of 50.0 ms (71 %)" in finding.message
    assert "64 rows take 32.0 ms one by one, and 2.0 ms at once" in finding.cause
    assert "reduction='none'" in finding.remedy.summary and [related.line for related in finding.related] == [3]


def test_gradients_of_each_row_come_by_a_transform() -> None:
    (finding,) = by_row(differentiated="each", late=0.0)
    # Of 20 ms, without the backward pass.
    assert "would save 18.8 ms" in finding.message and "torch.func.vmap" in finding.remedy.summary
    (finding,) = by_row(differentiated="", late=0.0)
    assert "backward" not in finding.remedy.summary + finding.cause


def test_several_loops_of_a_step_are_counted() -> None:
    (finding,) = by_row(loops=40, rows=16, together=0.002, timed=16)
    assert "16 times in each of 4 loops of a step" in finding.message


def test_rows_that_are_no_quicker_together_or_are_told_by_ops308_are_silent() -> None:
    assert not by_row(0.027)
    passes = RepeatedPasses(place=Place(PATH, 6, "train"), steps=4, graphs=4, passes=400, nodes=20)
    assert not by_row(0.002, passes)


def test_the_loop_of_the_steps_is_none_over_rows() -> None:
    record = RowCalls(
        place=Place(PATH, 4, "train"), module="Net", rows=64, loops=10, sampled=10, one=0.0005, together=0.002,
        timed=64, differentiated="",
    )  # fmt: skip
    lines = [OperatorsAt(place=Place(PATH, line, "train"), count=9) for line in (4, 8, 9, 10)]
    times = [spent(1.0, 4), spent(1.0, 8), spent(2.0, 9, "backward"), spent(1.0, 10, "optimizer")]
    # In `TEXT` the call stands in the loop over batches.
    (finding,) = found("OPS318", record, *times, also=(LineOperations(sampled=10, lines=lines),))
    assert "of a step of 50.0 ms" in finding.message and "save 9.4 ms" in finding.message

"""What a recording shows becomes one report: the right rules, in order, with what could not be looked at."""

from __future__ import annotations

import dataclasses
from typing import Any

import msgspec
import pytest
from handmade import (
    FILE,
    census,
    evidence,
    heap,
    holding,
    outcome,
    program,
    rank,
    recording,
    site,
    steps,
    survivors,
    window,
)

from torchvet.analysis import growth_of
from torchvet.diagnosis.diagnose import _unattributed, diagnose
from torchvet.finding import SEVERITIES, Finding, Holder, Measured, Remedy, Report
from torchvet.recording import Recording
from torchvet.recording.records.base import Holding, Place, Record, Source, Stranger
from torchvet.recording.records.optimizers import OptimizerUse, UnownedParameters
from torchvet.recording.records.training import CollectorUse, StaleAtPeak, Unchecked
from torchvet.renderers.verdict import verdict
from torchvet.rules import all_rules

TICKS = (5, 6, 9, 14, 21, 32)
SOURCE = "import torch\n\n\ndef main():\n    losses = []\n    for x in data:\n        losses.append(loss)\n"


def leak(rate: int = 1000, name: str = "losses", **more: Any) -> list[Record]:
    """Censuses of a name that grows by so many bytes a step."""
    return [census(t, holding(name, direct=rate * t, sites=[site()], **more)) for t in TICKS]


def graphs(rate: int = 1000, name: str = "losses", **more: Any) -> list[Record]:
    """Likewise, by what autograd saved."""
    return [census(t, holding(name, direct=4 * t, graph=rate * t, sites=[site()], **more)) for t in TICKS]


def run(*records: Any, damaged: int = 0, **changes: Any) -> Recording:
    """A run of forty steps, looked at."""
    return recording(program(**changes), steps(40), evidence(40), *records, outcome(40), damaged=damaged)


def codes(report: Report) -> list[str]:
    return [f.code for f in report.findings]


# Verdicts ------------------------------------------------------------------------------------------------------------


def test_a_leak_is_a_finding_with_everything_said() -> None:
    report = diagnose(run(leak(), Source(path=FILE, text=SOURCE)))
    assert report.verdict == "findings" and codes(report) == ["MEM102"]
    (finding,) = report.findings
    assert finding.evidence == "observed" and finding.device == "cpu"
    assert finding.holder is not None and finding.holder.name == "losses"
    assert finding.measured.bytes_per_step == 1000 and finding.measured.bytes == 32_000
    assert finding.location is not None and (finding.location.path, finding.location.line) == (FILE, 7)
    assert "losses" in finding.message and finding.cause and finding.remedy.summary
    assert finding.related[0].role == "allocated"


def test_nothing_found_after_looking_is_clean() -> None:
    report = diagnose(run(census(9, holding("model", 100)), census(20, holding("model", 100))))
    assert (report.verdict, report.findings) == ("clean", [])


@pytest.mark.parametrize("records", [
    [],
    [program(torch=""), outcome(0)],
    [program(), outcome(0)],
    [program(), steps(2), outcome(2)],
    [program(), census(0, final=True), outcome(0)],
], ids=["nothing", "no torch", "no steps", "no look", "no steps and a last look"])  # fmt: skip
def test_nothing_looked_at_is_undetermined_and_says_why(records: list[Any]) -> None:
    report = diagnose(recording(*records))
    assert report.verdict == "undetermined" and report.not_checked


def test_no_rank_at_all() -> None:
    report = diagnose(Recording([]))
    assert report.verdict == "undetermined" and report.facts == {} and report.overhead == {}


def test_a_report_survives_json() -> None:
    report = diagnose(run(leak(), graphs(name="outputs")))
    assert msgspec.json.decode(msgspec.json.encode(report), type=Report) == report


# Which rule ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("code", "records"), [
    ("MEM101", graphs()),
    ("MEM101", graphs(carried=True, container="Tensor", carrier_ops=["AddBackward0"])),
    ("MEM103", graphs(name="h", carried=True, container="Tensor", carrier_ops=["TanhBackward0", "AddmmBackward0"])),
    ("MEM102", leak()),
    ("MEM111", leak(name="cached", via=["cache"])),
    ("MEM111", leak(container="dict", key_type="Tensor")),
    ("MEM113", [census(t, holding("firsts", direct=1000 * t, visible=10 * t)) for t in TICKS]),
    ("MEM112", [census(t, holding("losses", direct=4 * t, nodes=9 * t, tensors=t)) for t in TICKS]),
    ("MEM112", [census(t, holding("total", direct=4, nodes=9 * t, tensors=1, carried=True,
                                  carrier_ops=["AddBackward0"])) for t in TICKS]),
    ("MEM112", [census(t, holding("pinned", direct=8000 * t, visible=8 * t, nodes=900 * t, tensors=t)) for t in TICKS]),
    ("MEM101", [census(t, holding("shadow", direct=4000, graph=64 * t, nodes=12 * t, tensors=4, carried=True,
                                  carrier_ops=["MulBackward0", "AddBackward0"])) for t in TICKS]),
], ids=["graph", "running sum", "state", "tensors", "lru_cache", "tensor keys", "views", "nodes", "sum of losses",
        "nodes with views", "average of weights"])  # fmt: skip
def test_the_rule_that_knows_the_mechanism_speaks(code: str, records: list[Record]) -> None:
    assert codes(diagnose(run(records))) == [code]


def test_a_graph_of_nodes_alone_is_graded_by_what_they_take_of_the_host() -> None:
    """An average of weights that is never detached: 12 nodes a step of some 400 bytes, and 64 bytes of tensors."""
    looks = [census(t, holding("shadow", direct=4000, graph=64 * t, nodes=12 * t, tensors=4, carried=True,
                               carrier_ops=["MulBackward0"])) for t in TICKS]  # fmt: skip
    (finding,) = diagnose(run(looks, memory_limit=16_000_000_000)).findings
    assert (
        finding.severity == "warning" and "12 nodes longer every step: about 4.8 kB of host memory" in finding.message
    )


@pytest.mark.parametrize(("nodes", "severity"), [(10, "info"), (1000, "warning")])
def test_kept_losses_are_information_unless_their_nodes_are_many(nodes: int, severity: str) -> None:
    looks = [census(t, holding("losses", direct=4 * t, nodes=nodes * t, tensors=t)) for t in TICKS]
    (finding,) = diagnose(run(looks, memory_limit=16_000_000_000)).findings
    assert (finding.code, finding.severity) == ("MEM112", severity)


def test_one_growth_has_one_finding_and_two_have_two() -> None:
    both = [
        census(t, holding("losses", direct=4 * t, graph=900 * t), holding("outputs", direct=5000 * t)) for t in TICKS
    ]
    report = diagnose(run(both))
    assert [(f.code, f.holder.name if f.holder else "") for f in report.findings] == [
        ("MEM102", "outputs"), ("MEM101", "losses"),
    ]  # fmt: skip


def test_several_rules_may_recognise_a_growth_but_one_is_kept() -> None:
    """A cache keyed by tensors whose values own graphs: the key is the mechanism."""
    report = diagnose(run(graphs(container="dict", key_type="Tensor")))
    assert codes(report) == ["MEM111"]


def test_equal_growth_on_two_ranks_is_one_finding() -> None:
    ranks = [
        rank(program(rank=n, world_size=2), steps(40), window(1, 2, 3), leak(), outcome(40), number=n) for n in (0, 1)
    ]
    report = diagnose(Recording(ranks))
    assert [(f.rank, f.ranks) for f in report.findings if f.severity != "info"] == [(None, [0, 1])]
    assert report.subject["ranks"] == [0, 1]


# Order, choice, limits -----------------------------------------------------------------------------------------------


def test_the_gravest_comes_first_then_the_largest() -> None:
    looks = [census(t, holding("a", 10 * t), holding("b", 900_000 * t), holding("c", 800_000 * t)) for t in TICKS]
    report = diagnose(run(looks, memory_limit=40_000_000_000))
    grades = [SEVERITIES.index(f.severity) for f in report.findings]
    assert grades == sorted(grades, reverse=True)
    assert [f.holder.name for f in report.findings if f.holder] == ["b", "c", "a"]


@pytest.mark.parametrize(("select", "ignore", "expected"), [
    ([], [], ["MEM102"]),
    (["MEM1"], [], ["MEM102"]),
    (["MEM101"], [], []),
    (["TRN"], [], []),
    ([], ["MEM102"], []),
    ([], ["MEM"], []),
    (["MEM102"], ["MEM1"], []),
    (["TRN", "MEM"], ["MEM101"], ["MEM102"]),
])  # fmt: skip
def test_select_and_ignore_take_prefixes(select: list[str], ignore: list[str], expected: list[str]) -> None:
    assert codes(diagnose(run(leak()), select, ignore)) == expected


@pytest.mark.parametrize(("limit", "severity"), [
    (1_000_000_000, "error"), (50_000_000_000, "warning"), (10**13, "info"),
])  # fmt: skip
def test_the_memory_limit_decides_the_severity(limit: int, severity: str) -> None:
    """A kilobyte a step: exhausted within a million steps, a hundred million, or never worth a thought."""
    report = diagnose(run(leak(1000)), memory_limit=limit)
    (finding,) = report.findings
    assert finding.severity == severity
    assert report.facts["memory_limit"] == {"bytes": limit, "source": "--memory-limit"}
    end = pytest.approx(32 + limit / 1000, rel=0.01) if severity != "info" else None
    assert finding.measured.exhausted_at_step == end


def test_another_limit_for_the_same_recording_counts() -> None:
    one = run(leak(1000))
    first = diagnose(one, memory_limit=10**13)
    second = diagnose(one, memory_limit=1_000_000_000)
    assert [f.severity for f in (*first.findings, *second.findings)] == ["info", "error"]


def test_what_the_type_bounds_is_information() -> None:
    report = diagnose(run(leak(100_000, container="deque", capacity=1000)))
    assert [f.severity for f in report.findings] == ["info"]


# What was not looked at ----------------------------------------------------------------------------------------------


def checks(report: Report) -> dict[str, str]:
    return {n.check: n.reason for n in report.not_checked}


@pytest.mark.parametrize("ticks", [1, 8])
def test_a_short_run_says_that_it_was_short(ticks: int) -> None:
    report = diagnose(recording(program(), steps(ticks), window(1, 2, 3), outcome(ticks)))
    assert "30 or more" in checks(report)["growth from step to step"]


def test_a_run_of_ten_steps_is_not_too_short() -> None:
    assert checks(diagnose(recording(program(), steps(10), evidence(10), outcome(10)))) == {}


def test_a_run_without_steps_says_so() -> None:
    report = diagnose(recording(program(), outcome(0)))
    assert "no optimizer step" in checks(report)["growth from step to step"]


def test_a_program_without_torch_says_so() -> None:
    report = diagnose(recording(program(torch=""), outcome(0)))
    assert "did not import torch" in checks(report)["everything"]


def test_damaged_lines_are_said() -> None:
    found = checks(diagnose(run(damaged=3)))
    assert [c for c in found if "3" in c] and all("cannot be read" in r for r in found.values())


def test_a_run_of_which_lines_were_lost_is_not_called_healthy() -> None:
    assert diagnose(run()).verdict == "clean"
    report = diagnose(run(damaged=1))
    assert report.verdict == "undetermined" and not report.earned
    assert verdict(report).startswith("Could not judge: the recording has lines that cannot be read")


def test_what_a_probe_could_not_see_is_said_once() -> None:
    same = Unchecked(check="variables of main()", reason="it calls locals()")
    report = diagnose(run(same, same))
    assert [n.check for n in report.not_checked] == ["variables of main()"]


def test_a_search_that_ran_out_of_time_is_said() -> None:
    report = diagnose(run(census(9, complete=False, seconds=2.0)))
    assert "2.0 s" in checks(report)["some names"]


def test_growth_of_a_heap_that_a_sparse_gradient_explains_is_not_said_again() -> None:

    def grows(code: str, rate: float, holder: Holder | None) -> Finding:
        return Finding(code=code, name="", severity="error", evidence="observed", message="", location=None, cause="",
                       remedy=Remedy(summary=""), holder=holder, measured=Measured(bytes_per_step=rate))  # fmt: skip

    sparse = grows("MEM116", 134_000.0, Holder(name="weight.grad", kind="attribute", path=["weight.grad"]))
    heap_form = grows("MEM118", 133_000.0, None)
    assert _unattributed(run(), [sparse, heap_form]) == [sparse]
    assert _unattributed(run(), [grows("MEM116", 1_000.0, sparse.holder), heap_form])[-1] == heap_form


def test_growth_without_a_name_is_a_finding_with_its_amount() -> None:
    looks = [census(t, holding("losses", direct=10_000 * t), other=90_000 * t) for t in TICKS]
    kept = [survivors(n, 10 * n, 200_000) for n in (1, 2, 3)]
    report = diagnose(
        recording(program(), steps(40), [window(n, 6 * n, 6 * n + 1) for n in (1, 2, 3)], heap(40, grows=100_000), kept,
                  looks, outcome(40))
    )  # fmt: skip
    assert codes(report) == ["MEM118", "MEM102"]
    assert "90.0 kB of 100.0 kB per step" in report.findings[0].message
    (noted,) = (f for f in diagnose(run(kept, looks)).findings if f.code == "MEM118")
    assert noted.severity == "info" and "the two measures disagree" in noted.message, "the heap is flat"


def test_what_a_finding_says_of_a_cycle_is_explained_though_no_name_leads_there() -> None:
    cycle = [Stranger(kind="cycle", owner="Node", attribute="parent")]
    looks = [census(t, unreached=400_000, unreached_sites=[site()], strangers=cycle) for t in (5, 9, 14, 20)]
    report = diagnose(run([survivors(n, 4 * n, 400_000) for n in (1, 2, 3)], looks))
    assert codes(report) == ["MEM105"]
    assert report.facts["growth"]["explained_share"] == 1 and not report.facts["growth"]["unexplained_bytes_per_step"]


def test_a_cycle_that_only_the_last_look_sees_died_with_the_program() -> None:
    """A model and the object whose hooks it has refer to each other: once `main()` has returned they are garbage."""
    cycle = [Stranger(kind="cycle", owner="Extractor", attribute="model")]
    last = census(40, garbage=600_000, strangers=cycle, final=True)
    assert codes(diagnose(run([census(t) for t in (9, 20, 30)], last))) == []
    seen = census(30, garbage=400_000, strangers=cycle)
    assert codes(diagnose(run([census(t) for t in (9, 20)], seen, last))) == ["MEM105"]
    # A search may take so long that there is but one before the end: what steps leave behind counts, then.
    left = [survivors(n, 4 * n, 0) for n in (1, 2, 3)]
    assert codes(diagnose(run([census(16)], left, last))) == []
    assert codes(diagnose(run([census(16)], left[:2], last))) == ["MEM105"]
    assert codes(diagnose(run([census(16)], left[:2], survivors(3, 12, 400_000), last))) == ["MEM105"]


def test_looks_that_were_cut_short_make_no_cycle_of_what_died_with_the_program() -> None:
    """A trainer whose metrics grew, in a process too large to be searched; the collector freed other things."""
    from handmade import survivors

    cycle = [Stranger(kind="cycle", owner="Metric", attribute="update")]
    cut = [msgspec.structs.replace(census(t), complete=False) for t in (9, 20, 30)]
    grown = [survivors(n, 4 * n, 400_000) for n in (1, 2, 3)]
    last = census(40, garbage=9_000_000, strangers=cycle, final=True)
    use = CollectorUse(collections=90, seconds=1.0, freed=16_000, storages=8, sampled=8, longest=1, steps=2)
    assert "MEM105" not in codes(diagnose(run(grown, cut, last, use)))
    much = msgspec.structs.replace(use, freed=3_000_000)
    assert "MEM105" in codes(diagnose(run(grown, cut, last, much)))


def test_what_collections_free_now_and_then_is_not_taken_to_stay_until_the_end() -> None:
    """A metric of a library is a cycle of 164 bytes, made once an epoch, and the collector frees other things."""
    cycle = [Stranger(kind="cycle", owner="Score", attribute="update")]
    looks = [census(t, garbage=164, strangers=cycle) for t in (20, 40)]
    use = CollectorUse(collections=500, seconds=0.4, sampled=8, heap_freed=650_000, since=2, until=30)
    assert codes(diagnose(run(looks, use))) == []
    each = msgspec.structs.replace(use, freed=180_000, storages=8, longest=5, steps=8)
    assert codes(diagnose(run(looks, each))) == ["MEM105"]


# Facts and excerpts --------------------------------------------------------------------------------------------------


def test_the_lines_around_a_finding_are_kept() -> None:
    report = diagnose(run(leak(), Source(path=FILE, text=SOURCE)))
    excerpt = report.facts["sources"][FILE]
    assert excerpt["lines"][7 - excerpt["start"]].strip() == "losses.append(loss)"


@pytest.mark.parametrize("text", ["", "\n", "one line", "\x0c\n\u2028\n"])
def test_sources_shorter_than_their_places_do_no_harm(text: str) -> None:
    report = diagnose(run(leak(), Source(path=FILE, text=text)))
    assert codes(report) == ["MEM102"]


def test_sources_that_do_not_parse_do_no_harm() -> None:
    assert codes(diagnose(run(leak(), Source(path=FILE, text="def main(:\n  losses.append(x\n")))) == ["MEM102"]


@pytest.mark.parametrize("name", ["x", "a .b", "a ['k'] [0]", "f  (lru_cache)", "a  (as a key)", "m._forward_hooks [3]",
                                  "g  → gen(): t", "a […]", "a .<closure> .t", "ä", "a ['\\n']"])  # fmt: skip
def test_names_of_every_form_are_told(name: str) -> None:
    report = diagnose(run(leak(name=name), Source(path=FILE, text=SOURCE)))
    assert len(report.findings) == 1


def test_every_rule_is_asked_and_none_fails_on_an_empty_recording() -> None:
    for rule in all_rules():
        assert list(rule.in_recording(recording())) == []
        assert list(rule.in_recording(Recording([]))) == []


def test_a_cache_of_plain_values_is_not_said_to_be_keyed_by_tensors() -> None:
    (plain,) = diagnose(run(leak(name="bias (lru_cache)", via=["cache"], key_type="tuple"))).findings
    assert "other arguments" in plain.cause and "tensors" not in plain.cause and "maxsize" in plain.remedy.summary
    (tensors,) = diagnose(run(leak(name="bias (lru_cache)", via=["cache"], key_type="Tensor"))).findings
    assert "keyed by tensors" in tensors.cause


STORED = (
    "def main(inbox):\n    losses = []\n    for x in data:\n        item = inbox.get()\n        losses.append(item)\n"
    "import torch\n"
)


@pytest.mark.parametrize(("item", "edited"), [("Tensor", True), ("Parameter", True), (None, True), ("tuple", False),
                                              ("LogRecord", False)])  # fmt: skip
@pytest.mark.parametrize("per", [{"nodes": 0}, {"visible": 0}])
def test_a_method_of_tensors_is_called_on_nothing_that_was_seen_to_be_none(
    item: str | None, edited: bool, per: dict[str, int]
) -> None:
    records = graphs(item_type=item) if "nodes" in per else leak(item_type=item, visible=40)
    (found,) = diagnose(run(records, Source(path=FILE, text=STORED))).findings
    assert found.code == ("MEM101" if "nodes" in per else "MEM113")
    # The graphs of what a tuple holds can be cut; nothing stands for copies of it.
    assert bool(found.remedy.edits) is (edited or (item == "tuple" and "nodes" in per))
    assert ("item." in found.remedy.summary) is edited
    if item is not None and not edited:
        assert f"each {item}" in found.remedy.summary


@pytest.mark.parametrize(("shown", "edit"), [(8, "loss.detach().clone()"), (8000, "loss.detach()")])
def test_a_small_part_of_a_storage_is_copied_when_its_graph_is_cut_off(shown: int, edit: str) -> None:
    """`F.mse_loss` on the CPU returns a number in a storage of the size of its input."""
    text = (
        "import torch\nfrom torch import nn\nimport torch.nn.functional as F\nnet, losses = nn.Linear(4, 4), []\n"
        "for i, x in enumerate(data):\n    loss = F.mse_loss(net(x), x)\n    losses.append((i, loss))\n"
        "    loss.backward()\n"
    )
    held = [
        census(t, holding("losses", direct=8000 * t, visible=shown * t, nodes=900 * t, tensors=t, item_type="tuple"))
        for t in TICKS
    ]
    (found,) = diagnose(run(held, Source(path=FILE, text=text))).findings
    assert found.code == "MEM112"
    assert [e.text for e in found.remedy.edits] == [edit]


def test_an_item_that_a_method_makes_another_of_is_none_that_is_stored() -> None:
    text = "def main():\n    for x in data:\n        losses['train'] += loss(x)\n"
    (found,) = diagnose(run(graphs(item_type="Mean", container="dict"), Source(path=FILE, text=text))).findings
    assert [e.text for e in found.remedy.edits] == ["loss(x).detach()"]


def lost(**facts: Any) -> list[Record]:
    """An optimizer with four parameters, none of which had a gradient."""
    where = Place(FILE, 3, "main")
    usual = {"checked": 9, "parameters": 4, "without_gradient": list("abcd"), "without_gradient_count": 4,
             "trainable": 4}  # fmt: skip
    return [OptimizerUse(id=0, name="Adam", place=where, step_place=where, steps=40, **(usual | facts))]


@pytest.mark.parametrize(("facts", "severity"), [
    ({}, "error"),
    ({"parameters": 9}, "error"),
    ({"checked": 4}, "info"),
    ({"trainable": 6}, "info"),
    ({"trainable": 0}, "info"),
])  # fmt: skip
def test_an_optimizer_none_of_whose_parameters_learns_is_an_error(facts: dict[str, Any], severity: str) -> None:
    (found,) = diagnose(run(*lost(**facts))).findings
    assert (found.code, found.severity) == ("TRN104", severity)


def test_parameters_that_were_replaced_are_told_of_once() -> None:
    swapped = UnownedParameters(module="Net", names=["fc"], count=4, bytes=64, owned=0, steps=9, orphans=4)
    (found,) = diagnose(run(*lost(), swapped)).findings
    assert found.code == "TRN104" and "made later" in found.cause and "torch.tensor" not in found.remedy.summary
    assert codes(diagnose(run(*lost(), msgspec.structs.replace(swapped, owned=2)))) == ["TRN105"]


def test_parameters_that_an_optimizer_got_later_are_no_finding() -> None:
    early = UnownedParameters(module="Net", names=["fc"], count=1, bytes=64, owned=2, steps=9)
    later = UnownedParameters(module="Net", names=[], count=0, bytes=0, owned=0, steps=30)
    assert codes(diagnose(run(early))) == ["TRN105"]
    assert codes(diagnose(run(early, later))) == []


KEPT = """\
def main():
    weights = None
    for x in data:
        loss = model(x).sum()
        loss.backward()
        optimizer.step()
        if loss < best:
            best, weights = loss.item(), copy.deepcopy(model.state_dict())
    model.load_state_dict(weights)
"""


@pytest.mark.parametrize(("old", "new", "told"), [
    ("", "", False),
    ("    model.load_state_dict(weights)", "", True),
    ("        if loss < best:\n            best", "        best", True),
])  # fmt: skip
def test_what_is_kept_for_after_the_loop_is_not_still_bound_by_accident(old: str, new: str, told: bool) -> None:
    where = Place(FILE, 4, "main")
    stale = [StaleAtPeak(tick=t, kind="training", bytes=10**7, peak=5 * 10**7, saving=10**7, names=["weights"],
                         name_bytes=[10**7], bound=where) for t in (9, 20)]  # fmt: skip
    report = diagnose(run(*stale, Source(path=FILE, text=KEPT.replace(old, new) if old else KEPT)))
    assert ("MEM202" in codes(report)) is told


def test_a_rule_of_the_training_loop_speaks_beside_a_leak() -> None:
    where = Place(FILE, 3, "main")
    use = OptimizerUse(
        id=0, name="SGD", place=where, step_place=where, steps=40, checked=30, uncleared=30, parameters=2
    )
    assert set(codes(diagnose(run(leak(), use)))) == {"MEM102", "TRN101"}


def test_holdings_without_a_place_are_no_obstacle() -> None:
    def bare(t: int) -> Holding:
        return msgspec.structs.replace(holding("x", direct=1000 * t), place=None, files=[])

    report = diagnose(run([census(t, bare(t)) for t in TICKS]))
    assert codes(report) == ["MEM102"] and report.findings[0].location is None


def test_a_growth_is_plain_data() -> None:
    one = run(leak())
    (growth,) = growth_of(one.ranks[0]).growths
    assert dataclasses.replace(growth) == growth


def test_of_a_failed_step_the_rule_that_knows_its_mechanism_speaks() -> None:
    from torchvet.diagnosis.diagnose import _most_specific
    from torchvet.finding import Finding, Measured, Remedy, Severity
    from torchvet.rules import Rule

    def found(code: str, step: int, severity: Severity = "error") -> Finding:
        return Finding(
            code=code, name="x", severity=severity, evidence="observed", message="m", location=None, cause="c",
            remedy=Remedy(summary="s"), measured=Measured(steps=step),
        )  # fmt: skip

    general = type("General", (Rule,), {"code": "NUM901"})()
    special = type("Special", (Rule,), {"code": "NUM902", "specialises": "NUM901"})()
    pairs = [(general, found("NUM901", 7)), (general, found("NUM901", 9)), (special, found("NUM902", 7))]
    assert [(f.code, f.measured.steps) for f in _most_specific(pairs)] == [("NUM901", 9), ("NUM902", 7)]
    mild = [(general, found("NUM901", 7)), (special, found("NUM902", 7, "info"))]
    assert [f.code for f in _most_specific(mild)] == ["NUM901", "NUM902"]

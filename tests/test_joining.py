"""One finding for one fault: what source suspects is held against what the run measured."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from handmade import FILE, census, evidence, heap, holding, outcome, program, recording, site, steps, survivors, window

from torchvet.diagnosis.correlation import same_fault
from torchvet.diagnosis.diagnose import diagnose
from torchvet.finding import Finding, Location, Related, Remedy, Report
from torchvet.recording import Recording
from torchvet.recording.records.base import Place, Source
from torchvet.recording.records.device import LoadedCheckpoint
from torchvet.recording.records.numeric import HalfSum
from torchvet.recording.records.optimizers import OptimizerUse
from torchvet.recording.records.scaling import ScalingUse
from torchvet.recording.records.training import EvaluationForward, HostSamples, Ran, Unchecked
from torchvet.recording.records.verify import MadeAt

SOURCE = """\
import torch
from torch import nn

model = nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler()


def train(loader):
    losses = []
    for x, y in loader:
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(nn.functional.mse_loss(model(x), y))


def evaluate(loader):
    model.eval()
    for x, y in loader:
        total = nn.functional.mse_loss(model(x), y)
    model.train()
    return total


def mixed(loader):
    for x, y in loader:
        optimizer.zero_grad()
        scaler.scale(nn.functional.mse_loss(model(x), y)).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
"""
LINES = SOURCE.split("\n")
TICKS = (5, 6, 9, 14, 21, 32)


def line(text: str) -> int:
    return next(n for n, found in enumerate(LINES, start=1) if text in found)


def run(*records: Any, ran: tuple[str, ...] = ("loss = nn",), count: int = 40, text: str = SOURCE) -> Recording:
    """Forty steps of the program, in which these lines were seen running."""
    seen = Ran(path=FILE, lines=[line(text) for text in ran])
    return recording(program(), Source(path=FILE, text=text), steps(count), evidence(count), seen, *records,
                     outcome(count))  # fmt: skip


def of(report: Report, code: str) -> Finding:
    """The one finding with a code."""
    (found,) = (f for f in report.findings if f.code == code)
    return found


def cleared(uncleared: int = 0) -> OptimizerUse:
    """An optimizer whose steps were looked at."""
    place = Place(FILE, line("optimizer.step()"), "train")
    return OptimizerUse(id=1, name="optimizer", place=None, step_place=place, steps=40, checked=20, uncleared=uncleared)


def test_what_ran_and_did_no_harm_is_lowered_and_says_so() -> None:
    found = of(diagnose(run(cleared())), "TRN101")
    assert (found.severity, found.evidence, found.measured.steps) == ("info", "suspected", 40)
    assert found.message.startswith("measured harmless over 40 steps: ")


def test_what_the_run_saw_at_work_is_one_finding_with_its_figures_and_the_fix() -> None:
    found = of(diagnose(run(cleared(uncleared=20))), "TRN101")
    assert (found.severity, found.evidence, found.measured.steps) == ("error", "observed", 20)
    assert found.remedy.edits and not found.remedy.safe
    assert [r.role for r in found.related] == ["in-source"] and found.related[0].line == line("loss.backward")


def test_gradients_that_are_cleared_now_and_then_are_not_cleared() -> None:
    report = diagnose(run(cleared(uncleared=17)))
    found = of(report, "TRN101")
    assert (found.severity, found.evidence) == ("error", "observed")
    assert "17 of 20 checked steps did not begin with cleared gradients" in found.message
    few = of(diagnose(run(cleared(uncleared=9))), "TRN101")
    assert few.evidence == "suspected"


def test_an_optimizer_that_was_not_looked_at_proves_nothing() -> None:
    found = of(diagnose(run()), "TRN101")
    assert (found.severity, found.evidence) == ("error", "suspected")
    assert not found.message.startswith("measured")


def test_a_leak_that_both_see_is_said_once() -> None:
    grown = [census(t, holding("losses", direct=4 * t, graph=1000 * t, sites=[site()])) for t in TICKS]
    report = diagnose(run(*grown))
    assert [f.code for f in report.findings if f.code.startswith("MEM1")] == ["MEM101"]
    found = of(report, "MEM101")
    assert found.evidence == "observed" and found.measured.bytes_per_step and found.remedy.edits
    assert found.location is not None and found.location.line == line("losses.append")


def test_two_names_on_one_line_have_each_its_own_fix() -> None:
    text = SOURCE.replace("losses = []", "losses, other = [], []").replace(
        "losses.append(nn.functional.mse_loss(model(x), y))",
        "first, second = nn.functional.l1_loss(model(x), y), nn.functional.mse_loss(model(x), y); "
        "losses.append(first); other.append(second)",
    )
    grown = [
        census(t, *(holding(n, direct=4 * t, graph=1000 * t, sites=[site()]) for n in ("losses", "other")))
        for t in TICKS
    ]
    found = [f for f in diagnose(run(*grown, text=text)).findings if f.code == "MEM101"]
    fixes = {f.holder.name: [e.text for e in f.remedy.edits] for f in found if f.holder is not None}
    assert fixes == {"losses": ["first.detach()"], "other": ["second.detach()"]}


def test_two_sums_in_one_function_have_each_its_own_fix() -> None:
    text = SOURCE.replace("losses = []", "seen = torch.zeros((), dtype=torch.half)").replace(
        "losses.append(nn.functional.mse_loss(model(x), y))", "total += loss.detach()\n        seen += 1"
    )
    text = text.replace("def train(loader):", "def train(loader):\n    total = torch.zeros((), dtype=torch.bfloat16)")
    rows = text.split("\n")
    sums = [
        HalfSum(
            place=Place(FILE, rows.index(row) + 1, "train"), dtype="float16", shape=(), operator="add_", calls=40,
            looks=9, moved=3, tick=40, elements=1, stalled=1, coarse=0, value=2048.0, addend=1.0, spacing=2.0,
        )
        for row in ("        total += loss.detach()", "        seen += 1")
    ]  # fmt: skip
    found = [f for f in diagnose(run(*sums, text=text)).findings if f.code == "NUM107" and f.location is not None]
    starts = {f.location.line: [e.start[0] for e in f.remedy.edits] for f in found if f.location is not None}
    assert starts == {
        rows.index("        total += loss.detach()") + 1: [
            rows.index("    total = torch.zeros((), dtype=torch.bfloat16)") + 1
        ],
        rows.index("        seen += 1") + 1: [rows.index("    seen = torch.zeros((), dtype=torch.half)") + 1],
    }


def test_a_store_that_grew_nothing_is_harmless() -> None:
    found = of(diagnose(run()), "MEM101")
    assert found.severity == "info" and "measured harmless over 40 steps" in found.message


@pytest.mark.parametrize(("tooth", "harmless"), [(1_000_000, False), (2_000, True)])
def test_a_heap_that_rises_for_an_epoch_and_falls_again_shows_no_harmless_store(tooth: int, harmless: bool) -> None:
    """A state that is carried through the batches of an epoch and reset after it."""
    sizes = HostSamples(ticks=list(range(1, 81)), heap=[10**8 + tooth * (t % 20) for t in range(80)])
    seen = Ran(path=FILE, lines=[line("loss = nn")])
    report = diagnose(recording(program(), Source(path=FILE, text=SOURCE), steps(80), window(1, 2, 3), window(2, 5, 6),
                                sizes, seen, outcome(80)))  # fmt: skip
    assert ("measured harmless" in of(report, "MEM101").message) is harmless
    assert report.earned
    (row,) = (e for e in report.facts["verdict"]["evidence"] if e["witness"] == "heap")
    assert row["state"] == "flat" and row["high"] <= row["threshold"]


def test_growth_that_has_no_name_might_be_it() -> None:
    nameless = [survivors(number, 21, 1000) for number in (1, 2)]
    found = of(diagnose(run(*nameless)), "MEM101")
    assert (found.severity, found.evidence) == ("error", "suspected")


def test_a_heap_that_grows_might_be_it() -> None:
    """No storage lives on, but the heap grows by a megabyte a step: graphs that carry state are nodes, not storages."""
    unlike = {"grows": [heap(80, grows=1_300_000, start=41)], "few": []}
    base = [program(), Source(path=FILE, text=SOURCE), steps(80), window(1, 2, 3), window(2, 5, 6), outcome(80),
            Ran(path=FILE, lines=[line("loss = nn")])]  # fmt: skip
    for records in unlike.values():
        assert of(diagnose(recording(*base, *records)), "MEM101").severity == "error"
    assert of(diagnose(recording(*base, heap(80))), "MEM101").severity == "info"


@pytest.mark.parametrize("gap", [{"voids": True}, {"graphs": True}])
def test_a_probe_that_could_not_look_lowers_nothing(gap: dict[str, bool]) -> None:
    found = of(diagnose(run(Unchecked(check="storages", reason="RuntimeError: it broke", **gap))), "MEM101")
    assert (found.severity, found.evidence) == ("error", "suspected")


def test_growth_without_a_name_is_named_by_what_source_suspects_of_its_line() -> None:
    row = site(line=line("losses.append"), size=20_000)
    kept = [msgspec.structs.replace(survivors(n, 8 * n, 20_000), sites=[row]) for n in (1, 2, 3)]
    looks = [census(t, other=10_000 * t) for t in TICKS]
    base = [program(), Source(path=FILE, text=SOURCE), steps(40), window(1, 2, 3), heap(40, grows=10_000)]
    base = [*base, *kept, *looks, outcome(40)]
    report = diagnose(recording(*base))
    grown = [f for f in report.findings if f.measured.bytes_per_step]
    assert [(f.code, f.evidence, f.measured.bytes_per_step) for f in grown] == [("MEM101", "observed", 10_000)]
    assert grown[0].remedy.edits and [r.role for r in grown[0].related][-1] == "allocated"
    elsewhere = [msgspec.structs.replace(k, sites=[site(line=1)]) for k in kept]
    report = diagnose(recording(*base[:-1], *elsewhere, outcome(40)))
    assert [f.code for f in report.findings if f.measured.bytes_per_step] == ["MEM118"]


def test_a_line_that_was_not_seen_stays_suspected() -> None:
    report = diagnose(run(cleared(), ran=("optimizer.zero_grad()",)))
    assert of(report, "TRN101").severity == of(report, "MEM101").severity == "error"


def test_too_few_steps_lower_nothing() -> None:
    assert of(diagnose(run(cleared(), count=4)), "TRN101").severity == "error"


def test_what_no_run_measures_stays_as_source_says_it() -> None:
    found = of(diagnose(run(ran=("clip_grad_norm_",))), "AMP101")
    assert (found.severity, found.evidence) == ("error", "suspected")


def test_a_search_for_names_that_never_came_to_its_end_lowers_nothing() -> None:
    """What holds nothing but nodes leaves no storages behind: only names would tell."""
    cut, whole = ([census(t, complete=complete) for t in TICKS] for complete in (False, True))
    suspected = of(diagnose(run(*cut, ran=("losses.append",))), "MEM101")
    assert (suspected.severity, suspected.evidence) == ("error", "suspected")
    assert of(diagnose(run(*whole, ran=("losses.append",))), "MEM101").severity == "info"


def test_notes_of_source_that_nothing_measured_are_for_check_alone() -> None:
    old = SOURCE.replace("torch.amp.GradScaler()", "torch.cuda.amp.GradScaler()")
    assert not [f for f in diagnose(run(text=old)).findings if f.code == "AMP210"]


def test_an_evaluation_that_was_measured_is_graded_by_its_share() -> None:
    place = Place(FILE, line("total = "), "evaluate")
    use = EvaluationForward(place=place, module="Linear", calls=6, training_mode=False, graph=10, peak=100_000)
    found = of(diagnose(run(use, ran=("total = ",))), "MEM104")
    assert (found.severity, found.evidence) == ("info", "observed")


EVALUATION = """\
import torch
from torch import nn

model = nn.Linear(8, 1)
criterion = nn.MSELoss()


def evaluate(loader):
    model.eval()
    total = 0.0
    for x, y in loader:
        total += len(x) * criterion(model(x), y)
    return total / len(loader)


for epoch in range(3):
    print(evaluate(loader))
"""


def test_what_an_evaluation_stores_is_not_harmless_where_its_graphs_matter() -> None:
    def severity(graph: int) -> str:
        place = Place(FILE, 11, "evaluate")
        use = EvaluationForward(place=place, module="Linear", calls=6, training_mode=False, graph=graph, peak=100_000)
        report = diagnose(run(use, Ran(path=FILE, lines=[11, 12]), ran=(), text=EVALUATION))
        return of(report, "MEM101").severity

    assert severity(10) == "info"
    assert severity(60_000) == "error"


def test_a_file_of_which_nothing_ran_is_not_read() -> None:
    silent = recording(program(), Source(path=FILE, text=SOURCE), steps(40), window(1, 2, 3), outcome(40))
    assert diagnose(silent).findings == []


def test_a_program_that_ended_before_a_sampled_step_ran_where_it_ended() -> None:
    text = "import torch\n\n\ndef f(x):\n    return x.permute(0, 2, 1).view(-1, 3)\n"
    records = [program(), Source(path=FILE, text=text)]
    assert diagnose(recording(*records)).findings == []
    ended = outcome(0, "exception", error="RuntimeError: view size is not compatible", place=Place(FILE, 5, "f"))
    found = of(diagnose(recording(*records, ended)), "OPS209")
    assert (found.evidence, found.severity, found.measured.steps) == ("observed", "error", 1) and found.remedy.edits
    elsewhere = outcome(0, "exception", error="RuntimeError: out of patience", place=Place(FILE, 5, "f"))
    assert diagnose(recording(*records, elsewhere)).findings == []


def test_of_two_lines_that_may_raise_the_one_that_did_is_observed() -> None:
    line = "    return x.permute(0, 2, 1).view(-1, 3)\n"
    text = f"import torch\n\n\ndef f(x):\n{line}\n\ndef g(x):\n{line}"
    error = "RuntimeError: view size is not compatible with input tensor's size"
    ended = outcome(2, "exception", error=error, place=Place(FILE, 9, "g"))
    report = diagnose(recording(program(), Source(path=FILE, text=text), ended))
    seen = {f.location.line: f.evidence for f in report.findings if f.location is not None}
    assert seen == {9: "observed"}


def test_what_a_run_found_where_no_line_was_sampled_has_the_fix_of_source() -> None:
    seen = recording(program(), Source(path=FILE, text=SOURCE), steps(40), window(1, 2, 3), cleared(20), outcome(40))
    report = diagnose(seen)
    assert of(report, "TRN101").evidence == "observed" and of(report, "TRN101").remedy.edits
    assert [f.code for f in report.findings] == ["TRN101"]


def test_a_suppression_holds_in_a_run() -> None:
    text = SOURCE.replace("        loss.backward()\n", "        loss.backward()  # torchvet: ignore[TRN101]\n")
    assert "TRN101" not in [f.code for f in diagnose(run(text=text)).findings]
    assert "SUP001" not in [f.code for f in diagnose(run(text=text)).findings]


def test_codes_that_are_not_wanted_are_not_asked() -> None:
    codes = [f.code for f in diagnose(run(cleared()), select=["MEM"]).findings]
    assert codes and all(c.startswith("MEM") for c in codes)


def test_text_that_does_not_parse_hides_nothing() -> None:
    grown = [census(t, holding("losses", direct=4 * t, graph=1000 * t, sites=[site()])) for t in TICKS]
    assert of(diagnose(run(*grown, text=SOURCE + "def (")), "MEM101").evidence == "observed"


def test_a_leak_that_source_does_not_see_leaves_its_suspicions_alone() -> None:
    """It may be the one that is suspected, stored in a way that source does not follow."""
    grown = [census(t, holding("elsewhere", direct=1000 * t, sites=[site(line=1)])) for t in TICKS]
    found = of(diagnose(run(*grown)), "MEM101")
    assert (found.severity, found.evidence) == ("error", "suspected")
    assert of(diagnose(run(*grown, cleared())), "TRN101").severity == "info"  # that is no matter of growth


def test_a_call_that_hands_in_what_a_method_stores_is_one_fault_with_the_store() -> None:
    place = Location(path=FILE, line=40, function="main")
    stored = Related(role="stored", message="", path=FILE, line=7)
    observed = Finding(code="MEM101", name="graph-retained", severity="error", evidence="observed", message="",
                       location=place, cause="", remedy=Remedy(summary=""), related=[stored])  # fmt: skip
    suspected = msgspec.structs.replace(
        observed, evidence="suspected", related=[], location=Location(path=FILE, line=7, function="Meter.update")
    )
    assert same_fault(observed, suspected)
    elsewhere = msgspec.structs.replace(suspected, location=Location(path=FILE, line=8, function="Meter.update"))
    assert not same_fault(observed, elsewhere)


CHECKPOINT = (
    SOURCE.replace("GradScaler()", "GradScaler(enabled=dtype == 'float16')")
    + """

def resume(path):
    state = torch.load(path)
    optimizer.load_state_dict(state["optimizer"])
    return state


def save(path):
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, path)
"""
)


def test_a_checkpoint_lacks_nothing_where_every_scaler_was_switched_off() -> None:
    def severity(**changes: Any) -> str:
        use = ScalingUse(id=1, name="scaler", place=None, device="cuda", **{"steps": 40, "updates": 40, **changes})
        saved = Ran(
            path=FILE,
            lines=[1 + CHECKPOINT.split("\n").index(row) for row in CHECKPOINT.split("\n") if "torch.save" in row],
        )
        return of(diagnose(run(use, saved, text=CHECKPOINT)), "AMP111").severity

    assert severity(enabled=False, asked=False) == "info"
    assert severity(enabled=True) == "warning"
    # Off for want of CUDA only: where it is on, its state is missed.
    assert severity(enabled=False, asked=True) == "warning"


LOADS = """\
import torch
from torch import nn

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
model = nn.Linear(8, 1).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def load(path):
    model.load_state_dict(torch.load(path))


{called}
for step in range(40):
    loss = model(torch.randn(4, 8)).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("called", "severity"),
    [
        ("load('last.pt')", "warning"),
        ("if resume:\n    load('last.pt')", "info"),
        ("", "info"),
    ],
)
def test_what_was_not_seen_running_is_no_fault_of_the_run(called: str, severity: str) -> None:
    """DEV108 is only text: what a branch or nobody calls may never have run. `check` says it at its own grade."""
    text = LOADS.format(called=called)
    seen = Ran(path=FILE, lines=[text.split("\n").index("    loss.backward()") + 1])
    found = of(diagnose(recording(program(), Source(path=FILE, text=text), *steps(40), seen, outcome(40))), "DEV108")
    assert (found.severity, found.evidence) == (severity, "suspected")
    assert found.message.startswith("not seen running: ") == (severity == "info")


def test_what_a_record_names_has_run() -> None:
    text = LOADS.format(called="if resume:\n    load('last.pt')")
    seen = Ran(path=FILE, lines=[text.split("\n").index("    loss.backward()") + 1])
    loaded = LoadedCheckpoint(place=Place(FILE, 10, "load"), bytes={"cpu": 9})
    records = [program(), Source(path=FILE, text=text), *steps(40), seen, loaded, outcome(40)]
    assert of(diagnose(recording(*records)), "DEV108").severity == "warning"


SLOW = """\
import torch
from torch import nn

model = nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(40):
    {made}
    loss = nn.functional.mse_loss(model(torch.randn(4, 8)) * mask, torch.zeros(4, 8))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def slow(made: str, *records: Any) -> list[Finding]:
    text = SLOW.format(made=made)
    ran = Ran(path=FILE, lines=[8])
    report = diagnose(recording(program(), Source(path=FILE, text=text), *steps(40), ran, *records, outcome(40)))
    return [f for f in report.findings if f.code == "OPS203"]


def test_a_fault_of_speed_is_observed_where_its_cost_was_counted_and_it_has_an_edit() -> None:
    here, elsewhere = (MadeAt(place=Place(FILE, n, "<module>"), sampled=4, bytes=1024) for n in (7, 8))
    (found,) = slow("mask = torch.ones(8, 8)", here)
    assert found.evidence == "observed" and found.remedy.edits and found.severity == "info"
    assert found.message.endswith("always the same (256 bytes of new tensors per step)")
    assert slow("mask = torch.ones(8, 8)") == slow("mask = torch.ones(8, 8)", elsewhere) == []
    assert slow("print(mask := None); mask = torch.ones(8, 8)", here) == []  # no edit that could be tried

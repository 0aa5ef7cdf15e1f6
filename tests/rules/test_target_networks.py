"""Target networks that are never updated, told from references that are to stay as they are."""

from __future__ import annotations

import pytest

from torchvet.diagnosis.diagnose import diagnose
from torchvet.finding import Finding
from torchvet.recording import RankRecording, Recording
from torchvet.recording.records.base import Place, Program, Source
from torchvet.recording.records.training import UnchangedCopy

PATH = "/home/user/train.py"
HEAD = """
class Agent:
    def __init__(self, every=10):
        self.online, self.target = build(), build()
        self.every, self.count = every, 0
        self.copy()

    def copy(self):
        self.target.load_state_dict(self.online.state_dict())

    def learn(self, batch):
        with torch.no_grad():
            wanted = self.target(batch)
        self.optimizer.step()
"""
MAIN = """
agent = Agent()
for batch in batches:
    agent.learn(batch)
"""


def told(rest: str, steps: int = 400, main: str = MAIN, **more: int) -> list[Finding]:
    text = HEAD + rest + main
    line = text.splitlines().index("            wanted = self.target(batch)") + 1
    ran = Program(argv=[], path=PATH, cwd="", python="3.11", torch="2.13.0", device="cpu", started=0.0, pid=1)
    loaded = [Place(PATH, n, "Agent") for n, row in enumerate(text.splitlines(), 1) if row.strip() == "self.copy()"][:1]
    counts = {"looks": 8, "passes": 8, **more}
    seen = UnchangedCopy(
        id=0, model="Net", first=4, last=4 + steps, used=Place(PATH, line, "Agent.learn"), loaded=loaded, **counts
    )
    recording = Recording([RankRecording(0, [ran, Source(path=PATH, text=text), seen])])
    return [f for f in diagnose(recording, select=["TRN112"]).findings if f.code == "TRN112"]


def places(found: list[Finding], rest: str) -> list[tuple[str, str]]:
    rows = (HEAD + rest + MAIN).splitlines()
    return [(f.severity, rows[f.location.line - 1].strip()) for f in found if f.location is not None]


STUCK = """
        if self.count % self.every == 0:
            self.copy()
"""
UNCALLED = """
    def follow(self, rate=0.01):
        for mine, theirs in zip(self.target.parameters(), self.online.parameters()):
            mine.data.lerp_(theirs.data, rate)
"""
HANDED_ON = """
        if self.count % self.every == 0:
            follow(self.target, self.online)

def follow(into, of):
    for mine, theirs in zip(into.parameters(), of.parameters()):
        mine.data.copy_(theirs.data)
"""
UNSTATED = """
        if self.memory.is_full():
            self.copy()
"""


@pytest.mark.parametrize(
    ("rest", "severity", "line"),
    [
        (STUCK, "warning", "if self.count % self.every == 0:"),
        (UNCALLED, "warning", "def follow(self, rate=0.01):"),
        (HANDED_ON, "warning", "if self.count % self.every == 0:"),
        (UNSTATED, "info", "if self.memory.is_full():"),
    ],
)
def test_what_should_have_run_and_has_not(rest: str, severity: str, line: str) -> None:
    assert places(told(rest), rest) == [(severity, line)]


def test_a_run_that_is_too_short_for_the_first_copy_is_a_note() -> None:
    (finding,) = told(STUCK, steps=400, main=MAIN.replace("Agent()", "Agent(every=300)"))
    assert finding.severity == "info" and "it would have 1 time" in finding.cause


MEANT = {
    "a reference that stays": "",
    "another model's average": """
        for mine, theirs in zip(self.average.parameters(), self.online.parameters()):
            mine.data.lerp_(theirs.data, 0.01)
""",
    "whatever happens": """
        self.copy()
""",
}


@pytest.mark.parametrize("rest", MEANT.values(), ids=MEANT)
def test_what_is_meant_or_not_understood_is_silent(rest: str) -> None:
    assert told(rest) == []


def test_what_changes_or_is_hardly_seen_is_silent() -> None:
    assert told(STUCK, changes=1) == told(STUCK, passes=1) == told(STUCK, looks=2) == told(STUCK, steps=20) == []

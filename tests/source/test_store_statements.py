"""What counts as a store, statement by statement."""

from __future__ import annotations

import pytest
from programs import program


@pytest.mark.parametrize(
    ("statement", "kind", "value"),
    [
        ("kept.append(loss)", "append", "loss"),
        ("kept.appendleft(loss)", "append", "loss"),
        ("kept.extend([loss, loss])", "extend", "[loss, loss]"),
        ("kept.insert(0, loss)", "insert", "loss"),
        ("kept.add(loss)", "add", "loss"),
        ("kept.put((step, loss))", "put", "(step, loss)"),
        ("kept.put_nowait(loss)", "put", "loss"),
        ("kept[step] = loss", "item", "loss"),
        ("kept['a'][step] = loss", "item", "loss"),
        ("kept['a'].append(loss)", "append", "loss"),
        ("kept.update({step: loss})", "update", "{step: loss}"),
        ("kept.setdefault(step, loss)", "setdefault", "loss"),
        ("kept.setdefault('a', []).append(loss)", "append", "loss"),
        ("kept.get('a').append(loss)", "append", "loss"),
        ("kept = kept + [loss]", "assign", "kept + [loss]"),
        ("kept = [f(x) for x in loss]", "assign", "[f(x) for x in loss]"),
        ("kept: list = wrap(loss)", "assign", "wrap(loss)"),
        ("kept += loss", "augmented", "loss"),
        ("kept[step] += loss", "augmented", "loss"),
        ("kept.add_(loss)", "augmented", "loss"),
        ("out, kept = model(loss)", "assign", "model(loss)"),
        ("out, (kept, c) = model(loss)", "assign", "model(loss)"),
        ("out, kept = 1, loss", "assign", "loss"),
        ("out, *kept = model(loss)", "assign", "model(loss)"),
        ("if (kept := loss): pass", "assign", "loss"),
        ("[kept.append(x) for x in loss]", "append", "x"),
        ("heapq.heappush(kept, loss)", "append", "loss"),
        ("kept.remember(loss)", "call", "loss"),
        ("map(kept.append, loss)", "append", ""),
        ("kept.append(\n        loss\n    )", "append", "loss"),
    ],
)  # fmt: skip
def test_a_name_is_stored_into(statement: str, kind: str, value: str) -> None:
    found = program(f"kept = []\nfor step in range(9):\n    {statement}\n").stores("kept")
    assert [(s.line, s.kind, s.value, s.in_loop) for s in found] == [(3, kind, value, True)]
    assert found[0].text == statement.splitlines()[0]
    assert found[0].end_line == 3 + statement.count("\n")
    assert found[0].function == ""


@pytest.mark.parametrize(
    ("statement", "kind"),
    [
        ("self.kept.append(loss)", "append"),
        ("self.kept = self.kept + loss", "assign"),
        ("self.kept += loss", "augmented"),
        ("out, self.kept = self.rnn(loss)", "assign"),
        ("self.stats.kept.append(loss)", "append"),
        ("setattr(self, 'kept', loss)", "setattr"),
        ("object.__setattr__(self, 'kept', loss)", "setattr"),
        ("getattr(self, 'kept').append(loss)", "append"),
    ],
)
def test_an_attribute_is_stored_into(statement: str, kind: str) -> None:
    text = f"class Trainer:\n    def step(self, loss):\n        {statement}\ntrainer = Trainer()\n"
    found = program(text).stores("trainer.kept")
    assert [(s.line, s.kind, s.function) for s in found] == [(3, kind, "Trainer.step")]


@pytest.mark.parametrize(
    "statement",
    [
        "kept = None", "kept = 0", "kept = 0.0", "kept = -1", "kept = []", "kept = {}", "kept = ()", "kept = ''",
        "kept = list()", "kept = dict()", "kept = set()", "kept = deque()", "kept = collections.deque(maxlen=9)",
        "kept = defaultdict(list)", "kept = defaultdict(lambda: [])", "kept = torch.zeros(3, 4)", "kept = float('inf')",
        "kept = torch.tensor(0.)", "kept = torch.tensor([0., 1.]).to(device)", "kept = queue.Queue()", "kept = Stats()",
        "kept = {'a': [], 'b': 0}", "kept = [[] for _ in range(9)]", "kept = [None] * 9", "kept: list = []",
        "kept: list",
        "kept = model.init_hidden(8)", "kept = None if cold else []", "a, kept = 1, []",
        "kept.sort()", "kept.count(3)", "kept.pop()", "print(kept)", "y = kept.add(loss)", "y = kept[0]",
        "del kept[0]", "for kept in loader: pass", "with open(p) as kept: pass", "kept.backward(loss)",
    ],
)  # fmt: skip
def test_nothing_is_stored(statement: str) -> None:
    program(f"for step in range(9):\n    {statement}\n").none("kept")


def test_a_lambda_is_run_by_somebody_else() -> None:
    found = program("kept = []\nfor x in xs:\n    net.register_hook(lambda x: kept.append(x))\n").stores("kept")
    assert [(s.line, s.kind, s.in_loop, s.function) for s in found] == [(3, "append", False, "")]


def test_a_product_of_tensors_is_no_empty_value() -> None:
    text = """
    class Net:
        def __init__(self):
            self.memory = torch.zeros(1, 16)
        def forward(self, x):
            self.memory = 0.9 * self.memory + 0.1 * self.write(x)  # <-
    """
    assert program(text).first("net.memory").kind == "assign"


def test_columns_count_characters_from_1() -> None:
    text = "for step in steps:\n    größe = 'é'; kept.append(ø)\n"
    found = program(text).stores("kept")
    assert (found[0].column, found[0].value) == (18, "ø")
    assert text.splitlines()[1][found[0].column - 1 :].startswith("kept.append")


def test_the_instance_dictionary() -> None:
    text = """
    class Box:
        def keep(self, name, x):
            setattr(self, name, x)  # <-
    """
    program(text).first("self.__dict__", "__main__.Box.keep")


def test_a_class_attribute_through_any_of_its_names() -> None:
    text = """
    class Tracker:
        seen = []
        def step(self, x):
            {}.seen.append(x)  # <-
    """
    for name in ("self", "cls", "Tracker", "type(self)"):
        program(text.format(name)).first("Tracker.seen")


def test_dataclass_fields() -> None:
    text = """
    @dataclass
    class Stats:
        losses: list = field(default_factory=list)
    class Trainer:
        def __init__(self):
            self.stats = Stats()
        def step(self, loss):
            self.stats.losses.append(loss)  # <-
    """
    program(text).first("trainer.stats.losses", "__main__.main")


SET_BY_NAME = """
class Book:
    def __init__(self):
        for name in ("mean", "var"):
            self.register_buffer(name, zeros(3))

    def smooth(self, name, value):
        setattr(self, name, getattr(self, name) * 0.9 + value)  # <-

    def other(self, name, value):
        setattr(self, name, value)

    def track(self, x):
        self.smooth("mean", x.mean())
        self.smooth("var", x.var())
        self.other("size", x)

book = Book()
for x in xs:
    book.track(x)
"""
SET_IN_LOOP = """
class Book:
    def track(self, x):
        for name in ("mean", "var"):
            setattr(self, name, getattr(self, name) + x)  # <-
        for name in ("size", "count"):
            setattr(self, name, x)

book = Book()
for x in xs:
    book.track(x)
"""


@pytest.mark.parametrize("text", [SET_BY_NAME, SET_IN_LOOP])
@pytest.mark.parametrize("name", ["book.mean", "book.var"])
def test_an_attribute_that_is_set_by_a_name_that_is_passed_on(text: str, name: str) -> None:
    store = program(text).first(name)
    assert (store.kind, store.in_loop) == ("setattr", True)


def test_names_that_are_not_passed_on_are_set_by_nobody() -> None:
    assert all("setattr" not in s.text for s in program(SET_BY_NAME).stores("book.median"))

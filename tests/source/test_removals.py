"""What bounds a holder."""

from __future__ import annotations

import pytest
from programs import program


@pytest.mark.parametrize(
    ("statement", "kind"),
    [
        ("rows.pop(0)", "pop"), ("x = rows.pop()", "pop"), ("rows.popitem()", "pop"), ("rows.popleft()", "popleft"),
        ("rows.clear()", "clear"), ("del rows[0]", "del"), ("del rows[:9]", "del"), ("del rows", "del"),
        ("rows = rows[-9:]", "slice"), ("rows[:] = rows[-9:]", "slice"), ("rows[:9] = []", "slice"),
        ("rows = rows[1:] + [x]", "slice"), ("rows = torch.cat([rows[1:], x])", "slice"),
        ("rows[i % 9] = x", "modulo"), ("rows.remove(x)", "remove"), ("rows.discard(x)", "remove"),
        ("x = rows.get()", "get"), ("x = rows.get(timeout=1)", "get"), ("x = rows.get_nowait()", "get"),
        ("x = rows.get(True)", "get"), ("rows = []", "fresh"), ("rows = None", "fresh"), ("rows = deque()", "fresh"),
        ("rows = deque(maxlen=9)", "maxlen"), ("rows = deque([], 9)", "maxlen"), ("rows = queue.Queue(9)", "maxlen"),
        ("rows = deque(rows, maxlen=n)", "maxlen"), ("heapq.heappop(rows)", "pop"), ("rows['a'].pop()", "pop"),
        ("rows.setdefault(k, []).clear()", "clear"),
    ],
)  # fmt: skip
def test_a_removal(statement: str, kind: str) -> None:
    asked = program(f"rows = make()\nfor x in xs:\n    {statement}  # <-\n")
    assert asked.bounded("rows") == [kind]
    assert asked.removals("rows")[0].in_loop


@pytest.mark.parametrize(
    "statement",
    [
        "rows.get(key)", "rows.get(key, None)", "x = rows[-9:]", "rows.append(x)", "rows[len(rows):] = [x]",
        "rows[i] = x", "other.pop()", "rows = rows + [x]", "del other[0]", "rows = deque(rows, maxlen=None)",
        "rows = queue.Queue(0, x)",
        "if len(rows) % 9 == 0: print(rows)", "if len(rows) > 9: print(rows)", "if len(rows) > 9: rows.append(x)",
        "x = metric.reset(rows)",
    ],
)  # fmt: skip
def test_no_removal(statement: str) -> None:
    found = program(f"rows = []\nfor x in xs:\n    {statement}\n").removals("rows")
    assert [r for r in found if r.kind != "fresh" or "Queue" not in statement] == []


@pytest.mark.parametrize(
    "block",
    [
        "if len(rows) < 9:  # <-\n        rows.append(x)",
        "if 9 > len(rows):  # <-\n        rows.append(x)",
        "if on and len(self.rows) < 9:  # <-\n        self.rows.append(x)",
        "if rows.qsize() < 9:  # <-\n        rows.put(x)",
        "if len(rows) >= 9:  # <-\n        return\n    rows.append(x)",
        "if len(rows) >= 9:  # <-\n        pass\n    else:\n        rows.append(x)",
    ],
)
def test_a_guard_on_the_length_around_a_store(block: str) -> None:
    text = f"def step(rows, x):\n    {block}\n".replace("self.rows", "rows")
    assert program(text).bounded("rows", "__main__.step") == ["len-guard"]


def test_a_guard_around_a_removal_counts_beside_it() -> None:
    text = """
    class Window:
        def step(self, x):
            self.rows.append(x)
            while len(self.rows) > self.size:  # <-
                self.rows.pop(0)  # <-
    """
    assert program(text).bounded("window.rows") == ["len-guard", "pop"]


def test_a_constructor_limits_and_a_first_value_does_not() -> None:
    text = """
    class Replay:
        def __init__(self, size):
            self.rows = {}
    """
    assert program(text.format("[]")).removals("replay.rows") == []
    found = program(text.format("deque(maxlen=size)")).removals("replay.rows")
    assert [(r.line, r.kind, r.in_loop) for r in found] == [(4, "maxlen", False)]
    assert program("rows = []\nfor x in xs:\n    rows.append(x)\n").removals("rows") == []
    assert program("def f():\n    rows = []\n    for x in xs:\n        rows.append(x)\n").removals("rows", "f") == []


def test_fresh_in_another_method() -> None:
    text = """
    class Module:
        def __init__(self):
            self.outputs = []
            self.build()
        def build(self):
            self.outputs = []
        def step(self, x):
            self.outputs.append(x)
        def on_epoch_start(self):
            self.outputs = []  # <-
    """
    assert program(text).bounded("module.outputs") == ["fresh"]


def test_what_a_program_calls_once_starts_and_does_not_make_anew() -> None:
    text = """
    class Session:
        def train(self, xs):
            self.rows = []
            for x in xs:
                self.rows.append(x)
    def main():
        session = Session()
        {}
    main()
    """
    assert program(text.format("session.train(data)")).removals("session.rows", "main") == []
    again = [
        "for epoch in range(9): session.train(data)",
        "session.train(data); session.train(more)",
        "go(session.train)",
    ]
    for calls in again:
        assert [r.kind for r in program(text.format(calls)).removals("session.rows", "main")] == ["fresh"]
    text = """
    rows = None
    def train(xs):
        global rows
        rows = []
        for x in xs:
            rows.append(x)
    {}
    """
    assert program(text.format("train(data)")).removals("rows") == []
    assert program(text.format("while more(): train(data)")).removals("rows") != []


def test_fresh_in_an_outer_loop_and_by_a_global() -> None:
    text = """
    for epoch in range(9):
        rows = []  # <-
        for x in xs:
            rows.append(x)
    """
    assert program(text).bounded("rows") == ["fresh"]
    text = """
    rows = []
    def reset():
        global rows
        rows = []  # <-
    """
    assert program(text).bounded("rows") == ["fresh"]


def test_a_ring_whose_index_wraps_elsewhere() -> None:
    text = """
    class Ring:
        def push(self, x):
            self.rows[self.at] = x  # <-
            self.at = (self.at + 1) % self.size
    """
    assert program(text).bounded("ring.rows") == ["modulo"]
    text = """
    rows = {}
    for step in steps:
        slot = step % 9
        rows[slot] = x  # <-
    """
    assert program(text).bounded("rows") == ["modulo"]


def test_through_other_names() -> None:
    text = """
    def trim(rows):
        del rows[0]  # <-
        rows = []
    class Trainer:
        def step(self, x):
            h = self.history
            h.clear()  # <-
            trim(self.history)
    """
    assert program(text).bounded("trainer.history") == ["clear", "del"][::-1]


def test_of_the_class_that_is_meant() -> None:
    text = """
    class Log:
        def step(self):
            self.rows.clear()
    class Other:
        def step(self):
            self.rows.append(x)
    log, other = Log(), Other()
    """
    assert program(text).removals("other.rows") == []
    assert [r.kind for r in program(text).removals("log.rows")] == ["clear"]


def test_of_the_key_that_is_meant() -> None:
    text = """
    for x in xs:
        log["train"].append(x)
        log["valid"].append(x)
        log["valid"].pop(0)
    """
    assert program(text).removals("log['train']") == []
    assert [r.kind for r in program(text).removals("log['valid']")] == ["pop"]


@pytest.mark.parametrize(
    ("decorator", "kinds"),
    [("@lru_cache", ["maxlen"]), ("@lru_cache()", ["maxlen"]), ("@lru_cache(maxsize=99)", ["maxlen"]), ("@cache", []),
     ("@lru_cache(maxsize=None)", []), ("@functools.lru_cache(None)", [])],
)  # fmt: skip
def test_of_a_cache(decorator: str, kinds: list[str]) -> None:
    text = f"{decorator}\ndef encode(x): ...\n"
    assert [r.kind for r in program(text).removals("encode (lru_cache)")] == kinds
    found = program(text + "encode.cache_clear()\n").removals("encode (lru_cache)")
    assert [r.kind for r in found] == [*kinds, "clear"]


def test_of_hooks() -> None:
    text = """
    for x in xs:
        handle = net.fc.register_forward_hook(note)
        net(x)
        handle.remove()  # <-
    """
    assert program(text).bounded("net.fc._forward_hooks") == ["remove"]


FIRST = [
    'if not hasattr(bag, "rows"):\n        bag.rows = []',
    'if hasattr(bag, "rows"):\n        pass\n    else:\n        bag.rows = []',
    'if getattr(bag, "rows", None) is None:\n        bag.rows = []',
    'if "rows" not in vars(bag):\n        bag.rows = []',
    'if "rows" not in bag.__dict__ and x:\n        bag.rows = []',
    "if bag.rows is None:\n        bag.rows = []",
    "if not bag.rows:\n        bag.rows = []",
    "try:\n        bag.rows\n    except AttributeError:\n        bag.rows = []",
    "if x not in bag.rows:\n        bag.rows[x] = []",
    "if bag.rows.get(x) is None:\n        bag.rows[x] = []",
]


@pytest.mark.parametrize("block", FIRST)
def test_what_starts_a_holder_does_not_bound_it(block: str) -> None:
    text = f"import bag\ndef keep(x):\n    {block}\n    bag.rows.append(x)\nfor x in xs:\n    keep(x)\n"
    assert program(text).removals("bag.rows") == []


@pytest.mark.parametrize(
    "block",
    [
        "if bag.rows is None or x:\n        bag.rows = []", "if bag.rows:\n        bag.rows = []",
        "if x is None:\n        bag.rows = []", 'if hasattr(bag, "rows"):\n        bag.rows = []',
        'if not hasattr(bag, "lines"):\n        bag.rows = []', "if x in bag.rows:\n        bag.rows[x] = []",
        "try:\n        x()\n    except RuntimeError:\n        bag.rows = []",
    ],
)  # fmt: skip
def test_what_empties_a_holder_under_another_test_bounds_it(block: str) -> None:
    text = f"import bag\ndef keep(x):\n    {block}\n    bag.rows.append(x)\nfor x in xs:\n    keep(x)\n"
    assert [r.kind for r in program(text).removals("bag.rows")] == ["fresh"]

"""Edits that break rings: gradients with graphs are freed, back references are weak."""

from __future__ import annotations

import pytest
from observed_fixes import fixed_lines
from source_fixes import fixed

from torchvet.finding import Holder

LEAF = """
    def penalty(critic, batches, optimizer):
        for x in batches:
            mixed = x.requires_grad_()
            critic(mixed).sum().backward(create_graph=True)
            {read}
            optimizer.zero_grad()
            {after}
            loss.backward()
    """


def let_go(read: str, after: str = "loss = (slope ** 2).mean()") -> list[str]:
    read = read.replace("\n", "\n            ")
    out, put = fixed("MEM110", LEAF.format(read=read, after=after))
    assert not out
    return put


def test_a_leaf_s_gradient_is_freed_after_its_last_reading() -> None:
    assert let_go("slope = mixed.grad") == ["        mixed.grad = None"]
    assert let_go("slope = mixed.grad.norm(dim=1)\nif slope.max() > 1:\n    slope = mixed.grad") == [
        "        mixed.grad = None"
    ]


@pytest.mark.parametrize(
    ("read", "after"),
    [
        ("slope = mixed.grad", "loss = measure(mixed)"),
        ("slope = mixed.grad; kept = mixed", "loss = (slope ** 2).mean()"),
        ("slope = mixed.grad", "other = mixed"),
        ("slope = mixed.grad", "kept.append(mixed)"),
        ("slope = mixed.grad\nif not slope.max():\n    continue\nslope = mixed.grad", "pass"),
        ("slope = mixed.grad; x = 3", "pass"),
    ],
)
def test_a_leaf_s_gradient_stays_where_another_may_read_it(read: str, after: str) -> None:
    assert let_go(read, after) == []


COPY = """
    import copy

    def sharpness(model, x, y, optimizer):
        probe = {made}
        loss = F.mse_loss(probe(x), y)
        loss.backward(create_graph=True)
        {read}
        optimizer.zero_grad()
        {after}
    """
SQUARES = "squares = [p.grad.pow(2).sum() for p in probe.parameters()]"


@pytest.mark.parametrize("made", ["copy.deepcopy(model)", "nn.Linear(3, 1)"])
@pytest.mark.parametrize("read", [SQUARES, "for p in probe.parameters():\n            total = p.grad.sum()"])
def test_a_copy_s_gradients_are_cleared_after_they_have_been_read(made: str, read: str) -> None:
    text = COPY.format(made=made, read=read, after="return total")
    assert fixed("MEM110", text) == ([], ["    probe.zero_grad()"])


@pytest.mark.parametrize(
    ("made", "read", "after"),
    [
        ("model", SQUARES, "return squares"),
        ("get_model()", SQUARES, "return squares"),
        ("copy.deepcopy(model)", SQUARES, "return probe"),
        ("copy.deepcopy(model)", SQUARES, "return [p.grad for p in probe.parameters()]"),
        ("copy.deepcopy(model)", SQUARES, "again = [p.grad for p in model.parameters()]"),
        ("copy.deepcopy(model)", "squares = [p.grad for p in probe.body.parameters()]", "return squares"),
    ],
)
def test_a_model_s_gradients_stay_where_it_may_be_another_s(made: str, read: str, after: str) -> None:
    assert fixed("MEM110", COPY.format(made=made, read=read, after=after)) == ([], [])


TREE = """
    class Node:
        def __init__(self, state, parent=None):
            self.state = state
            {stored}

        {expand}

    def grow(node):
        node.children.append({child})
        while node.parent is not None:
            node = node.parent
    """
EXPAND = "def expand(self):\n            self.children = [Node(self.state, parent=self)]"
STORED = "self.parent = parent\n            self.children = []"
CYCLE = Holder(name="Node.children", kind="cycle", path=["Node.children", "Node.parent"])


def weakened(stored: str = STORED, expand: str = EXPAND, child: str = "Node(node.state, node)") -> list[str]:
    return fixed_lines("MEM105", TREE.format(stored=stored, expand=expand, child=child), "class", holder=CYCLE)[1]


WEAK = [
    "import weakref", "        self._parent = weakref.ref(parent) if parent is not None else None", "    @property",
    "    def parent(self):", "        return self._parent() if self._parent is not None else None",
]  # fmt: skip


def test_the_way_back_is_weak_and_is_read_as_before() -> None:
    assert weakened() == WEAK
    assert weakened(child="Node(node.state, None)") == WEAK
    assert weakened(expand="pass") == WEAK


def test_a_weak_parent_reads_as_a_strong_one_while_it_lives() -> None:
    whole = fixed_lines(
        "MEM105", TREE.format(stored=STORED, expand=EXPAND, child="Node(node.state, node)"), "class", holder=CYCLE,
        whole=True,
    )  # fmt: skip
    names: dict[str, object] = {}
    exec("\n".join(whole[1]), names)
    root = names["Node"](1)  # type: ignore[operator]
    names["grow"](root)  # type: ignore[operator]
    child = root.children[0]
    assert root.parent is None and child.parent is root
    del root
    assert child.parent is None


@pytest.mark.parametrize(
    ("stored", "expand", "child"),
    [
        (STORED, EXPAND, "Node(node.state, other)"),
        ("self.children, self.parent = [], parent", EXPAND, "Node(node.state, node)"),
        ("if parent:\n                self.parent = parent\n            self.children = []", EXPAND, "Node(1, node)"),
        (STORED, "def cut(self):\n            self.parent = None", "Node(node.state, node)"),
        (STORED, "__slots__ = ('state', 'parent', 'children')", "Node(node.state, node)"),
        ("self._parent = self.parent = parent", EXPAND, "Node(node.state, node)"),
        (STORED, "pass", "Node(node.state)"),
    ],
)
def test_the_way_back_stays_strong_where_it_is_more_than_that(stored: str, expand: str, child: str) -> None:
    assert weakened(stored, expand, child) == []

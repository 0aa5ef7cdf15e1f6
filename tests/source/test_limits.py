"""How often a statement can store at most, as far as the program states it."""

from __future__ import annotations

import pytest
from programs import MAIN, Program, program

from torchvet.source.stores import SourceIndex, Store


def kept_by(one: Program, name: str = "kept", scope: str = "__main__") -> tuple[SourceIndex, Store]:
    index = one.index()
    return index, index.stores(name, scope, MAIN)[0]


STORES = "    for n in ns:\n        net(n)\n    kept.append(copy(net))"


@pytest.mark.parametrize(
    ("text", "turns"),
    [
        ("for i in range(5):\n" + STORES, 5),
        ("for i in range(2, 12, 5):\n" + STORES, 2),
        ("cycles, per = 5, 20\nfor i in range(cycles):\n" + STORES, 5),
        ("for i, width in enumerate([8, 16, 32]):\n" + STORES, 3),
        ("widths = (8, 16)\nfor width in tqdm(widths):\n" + STORES, 2),
        ("for i in range(3):\n  for j in range(4):\n    kept.append(net(i, j))", 12),
        ("def save(net):\n    kept.append(net)\nfor i in range(7):\n    train(net)\n    save(net)", 7),
        ("for i in range(args.epochs):\n" + STORES, None),
        ("for x in loader:\n" + STORES, None),
        ("while True:\n" + STORES, None),
        ("n = 3\nn += more\nfor i in range(n):\n" + STORES, None),
        ("for i in range(5):\n  while not done():\n    kept.append(net(i))", None),
        ("widths = []\nwidths.append(3)\nfor width in widths:\n" + STORES, None),
        ("def save(net):\n    kept.append(net)\nfor i in range(7):\n    save(net)\nsave(net)", None),
    ],
)
def test_turns_of_the_loops_around(text: str, turns: int | None) -> None:
    index, store = kept_by(program("kept = []\n" + text))
    found = index.turns_around(store)
    assert (found[0] if found is not None else None) == turns


@pytest.mark.parametrize(
    ("store", "keyed"),
    [
        ("self.cache[i] = decode(i)", True),
        ("path = self.paths[i]\n        self.cache[path] = decode(path)", True),
        ("self.cache[len(self.cache)] = decode(i)", False),
        ("self.cache[random.random()] = decode(i)", False),
    ],
)
def test_a_datasets_cache(store: str, keyed: bool) -> None:
    text = """
class Images:
    def __len__(self):
        return 9

    def __getitem__(self, i):
        {}
        return self.cache[i]

images = Images()
images.cache = {{}}
"""
    index, found = kept_by(program(text.format(store)), "images.cache")
    assert index.is_keyed_by_index(found) is keyed
    index, found = kept_by(program(text.format(store).replace("__len__", "size")), "images.cache")
    assert not index.is_keyed_by_index(found)


FOLDS = """
kept = []
for fold in folds:
    model = {made}
    optimizer = SGD(model.parameters())
    for batch in fold:
        step(model, optimizer, batch)
    kept.append({stored})
"""


@pytest.mark.parametrize(
    ("made", "stored", "line"),
    [
        ("build()", "model.eval()", 3),
        ("Net(8)", "(score, model.state_dict())", 3),
        ("Net(model)", "model", None),
        ("build()", "optimizer", None),
        ("build()", "predictions", None),
    ],
)
def test_one_model_for_each_training(made: str, stored: str, line: int | None) -> None:
    index, store = kept_by(program(FOLDS.format(made=made, stored=stored)))
    assert index.of_trainings(store) == line


def test_a_model_that_is_trained_on_is_none_of_its_own() -> None:
    text = FOLDS.format(made="build()", stored="copy.deepcopy(model)").replace("for fold in", "net = 1\nfor fold in")
    index, store = kept_by(program(text.replace("    model = build()\n", "").replace("net = 1", "model = build()")))
    assert index.of_trainings(store) is None

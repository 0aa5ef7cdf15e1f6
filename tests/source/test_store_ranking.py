"""Which of several stores comes first."""

from __future__ import annotations

from programs import program


def test_in_a_loop_before_a_single_one() -> None:
    program("rows = [first]\nrows.append(x)\nfor x in xs:\n    rows.append(x)  # <-\n").first("rows")


def test_in_a_function_that_runs_again_before_a_constructor() -> None:
    text = """
    class Trainer:
        def __init__(self, x):
            self.kept = wrap(x)
        def step(self, x):
            self.kept = wrap(x)  # <-
    trainer = Trainer(x)
    for x in xs:
        trainer.step(x)
    """
    program(text).first("trainer.kept")


def test_called_in_a_loop_before_called_once() -> None:
    text = """
    class Trainer:
        def load(self, path):
            self.kept = read(path)
        def step(self, x):
            self.kept = wrap(x)  # <-
    def epoch(trainer):
        trainer.step(x)
    trainer.load(path)
    while True:
        epoch(trainer)
    """
    program(text).first("trainer.kept")


def test_an_append_before_an_assignment_for_a_container() -> None:
    text = """
    rows = []
    for x in xs:
        rows = shuffled(rows)
        rows.append(x)  # <-
    """
    program(text).first("rows")


def test_a_sum_before_the_rest_for_a_single_value() -> None:
    text = """
    class Trainer:
        def __init__(self):
            self.total = 0.0
        def step(self, x):
            self.total.update(x)
            self.total += x  # <-
    """
    program(text).first("trainer.total")


def test_tensors_before_numbers() -> None:
    text = """
    def note(loss, count):
        rows.append(count)
        rows.append(loss.item())
        rows.append(float(loss))
        rows.append(f"{loss:.3f}")
        rows.append(loss)  # <-
    for x in xs:
        number = x.item()
        rows.append(number)
        note(x, len(x))
    """
    program(text).first("rows")


def test_numbers_where_there_is_nothing_else() -> None:
    program("for x in xs:\n    rows.append(x.item())  # <-\n").first("rows")


def test_a_state_before_its_own_detachment() -> None:
    text = """
    for x in xs:
        state = tuple(s.detach() for s in state)
        state = state.detach()
        out, state = model(x, state)  # <-
    """
    program(text).first("state")


def test_the_class_that_the_owner_is_an_instance_of() -> None:
    text = """
    class Logger:
        def step(self, x):
            self.history.append(x)
    class Base:
        def step(self, x):
            self.history.append(x)  # <-
    class Trainer(Base):
        pass
    logger, trainer = Logger(), Trainer()
    for x in xs:
        logger.step(x)
        trainer.step(x)
    """
    asked = program(text)
    asked.first("trainer.history")
    assert len(asked.stores("trainer.history")) == 1
    assert [s.function for s in asked.stores("logger.history")] == ["Logger.step"]


def test_any_class_where_the_owner_is_not_known() -> None:
    text = """
    class Logger:
        def step(self, x):
            self.history.append(x)
    """
    assert [s.line for s in program(text).stores("made_elsewhere.history")] == [4]
    assert [s.line for s in program(text).stores("self.history", "__main__.Logger.fit")] == [4]


def test_self_means_the_class_of_the_scope() -> None:
    text = """
    class A:
        def step(self, x):
            self.rows.append(x)
    class B:
        def step(self, x):
            self.rows.append(x)  # <-
        def fit(self):
            pass
    """
    program(text).first("self.rows", "__main__.B.fit")


def test_files_along_the_path_come_first() -> None:
    text = "def step(o, x):\n    o.rows.append(x)\n"
    asked = program(text, other=text)
    assert [s.path for s in asked.stores("a.rows", files=["/proj/other.py"])] == ["/proj/other.py", "/proj/train.py"]


def test_a_loop_that_sets_up_comes_after_a_single_store_of_the_training() -> None:
    text = """
    class Trainer:
        def __init__(self, sizes):
            self.kept = []
            for size in sizes:
                self.kept.append(zeros(size))
        def step(self, x):
            self.kept.append(x)  # <-
    trainer = Trainer(sizes)
    for x in xs:
        trainer.step(x)
    """
    program(text).first("trainer.kept")


def test_a_loop_in_a_method_that_the_constructor_alone_calls_sets_up_too() -> None:
    text = """
    class Trainer:
        def __init__(self, sizes):
            self.kept = []
            self.fill(sizes)
        def fill(self, sizes):
            for size in sizes:
                self.kept.append(zeros(size))
        def step(self, x):
            self.kept.append(x)  # <-
    trainer = Trainer(sizes)
    for x in xs:
        trainer.step(x)
    """
    program(text).first("trainer.kept")


def test_a_loop_in_a_method_that_training_calls_too_does_not_set_up() -> None:
    text = """
    class Trainer:
        def __init__(self, x):
            self.kept = []
            self.kept.append(x)
            self.fill(x)
        def fill(self, xs):
            for x in xs:
                self.kept.append(x)  # <-
    trainer = Trainer(x)
    for x in xs:
        trainer.fill(x)
    """
    program(text).first("trainer.kept")


def test_of_hooks_a_registration_of_the_kind_that_the_table_has() -> None:
    text = """
    def watch(layer, seen):
        def note(module, inputs, output):
            output.register_hook(seen.append)
        layer.register_full_backward_hook(note)
        layer.register_forward_pre_hook(note)
        layer.register_forward_hook(note)  # <-
    for x in xs:
        watch(net.fc, [])
    """
    program(text).first("net.fc._forward_hooks")
    program(text.replace("hook(note)  # <-", "hook(note)").replace("pre_hook(note)", "pre_hook(note)  # <-")).first(
        "net.fc._forward_pre_hooks"
    )


def test_of_a_tensors_hooks_what_registers_on_tensors() -> None:
    text = """
    for x in xs:
        net.register_forward_hook(note)
        net.weight.register_hook(note)  # <-
    """
    program(text).first("net.weight._backward_hooks")


def test_what_a_handler_keeps_is_stored_where_it_is_logged() -> None:
    text = """
    log = logging.getLogger()
    log.setLevel(logging.DEBUG)
    log.addHandler(MemoryHandler(1000))
    def step(x):
        log.debug("step %d", 7)
        log.debug("features %s", x)  # <-
    for x in xs:
        step(x)
    """
    program(text).first("log.handlers[0].buffer")

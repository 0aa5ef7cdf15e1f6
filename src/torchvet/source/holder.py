"""What a holder's name means: `trainer.stats.losses[3]` is the attribute `losses` of something called `stats`."""

from __future__ import annotations

import re
from dataclasses import dataclass

_FRAME = re.compile(r" → ([^()]*)\(\)(?:: ([^\W\d]\w*))?")
_EXCEPTION = re.compile(r"\.__(?:traceback|context|cause)__")
_HOOKS = re.compile(r"(?:^|\.)_\w*hooks\w*$")
_NOT_STORED = {"grad_fn", "args", "__wrapped__", "_modules", "_parameters", "_buffers", "ctx", "__self__", "__func__"}
_TOKEN = re.compile(
    r"""\ [^)]*(?:\)|$)  # ` (as a key)`, ` (itertools.cycle)`
    |(?P<token>
        \[(?:'(?:.*?'\]|.*)|"(?:.*?"\]|.*)|[^\]]*(?:\]|$))
        |<[^>]*(?:>|$)
        |.[^.\[\ <]*
    )""",
    re.VERBOSE | re.DOTALL,
)
_SCOPE_THREAD = re.compile(r" \(thread .*\)$")


@dataclass(frozen=True)
class Part:
    """One identifier of a name. `free`: a variable (the root, or behind `<closure>`), not an attribute.

    `keys` are the literal keys that follow it, as `repr` shows them; None stands for any other.
    """

    name: str
    free: bool
    keys: tuple[str | None, ...] = ()


@dataclass(frozen=True)
class HolderName:
    """A parsed name. The last of `parts` is what a program can store into.

    `function` is the function that a closure, a default or a frame's variable belongs to. `special` is one of `cache`
    (the last part is a function whose results are cached), `hooks` (the last part is what hooks are registered on),
    `default` (the last part is the function itself), `ctx`, `closure`, `frame`, or empty. `hooked` is what the hooks
    along the name are registered on, `table` the last of torch's tables that they stand in (`_forward_hooks`).
    """

    parts: tuple[Part, ...]
    function: str = ""
    special: str = ""
    hooked: str = ""
    table: str = ""

    @property
    def terminal(self) -> Part:
        """What is stored into."""
        return self.parts[-1]

    @property
    def owner(self) -> str:
        """The identifier before the terminal; empty for a variable."""
        return "" if self.terminal.free or len(self.parts) < 2 else self.parts[-2].name


def parse(name: str) -> HolderName | None:
    """Parse what a heap walk calls a holder; None where it holds no identifier."""
    name, function = _leave_frames(name)
    cached = " (lru_cache)" in name
    reader = _Reader(function)
    # What follows are the cache's own insides.
    for match in _TOKEN.finditer(name.partition(" (lru_cache)")[0]):
        token = match["token"] or ""
        # A key's own brackets and dots do not count.
        reader.take(token if token[:1] in ("[", "<") else token.strip("."))
    if not reader.parts:
        return None
    special = "cache" if cached else reader.special
    return HolderName(tuple(reader.parts), reader.function, special, reader.hooked, reader.table)


class _Reader:
    """Puts tokens together, from the root on."""

    def __init__(self, function: str) -> None:
        self.parts: list[Part] = []
        self.function = function
        self.special = "frame" if function else ""
        self._closed = False
        self._ctx = False
        self._in_hooks = False
        self._unnamed = False
        self.hooked = self.table = ""

    def take(self, token: str) -> None:
        """Add a token. What a program does not store into by name leaves no part."""
        if token.startswith("["):
            self._add_key(token)
        elif token == "<closure>":
            # Behind hooks the last part is what they are registered on, not the function that closes over the variable.
            # As in `make_hook.<closure>.outputs`: the function's name, then what it closes over.
            self.function = self.parts[-1].name if self.parts and not self._in_hooks else ""
            self._closed = True
        elif token.startswith("<partial "):
            self.function = token[len("<partial ") : -1]
            self._closed = True
        elif token.startswith("<iterator "):
            self._unnamed = True
        elif token == "<default>":
            self.special = "default"
        elif token == "ctx" and self.parts:
            self._ctx = True
        elif _HOOKS.search(token) and self.parts:
            # As in `model.layer._forward_hooks[3]`: what stands before the table is what the hook is on.
            self.special, self.hooked, self.function = "hooks", self.parts[-1].name, ""
            self.table = token
            self._in_hooks = True
        # A variable may be called `args`; within a name it is an attribute of Python's own.
        elif token.isidentifier() and (token not in _NOT_STORED or not self.parts):
            self._add(token)

    def _add_key(self, token: str) -> None:
        # A key behind hooks is one of torch's own tables.
        if self.parts and not self._in_hooks:
            last = self.parts[-1]
            self.parts[-1] = Part(last.name, last.free, (*last.keys, _key(token)))

    def _add(self, name: str) -> None:
        # Behind `<iterator ...>` even the first name is none of the program's variables.
        first = not self.parts and not self._unnamed
        self.parts.append(Part(name, self._closed or first))
        # The root of a frame's name is its variable, so the frame stays what is special.
        if not (first and self.special == "frame"):
            self.special = "closure" if self._closed else "ctx" if self._ctx else ""
        self._closed = self._ctx = self._in_hooks = False


def scope_name(scope: str) -> str:
    """A scope without its thread."""
    return _SCOPE_THREAD.sub("", scope)


def _leave_frames(name: str) -> tuple[str, str]:
    """What holds an exception, rather than its frames; of a generator, its own variable."""
    held = _EXCEPTION.search(name)
    if held:
        return name[: held.start()], ""
    frames = list(_FRAME.finditer(name))
    if not frames:
        return name, ""
    # The innermost frame: its variable is what holds.
    frame = frames[-1]
    if frame.group(2):
        # The function's own name, without `<locals>` and its class: that is how source has it.
        return frame.group(2) + name[frame.end() :], frame.group(1).rpartition(".")[2]
    return name[: frame.start()], ""


def _key(token: str) -> str | None:
    inner = token[1:-1]
    # Strings and whole numbers are written in source as `repr` shows them; other keys are computed.
    return inner if inner[:1] in ("'", '"') or inner.lstrip("-").isdigit() else None

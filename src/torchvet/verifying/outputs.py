"""What two runs print and write: what differs, beyond times, sizes, and what differs between two unchanged runs."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from itertools import starmap, zip_longest

from torchvet.formatting import count
from torchvet.verifying.curves import TOLERANCE, relative

Outputs = Mapping[str, str | bytes]
"""What a run printed and wrote, by `stdout`, `stderr` and the paths of files: text, or the digest of what is none."""
UNREAD = b""
"""In the place of a digest: this was not read."""

_NUMBER = re.compile(r"[-+]?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?")
# All repeats have bounds: a row of digits, as an image has them, is gone through once.
_FIGURE = r"(?<![\w.])\d[\d,]{0,20}(?:\.\d{1,20})?(?:e[-+]?\d{1,3})?"
_UNIT = r"(?:s|secs?|seconds?|ms|us|\w{1,20}/s(?:ec)?|s/it|[kMG]?i?B|bytes)\b"
_SPAN = r"(?<![\w.])\d{1,6}\s?(?:h|min|m)(?: \d{1,2}\s?(?:min|m|s))?\b"
_OF_THE_RUN = re.compile(
    r"\b(?:\w{0,20}time|elapsed|took|secs?|seconds|duration|fps|\w{1,20}/s(?:ec)?|rss|ram|\w{0,20}mem(?:ory)?|allocated)"
    rf"(?:_\w{{1,20}})?(?: used)?\W{{0,4}}(?:{_SPAN}|{_FIGURE}(?:\s?{_UNIT})?)"
    rf"|{_FIGURE}\s?{_UNIT}|{_SPAN}"
    r"|\d{1,4}(?::\d\d){1,2}|\.py\W{0,3}(?:line )?\d{1,7}|\b0x[\da-f]{5,16}\b",
    re.IGNORECASE,
)
"""Times, sizes, line numbers and addresses, which differ from run to run, or are to differ."""
_GRAPHS = re.compile(r",? ?(?:grad_fn=<[^>]{0,80}>|requires_grad=True)")
"""What a printed tensor says of its graph, which a fix may drop."""
_DATE = re.compile(r"20\d\d[-_.]?[01]\d[-_.]?[0-3]\d")
"""A day in the name of a file or its folder."""
_MOST_PAIRS = 1_000_000
"""Pairs of lines up to which texts are aligned: it takes their product where many lines have the same words."""
_SHOWN = 80
"""Characters of a line that are shown."""
_ROUNDED, _DIGITS = 0.05, 3
"""The share of a text's numbers that may differ by one in the last digit, and the digits after the point from which on.
Chosen, not measured: another order of summation moves few numbers over the border between two digits, another metric
moves most."""


@dataclass(frozen=True)
class Difference:
    """That a stream or a file differs: in how many lines, and the first of them before and after."""

    name: str
    lines: int = 0
    """0 if it is not text, or only one of the runs has it."""
    first: tuple[str, str] = ("", "")

    def __str__(self) -> str:
        if not self.lines:
            return f"{self.name} differs"
        was, now = (f"`{line}`" if line else "nothing" for line in _around(*map(str.strip, self.first)))
        return f"{self.name} differs in {count(self.lines, 'line')}: {was} became {now}"


def _around(one: str, other: str) -> tuple[str, str]:
    """Two lines about where they begin to differ: a file of JSON may be one line."""
    unlike = next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), 0)
    begin = max(0, unlike - _SHOWN // 2)
    shown = (line[begin : begin + _SHOWN] for line in (one, other))
    first, second = (f"{'…' * (begin > 0)}{line}{'…' * (len(line) == _SHOWN)}" for line in shown)
    return first, second


@dataclass
class Output:
    """How far what two runs print and write agrees."""

    compared: list[str] = field(default_factory=list)
    lines: int = 0
    """How many lines of text were compared."""
    differ: list[Difference] = field(default_factory=list)
    rounded: int = 0
    """How many numbers differ by one in the last digit."""
    unsteady: list[str] = field(default_factory=list)
    """What cannot be compared, because two unchanged runs differ in it."""
    noise: dict[str, int] = field(default_factory=dict)
    """How many lines of a text were not compared, because two unchanged runs differ in their words."""
    skipped: list[str] = field(default_factory=list)
    """What was not compared: no text, where losses differ in late digits, and what was not read."""

    @property
    def same(self) -> bool:
        """Whether nothing differs but the last digits of a few numbers."""
        return not self.differ


def same_output(before: str, after: str, tolerance: float = TOLERANCE) -> bool:
    """Whether two outputs have the same words, and the same numbers within a relative difference."""
    # All but the numbers must be the same text.
    if _NUMBER.sub("#", before) != _NUMBER.sub("#", after):
        return False
    numbers = ([float(n) for n in _NUMBER.findall(text)] for text in (before, after))
    return all(relative(a, b) <= tolerance for a, b in zip(*numbers, strict=True))


def compare_output(
    before: Outputs, after: Outputs, again: Outputs | None = None, binary: bool = True, tolerance: float = TOLERANCE
) -> Output:
    """Compare what two runs print and write. What differs between `before` and `again`, of another unchanged run, does
    not count. `binary` includes files that are not text; `tolerance` is the largest relative difference of numbers."""
    again = before if again is None else again
    found = Output()
    steady = before.keys() == again.keys()
    after = _renamed(before, after, steady)
    again = _renamed(before, again, steady)
    # Names with a process's number or random letters in them: a new one says nothing.
    steady = before.keys() == again.keys()
    for name in dict.fromkeys((*before, *after)):
        was, now, other = before.get(name), after.get(name), again.get(name)
        if type(was) is not type(other) or (was is None and not steady):
            found.unsteady.append(name)
        elif isinstance(was, str) and isinstance(now, str) and isinstance(other, str):
            _compare_text(found, name, (was, now, other), tolerance)
        elif type(was) is not type(now):
            found.compared.append(name)
            found.differ.append(Difference(name))
        elif not binary or UNREAD in (was, now, other):
            found.skipped.append(name)
        else:
            (found.compared if was == other else found.unsteady).append(name)
            found.differ.extend([Difference(name)] if was == other and was != now else [])
    return found


def _compare_text(found: Output, name: str, texts: tuple[str, str, str], tolerance: float) -> None:
    before, after, again = ([_read(line) for line in text.splitlines()] for text in texts)
    if [line.words for line in before] != [line.words for line in again]:
        lines = len(before)
        # First their order, as of what several threads print.
        ordered = [sorted(text, key=lambda line: line.words) for text in (before, after, again)]
        unordered = [line.words for line in ordered[0]] == [line.words for line in ordered[2]]
        before, after, again = ordered if unordered else _without_noise(before, after, again)
        if not before:
            found.unsteady.append(name)
            return
        if lines > len(before):
            found.noise[name] = lines - len(before)
    unlike, rounded, moved, numbers = _unlike(name, _aligned(before, after), _times(before, again), tolerance)
    if moved > _ROUNDED * numbers:
        unlike += rounded
    found.rounded += moved
    found.compared.append(name)
    found.lines += len(before)
    if unlike:
        found.differ.append(Difference(name, len(unlike), unlike[0]))


def _without_noise(
    before: list[_Line], after: list[_Line], again: list[_Line]
) -> tuple[list[_Line], list[_Line], list[_Line]]:
    """The lines without those in whose words the unchanged runs `before` and `again` differ. Of `after` go as many more
    that neither has: a third run may have other words there."""
    noise = {line.words for pair in _aligned(before, again) if pair[0].words != pair[1].words for line in pair}
    one, other = ([line for line in text if line.words not in noise] for text in (before, again))
    known = {line.words for line in one} | noise
    new = [i for i, line in enumerate(after) if line.words not in known]
    dropped = {*new[: max(len(before) - len(one), len(again) - len(other))]}
    return one, [x for i, x in enumerate(after) if i not in dropped and x.words not in noise], other


def _renamed(before: Outputs, other: Outputs, steady: bool) -> Outputs:
    """The outputs of another run, with the names that `before` has for files whose names differ in numbers alone: those
    of a date, or any where the names of two unchanged runs differ (not `steady`)."""
    gone, new = [n for n in before if n not in other], [n for n in other if n not in before]
    names = {}
    for name in new:
        alike = [n for n in gone if _bare(n) == _bare(name) and (not steady or _DATE.search(n))]
        if len(alike) == 1 and sum(_bare(n) == _bare(name) for n in new) == 1:
            names[name] = alike[0]
    return {names.get(name, name): content for name, content in other.items()}


def _bare(name: str) -> str:
    return re.sub(r"\d+", "#", name)


Pairs = list[tuple[str, str]]


def _unlike(
    name: str, lines: Iterable[tuple[_Line, _Line]], times: Mapping[str, set[int]], tolerance: float
) -> tuple[Pairs, Pairs, int, int]:
    """The lines that differ, those with numbers that differ by one in the last digit, how many such numbers there are,
    and how many in all."""
    unlike: Pairs = []
    rounded: Pairs = []
    moved = numbers = 0
    for one, now in lines:
        pairs = [pair for i, pair in enumerate(_pairs(one, now)) if i not in times[one.words]]
        wrong = [(a, b) for a, b in pairs if not relative(float(a), float(b)) <= tolerance]
        numbers += len(pairs)
        # A fix may end warnings, which go to stderr.
        other = one.words != now.words and name != "stderr"
        if other or not all(starmap(_is_rounded, wrong)):
            unlike.append((one.text, now.text))
        elif wrong:
            rounded.append((one.text, now.text))
            moved += len(wrong)
    return unlike, rounded, moved, numbers


def _times(before: list[_Line], again: list[_Line]) -> Mapping[str, set[int]]:
    """Which numbers differ between two unchanged runs, by the words of their line and their place in it."""
    times: defaultdict[str, set[int]] = defaultdict(set)
    # Of lines with the same words a number is a time in all if it is in one.
    for one, other in zip(before, again, strict=True):
        times[one.words].update(i for i, pair in enumerate(_pairs(one, other)) if pair[0] != pair[1])
    return times


def _aligned(before: list[_Line], after: list[_Line]) -> Iterator[tuple[_Line, _Line]]:
    """Pairs of lines with the same words, in order; what one of the texts has alone beside what stands there in the
    other, or nothing."""
    first = _alike(before, after)
    # From both ends: what differs is mostly one piece in the middle.
    last = _alike(before[first:][::-1], after[first:][::-1])
    one, other = before[first : len(before) - last], after[first : len(after) - last]
    yield from zip(before[:first], after[:first], strict=True)
    yield from _aligned_within(one, other)
    yield from zip(before[len(before) - last :], after[len(after) - last :], strict=True)


def _aligned_within(before: list[_Line], after: list[_Line]) -> Iterator[tuple[_Line, _Line]]:
    """The same, of what differs. Lines whose words the other text does not have go first: what is left may be alike."""
    both = {x.words for x in before} & {x.words for x in after}
    (one, alone), (other, new) = (_parted(text, both) for text in (before, after))
    yield from zip_longest(alone, new, fillvalue=_NOTHING)
    words = [x.words for x in one], [x.words for x in other]
    if words[0] == words[1] or len(one) * len(other) > _MOST_PAIRS:
        yield from zip_longest(one, other, fillvalue=_NOTHING)
        return
    for _, start, end, begin, stop in SequenceMatcher(None, *words, autojunk=False).get_opcodes():
        yield from zip_longest(one[start:end], other[begin:stop], fillvalue=_NOTHING)


def _parted(lines: list[_Line], words: set[str]) -> tuple[list[_Line], list[_Line]]:
    """The lines that have one of these words, and the others."""
    return [x for x in lines if x.words in words], [x for x in lines if x.words not in words]


def _alike(before: list[_Line], after: list[_Line]) -> int:
    """How many lines two texts begin with that have the same words."""
    pairs = zip(before, after, strict=False)
    return next((n for n, (a, b) in enumerate(pairs) if a.words != b.words), min(len(before), len(after)))


@dataclass(frozen=True)
class _Line:
    text: str
    words: str
    numbers: tuple[str, ...]


_NOTHING = _Line("", "", ())


def _read(line: str) -> _Line:
    bare = _OF_THE_RUN.sub("", _GRAPHS.sub("", line))
    return _Line(line, _NUMBER.sub("#", bare), tuple(_NUMBER.findall(bare)))


def _pairs(one: _Line, other: _Line) -> list[tuple[str, str]]:
    return list(zip(one.numbers, other.numbers, strict=True)) if one.words == other.words else []


def _is_rounded(one: str, other: str) -> bool:
    """Whether two numbers with some digits after the point differ by one in the last of them."""
    unit = max(_unit(one), _unit(other))
    # Half a unit for what floats make of decimals.
    return unit < 1.5 * 10.0**-_DIGITS and abs(float(one) - float(other)) < 1.5 * unit


def _unit(number: str) -> float:
    digits, _, power = number.lower().partition("e")
    return float(f"1e{power or 0}") * 10.0 ** -len(digits.partition(".")[2])

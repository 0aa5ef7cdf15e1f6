"""What a user has set: `[tool.torchvet]` of the nearest pyproject.toml, then `TORCHVET_*`, then flags; later ones win.

Codes are given as prefixes: `MEM`, `AMP1`, `TRN101`. Within a layer the longer prefix wins, `ignore` wins a tie.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from torchvet.errors import BadInput, MissingExtra

LISTS = ("select", "ignore", "extend-select", "extend-ignore", "exclude")
KEYS = (*LISTS, "per-file-ignores", "fail-on", "baseline")
LEVELS = ("error", "warning", "info", "never")
_CODES = ("select", "ignore", "extend-select", "extend-ignore")


class Layer(Struct, frozen=True):
    """Choices of rules made in one place; `origin` says where, for messages."""

    origin: str
    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    extend_select: tuple[str, ...] = ()
    extend_ignore: tuple[str, ...] = ()


class Configuration(Struct, frozen=True):
    """Everything that was set. `root` is what relative paths in pyproject.toml are relative to."""

    root: Path
    layers: tuple[Layer, ...] = ()
    exclude: tuple[str, ...] = ()
    per_file_ignores: dict[str, tuple[str, ...]] = {}
    fail_on: str = "warning"
    baseline: Path | None = None

    def with_layer(self, layer: Layer) -> Configuration:
        """The same with one more layer of choices on top."""
        return replace(self, layers=(*self.layers, layer))

    def selected(self, codes: Sequence[str]) -> frozenset[str]:
        """Which of all codes are looked for. Raises `BadInput` for a prefix that no code has."""
        chosen = set(codes)
        for layer in self.layers:
            named = (*layer.select, *layer.ignore, *layer.extend_select, *layer.extend_ignore)
            require_known(named, codes, layer.origin)
            if layer.select:
                chosen = set()
            changes = [(len(p), 0, p) for p in (*layer.select, *layer.extend_select)]
            changes += [(len(p), 1, p) for p in (*layer.ignore, *layer.extend_ignore)]
            for _, removes, prefix in sorted(changes):
                meant = {code for code in codes if code.startswith(prefix)}
                chosen = chosen - meant if removes else chosen | meant
        return frozenset(chosen)


def read_configuration(first: Path, environment: Mapping[str, str] = os.environ) -> Configuration:
    """What pyproject.toml and the environment say, for a check that begins with the path `first`."""
    found = _nearest(first)
    known = _from_file(*found) if found is not None else Configuration(root=_root(first))
    return _with_environment(known, environment)


def codes_in(given: Sequence[str]) -> tuple[str, ...]:
    """Code prefixes of an option that takes several, each taken apart at commas."""
    return tuple(p.strip().upper() for text in given for p in text.split(",") if p.strip())


def require_known(prefixes: Sequence[str], codes: Sequence[str], origin: str) -> None:
    """Raise `BadInput` for a prefix that no code has."""
    for prefix in prefixes:
        if not any(code.startswith(prefix) for code in codes):
            raise BadInput(f"{origin}: {prefix}: no rule's code starts so; `torchvet explain` lists the rules")


def _above(path: Path) -> list[Path]:
    start = Path(os.path.abspath(path))
    return [start, *start.parents] if start.is_dir() else list(start.parents)


def _nearest(first: Path) -> tuple[Path, dict[str, Any]] | None:
    """The nearest pyproject.toml that has a section for torchvet, and the section."""
    for folder in _above(first):
        file = folder / "pyproject.toml"
        try:
            data = file.read_bytes()
        except OSError:
            continue
        if b"torchvet" in data:
            section = _parse(file, data).get("tool", {}).get("torchvet")
            if section is not None:
                if not isinstance(section, dict):
                    raise BadInput(f"{file}: [tool.torchvet] is to be a table, not {section!r}")
                return file, section
    return None


def _root(first: Path) -> Path:
    """The folder of the nearest pyproject.toml or repository; without one the working directory."""
    for folder in _above(first):
        if (folder / "pyproject.toml").is_file() or (folder / ".git").exists():
            return folder
    return Path.cwd()


def _parse(file: Path, data: bytes) -> dict[str, Any]:
    try:
        found: dict[str, Any] = _toml().loads(data.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{file}: is no valid TOML: {error}") from error
    return found


def _toml() -> Any:
    """Python's own reader, or on Python 3.10 the package that it comes from."""
    for name in ("tomllib", "tomli"):
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError:
            continue
    raise MissingExtra("to read pyproject.toml on Python 3.10 torchvet needs tomli: python -m pip install tomli")


def _from_file(file: Path, section: dict[str, Any]) -> Configuration:
    for key in section:
        if key not in KEYS:
            raise BadInput(f"{file}: unknown key {key!r} in [tool.torchvet]: the known keys are {', '.join(KEYS)}")
    origin = f"{file}, [tool.torchvet]"
    lists = {key: _strings(f"{origin}: {key}", section.get(key, [])) for key in LISTS}
    ignores = section.get("per-file-ignores", {})
    if not isinstance(ignores, dict):
        raise BadInput(f"{origin}: per-file-ignores: expected a table of patterns and codes, not {ignores!r}")
    baseline = section.get("baseline")
    if baseline is not None and not isinstance(baseline, str):
        raise BadInput(f"{origin}: baseline: expected a path, not {baseline!r}")
    return Configuration(
        root=file.parent,
        layers=(_layer(origin, lists),),
        exclude=lists["exclude"],
        per_file_ignores={p: codes_in(_strings(f"{origin}: per-file-ignores: {p}", c)) for p, c in ignores.items()},
        fail_on=_level(f"{origin}: fail-on", section.get("fail-on", "warning")),
        baseline=file.parent / baseline if baseline else None,
    )


def _with_environment(known: Configuration, environment: Mapping[str, str]) -> Configuration:
    lists = {}
    for key in LISTS:
        lists[key] = tuple(v for v in environment.get(_variable(key), "").split(",") if v.strip())
    if any(lists[key] for key in _CODES):
        known = known.with_layer(_layer("TORCHVET_SELECT and its like", lists))
    if lists["exclude"]:
        known = replace(known, exclude=(*known.exclude, *lists["exclude"]))
    if level := environment.get("TORCHVET_FAIL_ON"):
        known = replace(known, fail_on=_level("TORCHVET_FAIL_ON", level))
    if baseline := environment.get("TORCHVET_BASELINE"):
        known = replace(known, baseline=Path(baseline))
    return known


def _variable(key: str) -> str:
    return "TORCHVET_" + key.upper().replace("-", "_")


def _layer(origin: str, lists: Mapping[str, tuple[str, ...]]) -> Layer:
    return Layer(origin, *(codes_in(lists[key]) for key in _CODES))


def _strings(where: str, value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(v, str) for v in value):
        raise BadInput(f"{where}: expected a list of strings, not {value!r}")
    return tuple(value)


def _level(where: str, value: object) -> str:
    if value not in LEVELS:
        raise BadInput(f"{where}: expected one of {', '.join(LEVELS)}, not {value!r}")
    return str(value)

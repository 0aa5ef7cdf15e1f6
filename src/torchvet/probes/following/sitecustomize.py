"""Runs as a Python process starts that the observed program has started: has it followed, and steps out of the way.

`following.started_with` puts this folder first on that process's PYTHONPATH. The variables are put back before the
program sees them, and a `sitecustomize` of the user's own runs as it would have.
"""

import os
import sys


def _put_back(here: str) -> None:
    before = os.environ.pop("TORCHVET_PYTHONPATH", None)
    if before is None:
        os.environ.pop("PYTHONPATH", None)
    else:
        os.environ["PYTHONPATH"] = before
    # In place: others may hold this very list.
    sys.path[:] = [p for p in sys.path if os.path.abspath(p or ".") != here]


def _follow(text: str) -> None:
    import json

    config = json.loads(text)
    # Another minor version cannot load the extension modules that torchvet imports.
    if config["python"] != list(sys.version_info[:2]):
        return
    sys.path.append(config["import_from"])  # last: it must shadow nothing
    try:
        from torchvet.probes.following import follow

        follow(config)
    finally:
        sys.path.remove(config["import_from"])


_put_back(os.path.dirname(os.path.abspath(__file__)))
_CONFIG = os.environ.pop("TORCHVET_FOLLOW", None)
if _CONFIG is not None:
    try:
        _follow(_CONFIG)
    except Exception:  # the program runs unobserved
        pass
# Python imports only one module of this name: the user's own is imported by hand, as if ours were not there.
_OURS = sys.modules.pop("sitecustomize", None)
try:
    import sitecustomize  # type: ignore[import-not-found]  # noqa: F401
except ImportError as _error:
    # None exists: fine. One that fails by an import of its own fails as it would without torchvet.
    if _error.name != "sitecustomize":
        raise
finally:
    if _OURS is not None:
        sys.modules.setdefault("sitecustomize", _OURS)

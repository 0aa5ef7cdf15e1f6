"""Puts stand-ins in the place of the probes and of the diagnosis, so that the command line is tested without torch.

On PYTHONPATH, in plain runs and observed ones alike.
"""

import importlib.util
import os
import sys

_HERE = os.path.dirname(__file__)
_FAKES = {
    "torchvet.probes.session.session": os.path.join(_HERE, "fake_session.py"),
    "torchvet.diagnosis.diagnose": os.path.join(_HERE, "fake_diagnosis.py"),
}


class _Fakes:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name in _FAKES:
            return importlib.util.spec_from_file_location(name, _FAKES[name])
        if name == "torch" and os.environ.get("TEST_NO_TORCH"):
            raise ModuleNotFoundError("No module named 'torch'", name="torch")
        return None


sys.meta_path.insert(0, _Fakes)
if not os.environ.get("TEST_NO_TORCH"):
    sys.path.insert(0, os.path.join(_HERE, "site"))  # a module named torch that costs nothing to import

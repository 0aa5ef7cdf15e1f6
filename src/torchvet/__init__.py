"""torchvet: a doctor for PyTorch programs."""

from torchvet._version import __version__

__all__ = ["__version__"]

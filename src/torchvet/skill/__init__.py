"""The agent skill: what torchvet knows, for coding agents, written from the rules. Imports no torch.

What rules say stands in the rules; what is said beside them stands in `templates/`, with the rules' names filled in.
"""

from torchvet.skill.documents import NAME, documents
from torchvet.skill.folders import AGENTS, folders_asked
from torchvet.skill.installing import Installed, install

__all__ = ["AGENTS", "NAME", "Installed", "documents", "folders_asked", "install"]

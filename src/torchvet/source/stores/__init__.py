"""What a program does to a name that was found at run time: what stores into it, what bounds it, what renews it."""

from torchvet.source.stores.answers import FunctionSpan, Limit, Removal, Store
from torchvet.source.stores.index import SourceIndex

__all__ = ["FunctionSpan", "Limit", "Removal", "SourceIndex", "Store"]

"""What a program does to a name that was found at run time: what stores into it, what bounds it, what renews it."""

from torchvet.source.stores.answers import FunctionSpan, Limit, Removal, Store
from torchvet.source.stores.index import SourceIndex
from torchvet.source.stores.makers import Made, Maker, MakerSearch, Wrong

__all__ = ["FunctionSpan", "Limit", "Made", "Maker", "MakerSearch", "Removal", "SourceIndex", "Store", "Wrong"]

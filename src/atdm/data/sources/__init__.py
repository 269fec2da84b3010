"""Where one home's readings are: tables, Home Assistant, SQL, and sources of others. Standard library and numpy only;
what a source needs beyond that is loaded when it is asked for."""

from atdm.data.sources.registry import open_source
from atdm.data.sources.source import Rows, Source

__all__ = ["Rows", "Source", "open_source"]

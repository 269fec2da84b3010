"""Other people's tables → zones and weather in our names and units, with an account of everything that was done.

read      a file → frames            headers   which column is what        units    as people write them
stamps    → instants in UTC          spans     readings → means per step   account  what was done, in lines
build     all of it, in order
"""

from atdm.data.importing.account import Account, Kind, Line
from atdm.data.importing.build import Imported, import_tables
from atdm.data.importing.source import import_source

__all__ = ["Account", "Imported", "Kind", "Line", "import_source", "import_tables"]

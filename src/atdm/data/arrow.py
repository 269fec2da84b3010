"""pyarrow without types: it makes most of its names while it is imported, where a type checker cannot follow."""

from typing import Any

import pyarrow
import pyarrow.compute
import pyarrow.csv
import pyarrow.parquet

pa: Any = pyarrow
pc: Any = pyarrow.compute
pacsv: Any = pyarrow.csv
pq: Any = pyarrow.parquet

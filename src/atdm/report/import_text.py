"""What `atdm import` prints: the account, and the first rows of a dry run."""

import pandas as pd

from atdm.data.importing import Imported

SHOWN_FILES = 4  # whose first rows a dry run shows


def import_text(found: Imported, *, rows: bool) -> str:
    """The account of an import; rows: the first rows of every file before and of the tables after, too."""
    said = [found.account.text()]
    if rows:
        tables: list[tuple[str, pd.DataFrame | None]]
        tables = [(f"before: {file}", table) for file, table in list(found.before.items())[:SHOWN_FILES]]
        if len(found.before) > SHOWN_FILES:
            tables += [(f"before: and {len(found.before) - SHOWN_FILES} more files", None)]
        tables += [(f"after: {name}", table) for name, table in found.after().items()]
        said += [
            "\n" + title + ("" if table is None else "\n" + table.to_string(index=False)) for title, table in tables
        ]
    return "\n".join(said)

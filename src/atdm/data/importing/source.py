"""One home's readings, from where they are, as a table of ours."""

import pandas as pd

from atdm.data.importing.account import Account, Kind
from atdm.data.importing.build import Imported, hidden_step
from atdm.data.sources.source import Source
from atdm.errors import DataError


def import_source(source: Source, agent: str = "home") -> Imported:
    """All readings that a source has, under a home's name.

    Parameters
    ----------
    source : Source
        Where they are.
    agent : str, default "home"
        Name of the home, where the source does not say it.

    Returns
    -------
    Imported
        With zones alone.
    """
    found = source.rows()
    if not len(found):
        said = f" ({'; '.join(found.notes)})" if found.notes else ""
        raise DataError(f"{source.name}: has no readings{said}: check that it has some")
    account = Account()
    for note in found.notes:
        account.say(Kind.DID, source.name, note)
    if found.quantum:
        account.say(Kind.DID, source.name, hidden_step(found.quantum))
    columns = {
        "time": pd.to_datetime(found.time, unit="s", utc=True),
        "agent": found.agent or agent,
        "indoor_temp_c": found.temperature,
        "load_kw": found.load,
    }
    return Imported(zones=pd.DataFrame(columns), weather=None, account=account, before={})

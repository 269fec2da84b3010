"""Validate a flex-model and a flex-context by FlexMeasures' own schemas; run by the Python it is installed in.

Reads one JSON object from standard input, writes what the schemas made of it. No database is asked.
"""

import json
import sys
from datetime import timedelta
from types import SimpleNamespace

import pandas as pd


def main() -> None:
    from flask import Flask
    from flexmeasures.data.schemas.scheduling import FlexContextSchema
    from flexmeasures.data.schemas.scheduling.storage import StorageFlexModelSchema

    asked = json.load(sys.stdin)
    sensor = SimpleNamespace(unit="kW", timezone="UTC", event_resolution=timedelta(hours=1), id=7)
    with Flask("schema").app_context():
        model = StorageFlexModelSchema(start=pd.Timestamp(asked["start"]), sensor=sensor).load(asked["flex-model"])
        context = FlexContextSchema().load(asked["flex-context"])
    relaxed = {"soc": context["relax_soc_constraints"], "capacity": context["relax_capacity_constraints"]}
    print(json.dumps({
        "soc_at_start": model["soc_at_start"], "minima": len(model["soc_minima"]), "maxima": len(model["soc_maxima"]),
        "usage": len(model["soc_usage"][0]), "relaxed": relaxed,
    }))  # fmt: skip


if __name__ == "__main__":
    main()

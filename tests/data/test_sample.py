from importlib import resources

import pandas as pd

from atdm.data import load_sample


def test_the_sample_is_64_zones_of_7_buildings_for_30_days():
    sample = load_sample()
    assert len(sample.agents) == 64 and len(sample.by_building().agents) == 7
    assert len(sample.time) == 1440 and sample.step == pd.Timedelta("30min")
    assert (sample.rows_dropped, sample.notes) == (0, ())
    assert (sample.segment == 0).all()
    assert 0.3 < sample.solar.max() < 1.0  # kW/m²


def test_the_sample_says_where_it_comes_from():
    text = (resources.files("atdm.data") / "sample64" / "PROVENANCE.md").read_text(encoding="utf-8")
    for credit in ("DOE", "NREL", "PNNL", "LBNL", "Deru et al.", "NREL/TP-5500-46861", "EnergyPlus"):
        assert credit in text

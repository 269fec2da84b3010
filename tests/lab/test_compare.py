"""`compare` puts every protocol and way of weighting beside the trusted centre's answer."""

import json
from io import StringIO

import pytest
from rich.console import Console

import atdm
from atdm.kernel.finite import without_nan
from atdm.lab.compare import VARIANTS, compare_rows, parse_protocols
from atdm.options import PROTOCOLS, fit_options
from atdm.report.compare_text import compare_table
from atdm.report.page import compare_page
from tests.clusters import tiny


@pytest.fixture(scope="module")
def rows() -> dict[str, dict]:
    found = compare_rows(tiny(3, agents=12, rows=120), PROTOCOLS, fit_options(order=1))
    return {row["protocol"]: row for row in found}


def test_every_protocol_and_weighting_is_a_row(rows):
    assert list(rows) == [variant[0] for variant in VARIANTS]
    assert rows.keys() >= {"plain, equal weights", "blind, no dither", "blind, equal weights"}
    json.dumps(without_nan(list(rows.values())), allow_nan=False)


def test_each_is_compared_with_plain_of_its_own_weighting(rows):
    assert rows["paper"]["coefficients_apart"] < 1e-6 and rows["moments"]["coefficients_apart"] < 1e-6
    equal, plain = rows["blind, equal weights"], rows["plain, equal weights"]
    assert equal["weights_apart"] == 0.0 and equal["coefficients_apart"] < 3e-3
    assert abs(equal["r2"] - plain["r2"]) < 3e-4 < abs(rows["plain"]["r2"] - plain["r2"])
    assert rows["plain"]["ridge"] is not None and equal["ridge"] is None


def test_equal_weights_cost_least_and_show_least(rows):
    fitted, equal = rows["blind"], rows["blind, equal weights"]
    assert equal["rounds"] <= 4 < fitted["rounds"] <= 10
    assert equal["bytes_up_per_agent"] < fitted["bytes_up_per_agent"]
    assert "basis total" in fitted["peers_learned"] and "total" not in equal["peers_learned"]
    assert equal["aggregator_learned"] == "120 scalars, load total 120, state 120"


def test_the_table_and_the_page_have_all_of_them_and_a_refusal_its_reason(rows):
    shown = [*rows.values(), {"protocol": "blind", "refused": "9 agents: too few"}]
    console = Console(record=True, width=200, file=StringIO())
    console.print(compare_table(shown))
    text, page = console.export_text(), compare_page(shown, "Protocols")
    for name in (*rows, "9 agents: too few"):
        assert name in text and name in page


def test_protocols_are_chosen_by_name():
    assert parse_protocols("blind, plain") == ("plain", "blind")
    with pytest.raises(atdm.UsageError, match="choose among"):
        parse_protocols("blind,clear")
    assert {row["protocol"] for row in compare_rows(tiny(3, agents=4, rows=120), ("blind",), fit_options(order=1))} == {
        "blind", "blind, no dither", "blind, equal weights",
    }  # fmt: skip

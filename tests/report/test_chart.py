"""Charts: ticks, breaks, and data that survives the page."""

import json
import re

import numpy as np
import pytest

from atdm.report.chart import HIGH, WIDE, Chart, Series, draw, hour_ticks, log_ticks, number_ticks


def chart(**changes: object) -> Chart:
    values = np.array([1.0, 3.0, 2.0, 5.0])
    base = dict(
        name="c", title="A title", caption="What to see.", x=np.arange(4.0), x_label="steps", y_label="y [K]",
        series=(Series(name="y [K]", values=values),),
    )  # fmt: skip
    return Chart(**{**base, **changes})  # type: ignore[arg-type]


def points(path: str) -> list[list[tuple[int, int]]]:
    """The polylines of a path of relative steps, read back."""
    lines = []
    for part in re.findall(r"M[^M]*", path):
        numbers = [int(n) for n in re.findall(r"-?\d+", part)]
        pairs = np.array(numbers).reshape(-1, 2)
        lines.append([(int(x), int(y)) for x, y in np.cumsum(pairs, axis=0)])
    return lines


@pytest.mark.parametrize(("low", "high"), [(0, 1), (-0.013, 0.021), (15.2, 24.9), (0, 1e-9), (-3e6, 7e6), (99, 100)])
def test_number_ticks_are_round_and_inside(low: float, high: float) -> None:
    ticks = number_ticks(low, high)
    values = np.array([v for v, _ in ticks])
    assert 2 <= len(ticks) <= 8
    assert (values >= low - 1e-9 * (high - low)).all() and (values <= high + 1e-9 * (high - low)).all()
    assert np.allclose([float(text.replace("−", "-")) for _, text in ticks], values)


def test_time_ticks_are_midnights_or_round_hours() -> None:
    month, day = 30 * 86400, 86400
    assert [t for t, _ in hour_ticks(0, month, "time")] == [float(4 * day * k) for k in range(8)]
    assert [text for _, text in hour_ticks(0, day, "time")][:3] == ["1 Jan", "03:00", "06:00"]
    assert [text for _, text in hour_ticks(0.5, 48, "hours")] == ["6", "12", "18", "24", "30", "36", "42", "48"]


@pytest.mark.parametrize(
    ("low", "high", "labels"),
    [
        (64, 1000, ["100", "200", "500", "1000"]),
        (0.002, 0.3, ["0.002", "0.005", "0.01", "0.02", "0.05", "0.1", "0.2"]),
        (0.5e-12, 60, ["1e−12", "1e−9", "1e−6", "0.001", "1"]),
        (1e3, 5e6, ["1000", "10000", "1e5", "1e6"]),
        (40, 70, ["40", "45", "50", "55", "60", "65", "70"]),
    ],
)
def test_log_ticks_are_powers_of_ten_or_round(low: float, high: float, labels: list[str]) -> None:
    ticks = log_ticks(np.log10(low), np.log10(high))
    assert [text for _, text in ticks] == labels
    assert np.allclose([10**at for at, _ in ticks], [float(text.replace("−", "-")) for text in labels])


def test_log_axes_place_by_the_logarithm_and_have_no_place_for_zero() -> None:
    series = (Series(name="y [s]", values=np.array([1.0, 10.0, 0.0, 1000.0]), mark="points"),)
    html = draw(chart(x=np.array([1, 10, 100, 1000]), axis="log", y_axis="log", series=series))
    dots = points(re.search(r'class="points s0" d="([^"]*)"', html)[1].replace("h1", ""))
    (x0, y0), (x1, y1), (x3, y3) = (dot for (dot,) in dots)
    assert x3 - x1 == pytest.approx(2 * (x1 - x0), abs=2) and y1 - y3 == pytest.approx(2 * (y0 - y1), abs=2)
    assert 0 < x0 and x3 < WIDE, "a dot at the edge is whole"
    data = json.loads(re.search(r'<script type="application/json">(.*?)</script>', html, re.S)[1])
    assert data["columns"][0]["values"] == [1, 10, 0, 1000] and data["x"]["values"] == [1, 10, 100, 1000]


def test_a_band_without_an_upper_end_leaves_the_view_and_a_missing_bar_is_none() -> None:
    band = Series(name="b", values=np.array([1.0, 1.0, 1.0, 2.0]), upper=np.array([2.0, np.inf, 3.0, np.nan]))
    bars = Series(name="y", values=np.array([1.0, np.nan, 2.0, 3.0]), mark="bar", colour=1)
    html = draw(chart(series=(band, bars)))
    (area,) = points(re.search(r'class="band s0" d="([^"]*)z"', html)[1])
    assert len(area) == 6 and min(y for _, y in area) == -3 * HIGH
    assert re.search(r'class="bars s1" d="([^"]*)"', html)[1].count("M") == 3


def test_the_drawn_line_is_the_data() -> None:
    html = draw(chart())
    (line,) = points(re.search(r'class="line s0" d="([^"]*)"', html)[1])
    xs, ys = np.array(line, dtype=float).T
    values = np.array([1.0, 3.0, 2.0, 5.0])
    assert np.allclose(xs, np.arange(4) / 3 * WIDE, atol=1)
    low, high = 1 - 0.05 * 4, 5 + 0.05 * 4
    assert np.allclose(high - ys / HIGH * (high - low), values, atol=1e-3)


def test_lines_do_not_cross_gaps_or_missing_values() -> None:
    values = np.array([1.0, 2.0, np.nan, 3.0, 4.0, 5.0])
    html = draw(chart(x=np.arange(6.0), series=(Series(name="y", values=values),), breaks=np.array([0, 0, 0, 0, 1, 1])))
    path = re.search(r'class="line s0" d="([^"]*)"', html)[1].replace("h1", "")  # a single point is drawn as a dash
    assert [len(line) for line in points(path)] == [2, 1, 2]
    data = json.loads(re.search(r'<script type="application/json">(.*?)</script>', html, re.S)[1])
    assert data["columns"][0]["values"] == [1, 2, None, 3, 4, 5]


def test_a_prediction_far_off_does_not_flatten_the_figure() -> None:
    values = np.array([20.0, 21.0, 22.0, 1e6])
    html = draw(chart(series=(Series(name="y", values=values),), limits=(18.0, 24.0)))
    assert json.loads(re.search(r"data-chart='([^']*)'", html)[1])["y"][1] < 25


def test_names_from_outside_cannot_leave_their_place() -> None:
    evil = "</script><script>alert(1)</script><b onclick='x'>"
    html = draw(chart(title=evil, caption=evil, labels=[evil] * 4, series=(Series(name=evil, values=np.ones(4)),)))
    assert "<script>" not in html and html.count("</script>") == 1 and "<b " not in html
    data = json.loads(re.search(r'<script type="application/json">(.*?)</script>', html, re.S)[1])
    assert data["labels"][0] == evil

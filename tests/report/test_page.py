"""The report as a file: what it says, what it must not contain."""

import re
from dataclasses import replace
from html import unescape
from html.parser import HTMLParser
from io import StringIO
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

import atdm
from atdm.report import learned
from atdm.report.page import compare_page, fit_page, number
from atdm.report.text import summary
from atdm.report.use_text import choice_table
from atdm.report.words import restarted
from atdm.result import percent
from tests.clusters import tiny

VOID = {"meta", "link", "path", "rect", "circle", "br"}


class Outline(HTMLParser):
    """Balanced tags, heading levels and ids."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.levels: list[int] = []
        self.ids: list[str] = []
        self.refs: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in VOID:
            self.open.append(tag)
        if re.fullmatch(r"h[1-6]", tag):
            self.levels.append(int(tag[1]))
        for name, value in attrs:
            if name == "id" and value:
                self.ids.append(value)
            if name in ("aria-labelledby", "aria-describedby") and value:
                self.refs += value.split()

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag, f"</{tag}> closes something else"


def outline(html: str) -> Outline:
    found = Outline()
    found.feed(html)
    return found


@pytest.fixture(scope="module")
def html(simulated: atdm.Fit, cluster: atdm.Cluster) -> str:
    return fit_page(simulated, "twelve zones", cluster=cluster)


def test_headings_step_down_one_at_a_time_and_references_lead_somewhere(html: str) -> None:
    found = outline(html)
    assert not found.open
    assert found.levels[0] == 1 and found.levels.count(1) == 1
    assert all(b - a <= 1 for a, b in pairwise(found.levels))
    assert len(set(found.ids)) == len(found.ids) and set(found.refs) <= set(found.ids)


def test_the_first_sentence_says_what_was_fitted_how_well_and_what_was_learned(html: str, simulated: atdm.Fit) -> None:
    lead = re.sub(r"<[^>]+>", "", re.search(r'<p class="lead">(.*?)</p>', html, re.S)[1])
    assert "12 agents" in lead and "1 January 2024" in lead and simulated.chosen.words() in lead
    last = simulated.horizons["chosen"][-1]
    assert f"{last.rmse:.2f} K after 24 h" in lead and f"“no change” is off by {last.persistence_rmse:.2f} K" in lead
    assert "no other number" in html and "R²" not in lead


def told(fit: atdm.Fit) -> tuple[str, str]:
    """The page without its figures, and what the terminal shows."""
    console = Console(record=True, width=400, file=StringIO())
    console.print(summary(fit, "title"))
    return re.sub(r"<(script|svg|style).*?</\1>", "", fit_page(fit, "title"), flags=re.S), console.export_text()


def test_a_model_that_is_no_better_than_no_change_is_called_so(simulated: atdm.Fit) -> None:
    *near, last = simulated.horizons["chosen"]
    assert "no better than saying" not in "".join(told(simulated))
    poor, fit = replace(last, rmse=last.persistence_rmse + 0.01), replace(simulated)
    fit.worked_out.update(simulated.worked_out, horizons={**simulated.horizons, "chosen": (*near, poor)})
    words = f"after 24 h the model is no better than saying “no change” on the test rows: it is off by {poor.rmse:.2f}"
    assert [text.count(words) for text in told(fit)] == [1, 1]


def with_metrics(fit: atdm.Fit, r2: float) -> atdm.Fit:
    bad = {"rmse": 99.9, "mape": 431.0, "r2": r2}
    return replace(fit, metrics={part: {"one_step": bad, "free_run": bad} for part in ("train", "test")})


@pytest.mark.parametrize(("r2", "text"), [(-1263.4, "−1,263"), (-4.2e21, "−4e+21")])
def test_a_run_that_went_astray_is_given_without_digits_that_tell_nothing(simulated, r2: float, text: str) -> None:
    page, terminal = told(with_metrics(simulated, r2))
    assert f'<td class="num">{text}</td>' in page and f"R² {text}, RMSE" in terminal
    assert "far below 0 that the run went astray" in page and "worse than a constant" in terminal


def test_a_free_run_below_zero_is_given_with_its_number(simulated: atdm.Fit) -> None:
    page, terminal = told(with_metrics(simulated, -0.327))
    assert "−0.3270" in page and "99.9000" in page and "R² below 0 means worse than a constant" in page
    assert "R² −0.3270, RMSE 99.900 K, which is worse than a constant" in terminal


def test_every_candidate_stands_beside_the_standard_error_it_was_judged_by(simulated: atdm.Fit) -> None:
    choice = simulated.choice
    assert choice is not None and choice.scores
    page, _ = told(simulated)
    shown = re.search(r"<h3>Chosen among</h3>.*?</table>", page, re.S)[0]
    assert "above the best [K²]" in shown and "standard error [K²]" in shown
    for _, error in choice.margins():
        assert f'<td class="num">{number(error, 4)}</td>' in shown
    console = Console(record=True, width=400, file=StringIO())
    console.print(choice_table(simulated))
    assert "above the best [K²]  standard error [K²]" in console.export_text()


def test_the_band_of_the_figure_says_how_it_differs_from_the_table_of_bands(sample: atdm.Cluster) -> None:
    html = fit_page(atdm.fit(sample, "plain"), "sample")
    caption = re.search(r'id="prediction".*?<figcaption[^>]*>(.*?)</figcaption>', html, re.S)[1]
    assert "all steps up to 24 h ahead, from one start each 24 h" in caption
    assert "The table of bands above has single horizons, from every hour" in caption
    assert "How often the temperature so long ahead was inside its band, from every hour" in html


def test_a_space_stands_before_every_percent_sign_that_is_read(simulated: atdm.Fit) -> None:
    for text in told(simulated):
        assert not re.findall(r".{20}\d%", re.sub(r'style="[^"]*"', "", text))
    for path in Path(atdm.__file__).parent.rglob("*.py"):  # what no page here shows
        code = path.read_text(encoding="utf-8")
        assert path.name == "chart.py" or not re.findall(r":[.\d]*%\}", code), f"{path}: write a space before %"


def test_a_free_run_that_restarted_often_says_so(simulated: atdm.Fit) -> None:
    inputs, rows = simulated.inputs, len(simulated.inputs)
    gaps = replace(simulated, inputs=replace(inputs, segment=np.arange(rows) // 8))
    assert gaps.restarts > 3
    console = Console(record=True, width=200, file=StringIO())
    console.print(summary(gaps, "title"))
    assert "more than once a week, so that it says little" in console.export_text()
    assert "one run" in restarted(simulated)


def test_every_figure_has_a_caption_and_its_data(html: str) -> None:
    figures = re.findall(r"<figure .*?</figure>", html, re.S)
    assert {re.search(r'id="([^"]+)"', f)[1] for f in figures} == {
        "prediction", "horizon", "step-load", "step-outdoor", "step-solar", "season", "residual", "acf", "weights",
        "zones",
    }  # fmt: skip
    for figure in figures:
        caption = re.search(r"<figcaption[^>]*>(.*?)</figcaption>", figure, re.S)[1]
        assert len(caption) > 40 and "application/json" in figure and 'data-do="csv"' in figure
        assert "nan" not in figure.lower().replace("nance", ""), "a number that does not exist is not drawn"


def test_nothing_is_asked_from_anywhere(html: str) -> None:
    assert "default-src 'none'" in html
    assert not re.search(r"""(?:src|href|url\()\s*=?\s*["']?\s*(?:https?:)?//""", html)
    assert "@import" not in html and "fetch(" not in html and "XMLHttpRequest" not in html


def test_the_page_of_the_bundled_sample_is_below_one_megabyte(sample: atdm.Cluster) -> None:
    assert len(fit_page(atdm.fit(sample, "plain"), "sample", cluster=sample).encode()) < 1e6


@pytest.mark.parametrize("protocol", ["plain", "paper", "moments"])
def test_other_protocols_say_what_they_reveal(protocol: str) -> None:
    small = tiny(5, agents=4, rows=60)
    html = fit_page(atdm.fit(small, protocol, order=1), "four")  # type: ignore[arg-type]
    sentence = "saw every reading of every agent" if protocol == "plain" else "all temperatures up to a rotation"
    assert sentence in html and "no other number" not in html and 'class="grave"' in html


def test_the_diagram_is_drawn_from_the_ledger_alone(deployed: atdm.Fit) -> None:
    assert learned.what(deployed.ledger, "aggregator") == ["load total", "state", "coefficients", "metrics"]
    entry = {"party": "aggregator", "what": "weights", "shape": [12], "times": 1}
    more = replace(deployed, ledger=[*deployed.ledger, entry])
    assert "every agent&#x27;s weight" in learned.diagram(more)
    assert learned.numbers(more.ledger, "aggregator") == learned.numbers(deployed.ledger, "aggregator") + 12


def test_what_agents_of_a_deployment_learned_is_not_called_nothing(deployed: atdm.Fit) -> None:
    """Their ledgers are theirs."""
    own = [row for row in deployed.ledger if row["party"] == "aggregator"]
    html = fit_page(replace(deployed, ledger=own, cost=replace(deployed.cost, seconds_per_agent=None)), "deployed")
    assert "learned about the others nothing" not in html
    assert f"opened {deployed.cost.sums} weighted sums of all agents&#x27; dithered temperatures" in html


def test_what_has_no_entries_was_not_learned(deployed: atdm.Fit) -> None:
    empty = {"party": "aggregator", "what": "weights", "shape": [0], "times": 1}
    assert learned.what([*deployed.ledger, empty], "aggregator") == learned.what(deployed.ledger, "aggregator")


def test_rows_that_do_not_follow_each_other_are_not_drawn_but_the_model_is(deployed: atdm.Fit) -> None:
    scattered = replace(deployed.inputs, segment=np.arange(len(deployed.inputs)))
    html = fit_page(replace(deployed, inputs=scattered), "scattered")
    assert 'id="prediction"' not in html and 'id="step-load"' in html and "too few rows without a gap" in html


def words(html: str) -> str:
    """What a person reads at the top."""
    return re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]+>", "", re.search(r"<header.*?</header>", html, re.S)[0])))


def test_equal_weights_are_named_first_and_show_which_rows_and_the_mean(equal: atdm.Fit, cluster: atdm.Cluster) -> None:
    html = fit_page(equal, "twelve zones", cluster=cluster)
    assert "protocol blind, equal weights" in words(html) and "best possible" not in html
    assert (
        "The aggregator learned which rows everybody gave, the load of the whole cluster and the mean temperature: "
        "no other number from anybody's readings."
    ) in words(html)
    assert "It estimated the model from these itself." in html
    assert "and its weight" not in html and "basis total" not in html and 'id="weights"' not in html
    peers = [row for row in equal.ledger if row["party"] == "agents"]
    assert [row["what"] for row in peers] == ["scalars"] and html.count("which rows everybody gave") >= 3


def test_fitted_weights_are_named_first_with_how_good_they_are(html: str, simulated: atdm.Fit) -> None:
    told = words(html)
    assert "protocol blind, weights fitted by the agents" in told
    assert f"within {percent(simulated.excess)} of the best possible at ridge {simulated.ridge:g}" in told
    assert "and its weight" in html and "weighted sums of all agents" in html


def test_who_stayed_out_is_named_with_what_would_help(simulated: atdm.Fit) -> None:
    out = {"home7": "too few readings on some days", "home8": "no answer", "home9": "fitted weights: not allowed"}
    missing = replace(simulated, out=out, said=("3 agents stayed out: home7 (too few readings on some days), …",))
    told = words(fit_page(missing, "nine homes"))
    assert "12, 3 out" in told and "home7 (too few readings on some days)" in told
    assert "too few readings on some days: complete the readings" in told and "no answer: see that the agent" in told
    console = Console(record=True, width=200, file=StringIO())
    console.print(summary(missing, "nine homes"))
    assert console.export_text(clear=False).splitlines()[1].startswith("protocol blind, weights fitted by the agents: ")
    assert "complete the readings" in console.export_text()


def test_findings_and_names_are_escaped(deployed: atdm.Fit) -> None:
    evil = "<img src=x onerror=alert(1)>"
    html = fit_page(deployed, evil, findings=[{"attack": evil, "adversary": "agent", "recovered": 2, "note": None}])
    assert "<img" not in html and "Attacks mounted" in html
    assert "Attacks mounted" not in fit_page(deployed, "x", findings=[])


def test_compare_shows_each_protocol_with_its_cost_and_what_was_learned() -> None:
    row = {"protocol": "paper", "status": "converged", "r2": 0.8701, "ridge": 100.0, "coefficients_apart": 6.3e-14,
           "weights_apart": float("nan"), "sums": 8, "rounds": 47, "bytes_up_per_agent": 3646921,
           "seconds_per_agent": None, "seconds_aggregator": 0.4, "aggregator_learned": "load total 1440, weights 64",
           "peers_learned": "nothing"}  # fmt: skip
    html = compare_page([row, {"protocol": "blind", "refused": "too few <agents>"}], "Compare")
    found = outline(html)
    assert not found.open and all(b - a <= 1 for a, b in pairwise(found.levels))
    for text in (
        "0.8701",
        "6e−14",
        "3,647",
        "400",
        "–",
        "blind: too few &lt;agents&gt;",
        '"grave">weights 64',
        "<small>every agent&#x27;s weight</small>",
        "load of the whole cluster",
        "ridge λ [K²]",
    ):
        assert text in html


def _colours(css: str, block: str) -> dict[str, str]:
    return dict(re.findall(r"--(\w[\w-]*): (#[0-9a-f]{6})", css[css.index(block) :][:900]))


def _luminance(colour: str) -> float:
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    r, g, b = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels)
    return 0.2126 * r + 0.7152 * g + 0.0722 * b


@pytest.mark.parametrize("scheme", [":root {", "prefers-color-scheme: dark"])
def test_contrast_is_enough_to_read(html: str, scheme: str) -> None:
    """WCAG 2.2: 4.5 for text, 3 for lines."""
    found = _colours(html, scheme)
    least_of = {"ink": 4.5, "soft": 4.5, "accent": 4.5, "grave": 4.5, "s0": 3.0, "s1": 3.0, "s2": 3.0, "s3": 3.0}
    for back in ("paper", "card", "note"):
        for ink, least in least_of.items():
            a, b = sorted((_luminance(found[back]), _luminance(found[ink])))
            assert (b + 0.05) / (a + 0.05) >= least, f"{ink} on {back}"

"""`atdm audit`: one finding for each attack and adversary, on the real build, with the contract's fields."""

import builtins
import io
import json
import subprocess
import sys
from itertools import permutations

import numpy as np
import pytest
from rich.console import Console

import atdm
from atdm.lab.attacks.score import Guess, Truth, includes, recovered
from atdm.lab.audit import audit
from atdm.protocol.rules import Rules
from atdm.report.findings import findings_table
from tests.clusters import tiny

FIELDS = {
    "attack", "protocol", "weights", "adversary", "agents", "recovered", "blank", "rmse_c", "baseline_rmse_c",
    "seconds", "note",
}  # fmt: skip
LOOSE = Rules(least_agents=3, rows_per_parameter=1)
ALONE = ("aggregator", "dishonest aggregator")


@pytest.fixture(scope="module")
def findings():
    pytest.importorskip("fpylll")
    pytest.importorskip("sklearn")
    return audit(tiny(rows=160), "all", rules=LOOSE)


def test_a_finding_has_the_fields_of_the_contract(findings):
    assert all(set(finding.as_dict()) == FIELDS for finding in findings)


def test_there_is_one_finding_for_each_attack_and_adversary(findings):
    keys = [(f.protocol, f.weights, f.attack, f.adversary) for f in findings]
    assert len(keys) == len(set(keys))
    assert {(f.protocol, f.weights) for f in findings} == {
        ("plain", "fitted"), ("paper", "fitted"), ("moments", "fitted"), ("blind", "fitted"), ("blind", "equal"),
    }  # fmt: skip
    for weights in ("fitted", "equal"):
        who = {f.adversary for f in findings if f.protocol == "blind" and f.weights == weights}
        assert {"aggregator", "aggregator+1", "aggregator+2", "aggregator+3", "dishonest aggregator",
                "dishonest aggregator+1"} <= who  # fmt: skip


def test_paper_and_moments_disclose_everybody_to_the_aggregator_alone(findings):
    for protocol in ("paper", "moments"):
        worst = max((f for f in findings if f.protocol == protocol), key=lambda f: f.recovered)
        assert (worst.adversary, worst.recovered) == ("aggregator", 12)
        assert worst.rmse_c < 1e-6


def test_blind_discloses_nobody_to_the_aggregator_alone(findings):
    alone = [f for f in findings if f.protocol == "blind" and f.adversary in ALONE]
    assert len(alone) >= 14
    assert all(f.recovered == 0 and f.rmse_c == f.baseline_rmse_c for f in alone)


def test_equal_weights_disclose_nobody_to_anybody(findings):
    equal = [f for f in findings if f.weights == "equal"]
    assert len(equal) >= 18
    assert all(f.recovered <= f.blank for f in equal)


def test_what_is_not_claimed_is_found_and_said(findings):
    steered = {f.attack: f for f in findings if f.adversary == "dishonest aggregator+1" and f.weights == "fitted"}
    assert steered["steered totals"].recovered >= 1
    assert {f.attack for f in steered.values() if f.recovered} <= {"steered totals", "live feed"}
    assert all("not claimed" in f.note for f in steered.values() if f.recovered)


def test_a_blank_is_what_an_adversary_claims_without_any_sum():
    """Zones in pairs that move alike: an agent that shares its own readings knows its twin's, sums or not."""
    cluster = tiny(rows=160)
    twins = cluster.temperature.copy()
    twins.iloc[:, 1::2] = twins.iloc[:, ::2].to_numpy() + 0.5
    cluster = atdm.Cluster.from_frames(twins, cluster.load, cluster.outdoor, cluster.solar)
    found = {(f.attack, f.adversary): f for f in audit(cluster, "blind", weights="equal", rules=LOOSE)}
    assert found["source separation", "aggregator"].blank == 0
    assert found["source separation", "aggregator+1"].blank == 1
    assert found["source separation", "aggregator+1"].recovered <= 1


def test_a_coalition_recovers_no_fewer_than_fewer_of_its_members(findings):
    """But for those who joined it."""
    pairs = [
        (f, g) for f, g in permutations(findings, 2)
        if (f.attack, f.protocol, f.weights) == (g.attack, g.protocol, g.weights)
        and includes(g.adversary, f.adversary)
    ]  # fmt: skip
    assert {f.attack for f, _ in pairs} >= {
        "source separation", "extension of known days", "pinned rotation", "algebra on totals", "repeated runs",
        "companies that differ",
    }  # fmt: skip
    for alone, together in pairs:
        assert together.recovered >= alone.recovered - int(together.adversary.partition("+")[2] or 0)


@pytest.mark.parametrize("stronger, weaker, expected", [
    ("aggregator+1", "aggregator", True), ("aggregator+3", "aggregator+2", True), ("aggregator", "aggregator+1", False),
    ("dishonest aggregator+1", "aggregator+1", True), ("aggregator+1", "dishonest aggregator", False),
    ("aggregator+1", "agent", False), ("dishonest aggregator", "dishonest aggregator", True),
])  # fmt: skip
def test_which_adversary_can_do_whatever_another_can(stronger, weaker, expected):
    assert includes(stronger, weaker) is expected


def test_a_verdict_on_a_coalition_counts_what_fewer_of_its_members_recover():
    row = {
        "protocol": "blind", "weights": "equal", "blank": 0, "agents": 12, "rmse_c": 1.0, "baseline_rmse_c": 1.0,
        "seconds": 0.0, "note": "",
    }  # fmt: skip
    rows = [
        row | {"attack": "one", "adversary": "aggregator", "recovered": 2},
        row | {"attack": "two", "adversary": "aggregator+1", "recovered": 1},
    ]
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(findings_table(rows, "Audit"))
    assert "blind, equal weights, aggregator+1: 2 of 12 (one)" in console.export_text()


def test_attacks_can_be_asked_for_by_name():
    found = audit(tiny(), "blind", weights="equal", rules=LOOSE, attacks=["late readings", "source separation"])
    assert {f.attack for f in found} == {"late readings", "source separation"}
    with pytest.raises(atdm.UsageError, match="choose of"):
        audit(tiny(), "blind", attacks=["magic"])


def test_claims_about_chosen_agents_stand_or_fall_together():
    """Less than 1 − 0.9² of the square error that the mean of all leaves; colluding agents are not counted."""
    series = np.random.default_rng(0).normal(size=(50, 4))
    truth = Truth(series=series, public=np.ones((50, 1)), agents=4).without([0])
    close, far = (Guess(series=series[:, [1, 3]] + off, about=(1, 3)) for off in (0.1, 1.0))
    mixed = Guess(series=np.column_stack([series[:, 1], np.full(50, 9.0)]), about=(1, 3))
    partly = Guess(series=np.where(np.arange(50)[:, None] < 5, series[:, [1, 3]], np.nan), about=(1, 3))
    assert [recovered(truth, guess) for guess in (close, far, mixed, partly)] == [2, 0, 0, 2]
    assert recovered(truth, Guess(series=series[:, [3, 1]], about=(1, 3))) == 0  # right series, wrong homes


def test_an_audit_with_the_same_seed_finds_the_same():
    def again(seed):
        attacks = ("source separation", "steered totals", "refits", "refusals by name", "chosen plan")
        found = audit(tiny(), "blind", weights="fitted", rules=LOOSE, seed=seed, attacks=attacks)
        return [(f.attack, f.adversary, f.recovered, f.rmse_c, f.note) for f in found]

    assert again(5) == again(5)
    assert again(5) != again(6)


def test_the_table_shows_the_blank_beside_what_was_recovered(findings):
    console = Console(width=200, record=True, file=io.StringIO())
    rows = [f.as_dict() for f in findings if f.protocol == "blind"]
    console.print(findings_table(rows, "Audit"))
    text = console.export_text()
    assert "blank" in text and "blind, equal weights" in text and "blind, fitted weights" in text


def test_rows_that_are_missing_stop_no_attack():
    cluster, keep = tiny(rows=160), np.r_[0:58, 63:160]
    cluster = atdm.Cluster.from_frames(
        cluster.temperature.iloc[keep], cluster.load.iloc[keep], cluster.outdoor.iloc[keep], cluster.solar.iloc[keep]
    )
    found = audit(cluster, "all", rules=LOOSE)
    blind = [f for f in found if f.protocol == "blind"]
    assert all(f.recovered <= f.blank for f in blind if "not claimed" not in f.note)
    notes = {f.attack: f.note for f in blind}
    assert "2 answered, 0 refusals" in notes["refusals by name"] and "1 released" in notes["refits"]


def test_a_cluster_of_four_can_be_audited():
    found = audit(tiny(agents=4), "blind", weights="equal", rules=LOOSE)
    assert {f.attack for f in found} >= OLD["equal"]
    assert all(f.recovered <= f.blank for f in found if f.adversary in ALONE and "not claimed" not in f.note)


def test_one_protocol_can_be_asked_for():
    assert {f.protocol for f in audit(tiny(), "plain")} == {"plain"}
    with pytest.raises(atdm.UsageError, match="choose one of"):
        audit(tiny(), "magic")


@pytest.mark.parametrize("missing", ["sklearn", "fpylll"])
def test_a_missing_extra_is_named_in_one_line(missing, monkeypatch):
    real = builtins.__import__

    def refuse(name, *args, **kwargs):
        if name.split(".")[0] == missing:
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(atdm.UsageError, match=r'pip install "atdm\[audit\]"'):
        audit(tiny(), "moments", rules=LOOSE)


def test_importing_atdm_needs_neither_scikit_learn_nor_fpylll():
    code = "import sys, atdm, atdm.cli; sys.exit(any(m in sys.modules for m in ('sklearn', 'fpylll')))"
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0


@pytest.mark.parametrize("options, attacks", [
    (["--protocol", "plain"], {"reading"}),
    (["--protocol", "blind", "--weights", "equal", "--attack", "late readings", "--attack", "older roster"],
     {"late readings", "older roster"}),
])  # fmt: skip
def test_json_has_one_object_with_findings(tmp_path, options, attacks):
    cluster = tiny()
    zones = cluster.temperature.stack().rename("indoor_temp_c").to_frame()
    zones["load_kw"] = cluster.load.stack()
    zones.reset_index().to_csv(tmp_path / "zones.csv", index=False)
    cluster.weather.reset_index(names="time").to_csv(tmp_path / "weather.csv", index=False)
    words = [sys.executable, "-m", "atdm", "audit", str(tmp_path / "zones.csv"), str(tmp_path / "weather.csv")]
    done = subprocess.run([*words, *options, "--json"], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    findings = json.loads(done.stdout)["findings"]
    assert {f["attack"] for f in findings} == attacks
    assert all(set(f) == FIELDS for f in findings)


@pytest.mark.soak
def test_the_paper_on_its_own_data(refit64):
    found = {(f.attack, f.adversary): f for f in audit(refit64, "paper")}
    assert found["source separation", "aggregator"].recovered >= 22
    assert found["grid of readings", "aggregator"].recovered == 64
    assert found["grid of readings", "aggregator"].rmse_c < 1e-6


OLD = {  # breaks of the first edition, and of drafts of the second
    "fitted": {
        "refits", "long seasons", "fits broken off", "coarse steps", "other clips", "refusals by name",
        "forged scalars", "counts of signs", "lying leader", "numbers in refusals",
    },
    "equal": {
        "companies that differ", "dropped answers", "older roster", "new keys", "in and out", "around midnight",
        "around noon", "late readings", "corrected readings", "same question", "home that left",
    },
}  # fmt: skip


@pytest.mark.parametrize("name", ["sample", pytest.param("refit64", marks=pytest.mark.soak)])
def test_blind_on_clusters_of_64_zones(name, request):
    """Not more holds for fitted weights: with a given-away group secret up to three in a window are found ("steered
    totals")."""
    findings = audit(request.getfixturevalue(name), "blind")
    for weights, names in OLD.items():
        mounted = [f for f in findings if f.weights == weights and f.attack in names]
        assert {f.attack for f in mounted} == names
        assert all(f.recovered == 0 for f in mounted)
    assert all(f.recovered == 0 for f in findings if f.adversary in ALONE)
    assert all(f.recovered <= f.blank for f in findings if f.weights == "equal")
    curious = {f.attack: f for f in findings if f.adversary in ("aggregator+1", "agent") and f.weights == "fitted"}
    assert {"source separation", "lattice on totals", "repeated runs", "chosen plan"} <= set(curious)
    assert all(f.recovered == 0 for f in curious.values())
    assert all(f.recovered <= 3 for f in findings if f.adversary == "dishonest aggregator+1")


@pytest.mark.soak
def test_blind_on_fourteen_rooms_of_one_building(twin_houses):
    """Few agents: fitted weights warn below twenty, and a curious agent separates some; equal weights hold."""
    findings = audit(twin_houses, "blind")
    assert all(f.recovered == 0 for f in findings if f.adversary in ALONE)
    equal = [f for f in findings if f.weights == "equal" and f.adversary.endswith("aggregator+1")]
    assert all(f.recovered <= f.blank for f in equal)

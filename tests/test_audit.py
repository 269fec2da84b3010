"""`atdm audit`: one finding for each attack and adversary, on the real build, with the contract's fields."""

import builtins
import json
import subprocess
import sys

import pytest

import atdm
from atdm.protocol.rules import Rules
from tests.clusters import tiny

FIELDS = {
    "attack", "protocol", "adversary", "agents", "recovered", "rmse_c", "baseline_rmse_c", "seconds", "note",
}  # fmt: skip
LOOSE = Rules(least_agents=3, rows_per_parameter=1)


@pytest.fixture(scope="module")
def findings():
    pytest.importorskip("fpylll")
    pytest.importorskip("sklearn")
    return atdm.audit(tiny(rows=160), "all", rules=LOOSE)


def test_a_finding_has_the_fields_of_the_contract(findings):
    assert all(set(finding.as_dict()) == FIELDS for finding in findings)


def test_there_is_one_finding_for_each_attack_and_adversary(findings):
    keys = [(f.protocol, f.attack, f.adversary) for f in findings]
    assert len(keys) == len(set(keys))
    assert {f.protocol for f in findings} == {"plain", "paper", "moments", "blind"}
    assert {"aggregator", "aggregator+1", "aggregator+2", "aggregator+3", "agent", "dishonest aggregator"} <= {
        f.adversary for f in findings
    }


def test_paper_and_moments_disclose_everybody_to_the_aggregator_alone(findings):
    for protocol in ("paper", "moments"):
        worst = max((f for f in findings if f.protocol == protocol), key=lambda f: f.recovered)
        assert (worst.adversary, worst.recovered) == ("aggregator", 12)
        assert worst.rmse_c < 1e-6


def test_blind_discloses_nobody_to_the_aggregator_alone(findings):
    alone = [f for f in findings if f.protocol == "blind" and f.adversary in ("aggregator", "dishonest aggregator")]
    assert len(alone) >= 8
    assert all(f.recovered == 0 and f.rmse_c == f.baseline_rmse_c for f in alone)


def test_one_protocol_can_be_asked_for():
    assert {f.protocol for f in atdm.audit(tiny(), "plain")} == {"plain"}
    with pytest.raises(atdm.UsageError, match="choose one of"):
        atdm.audit(tiny(), "magic")


@pytest.mark.parametrize("missing", ["sklearn", "fpylll"])
def test_a_missing_extra_is_named_in_one_line(missing, monkeypatch):
    real = builtins.__import__

    def refuse(name, *args, **kwargs):
        if name.split(".")[0] == missing:
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(atdm.UsageError, match=r'pip install "atdm\[audit\]"'):
        atdm.audit(tiny(), "moments", rules=LOOSE)


def test_importing_atdm_needs_neither_scikit_learn_nor_fpylll():
    code = "import sys, atdm, atdm.cli; sys.exit(any(m in sys.modules for m in ('sklearn', 'fpylll', 'matplotlib')))"
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0


def test_json_has_one_object_with_findings(tmp_path):
    cluster = tiny()
    zones = cluster.temperature.stack().rename("indoor_temp_c").to_frame()
    zones["load_kw"] = cluster.load.stack()
    zones.reset_index().to_csv(tmp_path / "zones.csv", index=False)
    cluster.weather.reset_index(names="time").to_csv(tmp_path / "weather.csv", index=False)
    code = f"import sys; from atdm.cli import main; sys.argv = ['atdm', 'audit', {str(tmp_path / 'zones.csv')!r}, "
    code += f"{str(tmp_path / 'weather.csv')!r}, '--protocol', 'plain', '--json']; main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert set(json.loads(done.stdout)["findings"][0]) == FIELDS


@pytest.mark.soak
def test_the_paper_on_its_own_data(refit64):
    found = {(f.attack, f.adversary): f for f in atdm.audit(refit64, "paper")}
    assert found["source separation", "aggregator"].recovered >= 22
    assert found["grid of readings", "aggregator"].recovered == 64
    assert found["grid of readings", "aggregator"].rmse_c < 1e-6


@pytest.mark.soak
@pytest.mark.parametrize("name", ["refit64", "sample", "twin_houses"])
def test_blind_on_real_clusters(name, request):
    findings = atdm.audit(request.getfixturevalue(name), "blind")
    alone = [f for f in findings if f.adversary in ("aggregator", "dishonest aggregator")]
    assert all(f.recovered == 0 for f in alone)
    one = [f for f in findings if f.adversary in ("aggregator+1", "agent")]
    assert all(f.recovered == 0 for f in one if f.attack == "lattice on totals")
    if name == "refit64":
        assert max(f.recovered for f in one) <= 3

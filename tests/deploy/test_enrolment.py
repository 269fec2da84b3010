"""Enrolment: keys stay private and in place, everybody is who they say, rosters are numbered and only go up."""

import json
import os
import re
import shutil
import stat
import time
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from atdm.cli import app
from atdm.crypto.keys import read_key_file
from atdm.deploy import enrolment
from atdm.deploy.enrolment import (
    create_agent,
    create_aggregator,
    create_authority,
    create_roster,
    folder_name,
    read_agent,
    read_authority,
    read_roster,
    read_signed_weather,
    replace_key,
    retire_key,
    sign_weather,
    today,
)  # fmt: skip
from atdm.deploy.own import weather_from
from atdm.errors import DataError, PeerError, UsageError
from atdm.model.fitted import Model
from atdm.transport.disk import Disk

HOSTS = ["127.0.0.1"]


@pytest.fixture
def folder(tmp_path):
    create_authority(tmp_path / "authority", os.urandom)
    return tmp_path / "authority"


def enrol(folder, count, first=0):
    for i in range(first, first + count):
        create_agent(folder, f"home {i}", os.urandom)


def test_private_files_are_for_their_owner_only(folder):
    create_agent(folder, "home 1", os.urandom)
    create_aggregator(folder.parent / "elsewhere", os.urandom, authority=folder / "authority.json")
    keys = [p for p in folder.parent.glob("**/*.key")]
    assert len(keys) == 2 + 3 + 2
    assert {stat.S_IMODE(path.stat().st_mode) for path in keys} == {0o600}


@pytest.mark.skipif(os.name != "posix", reason="file modes")
@pytest.mark.parametrize("key", ["identity.key", "dither.key", "nats.key"])
def test_a_key_that_others_may_read_is_refused(folder, key):
    create_agent(folder, "a", os.urandom)
    (folder / "a" / key).chmod(0o644)
    with pytest.raises(UsageError, match="can be read by others"):
        read_agent(folder / "a")


def test_keys_are_never_replaced(folder):
    create_agent(folder, "a", os.urandom)
    before = (folder / "a" / "identity.key").read_bytes()
    with pytest.raises(UsageError, match="never replaced"):
        create_agent(folder, "a", os.urandom)
    with pytest.raises(UsageError, match="never overwritten"):
        create_authority(folder, os.urandom)
    assert (folder / "a" / "identity.key").read_bytes() == before


def test_authority_and_aggregator_are_two_parties(folder, tmp_path):
    with pytest.raises(UsageError, match="must be somebody else"):
        create_aggregator(folder, os.urandom)
    other = tmp_path / "other"
    create_aggregator(other, os.urandom, authority=folder / "authority.json")
    with pytest.raises(UsageError, match="must be somebody else"):
        create_authority(other, os.urandom)
    create_aggregator(folder, os.urandom, rehearsal=True)


def test_an_agent_pins_its_authority(tmp_path):
    with pytest.raises(DataError, match="get authority.json from the enrolment authority"):
        create_agent(tmp_path, "a", os.urandom)


@pytest.mark.parametrize("name", ["building01/zone01", "../../etc", ".", "..", "Zürich 1.OG", "a" * 100])
def test_any_name_becomes_one_folder(folder, name):
    create_agent(folder, name, os.urandom)
    assert (folder / folder_name(name)).parent == folder
    assert read_agent(folder / folder_name(name)).name == name
    assert (folder / folder_name(name)).resolve().parent == folder.resolve()


@pytest.mark.parametrize("name", ["", "a\nb", "a" * 101])
def test_names_that_break_lines_are_refused(folder, name):
    with pytest.raises(UsageError, match="printable"):
        create_agent(folder, name, os.urandom)


def test_a_roster_holds_those_who_enrolled_and_is_read_back(folder, tmp_path):
    enrol(folder, 3)
    roster, nats = create_roster(folder, tmp_path / "roster.json", HOSTS)
    assert nats is None  # no aggregator yet
    assert sorted(m.name for m in roster.members) == ["home 0", "home 1", "home 2"]
    assert read_roster(tmp_path / "roster.json", read_authority(folder / "authority.json").authority) == roster
    create_aggregator(folder, os.urandom, rehearsal=True)
    _, nats = create_roster(folder, tmp_path / "roster.json", HOSTS)
    assert nats is not None and (nats / "server.conf").read_text().count("nkey:") == 4


@pytest.mark.parametrize("field", ["name", "owner", "identity", "nkey"])
def test_an_altered_enrolment_is_refused(folder, tmp_path, field):
    enrol(folder, 3)
    path = folder / "home 1" / "enrolment.json"
    document = json.loads(path.read_text())
    document[field] = json.loads((folder / "home 2" / "enrolment.json").read_text())[field]
    path.write_text(json.dumps(document))
    with pytest.raises(PeerError, match="not signed by the identity it names"):
        create_roster(folder, tmp_path / "roster.json", HOSTS)
    assert not (tmp_path / "roster.json").exists()


def one_line(caught) -> str:
    text = str(caught.value)
    assert text and "\n" not in text
    return text


@pytest.mark.parametrize("shared", ["name", "key"])
def test_who_is_enrolled_already_is_refused_in_one_line_and_the_roster_stays(folder, tmp_path, shared):
    """The same name with another key, or another name signed with a key that is there: one home would count twice."""
    enrol(folder, 2)
    create_roster(folder, tmp_path / "roster.json", HOSTS)
    before = (tmp_path / "roster.json").read_bytes(), (folder / "enrolled.json").read_bytes()
    if shared == "name":
        create_agent(folder / "sub", "home 1", os.urandom, authority=folder / "authority.json")
    else:
        keys = [read_key_file(folder / "home 1" / f"{name}.key") for name in ("nats", "identity")]
        create_agent(folder / "sub", "home 7", lambda size: keys.pop(0) if keys else os.urandom(size),
                     authority=folder / "authority.json")  # fmt: skip
    with pytest.raises(UsageError, match=f"enrolled with the same {shared}: keep one of the two files") as caught:
        create_roster(folder, tmp_path / "roster.json", HOSTS)
    assert "home 1" in one_line(caught)
    assert ((tmp_path / "roster.json").read_bytes(), (folder / "enrolled.json").read_bytes()) == before


def test_rosters_are_numbered_upwards_whatever_becomes_of_earlier_ones(folder, tmp_path):
    enrol(folder, 3)
    path, serials = tmp_path / "roster.json", []
    serials.append(create_roster(folder, path, HOSTS)[0].serial)
    serials.append(create_roster(folder, path, HOSTS)[0].serial)  # nobody came or went
    path.unlink()
    enrol(folder, 1, first=3)
    serials.append(create_roster(folder, path, HOSTS)[0].serial)
    shutil.rmtree(folder / "home 0")
    serials.append(create_roster(folder, tmp_path / "elsewhere.json", HOSTS)[0].serial)
    assert serials == [1, 2, 3, 4]
    (folder / "home 1" / "enrolment.json").write_text("{}")  # a roster that is not written costs no number
    with pytest.raises(DataError):
        create_roster(folder, path, HOSTS)
    shutil.rmtree(folder / "home 1")
    assert create_roster(folder, path, HOSTS)[0].serial == 5


def test_a_damaged_record_of_rosters_is_not_begun_anew(folder, tmp_path):
    """Agents refuse a lower number, and would give days that are on another key's account."""
    enrol(folder, 3)
    create_roster(folder, tmp_path / "roster.json", HOSTS)
    (folder / "enrolled.json").write_text("{")
    with pytest.raises(DataError, match="enrolled.json: is not the authority's record of rosters") as caught:
        create_roster(folder, tmp_path / "roster.json", HOSTS)
    one_line(caught)


def test_a_key_enrolled_later_gives_no_day_before_and_keeps_its_first_day(folder, tmp_path):
    def since(today: int | None) -> dict[str, int]:
        return {m.name: m.since for m in create_roster(folder, tmp_path / "roster.json", HOSTS, today)[0].members}

    enrol(folder, 2)
    assert since(20000) == {"home 0": 0, "home 1": 0}  # nobody has given anything yet
    enrol(folder, 1, first=2)
    assert since(20010) == {"home 0": 0, "home 1": 0, "home 2": 20010}
    file = folder / "home 2" / "enrolment.json"
    content = file.read_bytes()
    file.unlink()
    shutil.rmtree(folder / "home 1")
    enrol(folder, 1, first=1)
    replace_key(folder, "home 1")  # the same home with a new key
    assert since(20020) == {"home 0": 0, "home 1": today() + 1}
    file.write_bytes(content)
    assert since(20030) == {"home 0": 0, "home 1": today() + 1, "home 2": 20010}
    shutil.rmtree(folder / "home 0")
    enrol(folder, 1)
    replace_key(folder, "home 0")
    before = time.time() // 86400
    assert before + 1 <= since(None)["home 0"] <= time.time() // 86400 + 1  # tomorrow by the clock


def sent(folder: Path, name: str, key: str) -> Path:
    """An enrolment made elsewhere, as its owner sends it to the authority."""
    made = create_agent(folder.parent / key, name, os.urandom, owner="Ann", authority=folder / "authority.json")
    return Path(shutil.copy(made, folder / f"{key}.enrolment.json"))


def test_a_home_with_a_new_key_is_another_member_and_the_old_key_never_enrols_again(folder, tmp_path):
    enrol(folder, 2)
    first = sent(folder, "home 7", "first")
    old, _ = create_roster(folder, tmp_path / "roster.json", HOSTS)
    second = sent(folder, "home 7", "second")
    with pytest.raises(UsageError, match="enrolled with the same name.*`atdm enroll replace`") as caught:
        create_roster(folder, tmp_path / "roster.json", HOSTS)
    one_line(caught)
    kept = first.read_bytes()
    assert replace_key(folder, "home 7").owner == "Ann" and not first.exists()
    new, _ = create_roster(folder, tmp_path / "roster.json", HOSTS)
    before, after = ({m.name: m for m in roster.members}["home 7"] for roster in (old, new))
    assert new.serial == 2 and before.identity != after.identity and before.owner == after.owner == "Ann"
    assert before.since == 0 and after.since == today() + 1 and len(new) == len(old) == 3
    first.write_bytes(kept)
    with pytest.raises(UsageError, match=f"home 7: this key was retired on {date(today())} and never enrols again"):
        create_roster(folder, tmp_path / "roster.json", HOSTS)
    second.unlink()  # nor alone, nor where its file is all there is
    with pytest.raises(UsageError, match="never enrols again") as caught:
        create_roster(folder, tmp_path / "roster.json", HOSTS)
    one_line(caught)


def test_a_key_is_replaced_for_the_same_owner_by_one_new_key(folder, tmp_path):
    enrol(folder, 2)
    create_roster(folder, tmp_path / "roster.json", HOSTS)
    record = (folder / "enrolled.json").read_bytes()
    for name, says in (("home 9", "is in no roster"), ("home 1", "0 enrolment files with a new key")):
        with pytest.raises(UsageError, match=says) as caught:
            replace_key(folder, name)
        one_line(caught)
    sent(folder, "home 1", "other")  # of the owner Ann; that of home 1 is home 1
    with pytest.raises(UsageError, match="names the owner 'Ann', the old one 'home 1'"):
        replace_key(folder, "home 1")
    assert (folder / "enrolled.json").read_bytes() == record and (folder / "home 1" / "enrolment.json").exists()


def test_a_retired_key_is_in_no_later_roster_and_its_name_is_free(folder, tmp_path):
    enrol(folder, 3)
    create_roster(folder, tmp_path / "roster.json", HOSTS)
    retire_key(folder, "home 2")
    roster, _ = create_roster(folder, tmp_path / "roster.json", HOSTS)
    assert {m.name for m in roster.members} == {"home 0", "home 1"}
    with pytest.raises(UsageError, match="home 2: is in no roster"):
        retire_key(folder, "home 2")
    sent(folder, "home 2", "moved in")
    roster, _ = create_roster(folder, tmp_path / "roster.json", HOSTS)
    assert {m.name: m.since for m in roster.members}["home 2"] == today() + 1


@pytest.mark.parametrize("gone", [True, False])
def test_a_new_key_under_a_name_in_use_and_a_key_under_another_name_are_refused(folder, tmp_path, gone):
    enrol(folder, 3)
    create_roster(folder, tmp_path / "roster.json", HOSTS)
    keys = [read_key_file(folder / "home 1" / f"{name}.key") for name in ("nats", "identity")]
    shutil.rmtree(folder / "home 1")
    if gone:
        create_agent(folder, "home 1", os.urandom)
    else:
        create_agent(folder, "home 5", lambda size: keys.pop(0) if keys else os.urandom(size))
    says = "home 1: is enrolled with another key" if gone else "home 5: its key was enrolled before as 'home 1'"
    with pytest.raises(UsageError, match=says) as caught:
        create_roster(folder, tmp_path / "roster.json", HOSTS)
    one_line(caught)


def test_one_command_at_a_time_changes_the_authoritys_record(folder, tmp_path, monkeypatch):
    """Otherwise a retirement is undone, and two rosters have one number."""
    enrol(folder, 4)
    create_aggregator(folder, os.urandom, rehearsal=True)
    create_roster(folder, tmp_path / "roster.json", HOSTS)
    refused, make = [], enrolment.make_server_certificate

    def meanwhile(*given):
        for other in (
            lambda: retire_key(folder, "home 3"),
            lambda: replace_key(folder, "home 3"),
            lambda: create_roster(folder, tmp_path / "other.json", HOSTS),
        ):
            with pytest.raises(UsageError, match="in use by another process: wait for it") as caught:
                other()
            refused.append(one_line(caught))
        return make(*given)

    monkeypatch.setattr(enrolment, "make_server_certificate", meanwhile)
    roster, _ = create_roster(folder, tmp_path / "roster.json", HOSTS)
    monkeypatch.undo()
    assert len(refused) == 3 and roster.serial == 2 and not (tmp_path / "other.json").exists()
    retire_key(folder, "home 3")
    assert len(create_roster(folder, tmp_path / "roster.json", HOSTS)[0]) == 3


def test_the_authoritys_record_is_whole_and_on_disk_before_it_replaces_the_old_one(folder, tmp_path, monkeypatch):
    enrol(folder, 4)
    create_roster(folder, tmp_path / "roster.json", HOSTS)
    before = (folder / "enrolled.json").read_bytes()
    monkeypatch.setattr(os, "fsync", Mock(side_effect=OSError(28, "No space left on device")))
    for change in (lambda: retire_key(folder, "home 3"), lambda: create_roster(folder, tmp_path / "new.json", HOSTS)):
        with pytest.raises(DataError, match="enrolled.json, the old file is unchanged: No space left"):
            change()
    assert (folder / "enrolled.json").read_bytes() == before and not (tmp_path / "new.json").exists()
    assert (folder / "home 3" / "enrolment.json").exists()


def test_numbers_do_not_begin_anew_where_the_record_is_lost(folder, tmp_path):
    enrol(folder, 3)
    roster = tmp_path / "roster.json"
    create_roster(folder, roster, HOSTS)
    (folder / "enrolled.json").unlink()
    with pytest.raises(DataError, match="enrolled.json is missing: restore the record") as caught:
        create_roster(folder, tmp_path / "elsewhere.json", HOSTS)
    one_line(caught)


def test_a_missing_roster_is_a_file_that_cannot_be_used(tmp_path):
    with pytest.raises(DataError, match="roster.json: cannot be read .*: give a roster.json") as caught:
        read_roster(tmp_path / "roster.json", b"")
    one_line(caught)


def test_a_key_that_replaces_another_gives_no_day_that_the_other_may_have_given(folder, tmp_path):
    """Also where --since is meant for a newcomer with history."""
    enrol(folder, 3)
    create_roster(folder, tmp_path / "roster.json", HOSTS)
    shutil.rmtree(folder / "home 1")
    enrol(folder, 1, first=1)
    replace_key(folder, "home 1")
    enrol(folder, 1, first=7)
    roster, _ = create_roster(folder, tmp_path / "roster.json", HOSTS, since=100)
    since = {member.name: member.since for member in roster.members}
    assert since["home 1"] == today() + 1 and since["home 7"] == 100


@pytest.mark.parametrize("name", ["9" * 4301, "two\nlines", "turned \u202e round", ""])
def test_a_name_that_a_home_wrote_by_hand_is_checked_by_the_authority_too(folder, tmp_path, name, monkeypatch):
    enrol(folder, 2)
    with monkeypatch.context() as lying:
        lying.setattr("atdm.deploy.enrolment._is_name", lambda text: True)
        lying.setattr("atdm.deploy.enrolment.folder_name", lambda text: "odd")
        create_agent(folder, name, os.urandom)
    with pytest.raises(PeerError, match="printable characters") as caught:
        create_roster(folder, tmp_path / "roster.json", HOSTS)
    one_line(caught)


def test_status_says_who_is_enrolled_since_when_and_what_became_of_the_others(folder, tmp_path):
    enrol(folder, 4)
    create_roster(folder, tmp_path / "roster.json", HOSTS)
    retire_key(folder, "home 3")
    shutil.rmtree(folder / "home 1")
    enrol(folder, 1, first=1)
    replace_key(folder, "home 1")
    create_roster(folder, tmp_path / "roster.json", HOSTS)
    (folder / "home 0" / "enrolment.json").rename(tmp_path / "away")
    enrol(folder, 1, first=8)
    run = CliRunner().invoke(app, ["enroll", "status", str(folder), "--json"])
    found = json.loads(run.stdout)
    now, keys = date(today()), {row["key"]: row["name"] for row in found["keys"]}
    rows = {(row["name"], row["state"]): (row["since"], row["gone"], row["replaced_by"], row["replaces"])
            for row in found["keys"]}  # fmt: skip
    (old,) = [row["key"] for row in found["keys"] if row["state"] == "replaced"]
    (new,) = [row["key"] for row in found["keys"] if row["replaces"] == old]
    assert found["roster"] == 2 and len(keys) == 6
    assert rows == {
        ("home 0", "left out: its file is gone"): (None, None, None, None),
        ("home 1", "replaced"): (None, now, new, None),
        ("home 1", "enrolled"): (date(today() + 1), None, None, old),
        ("home 2", "enrolled"): (None, None, None, None),
        ("home 3", "retired"): (None, now, None, None),
        ("home 8", "waits for a roster"): (None, None, None, None),
    }
    text = CliRunner().invoke(app, ["enroll", "status", str(folder)]).stdout
    assert f"replaced by {new[:8]} on {now}" in text and f"retired on {now}" in text
    assert f"enrolled in place of {old[:8]}" in text and "roster 2: 2 agents enrolled" in text


def date(day: int) -> str:
    return str(pd.Timestamp(day * 86400, unit="s").date())


def test_files_of_the_first_edition_are_refused_with_what_to_do(folder, tmp_path):
    """Roster, state and model: none of them can be carried over."""
    enrol(folder, 3)
    path = tmp_path / "roster.json"
    create_roster(folder, path, HOSTS)
    document = json.loads(path.read_text())
    del document["serial"]
    document["members"] = [{**member, "cohort": 0} for member in document["members"]]
    path.write_text(json.dumps(document))
    with pytest.raises(DataError, match="of the first edition: write it anew") as roster:
        read_roster(path, read_authority(folder / "authority.json").authority)

    journal = tmp_path / "journal"
    journal.write_bytes(b"atdm-journal-1\n" + bytes(80))
    with pytest.raises(DataError, match="of the first edition cannot be carried over, enrol the agent anew") as state:
        Disk(journal).read()

    model = tmp_path / "model.json"
    model.write_text(json.dumps({"schema": "atdm-model/1", "alpha": [0.9]}))
    with pytest.raises(DataError, match="atdm-model/1.*refit the model") as saved:
        Model.load(model)
    for caught, file in ((roster, path), (state, journal), (saved, model)):
        assert str(file) in one_line(caught)


@pytest.mark.parametrize("content", [
    b"", b"{}", b"[1, 2]", b"\xff\xfe", b'{"serial": 1, "members": [], "authority": "", "signature": "", "x": 1}',
])  # fmt: skip
def test_files_that_are_something_else_are_refused_in_one_line(folder, tmp_path, content):
    (tmp_path / "roster.json").write_bytes(content)
    with pytest.raises((DataError, PeerError)) as caught:
        read_roster(tmp_path / "roster.json", bytes(32))
    assert "\n" not in str(caught.value)


def test_the_authority_signs_rows_of_weather(folder, tmp_path):
    time = pd.date_range("2024-01-01", periods=4, freq="1h", tz="UTC")
    pd.DataFrame({"time": time, "outdoor_temp_c": [1.0, 2.5, -3.0, 0.1], "solar_w_m2": 250.0}).to_parquet(
        tmp_path / "a.parquet"
    )
    weather = weather_from(tmp_path / "a.parquet")
    path = sign_weather(folder, weather, tmp_path / "weather.json")
    authority = read_authority(folder / "authority.json").authority
    read = read_signed_weather(path, authority).rows(authority)
    for name in ("time", "outdoor", "solar"):
        np.testing.assert_array_equal(getattr(read, name), getattr(weather, name))
    with pytest.raises(PeerError, match="does not verify"):
        read_signed_weather(path, bytes(31) + b"\1")
    document = json.loads(path.read_text())
    document["outdoor"] = document["solar"]
    path.write_text(json.dumps(document))
    with pytest.raises(PeerError, match="weather.json: .*does not verify"):
        read_signed_weather(path, authority)


def test_a_home_and_the_authority_see_the_same_digits_of_its_key_before_it_is_signed(folder, tmp_path):
    said = {}
    for name in ("home-10", "home-2"):
        run = CliRunner().invoke(app, ["enroll", "agent", str(tmp_path / "keys"), "--name", name, "--authority",
                                       str(folder / "authority.json")])  # fmt: skip
        said[name] = re.search(r"begins with ([0-9a-f]{8} [0-9a-f]{8}):", run.stdout).group(1)
        made = tmp_path / "keys" / name / "enrolment.json"
        (folder / f"{name}-enrolment.json").write_bytes(made.read_bytes())
    lines = CliRunner().invoke(app, ["enroll", "status", str(folder)]).stdout.splitlines()
    shown = [line for line in lines if "home-" in line]
    assert [line.split()[0] for line in shown] == ["home-2", "home-10"]  # as people count
    assert all(said[line.split()[0]] in line and "waits for a roster" in line for line in shown)


def test_who_signs_is_told_under_which_names_the_server_is_reached_and_how_to_sign_again(folder, tmp_path):
    """Without --host the server's certificate is for this machine alone: homes elsewhere would refuse it."""
    enrol(folder, 10)
    create_aggregator(tmp_path / "office", os.urandom, authority=folder / "authority.json")
    shutil.copy(tmp_path / "office" / "aggregator" / "enrolment.json", folder / "aggregator-enrolment.json")
    sign = ["enroll", "roster", str(folder), "-o", str(tmp_path / "public" / "roster.json")]
    assert "reached as 127.0.0.1, localhost (--host)" in CliRunner().invoke(app, sign).stdout
    assert (
        "reached as nats.example.org (--host)" in CliRunner().invoke(app, [*sign, "--host", "nats.example.org"]).stdout
    )
    retired = CliRunner().invoke(app, ["enroll", "retire", str(folder), "--name", "home 3"]).stdout
    assert f"atdm enroll roster {folder}, with -o and --host as before" in retired

"""vectors/*.json: reproduced by the package and by the second implementation; each bad_* fails at its named step."""

import json
import random
from types import SimpleNamespace

import msgspec
import numpy as np
import pytest

from atdm import errors
from atdm.crypto import graph, keys, prg, ring
from atdm.crypto.sums import Block, Layout, sum_nonce
from atdm.data.readings import Readings, Weather
from atdm.options import fit_options
from atdm.protocol import session
from atdm.protocol.blind import layouts, release
from atdm.protocol.blind.layouts import number_count
from atdm.protocol.blind.script import Ask, BlindPart
from atdm.protocol.blind.veil import Veil, next_context
from atdm.protocol.company import Verdict, bits, flags
from atdm.protocol.ledger import Notebook
from atdm.protocol.messages import Announce, Keys, Ready, Total
from atdm.protocol.part import Host
from atdm.protocol.plan import VERSION, Collect, Plan
from atdm.protocol.readings import weather_hash
from atdm.protocol.roster import Member, Roster
from atdm.protocol.rules import Rules
from atdm.protocol.store import Memory
from atdm.run import enrol, make_plan, simulate
from tests.clusters import tiny

from . import make_vectors, second

CASES = [case for name in make_vectors.FILES for case in json.loads((make_vectors.VECTORS / name).read_text())]
GOOD = [case for case in CASES if "output" in case]
BAD = [case for case in CASES if "fails_at" in case]

# What the message of the package must mention when it refuses at a step.
SAYS = {
    "finite": "not a finite number",
    "range": "outside ±|its range",
    "bound": "bound",
    "budget": "does not fit|can exceed",
    "even": "even number",
    "half": r"above 2\^32",
    "check": "check words",
    "length": "bytes for 5 words",
    "peer key": "malformed or of low order",
    "own key": r"is \d+ bytes",
    "ids": "same identity",
    "digests": "digest",
    "secret": "empty secret",
    "box": "does not open",
    "tag": "tag does not verify",
    "signature": "signature by key",
    "nonce": "nonce is|used before",
    "sign": "mask sign",
    "degree": "degree",
    "index": "agent 12 of 12",
    "flags": "flags",
    "key length": "wrong length",
    "number": "another number of agents",
    "distinct": "same key or nonce",
    "days": "not in on all days",
    "seal": "the leader's numbers",
    "half a word": "half a word",
}


def read_field(item):
    ((kind, value),) = item.items()
    return {"bytes": bytes.fromhex, "float": float.fromhex}.get(kind, lambda found: found)(value)


def read(inputs):
    """Inputs as Python values: hex to bytes, floats and integer words."""
    readers = {
        "values": lambda v: [read({"values": r})["values"] if isinstance(r, list) else float.fromhex(r) for r in v],
        "bound": float.fromhex,
        "words": lambda v: [int(w, 16) for w in v],
        "checks": lambda v: [int(w, 16) for w in v],
        "keys": lambda v: [[int(w, 16) for w in row] for row in v],
        "fields": lambda v: [read_field(item) for item in v],
        "associated": lambda v: [read_field(item) for item in v],
        "nonce_fields": lambda v: [read_field(item) for item in v],
        "version": read_field,
        "ids": lambda v: tuple(bytes.fromhex(item) for item in v),
        "seeds": lambda v: [bytes.fromhex(item) for item in v],
        "used": lambda v: [bytes.fromhex(item) for item in v],
        "signed_keys": lambda v: [(sign, bytes.fromhex(key)) for sign, key in v],
        "purpose": str,
        "phase": str,
        "plan": lambda v: {name: read_field(item) for name, item in v},
        "members": lambda v: [(name, owner, bytes.fromhex(identity), since) for name, owner, identity, since in v],
        "flags": list,
        "time": list,
        "kept": list,
        "outdoor": lambda v: [float.fromhex(x) for x in v],
        "solar": lambda v: [float.fromhex(x) for x in v],
        "answer": lambda v: tuple(bytes.fromhex(part) for part in v),
        "answers": lambda v: [tuple(bytes.fromhex(part) for part in each) for each in v],
        "blocks": lambda v: [(name, size, places, float.fromhex(bound)) for name, size, places, bound in v],
        "totals": lambda v: [bytes.fromhex(t) if isinstance(t, str) else (t[0], [int(w, 16) for w in t[1]], t[2])
                             for t in v],
    }  # fmt: skip
    plain = {name: value for name, value in inputs.items() if isinstance(value, int)}
    hexed = {name: readers.get(name, bytes.fromhex)(value) for name, value in inputs.items() if name not in plain}
    return {**plain, **hexed}


def array(values):
    return np.array(values, dtype=np.uint64)


def show_words(values):
    return [f"{int(value):016x}" for value in values]


def show_floats(values):
    return [float(value).hex() for value in values]


def our_mask(words, signed_keys, nonce, used=()):
    masks = prg.MaskSet(signed_keys)
    for spent in used:
        masks.apply(np.zeros(1, dtype=np.uint64), spent)
    masked = array(words)
    masks.apply(masked, nonce)
    return masked


def our_masked_sum(seeds, version, run_id, roster, config, nonce_fields, values, bits, bound):
    exchange = [keys.ExchangeKey(seed) for seed in seeds]
    nonce = prg.nonce(run_id, *nonce_fields)
    total = np.zeros(len(values[0]), dtype=np.uint64)
    messages = []
    for own, row in zip(exchange, values, strict=True):
        masks = prg.MaskSet(
            (
                prg.pair_sign(own.public, peer.public),
                own.shared(
                    peer.public,
                    version=version,
                    run_id=run_id,
                    ids=(own.public, peer.public),
                    roster=roster,
                    config=config,
                ),
            )
            for peer in exchange
            if peer is not own
        )
        words = ring.encode(np.array(row), bits, bound)
        masks.apply(words, nonce)
        messages.append(ring.to_bytes(words).hex())
        ring.add_into(total, words)
    return {"messages": messages, "total": show_words(total), "sum": show_floats(ring.decode(total, bits))}


# A run: the package's own code, on as little around it as it needs


def our_plan(plan):
    return {"fit": Plan, "collect": Collect}[plan["type"]](**{n: v for n, v in plan.items() if n != "type"})


def our_roster(serial, members, authority):
    return Roster(serial=serial, members=tuple(Member(*m) for m in members), authority=authority, signature=b"")


def our_announce(plan, roster, attempt):
    return Announce(plan=our_plan(plan), roster=roster, attempt=attempt)


def our_ready(identity, plan, roster, attempt, seed, days):
    announce = our_announce(plan, roster, attempt)
    verdict = Verdict(flags(days, 10), "")
    ready, _ = session.make_ready(keys.SigningKey(identity), announce, seed, verdict)
    return [part.hex() for part in (ready.days, ready.nonce, ready.exchange, ready.signature)]


def our_check_ready(public, plan, roster, attempt, answer):
    days, nonce, exchange, signature = answer
    ready = Ready(days=days, reason="", nonce=nonce, exchange=exchange, signature=signature)
    session.check_ready(Member("zone", "home", public), our_announce(plan, roster, attempt), ready)


def our_agree(serial, members, authority, plan, attempt, company, days, answers):
    roster = our_roster(serial, members, authority)
    parts = [b"".join(answer[k] for answer in answers) for k in range(4)]
    found = session.begin_run(our_announce(plan, roster.hash(), attempt), roster, Keys(company, days, *parts))
    return {"run": found.id.hex(), "company_hash": found.company_hash.hex(), "days": list(found.days)}


def our_layout(blocks):
    return Layout(tuple(Block(*block) for block in blocks))


def our_contexts(run, totals):
    veil = Veil(SimpleNamespace(run=SimpleNamespace(id=run, company_hash=b"")), b"g" * 32, Host())
    found = [veil.context]
    for total in totals:
        found.append(next_context(found[-1], total))
    return [context.hex() for context in found]


def a_part(plan, **values):
    """An agent's script, without the run it would be in."""
    part = object.__new__(BlindPart)
    part.plan, part.step, part._first = our_plan(plan), 0, []
    part.own = SimpleNamespace(
        notebook=Notebook("agents"), rules=Rules(rows_per_parameter=1, least_days=0), memory=Memory(), host=Host()
    )
    for name, value in values.items():
        setattr(part, name, value)
    return part


def our_questions(company, plan, kept, totals):
    """As the account has them: booked for the first total, and for what follows each total."""
    stamps = np.array(kept, dtype=np.int64)
    veil = SimpleNamespace(context=b"here", unwrap=lambda data: ({"load": np.zeros(1)}, data))
    part = a_part(plan, session=SimpleNamespace(run=SimpleNamespace(company=company, owners=30)), _veil=veil)
    part._settle(stamps, Readings(stamps, np.zeros(len(kept)), np.zeros(len(kept))), np.zeros(len(kept)))

    def ask(phase):
        part.asked = Ask(phase)
        part._book(phase, "signs" if phase == "signs" else "total")
        return part.asked

    ask("open")
    for step, (_, words, following) in enumerate(totals):
        part._script = SimpleNamespace(send=lambda _, following=following: ask(following))
        part.receive(Total(run=b"", step=step, words=ring.to_bytes(array(words))))
    return [question.hex() for question in part.own.memory.account.questions]


def our_unsealed(group, run, context, question, leader, plan, box, size):
    members = (Member("zone", "home", leader),)
    part = a_part(plan, _group=group, question=question, _veil=SimpleNamespace(context=context))
    part.session = SimpleNamespace(run=SimpleNamespace(id=run, members=members))
    opening = part._unsealed(range(size))
    next(opening)
    with pytest.raises(StopIteration) as stop:
        opening.send({"box": np.frombuffer(box, dtype=np.uint8)})
    values = np.frombuffer(stop.value.value.pack(), dtype="<u8")
    return {"words": show_words(values), "context": part._veil.context.hex(), "question": part.question.hex()}


def our_vouched(run, context, words):
    return release.vouched(run, context, array(words).view(np.float64))


def second_agree(serial, members, authority, plan, attempt, company, days, answers):
    run, hashed, asked = second.agree((serial, members, authority), plan, attempt, company, days, answers)
    return {"run": run.hex(), "company_hash": hashed.hex(), "days": asked}


def second_unsealed(plan, **inputs):
    values, context, question = second.unsealed(**inputs, numbers=number_count(our_plan(plan)))
    return {"words": show_words(values), "context": context.hex(), "question": question.hex()}


OURS = {
    "encode": lambda values, bits, bound: show_words(ring.encode(np.array(values), bits, bound)),
    "fractional_bits": ring.fractional_bits,
    "decode": lambda words, bits: show_floats(ring.decode(array(words), bits)),
    "float_words": lambda values: show_words(ring.float_words(np.array(values))),
    "words_to_floats": lambda words: show_floats(ring.words_to_floats(array(words))),
    "check_words": lambda words, keys: show_words(ring.check_words(array(words), array(keys))),
    "verify_words": lambda words, checks, keys, budget_bits: ring.verify_words(
        array(words), array(checks), array(keys), budget_bits
    ),
    "to_bytes": lambda words: ring.to_bytes(array(words)).hex(),
    "from_bytes": lambda data, count: show_words(ring.from_bytes(data, count)),
    "digest": lambda fields: keys.digest(*fields).hex(),
    "derive": lambda secret, fields, salt, length: keys.derive(secret, *fields, salt=salt, length=length).hex(),
    "exchange_public": lambda seed: keys.ExchangeKey(seed).public.hex(),
    "shared": lambda seed, peer_public, **run: keys.ExchangeKey(seed).shared(peer_public, **run).hex(),
    "sign": lambda seed, fields: keys.SigningKey(seed).sign(*fields).hex(),
    "verify": lambda public, signature, fields: keys.verify(public, signature, *fields),
    "seal": lambda pair_key, plaintext, associated, **ends: keys.seal(pair_key, plaintext, *associated, **ends).hex(),
    "open_sealed": lambda pair_key, box, associated, **ends: keys.open_sealed(pair_key, box, *associated, **ends).hex(),
    "tag": lambda key, fields: keys.Tagger(key).tag(keys.pack("tag", *fields)).hex(),
    "check_tag": lambda key, received, fields: keys.Tagger(key).check(received, keys.pack("tag", *fields)),
    "nonce": lambda context, fields: prg.nonce(context, *fields).hex(),
    "keystream": lambda key, nonce, count: show_words(prg.Stream(key).words(count, nonce)),
    "mask": lambda **inputs: show_words(our_mask(**inputs)),
    "masked_sum": our_masked_sum,
    "neighbours": lambda agents, index, seed, degree: graph.Graph.build(agents, seed, degree).neighbours(index),
    "bits": lambda flags: bits(np.array(flags, dtype=bool)).hex(),
    "flags": lambda data, count: flags(data, count).astype(int).tolist(),
    "weather_hash": lambda time, outdoor, solar, first, last: weather_hash(
        Weather(np.array(time), np.array(outdoor), np.array(solar)), first, last
    ).hex(),
    "plan_hash": lambda plan: our_plan(plan).hash().hex(),
    "roster_hash": lambda **inputs: our_roster(**inputs).hash().hex(),
    "ready": our_ready,
    "check_ready": our_check_ready,
    "agree": our_agree,
    "layout_hash": lambda blocks: our_layout(blocks).hash.hex(),
    "sum_nonce": lambda context, phase, blocks: sum_nonce(context, phase, our_layout(blocks)).hex(),
    "contexts": our_contexts,
    "questions": our_questions,
    "unsealed": our_unsealed,
    "pack_flags": lambda flags, agents: show_words(layouts.pack_flags(np.array(flags, dtype=bool), agents)),
    "unpack_counts": lambda words, agents, count: layouts.unpack_counts(np.array(words, float), agents, count).tolist(),
    "release_box": lambda key, words, run: release.seal_release(key, array(words).view(np.float64), run).hex(),
    "open_release": lambda **inputs: show_words(release.open_release(**inputs).view(np.uint64)),
    "vouched": lambda **inputs: our_vouched(**inputs).hex(),
    "check_vouch": lambda public, signature, **inputs: keys.verify(
        public, signature, "vouch", VERSION, our_vouched(**inputs)
    ),
}

SECOND = {
    "encode": lambda values, bits, bound: show_words(second.encode(values, bits, bound)),
    "fractional_bits": second.fractional_bits,
    "decode": lambda words, bits: show_floats(second.decode(words, bits)),
    "float_words": lambda values: show_words(second.float_words(values)),
    "words_to_floats": lambda words: show_floats(second.words_to_floats(words)),
    "check_words": lambda words, keys: show_words(second.check_words(words, keys)),
    "verify_words": second.verify_words,
    "to_bytes": lambda words: second.to_bytes(words).hex(),
    "from_bytes": lambda data, count: show_words(second.from_bytes(data, count)),
    "digest": lambda fields: second.digest(*fields).hex(),
    "derive": lambda **inputs: second.derive(**inputs).hex(),
    "exchange_public": lambda seed: second.public_exchange_key(seed).hex(),
    "shared": lambda **inputs: second.shared(**inputs).hex(),
    "sign": lambda seed, fields: second.sign(seed, *fields).hex(),
    "verify": lambda public, signature, fields: second.verify(public, signature, *fields),
    "seal": lambda **inputs: second.seal(**inputs).hex(),
    "open_sealed": lambda **inputs: second.open_sealed(**inputs).hex(),
    "tag": lambda key, fields: second.tag(key, *fields).hex(),
    "check_tag": lambda key, received, fields: second.check_tag(key, received, *fields),
    "nonce": lambda context, fields: second.nonce(context, *fields).hex(),
    "keystream": lambda key, nonce, count: show_words(second.keystream(key, nonce, count)),
    "mask": lambda words, signed_keys, nonce, used=(): show_words(second.mask(words, signed_keys, nonce, used)),
    "masked_sum": lambda **_: make_vectors.masked_sum()["output"],
    "neighbours": second.neighbours,
    "bits": lambda flags: second.bits(flags).hex(),
    "flags": second.flags,
    "weather_hash": lambda **inputs: second.weather_hash(**inputs).hex(),
    "plan_hash": lambda plan: second.plan_hash(plan).hex(),
    "roster_hash": lambda serial, members, authority: second.roster_hash((serial, members, authority)).hex(),
    "ready": lambda identity, plan, roster, attempt, seed, days: [
        part.hex() for part in second.ready(identity, (plan, roster, attempt), seed, days)
    ],
    "check_ready": lambda public, plan, roster, attempt, answer: second.check_ready(
        public, (plan, roster, attempt), answer
    ),
    "agree": second_agree,
    "layout_hash": lambda blocks: second.layout_hash(blocks).hex(),
    "sum_nonce": lambda context, phase, blocks: second.nonce(context, phase, second.layout_hash(blocks)).hex(),
    "contexts": lambda run, totals: [context.hex() for context in second.contexts(run, totals)],
    "questions": lambda **inputs: [question.hex() for question in second.questions(**inputs)],
    "unsealed": second_unsealed,
    "pack_flags": lambda **inputs: show_words(second.pack_flags(**inputs)),
    "unpack_counts": second.unpack_counts,
    "release_box": lambda **inputs: second.release_box(**inputs).hex(),
    "open_release": lambda **inputs: show_words(second.open_release(**inputs)),
    "vouched": lambda **inputs: second.vouched(**inputs).hex(),
    "check_vouch": second.check_vouch,
}


@pytest.mark.parametrize("implementation", [OURS, SECOND], ids=["package", "second"])
@pytest.mark.parametrize("case", GOOD, ids=lambda case: case["name"])
def test_vector_is_reproduced(case, implementation):
    assert implementation[case["operation"]](**read(case["input"])) == case["output"]


@pytest.mark.parametrize("case", BAD, ids=lambda case: case["name"])
def test_bad_vector_fails_at_its_step(case):
    error = getattr(errors, case["error"])
    with pytest.raises(error, match=SAYS[case["fails_at"]]) as raised:
        OURS[case["operation"]](**read(case["input"]))
    assert type(raised.value) is error
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("case", BAD, ids=lambda case: case["name"])
def test_second_implementation_refuses_at_the_same_step(case):
    with pytest.raises(second.Refused) as raised:
        SECOND[case["operation"]](**read(case["input"]))
    assert raised.value.step == case["fails_at"]


def test_there_are_enough_vectors_and_a_quarter_are_bad():
    assert len(CASES) >= 40
    assert 4 * len(BAD) >= len(CASES)
    assert len({case["name"] for case in CASES}) == len(CASES)


@pytest.mark.parametrize("name", make_vectors.FILES)
def test_committed_file_is_what_the_script_writes(name):
    assert (make_vectors.VECTORS / name).read_text() == make_vectors.text(make_vectors.FILES[name])


def test_a_run_on_the_wire_is_what_the_second_implementation_makes_of_it():
    """Run id, context and vouched hash worked out from the messages alone, and every signature on them."""
    cluster, wire = tiny(3, agents=10, rows=60), []
    rules = Rules(rows_per_parameter=1.0, least_days=0)
    plan = make_plan(cluster, fit_options(protocol="blind", order=1, ridge=20.0), rules)
    draw = random.Random(1).randbytes
    simulate(cluster, plan, rules, random_bytes=draw, tap=lambda sender, receiver, data: wire.append((receiver, data)))
    down = [msgspec.msgpack.decode(data) for receiver, data in wire if receiver == "zone03"]
    up = [msgspec.msgpack.decode(data) for receiver, data in wire if receiver == "aggregator"]
    keys_ = next(message for message in down if message["type"] == "Keys")
    sizes = {"answers": len(keys_["days"]), "nonces": 32, "exchange": 32, "signatures": 64}
    answers = [tuple(keys_[name][size * i : size * (i + 1)] for name, size in sizes.items()) for i in range(10)]
    enrolled = simulated_roster(cluster, rules)
    roster = (enrolled.serial, [(m.name, m.owner, m.identity, m.since) for m in enrolled.members], enrolled.authority)
    asked = next(message for message in down if message["type"] == "Announce")
    run, _, _ = second.agree(roster, asked["plan"], asked["attempt"], keys_["company"], keys_["days"], answers)
    received = [message.get("words", message.get("box")) for message in down if message["type"] in ("Total", "Seal")]
    releases = [message for message in up if message["type"] == "Release"]
    words = [second.from_bytes(message["words"], len(message["words"]) // 8) for message in releases]
    total = [sum(column) % second.RING for column in zip(*words, strict=True)]
    assert total.pop() == len(releases) == 10 and {message["run"] for message in releases} == {run}
    (box,) = {message["box"] for message in releases} - {b""}
    numbers = second.open_release(second.to_bytes(total), box, run)
    hashed = second.vouched(run, second.contexts(run, received)[-1], numbers)
    assert {message["hash"] for message in releases} == {hashed}
    for member, message in zip(enrolled.members, releases, strict=True):
        second.verify(member.identity, message["signature"], "vouch", 2, hashed)


def simulated_roster(cluster, rules):
    agents, _ = enrol(cluster, rules, random.Random(1).randbytes)
    return agents[0].roster

"""Write vectors/*.json from the second implementation: `python -m tests.crypto.make_vectors`.

A vector is an operation, its input and its output; a bad one says instead which step refuses it and with which error.
Words are 16 hex digits, floats are C99 hex (exact), bytes are hex; a field is {"bytes" | "text" | "int": value}.
"""

import hashlib
import json
from pathlib import Path

from . import second

VECTORS = Path(__file__).parents[2] / "vectors"


def word(value):
    return f"{value:016x}"


def words(values):
    return [word(value) for value in values]


def floats(values):
    return [float(value).hex() for value in values]


def field(value):
    return {{bytes: "bytes", str: "text", int: "int"}[type(value)]: value.hex() if isinstance(value, bytes) else value}


def fields(values):
    return [field(value) for value in values]


def fixed(name, length=32):
    """Fixed bytes with no structure; anybody can make them again from their name."""
    return hashlib.shake_256(f"atdm vector {name}".encode()).digest(length)


def good(name, operation, inputs, output):
    return {"name": name, "operation": operation, "input": inputs, "output": output}


def bad(name, operation, inputs, step, error):
    return {"name": f"bad_{name}", "operation": operation, "input": inputs, "fails_at": step, "error": error}


# Numbers

ENCODED = {
    "zero and minus zero": ([0.0, -0.0], 16, 1.0),
    "whole degrees": ([20.0, -5.0, 100.0], 16, 100.0),
    "ties go to even": ([0.5, 1.5, 2.5, -0.5, -1.5, -2.5], 0, 4.0),
    "a tenth": ([0.1, -0.1, 0.2], 32, 1.0),
    "one quantum around zero": ([2.0**-48, -(2.0**-48), 2.0**-49, -3 * 2.0**-49], 48, 1.0),
    "beyond the 53 bits of a float": ([1234.56789, -1234.56789], 50, 2000.0),
    "largest before overflow": ([2.0**63 - 1024, -(2.0**63 - 1024)], 0, 2.0**63 - 1024),
}
BITS = [(64, 100.0, 63), (1000, 1e4, 63), (10_000, 250_000.0, 63), (64, 30.0, 48), (3, 0.1, 63)]
FLOATS = [1.0, -2.5, 0.1, 5e-324, -0.0, 1.7976931348623157e308, 2.2250738585072014e-308]


def number_vectors():
    for name, (values, bits, bound) in ENCODED.items():
        inputs = {"values": floats(values), "bits": bits, "bound": bound.hex()}
        yield good(name, "encode", inputs, words(second.encode(values, bits, bound)))
    for agents, bound, budget in BITS:
        inputs = {"agents": agents, "bound": bound.hex(), "budget_bits": budget}
        yield good(
            f"{agents} agents up to {bound:g} in {budget} bits",
            "fractional_bits",
            inputs,
            second.fractional_bits(agents, bound, budget),
        )
    for name, values, bits in (
        ("signs", [1, 2**64 - 1, 2**63], 0),
        ("thirds", [2**40 // 3, 2**64 - 2**40 // 3], 32),
        ("rounding above 53 bits", [2**62 + 1, 2**62 + 769], 48),
    ):
        inputs = {"words": words(values), "bits": bits}
        yield good(name, "decode", inputs, floats(second.decode(values, bits)))
    yield good("floats in halves", "float_words", {"values": floats(FLOATS)}, words(second.float_words(FLOATS)))
    halves = second.float_words(FLOATS)
    yield good("halves to floats", "words_to_floats", {"words": words(halves)}, floats(second.words_to_floats(halves)))


def bad_number_vectors():
    for name, value, step in (
        ("nan", float("nan"), "finite"),
        ("inf", float("inf"), "finite"),
        ("minus_inf", float("-inf"), "finite"),
        ("out_of_bound", 100.00000000000001, "range"),
        ("out_of_bound_below", -1e30, "range"),
    ):
        inputs = {"values": floats([1.0, value]), "bits": 16, "bound": (100.0).hex()}
        yield bad(name, "encode", inputs, step, "DataError")
    for name, bits, bound, step in (
        ("word_overflow", 50, 8192.0, "budget"),
        ("bound_inf", 16, float("inf"), "bound"),
        ("bound_zero", 16, 0.0, "bound"),
    ):
        yield bad(name, "encode", {"values": floats([1.0]), "bits": bits, "bound": bound.hex()}, step, "UsageError")
    inputs = {"agents": 10_000, "bound": (2.0**50).hex(), "budget_bits": 63}
    yield bad("budget_overflow", "fractional_bits", inputs, "budget", "UsageError")
    yield bad("odd_halves", "words_to_floats", {"words": words([1, 2, 3])}, "even", "PeerError")
    yield bad("half_too_large", "words_to_floats", {"words": words([2**32, 1])}, "half", "PeerError")


# Check words and bytes


def check_case(count):
    keys = [second.from_bytes(fixed(f"check key {w}", 8 * count), count) for w in range(4)]
    values = second.encode([20.5 * (t + 1) * (-1) ** t for t in range(count)], 16, 1000.0)
    return values, keys


def check_vectors():
    for count in (1, 5, 40):
        values, keys = check_case(count)
        inputs = {"words": words(values), "keys": [words(row) for row in keys]}
        yield good(f"{count} words", "check_words", inputs, words(second.check_words(values, keys)))
    values, _ = check_case(3)
    yield good("words to bytes", "to_bytes", {"words": words(values)}, second.to_bytes(values).hex())
    yield good("bytes to words", "from_bytes", {"data": second.to_bytes(values).hex(), "count": 3}, words(values))


def bad_check_vectors():
    values, keys = check_case(5)
    checks = second.check_words(values, keys)

    def verify(changed_words=values, changed_checks=checks):
        return {
            "words": words(changed_words),
            "checks": words(changed_checks),
            "keys": [words(row) for row in keys],
            "budget_bits": 48,
        }

    offset = [values[0] + 1, *values[1:]]
    yield bad("total_off_by_one", "verify_words", verify(offset), "check", "PeerError")
    yield bad("check_word_altered", "verify_words", verify(values, [checks[0] ^ 1, *checks[1:]]), "check", "PeerError")
    # Half of all keys cannot see an offset of 2^63 in one check word; the range can.
    high = [(values[0] + 2**63) % 2**64, *values[1:]]
    yield bad("top_bit", "verify_words", verify(high, second.check_words(high, keys)), "range", "PeerError")
    data = second.to_bytes(values)
    yield bad("truncated_bytes", "from_bytes", {"data": data[:-1].hex(), "count": 5}, "length", "PeerError")
    yield bad("trailing_bytes", "from_bytes", {"data": (data + b"\0").hex(), "count": 5}, "length", "PeerError")


# Hashes and keys

LOW_ORDER = {
    "zero": bytes(32),
    "one": (1).to_bytes(32, "little"),
    "order_8": bytes.fromhex("e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800"),
    "minus_one": (2**255 - 20).to_bytes(32, "little"),
}
RUN = {"version": 1, "run_id": fixed("run id"), "roster": fixed("roster"), "config": fixed("config")}
IDS = (fixed("identity a"), fixed("identity b"))
BOX = {"purpose": "group secret", "sender": IDS[0], "receiver": IDS[1], "associated": (RUN["run_id"], 3)}


def run_inputs(seed, peer_public, **changes):
    values = {**RUN, "ids": IDS, **changes}
    return {
        "seed": seed.hex(),
        "peer_public": peer_public.hex(),
        "version": field(values["version"]),
        "run_id": values["run_id"].hex(),
        "ids": [identity.hex() for identity in values["ids"]],
        "roster": values["roster"].hex(),
        "config": values["config"].hex(),
    }


def box_inputs(key, **changes):
    values = {**BOX, **changes}
    return {
        "pair_key": key.hex(),
        "purpose": values["purpose"],
        "sender": values["sender"].hex(),
        "receiver": values["receiver"].hex(),
        "associated": fields(values["associated"]),
    }


def key_vectors():
    for name, values in (
        ("no fields", ()),
        ("text", ("ab", "c")),
        ("text, one byte moved", ("a", "bc")),
        ("bytes are not text", (b"ab", b"c")),
        ("integers", (0, -1, 2**80)),
        ("an empty field counts", ("", "ab", "c")),
    ):
        yield good(name, "digest", {"fields": fields(values)}, second.digest(*values).hex())
    for name, values, salt, length in (
        ("derived key", ("veil", 7), b"", 32),
        ("derived key, salted", ("veil", 7), fixed("salt"), 32),
        ("derived key, 100 bytes", (b"long",), b"", 100),
    ):
        inputs = {"secret": fixed("secret").hex(), "fields": fields(values), "salt": salt.hex(), "length": length}
        yield good(name, "derive", inputs, second.derive(fixed("secret"), values, salt, length).hex())
    a, b = fixed("exchange a"), fixed("exchange b")
    public = {seed: second.public_exchange_key(seed) for seed in (a, b)}
    yield good("exchange public key", "exchange_public", {"seed": a.hex()}, public[a].hex())
    pair_key = second.shared(a, public[b], ids=IDS, **RUN)
    yield good("pair key, one end", "shared", run_inputs(a, public[b]), pair_key.hex())
    yield good("pair key, other end", "shared", run_inputs(b, public[a], ids=IDS[::-1]), pair_key.hex())
    other = second.shared(a, public[b], ids=IDS, **{**RUN, "config": fixed("config 2")})
    yield good("pair key, other config", "shared", run_inputs(a, public[b], config=fixed("config 2")), other.hex())
    signature = second.sign(fixed("identity seed"), "round", 1, b"body")
    inputs = {"seed": fixed("identity seed").hex(), "fields": fields(("round", 1, b"body"))}
    yield good("signature", "sign", inputs, signature.hex())
    box = second.seal(pair_key, b"thirty-two bytes of group secret", **BOX)
    inputs = {"plaintext": b"thirty-two bytes of group secret".hex(), **box_inputs(pair_key)}
    yield good("sealed box", "seal", inputs, box.hex())
    yield good(
        "opened box",
        "open_sealed",
        {"box": box.hex(), **box_inputs(pair_key)},
        b"thirty-two bytes of group secret".hex(),
    )
    inputs = {"key": pair_key.hex(), "fields": fields(("receipt", RUN["run_id"]))}
    yield good("tag", "tag", inputs, second.tag(pair_key, "receipt", RUN["run_id"]).hex())


def bad_key_vectors():
    a = fixed("exchange a")
    for name, point in LOW_ORDER.items():
        yield bad(f"low_order_{name}", "shared", run_inputs(a, point), "peer key", "PeerError")
    public = second.public_exchange_key(fixed("exchange b"))
    yield bad("short_peer_key", "shared", run_inputs(a, public[:31]), "peer key", "PeerError")
    yield bad("empty_peer_key", "shared", run_inputs(a, b""), "peer key", "PeerError")
    yield bad("short_own_key", "exchange_public", {"seed": a[:31].hex()}, "own key", "UsageError")
    yield bad("pair_with_itself", "shared", run_inputs(a, public, ids=(IDS[0], IDS[0])), "ids", "UsageError")
    yield bad("short_roster_digest", "shared", run_inputs(a, public, roster=b"roster"), "digests", "UsageError")
    inputs = {"secret": "", "fields": fields(("veil",)), "salt": "", "length": 32}
    yield bad("empty_secret", "derive", inputs, "secret", "UsageError")

    key = second.shared(a, public, ids=IDS, **RUN)
    box = second.seal(key, b"secret", **BOX)
    flipped = box[:-1] + bytes([box[-1] ^ 1])
    for name, changed, inputs in (
        ("flipped_box_tag", flipped, box_inputs(key)),
        ("truncated_box", box[:10], box_inputs(key)),
        ("empty_box", b"", box_inputs(key)),
        ("wrong_associated_data", box, box_inputs(key, associated=(RUN["run_id"], 4))),
        ("box_reflected_to_sender", box, box_inputs(key, sender=IDS[1], receiver=IDS[0])),
        ("wrong_box_purpose", box, box_inputs(key, purpose="receipt")),
        ("wrong_pair_key", box, box_inputs(fixed("another pair key"))),
    ):
        yield bad(name, "open_sealed", {"box": changed.hex(), **inputs}, "box", "PeerError")

    tag = second.tag(key, "receipt", 1)
    for name, received, values in (
        ("flipped_tag", bytes([tag[0] ^ 1]) + tag[1:], ("receipt", 1)),
        ("truncated_tag", tag[:-1], ("receipt", 1)),
        ("tag_of_other_fields", tag, ("receipt", 2)),
    ):
        inputs = {"key": key.hex(), "received": received.hex(), "fields": fields(values)}
        yield bad(name, "check_tag", inputs, "tag", "PeerError")

    seed = fixed("identity seed")
    signer = second.public_signing_key(seed)
    signature = second.sign(seed, "round", 1)
    for name, public_key, changed, values in (
        ("wrong_signature", signer, signature[:-1] + bytes([signature[-1] ^ 1]), ("round", 1)),
        ("truncated_signature", signer, signature[:63], ("round", 1)),
        ("signature_of_other_fields", signer, signature, ("round", 2)),
        ("signature_by_other_key", fixed("identity a"), signature, ("round", 1)),
        ("short_public_key", signer[:31], signature, ("round", 1)),
    ):
        inputs = {"public": public_key.hex(), "signature": changed.hex(), "fields": fields(values)}
        yield bad(name, "verify", inputs, "signature", "PeerError")


# Masks


def masked_sum():
    """Five agents on a complete graph: keys, masked messages and their total, from fixed bytes only."""
    seeds = [fixed(f"agent {i}") for i in range(5)]
    public = [second.public_exchange_key(seed) for seed in seeds]
    values = [[20.0 + i, -0.5 * i, 0.1 * i] for i in range(5)]
    start = second.nonce(RUN["run_id"], "total", 3, 16)
    messages, totals = [], [0, 0, 0]
    for i, seed in enumerate(seeds):
        pair_keys = [
            (1 if public[i] < public[j] else -1, second.shared(seed, public[j], ids=(public[i], public[j]), **RUN))
            for j in range(5)
            if j != i
        ]
        message = second.mask(second.encode(values[i], 16, 100.0), pair_keys, start)
        messages.append(message)
        totals = [(t + w) % second.RING for t, w in zip(totals, message, strict=True)]
    inputs = {
        "seeds": [seed.hex() for seed in seeds],
        "version": field(RUN["version"]),
        **{name: RUN[name].hex() for name in ("run_id", "roster", "config")},
        "nonce_fields": fields(("total", 3, 16)),
        "values": [floats(row) for row in values],
        "bits": 16,
        "bound": (100.0).hex(),
    }
    output = {
        "messages": [second.to_bytes(message).hex() for message in messages],
        "total": words(totals),
        "sum": floats(second.decode(totals, 16)),
    }
    return good("five agents", "masked_sum", inputs, output)


def mask_vectors():
    for name, values in (("nonce", ()), ("nonce with fields", ("total", 12, 1082, 16))):
        inputs = {"context": RUN["run_id"].hex(), "fields": fields(values)}
        yield good(name, "nonce", inputs, second.nonce(RUN["run_id"], *values).hex())
    key, start = fixed("mask key"), second.nonce(b"context", 1)
    for count in (1, 2, 7):
        inputs = {"key": key.hex(), "nonce": start.hex(), "count": count}
        yield good(f"keystream, {count} words", "keystream", inputs, words(second.keystream(key, start, count)))
    signed_keys = [(1, fixed("mask key 1")), (-1, fixed("mask key 2")), (1, fixed("mask key 3"))]
    inputs = {
        "words": words([1, 2**64 - 1, 7]),
        "signed_keys": [[sign, key.hex()] for sign, key in signed_keys],
        "nonce": start.hex(),
    }
    yield good("three masks", "mask", inputs, words(second.mask([1, 2**64 - 1, 7], signed_keys, start)))
    yield masked_sum()
    for agents, index, degree in ((7, 3, 6), (12, 0, 4), (300, 299, 10)):
        inputs = {"agents": agents, "index": index, "seed": fixed("graph").hex(), "degree": degree}
        output = second.neighbours(agents, index, fixed("graph"), degree)
        yield good(f"neighbours of {index} among {agents}", "neighbours", inputs, output)


def bad_mask_vectors():
    key, start = fixed("mask key"), second.nonce(b"context", 1)
    base = {"words": words([1, 2]), "signed_keys": [[1, key.hex()]], "nonce": start.hex()}
    yield bad("reused_nonce", "mask", {**base, "used": [start.hex()]}, "nonce", "RunAborted")
    counter = start[:15] + b"\1"
    yield bad("nonce_in_the_counter", "mask", {**base, "nonce": counter.hex()}, "nonce", "UsageError")
    yield bad("short_nonce", "mask", {**base, "nonce": start[:12].hex()}, "nonce", "UsageError")
    yield bad("short_mask_key", "mask", {**base, "signed_keys": [[1, key[:16].hex()]]}, "own key", "UsageError")
    yield bad("zero_sign", "mask", {**base, "signed_keys": [[0, key.hex()]]}, "sign", "UsageError")
    graph = {"agents": 12, "index": 0, "seed": fixed("graph").hex(), "degree": 5}
    yield bad("odd_degree", "neighbours", graph, "degree", "UsageError")
    yield bad("unknown_agent", "neighbours", {**graph, "degree": 4, "index": 12}, "index", "UsageError")


# A run

DAY = 86400
MONDAY = 19723 * DAY  # 2024-01-01
MEMBERS = sorted(
    ((f"zone{i}", f"home{i}", second.public_signing_key(fixed(f"identity {i}")), 300 * i) for i in range(5)),
    key=lambda member: member[2],
)
SEEDS = {second.public_signing_key(fixed(f"identity {i}")): fixed(f"identity {i}") for i in range(5)}
ROSTER = (7, MEMBERS, second.public_signing_key(fixed("authority")))
PLAN = {
    "type": "fit", "version": 2, "protocol": "blind", "weights": "fitted", "order": 1, "ridge": 100.0, "period": 4,
    "step_seconds": 21600, "timezone": "UTC", "start": MONDAY, "length": 40, "train": 0.75, "nonnegative": "ridge",
    "tolerance": 1e-12, "solver_tolerance": 0.03, "weather": fixed("weather"), "masks": "ring", "minimum_norm": False,
    "totals": 5, "agents_per_total": 3, "colluders": 1, "clip": 2.0,
}  # fmt: skip
COLLECT = {
    "type": "collect", "version": 2, "step_seconds": 1800, "start": MONDAY, "length": 480, "fit": b"", "asked": b"",
}  # fmt: skip
COMPANY = second.bits([1, 1, 0, 1, 1])
ASKED = second.bits([1, 1, 1, 1, 1, 0, 1, 1, 1, 1])  # days
INSIDE = [second.bits([1] * 10), ASKED, ASKED, second.bits([1] * 10), ASKED]  # by member
WEATHER = {
    "time": [MONDAY + 1800 * i for i in range(-1, 5)],
    "outdoor": [3.5, 3.25, -0.0, 2.1, 1e-300, 4.0],
    "solar": [0.0, 0.05, 0.1, 0.2, 0.4, 0.8],
}


def structure(values):
    """A plan with the types of its fields; floats in C99 hex."""
    kinds = {bool: "bool", float: "float", bytes: "bytes", str: "text", int: "int"}
    shown = {float: float.hex, bytes: bytes.hex}
    return [[name, {kinds[type(v)]: shown.get(type(v), lambda x: x)(v)}] for name, v in values.items()]


def roster_inputs(roster=ROSTER):
    serial, members, authority = roster
    listed = [[name, owner, key.hex(), since] for name, owner, key, since in members]
    return {"serial": serial, "members": listed, "authority": authority.hex()}


def announced(plan=PLAN, attempt=3):
    return {"plan": structure(plan), "roster": second.roster_hash(ROSTER).hex(), "attempt": attempt}


def answer(i, plan=PLAN, attempt=3, days=None, seed=None):
    """What the member at this place of the roster answers."""
    announce = (plan, second.roster_hash(ROSTER), attempt)
    given = days or INSIDE[i]
    return second.ready(SEEDS[MEMBERS[i][2]], announce, seed or fixed(f"run seed {i}"), given)


def agree_inputs(company=COMPANY, days=ASKED, plan=PLAN, attempt=3, answers=None):
    parts = [answer(i, plan) for i in (0, 1, 3, 4)] if answers is None else answers
    return {
        **roster_inputs(), "plan": structure(plan), "attempt": attempt, "company": company.hex(), "days": days.hex(),
        "answers": [[part.hex() for part in each] for each in parts],
    }  # fmt: skip


def totals():
    """Totals without their veil, the phase each is of, and the one that follows it."""
    phases = ("open", "step", "step", "signs", "signs")
    return [(a, [1 + n, 2**64 - 1, n], b) for n, (a, b) in enumerate(zip(phases, phases[1:], strict=False))]


NUMBERS, SIZE = 28, 3  # of a model of order 1 with a day of four steps; totals
SEALED = [second.raw_word(0.5 * i - 3.25) for i in range(NUMBERS + 2 * SIZE)] + [2**64 - 1, 1, 2**63, 0x7FF0 << 48]
SEAL = {
    "group": fixed("group secret"), "run": RUN["run_id"], "context": fixed("context"), "question": fixed("question"),
    "leader": IDS[0],
}  # fmt: skip


def seal_inputs(box, **changes):
    values = {**SEAL, **changes}
    return {**{name: value.hex() for name, value in values.items()}, "plan": structure(PLAN), "box": box.hex(),
            "size": SIZE}  # fmt: skip


def a_box(values=SEALED, **changes):
    return second.sealed(**{name: {**SEAL, **changes}[name] for name in ("group", "run", "context", "leader")},
                         words=values)  # fmt: skip


def vouch_inputs(words_, **changes):
    values = {"run": RUN["run_id"], "context": fixed("context"), **changes}
    return {**{name: value.hex() for name, value in values.items()}, "words": words(words_)}


def run_vectors():
    third = [i % 3 == 0 for i in range(21)]
    for name, given in (("no day", [0] * 9), ("nine days", [1] * 9), ("every third of 21", third)):
        data, shown = second.bits(given), [int(flag) for flag in given]
        yield good(f"{name} as bits", "bits", {"flags": shown}, data.hex())
        yield good(f"bits of {name}", "flags", {"data": data.hex(), "count": len(given)}, shown)
    for name, first, last in (("weather of three rows", MONDAY, MONDAY + 3600), ("weather of no row", 0, 1)):
        inputs = {"time": WEATHER["time"], "outdoor": floats(WEATHER["outdoor"]), "solar": floats(WEATHER["solar"])}
        hashed = second.weather_hash(**WEATHER, first=first, last=last)
        yield good(name, "weather_hash", {**inputs, "first": first, "last": last}, hashed.hex())
    some = {**COLLECT, "fit": fixed("fit"), "asked": second.bits([1, 0, 0] * 160)}
    for name, plan in (("a fit", PLAN), ("rows to collect", COLLECT), ("some rows under a fit", some)):
        yield good(f"plan of {name}", "plan_hash", {"plan": structure(plan)}, second.plan_hash(plan).hex())
    yield good("roster", "roster_hash", roster_inputs(), second.roster_hash(ROSTER).hex())
    inputs = {"identity": SEEDS[MEMBERS[0][2]].hex(), **announced(), "seed": fixed("run seed 0").hex()}
    yield good("ready", "ready", {**inputs, "days": INSIDE[0].hex()}, [part.hex() for part in answer(0)])
    for name, changes in (
        ("run of four", {}),
        ("run of four on other days", {"days": second.bits([1] * 5 + [0] * 5)}),
        ("run of three", {"company": second.bits([1, 0, 0, 1, 1]), "answers": [answer(i) for i in (0, 3, 4)]}),
        ("run that collects", {"plan": COLLECT}),
    ):
        inputs = agree_inputs(**changes)
        run, hashed, days = second.agree(
            ROSTER, changes.get("plan", PLAN), 3, changes.get("company", COMPANY), changes.get("days", ASKED),
            changes.get("answers") or [answer(i, changes.get("plan", PLAN)) for i in (0, 1, 3, 4)],
        )  # fmt: skip
        yield good(name, "agree", inputs, {"run": run.hex(), "company_hash": hashed.hex(), "days": days})
    blocks = [("total", 40, 16, 102.0), ("one", 1, 40, 1.0), ("release", 7, -2, 0.0)]
    inputs = {"blocks": [[n, s, b, bound.hex()] for n, s, b, bound in blocks]}
    hashed = second.layout_hash(blocks)
    yield good("layout", "layout_hash", inputs, hashed.hex())
    inputs = {**inputs, "context": fixed("context").hex(), "phase": "step"}
    yield good("nonce of a sum", "sum_nonce", inputs, second.nonce(fixed("context"), "step", hashed).hex())
    received = [fixed("total 1", 40), fixed("total 2", 16), fixed("box", 99)]
    inputs = {"run": RUN["run_id"].hex(), "totals": [total.hex() for total in received]}
    yield good("contexts", "contexts", inputs, [c.hex() for c in second.contexts(RUN["run_id"], received)])
    kept = [MONDAY + 21600 * i for i in range(40) if i != 6]
    company = b"".join(member[2] for member in MEMBERS)
    inputs = {
        "company": company.hex(), "plan": structure(PLAN), "kept": kept,
        "totals": [[a, words(w), b] for a, w, b in totals()],
    }  # fmt: skip
    yield good("questions", "questions", inputs, [q.hex() for q in second.questions(company, PLAN, kept, totals())])
    lacking = [i in (0, 5, 17) for i in range(20)]
    for agents in (12, 700):
        packed = second.pack_flags(lacking, agents)
        inputs = {"flags": [int(flag) for flag in lacking], "agents": agents}
        yield good(f"rows lacking, {agents} agents", "pack_flags", inputs, words(packed))
        counts = [agents if flag else i % agents for i, flag in enumerate(lacking)]
        parts = [second.pack_flags([count > k for count in counts], agents) for k in range(agents)]
        total = [sum(column) for column in zip(*parts, strict=True)]
        inputs = {"words": words(total), "agents": agents, "count": 20}
        yield good(f"counts of {agents} agents", "unpack_counts", inputs, counts)
    key = fixed("release key")
    box = second.release_box(key, SEALED, RUN["run_id"])
    inputs = {"key": key.hex(), "words": words(SEALED), "run": RUN["run_id"].hex()}
    yield good("box of a release", "release_box", inputs, box.hex())
    inputs = {"key": key.hex(), "box": box.hex(), "run": RUN["run_id"].hex()}
    yield good("opened release", "open_release", inputs, words(SEALED))
    values, context, question = second.unsealed(**SEAL, box=a_box(), numbers=NUMBERS, size=SIZE)
    output = {"words": words(values), "context": context.hex(), "question": question.hex()}
    yield good("unsealed", "unsealed", seal_inputs(a_box()), output)
    hashed = second.vouched(RUN["run_id"], fixed("context"), SEALED)
    yield good("vouched", "vouched", vouch_inputs(SEALED), hashed.hex())
    signature = second.sign(fixed("identity 0"), "vouch", 2, hashed)
    inputs = {"seed": fixed("identity 0").hex(), "fields": fields(("vouch", 2, hashed))}
    yield good("vouch", "sign", inputs, signature.hex())


def bad_run_vectors():
    yield bad("flags_of_another_length", "flags", {"data": "ff01", "count": 17}, "flags", "PeerError")
    yield bad("flags_beyond_the_last", "flags", {"data": "ff02", "count": 9}, "flags", "PeerError")
    days, fresh, exchange, signature = mine = answer(0)
    for name, changed, plan, attempt, step in (
        ("ready_for_another_attempt", mine, PLAN, 4, "signature"),
        ("ready_for_another_plan", mine, {**PLAN, "ridge": 101.0}, 3, "signature"),
        ("ready_with_another_day", (ASKED, fresh, exchange, signature), PLAN, 3, "signature"),
        ("ready_with_a_short_nonce", (days, fresh[1:], exchange, signature), PLAN, 3, "key length"),
        ("ready_with_flags_beyond", (days[:1] + b"\x04", fresh, exchange, signature), PLAN, 3, "flags"),
    ):
        inputs = {"public": MEMBERS[0][2].hex(), **announced(plan, attempt), "answer": [part.hex() for part in changed]}
        yield bad(name, "check_ready", inputs, step, "PeerError")
    four = [answer(i) for i in (0, 1, 3, 4)]
    again = answer(1, seed=fixed("run seed 0"))  # the key and nonce of another member, under its own signature
    for name, changes, step in (
        ("run_without_one_answer", {"answers": four[:3]}, "number"),
        ("run_on_no_day", {"days": bytes(2)}, "number"),
        ("run_of_nobody", {"company": bytes(1), "answers": []}, "number"),
        ("run_on_a_day_somebody_is_out", {"days": second.bits([1] * 10)}, "days"),
        ("run_with_answers_swapped", {"answers": [four[1], four[0], *four[2:]]}, "signature"),
        ("run_of_another_attempt", {"attempt": 4}, "signature"),
        ("run_with_one_key_twice", {"answers": [four[0], again, *four[2:]]}, "distinct"),
        ("run_of_more_than_the_roster", {"company": second.bits([1, 1, 0, 1, 1, 1])}, "flags"),
    ):
        yield bad(name, "agree", agree_inputs(**changes), step, "PeerError")
    box = a_box()
    for name, changed, inputs, step, error in (
        ("seal_flipped", box[:-1] + bytes([box[-1] ^ 1]), {}, "box", "PeerError"),
        ("seal_of_another_run", a_box(run=fixed("another run")), {}, "box", "PeerError"),
        ("seal_of_another_context", box, {"context": fixed("another context")}, "box", "PeerError"),
        ("seal_of_another_leader", box, {"leader": IDS[1]}, "box", "PeerError"),
        ("seal_under_another_secret", box, {"group": fixed("another secret")}, "box", "PeerError"),
        ("seal_one_word_short", a_box(SEALED[:-1]), {}, "seal", "RunAborted"),
        ("seal_with_an_infinite_weight", a_box([*SEALED[:NUMBERS], 0x7FF << 52, *SEALED[NUMBERS + 1 :]]), {}, "seal",
         "RunAborted"),
    ):  # fmt: skip
        yield bad(name, "unsealed", seal_inputs(changed, **inputs), step, error)
    key = fixed("release key")
    box = second.release_box(key, SEALED, RUN["run_id"])
    odd = second.seal(key, b"seven b", "release", "leader", "aggregator", (RUN["run_id"],))
    for name, changed, secret, run, step in (
        ("release_with_another_key", box, fixed("another key"), RUN["run_id"], "box"),
        ("release_of_another_run", box, key, fixed("another run"), "box"),
        ("release_flipped", box[:-1] + bytes([box[-1] ^ 1]), key, RUN["run_id"], "box"),
        ("release_with_half_a_word", odd, key, RUN["run_id"], "half a word"),
    ):
        inputs = {"key": secret.hex(), "box": changed.hex(), "run": run.hex()}
        yield bad(name, "open_release", inputs, step, "PeerError")
    public = second.public_signing_key(fixed("identity 0"))
    hashed = second.vouched(RUN["run_id"], fixed("context"), SEALED)
    signature, first_edition = (second.sign(fixed("identity 0"), "vouch", version, hashed) for version in (2, 1))
    for name, signed, released, changes in (
        ("vouch_for_another_word", signature, [SEALED[0] ^ 1, *SEALED[1:]], {}),
        ("vouch_for_another_run", signature, SEALED, {"run": fixed("another run")}),
        ("vouch_after_another_seal", signature, SEALED, {"context": fixed("another context")}),
        ("vouch_of_another_version", first_edition, SEALED, {}),
    ):
        inputs = {"public": public.hex(), "signature": signed.hex(), **vouch_inputs(released, **changes)}
        yield bad(name, "check_vouch", inputs, "signature", "PeerError")


FILES = {
    "numbers.json": number_vectors,
    "check_words.json": check_vectors,
    "keys.json": key_vectors,
    "masks.json": mask_vectors,
    "runs.json": run_vectors,
    "bad_numbers.json": bad_number_vectors,
    "bad_check_words.json": bad_check_vectors,
    "bad_keys.json": bad_key_vectors,
    "bad_masks.json": bad_mask_vectors,
    "bad_runs.json": bad_run_vectors,
}


def text(make):
    if make in (run_vectors, bad_run_vectors):  # with a plan and a roster in many of them: a line each
        return "[\n" + ",\n".join(json.dumps(case, allow_nan=False) for case in make()) + "\n]\n"
    return json.dumps(list(make()), indent=1, allow_nan=False) + "\n"


if __name__ == "__main__":
    for name, make in FILES.items():
        (VECTORS / name).write_text(text(make))

"""vectors/*.json: reproduced by the package and by the second implementation; each bad_* fails at its named step."""

import json

import numpy as np
import pytest

from atdm import errors
from atdm.crypto import graph, keys, prg, ring

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
}


def read_field(item):
    ((kind, value),) = item.items()
    return bytes.fromhex(value) if kind == "bytes" else value


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
    }
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
    "tag": lambda key, fields: keys.tag(key, *fields).hex(),
    "check_tag": lambda key, received, fields: keys.check_tag(key, received, *fields),
    "nonce": lambda context, fields: prg.nonce(context, *fields).hex(),
    "keystream": lambda key, nonce, count: show_words(prg.Stream(key).words(count, nonce)),
    "mask": lambda **inputs: show_words(our_mask(**inputs)),
    "masked_sum": our_masked_sum,
    "neighbours": graph.neighbours,
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

"""A second implementation of what the vectors describe, for comparison only.

Python integers and the standard library: no numpy, no code of the package. From `cryptography` it takes the AES block,
Ed25519 and ChaCha20-Poly1305; counter mode, HKDF and X25519 are written out.
"""

import hashlib
import hmac
import struct
from fractions import Fraction

from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

RING = 2**64


class Refused(Exception):
    """The step at which an input was refused."""

    def __init__(self, step):
        super().__init__(step)
        self.step = step


def require(condition, step):
    if not condition:
        raise Refused(step)


# Numbers


def fractional_bits(agents, bound, budget_bits):
    require(bound > 0 and bound != float("inf"), "bound")
    bits = -1
    while agents * (Fraction(bound) * 2 ** (bits + 1) + Fraction(1, 2)) < 2**budget_bits:
        bits += 1
    require(bits >= 0, "budget")
    return bits


def encode(values, bits, bound):
    require(bound > 0 and bound != float("inf"), "bound")
    require(Fraction(bound) * 2**bits < 2**63, "budget")
    words = []
    for value in values:
        require(value == value and abs(value) != float("inf"), "finite")
        require(abs(value) <= bound, "range")
        words.append(round(Fraction(value) * 2**bits) % RING)  # ties to even, as IEEE 754
    return words


def signed(word):
    return word - RING if word >= RING // 2 else word


def decode(words, bits):
    return [float(Fraction(signed(word), 2**bits)) for word in words]


def float_words(values):
    words = []
    for value in values:
        pattern = raw_word(value)
        words += [pattern % 2**32, pattern >> 32]
    return words


def raw_word(value):
    """IEEE 754 binary64, assembled by hand from float.hex."""
    sign = 1 if str(value).startswith("-") else 0
    if value != value:
        return 0x7FF8 << 48
    if abs(value) == float("inf"):
        return sign << 63 | 0x7FF << 52
    if value == 0:
        return sign << 63
    mantissa, exponent = abs(value).hex()[2:].split("p")
    lead, _, fraction = mantissa.partition(".")
    biased = int(exponent) + 1023 if lead == "1" else 0
    return sign << 63 | biased << 52 | int(fraction.ljust(13, "0"), 16)


def words_to_floats(words):
    require(len(words) % 2 == 0, "even")
    require(all(word < 2**32 for word in words), "half")
    floats = []
    for low, high in zip(words[0::2], words[1::2], strict=True):
        pattern = high << 32 | low
        sign, exponent, fraction = pattern >> 63, pattern >> 52 & 0x7FF, pattern % 2**52
        size = Fraction(fraction, 2**52) + (1 if exponent else 0)
        floats.append((-1.0 if sign else 1.0) * float(size * Fraction(2) ** (max(exponent, 1) - 1023)))
    return floats


def check_words(words, keys):
    require(all(len(row) == len(words) for row in keys) and len(keys) == 4, "shape")
    return [sum(k * m for k, m in zip(row, words, strict=True)) % RING for row in keys]


def verify_words(words, checks, keys, budget_bits):
    require(all(abs(signed(word)) <= 2**budget_bits for word in words), "range")
    require(check_words(words, keys) == checks, "check")


def to_bytes(words):
    return b"".join(word.to_bytes(8, "little") for word in words)


def from_bytes(data, count):
    require(len(data) == 8 * count, "length")
    return [int.from_bytes(data[8 * t : 8 * t + 8], "little") for t in range(count)]


# Hashes and keys


def pack(purpose, *fields):
    packed = b""
    for field in ("atdm-1", purpose, *fields):
        kind = {bytes: b"b", str: b"s", int: b"i"}[type(field)]
        content = field if isinstance(field, bytes) else str(field).encode()
        packed += kind + len(content).to_bytes(8, "little") + content
    return packed


def digest(*fields):
    return hashlib.sha256(pack("digest", *fields)).digest()


def hkdf(secret, salt, info, length):
    require(0 < length <= 255 * 32, "length")
    extracted = hmac.digest(salt or bytes(32), secret, "sha256")
    output, block, counter = b"", b"", 1
    while len(output) < length:
        block = hmac.digest(extracted, block + info + bytes([counter]), "sha256")
        output += block
        counter += 1
    return output[:length]


def derive(secret, fields, salt, length):
    require(secret, "secret")
    return hkdf(secret, salt, pack("derive", *fields), length)


def x25519(scalar, point):
    """Montgomery ladder of RFC 7748 §5."""
    require(len(point) == 32, "peer key")
    p = 2**255 - 19
    k = (int.from_bytes(scalar, "little") & ~7 & (2**255 - 1)) | 2**254
    x1 = int.from_bytes(point, "little") % 2**255
    x2, z2, x3, z3 = 1, 0, x1, 1
    for bit in range(254, -1, -1):
        if k >> bit & 1:
            x2, z2, x3, z3 = x3, z3, x2, z2
        a, b, c, d = x2 + z2, x2 - z2, x3 + z3, x3 - z3
        x3, z3 = (d * a + c * b) ** 2 % p, x1 * (d * a - c * b) ** 2 % p
        x2, z2 = a * a * b * b % p, (a * a - b * b) * (a * a + 121665 * (a * a - b * b)) % p
        if k >> bit & 1:
            x2, z2, x3, z3 = x3, z3, x2, z2
    shared = x2 * pow(z2, p - 2, p) % p
    require(shared, "peer key")
    return shared.to_bytes(32, "little")


def public_exchange_key(seed):
    require(len(seed) == 32, "own key")
    return x25519(seed, (9).to_bytes(32, "little"))


def shared(seed, peer_public, version, run_id, ids, roster, config):
    require(ids[0] != ids[1], "ids")
    require(len(roster) == len(config) == 32, "digests")
    info = pack("pair", version, run_id, min(ids), max(ids), roster, config)
    return hkdf(x25519(seed, peer_public), run_id, info, 32)


def public_signing_key(seed):
    return Ed25519PrivateKey.from_private_bytes(seed).public_key().public_bytes_raw()


def sign(seed, *fields):
    require(len(seed) == 32, "own key")
    return Ed25519PrivateKey.from_private_bytes(seed).sign(pack("signature", *fields))


def verify(public, signature, *fields):
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, pack("signature", *fields))
    except (InvalidSignature, ValueError):
        raise Refused("signature") from None


def seal(pair_key, plaintext, purpose, sender, receiver, associated):
    require(len(pair_key) == 32, "own key")
    data = pack("seal", purpose, sender, receiver, *associated)
    return ChaCha20Poly1305(hkdf(pair_key, b"", data, 32)).encrypt(bytes(12), plaintext, data)


def open_sealed(pair_key, box, purpose, sender, receiver, associated):
    data = pack("seal", purpose, sender, receiver, *associated)
    try:
        return ChaCha20Poly1305(hkdf(pair_key, b"", data, 32)).decrypt(bytes(12), box, data)
    except InvalidTag:
        raise Refused("box") from None


def tag(key, *fields):
    require(len(key) == 32, "own key")
    return hmac.digest(key, pack("tag", *fields), "sha256")[:16]


def check_tag(key, received, *fields):
    require(tag(key, *fields) == received, "tag")


# Masks


def nonce(context, *fields):
    return digest("nonce", context, *fields)[:12] + bytes(4)


def keystream(key, start, count):
    """Counter mode by hand: one AES block per counter value, big-endian."""
    require(len(key) == 32, "own key")
    require(len(start) == 16 and start[12:] == bytes(4), "nonce")
    block = Cipher(algorithms.AES256(key), modes.ECB()).encryptor()
    first = int.from_bytes(start, "big")
    stream = b"".join(block.update((first + i).to_bytes(16, "big")) for i in range((count + 1) // 2))
    return from_bytes(stream[: 8 * count], count)


def mask(words, signed_keys, start, used=()):
    require(start not in used, "nonce")
    for sign, key in signed_keys:
        require(sign in (1, -1), "sign")
        words = [(w + sign * m) % RING for w, m in zip(words, keystream(key, start, len(words)), strict=True)]
    return words


# Graph


def permutation(agents, seed):
    key = derive(seed, ("mask graph",), b"", 32)
    order, words, block = list(range(agents)), [], 0
    for last in range(agents - 1, 0, -1):
        while True:
            if not words:
                words = keystream(key, nonce(b"mask graph", block), 1024)
                block += 1
            word = words.pop(0)
            if word < RING - RING % (last + 1):
                break
        chosen = word % (last + 1)
        order[last], order[chosen] = order[chosen], order[last]
    return order


def neighbours(agents, index, seed, degree):
    require(0 <= index < agents, "index")
    require(1 <= degree < agents and (degree % 2 == 0 or degree == agents - 1), "degree")
    if degree == agents - 1:
        return [other for other in range(agents) if other != index]
    order = permutation(agents, seed)
    here = order.index(index)
    return sorted(order[(here + step) % agents] for step in range(-(degree // 2), degree // 2 + 1) if step)


# A run: what its parties agree on before the first sum, and what they chain, seal and vouch for


def msgpack(value):
    """The shortest form of each value; fields of a message in their order."""
    if value is None or isinstance(value, bool):
        return {None: b"\xc0", False: b"\xc2", True: b"\xc3"}[value]
    if isinstance(value, int):
        if -32 <= value < 128:
            return value.to_bytes(1, "big", signed=value < 0)
        size = next(n for n in range(4) if (-(2 ** (8 * 2**n - 1)) <= value < 0) or 0 <= value < 2 ** (8 * 2**n))
        return bytes([(0xD0 if value < 0 else 0xCC) + size]) + value.to_bytes(2**size, "big", signed=value < 0)
    if isinstance(value, float):
        return b"\xcb" + struct.pack(">d", value)
    if isinstance(value, bytes):
        return _head(len(value), None, 0xC4) + value
    if isinstance(value, str):
        text = value.encode()
        return _head(len(text), (0xA0, 32), 0xD9) + text
    if isinstance(value, dict):
        return _head(len(value), (0x80, 16), 0xDD) + b"".join(msgpack(x) for pair in value.items() for x in pair)
    return _head(len(value), (0x90, 16), 0xDB) + b"".join(map(msgpack, value))


def _head(count, small, first):
    """A length; maps and lists have none of one byte."""
    if small is not None and count < small[1]:
        return bytes([small[0] + count])
    size = next(n for n in range(3) if count < 2 ** (8 * 2**n) and (n or first < 0xDA))
    return bytes([first + size]) + count.to_bytes(2**size, "big")


def bits(flags):
    packed = sum(1 << i for i, flag in enumerate(flags) if flag)
    return packed.to_bytes(-(-len(flags) // 8), "little")


def flags(data, count):
    require(len(data) == -(-count // 8), "flags")
    packed = int.from_bytes(data, "little")
    require(packed < 2**count, "flags")
    return [packed >> i & 1 for i in range(count)]


def weather_hash(time, outdoor, solar, first, last):
    rows = [i for i, stamp in enumerate(time) if first <= stamp <= last]
    stamps = b"".join(struct.pack("<q", time[i]) for i in rows)
    columns = (b"".join(struct.pack("<d", column[i]) for i in rows) for column in (outdoor, solar))
    return digest("weather", stamps, *columns)


def plan_hash(plan):
    return digest({"fit": "plan", "collect": "collect plan"}[plan["type"]], msgpack(plan))


def day_numbers(plan):
    last = plan["start"] + (plan["length"] - 1) * plan["step_seconds"]
    return range(plan["start"] // 86400, last // 86400 + 1)


def roster_hash(roster):
    serial, members, authority = roster
    entries = [dict(zip(("name", "owner", "identity", "since"), member, strict=True)) for member in members]
    return digest("roster", serial, msgpack(entries), authority)


def announce_hash(announce):
    plan, roster, attempt = announce
    message = {"type": "Announce", "plan": plan, "roster": roster, "attempt": attempt}
    return digest("announce", msgpack(message))


def ready(identity, announce, seed, days):
    fresh = derive(seed, ("nonce",), b"", 32)
    exchange = public_exchange_key(derive(seed, ("exchange",), b"", 32))
    return days, fresh, exchange, sign(identity, "ready", announce_hash(announce), days, fresh, exchange)


def check_ready(public, announce, answer):
    days, fresh, exchange, signature = answer
    require((len(fresh), len(exchange), len(signature)) == (32, 32, 64), "key length")
    flags(days, len(day_numbers(announce[0])))
    verify(public, signature, "ready", announce_hash(announce), days, fresh, exchange)


def agree(roster, plan, attempt, company, days, answers):
    """The run of these answers: its id, the hash of its company, and its days."""
    members = [member for member, inside in zip(roster[1], flags(company, len(roster[1])), strict=True) if inside]
    wanted = flags(days, len(day_numbers(plan)))
    require(members and any(wanted) and len(members) == len(answers), "number")
    require(len({a[1] for a in answers}) == len({a[2] for a in answers}) == len(answers), "distinct")
    for (_, _, identity, _), answer in zip(members, answers, strict=True):
        check_ready(identity, (plan, roster_hash(roster), attempt), answer)
        given = flags(answer[0], len(wanted))
        require(all(inside for inside, asked in zip(given, wanted, strict=True) if asked), "days")
    hashed = digest("run company", roster_hash(roster), b"".join(member[2] for member in members))
    nonces, exchange = (b"".join(answer[i] for answer in answers) for i in (1, 2))
    run = digest("run", 2, plan_hash(plan), hashed, days, nonces, exchange)
    return run, hashed, [day for day, asked in zip(day_numbers(plan), wanted, strict=True) if asked]


def layout_hash(blocks):
    """Of (name, size, bits, bound) each."""
    return digest("layout", *(x for name, size, bits, bound in blocks for x in (name, size, bits, float(bound).hex())))


def contexts(run, totals):
    """After each total as received, or sealed box."""
    found = [digest("blind context", run)]
    for total in totals:
        found.append(digest("blind context", found[-1], total))
    return found


def questions(company, plan, kept, totals):
    """What an agent's account has of each question: the first total, and the one after each total, without its veil."""
    stamps = b"".join(struct.pack("<q", stamp) for stamp in kept)
    question = digest("blind question", 2, digest("company", company), plan_hash(plan), stamps)
    found = [digest("question", question, "open")]
    for phase, words, following in totals:
        question = digest("question", question, phase, to_bytes(words))
        found.append(digest("question", question, following))
    return found


def sealed(group, run, context, leader, words):
    key = derive(group, ("seal", run, context), b"", 32)
    return seal(key, to_bytes(words), "seal", leader, "agents", ())


def unsealed(group, run, context, question, leader, box, numbers, size):
    """Words of the leader's numbers, c, the c before it and the salt; and where context and question go with them."""
    key = derive(group, ("seal", run, context), b"", 32)
    plain = open_sealed(key, box, "seal", leader, "agents", ())
    require(len(plain) == 8 * (numbers + 2 * size + 4), "seal")
    words = from_bytes(plain, len(plain) // 8)
    require(all(word >> 52 & 0x7FF != 0x7FF for word in words[numbers : numbers + 2 * size]), "seal")
    told = plain[: 8 * (numbers + size)]
    return words, digest("blind context", context, box), digest("question", question, "seal", told)


def pack_flags(flags, agents):
    """Flags of the rows an agent lacks, as many to a word of 48 bits as counts of all agents fit."""
    bits = agents.bit_length()
    each = 48 // bits
    groups = [flags[i : i + each] for i in range(0, len(flags), each)]
    return [sum(1 << bits * k for k, flag in enumerate(group) if flag) for group in groups]


def unpack_counts(words, agents, count):
    bits = agents.bit_length()
    return [word >> bits * k & (1 << bits) - 1 for word in words for k in range(48 // bits)][:count]


def release_box(key, words, run):
    return seal(key, to_bytes(words), "release", "leader", "aggregator", (run,))


def open_release(key, box, run):
    plain = open_sealed(key, box, "release", "leader", "aggregator", (run,))
    require(len(plain) % 8 == 0, "half a word")
    return from_bytes(plain, len(plain) // 8)


def vouched(run, context, words):
    """The hash of a release, which every agent signs."""
    return digest("release", 2, run, context, to_bytes(words))


def check_vouch(public, signature, run, context, words):
    verify(public, signature, "vouch", 2, vouched(run, context, words))

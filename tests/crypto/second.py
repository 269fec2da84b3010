"""A second implementation of what the vectors describe, for comparison only.

Python integers and the standard library: no numpy, no code of the package. From `cryptography` it takes the AES block,
Ed25519 and ChaCha20-Poly1305; counter mode, HKDF and X25519 are written out.
"""

import hashlib
import hmac
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

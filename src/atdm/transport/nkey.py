"""Ed25519 keys as NATS spells them: base32 of a prefix, the key and a checksum."""

import base64
import binascii

from atdm.crypto.keys import SigningKey

_USER = 20 << 3  # public user keys begin with U
_SEED = 18 << 3  # seeds with S, followed by what they are a seed of


def nkey_public(seed: bytes) -> str:
    """The public nkey (U…) that a server configuration lists."""
    return _spell(bytes([_USER]) + SigningKey(seed).public)


def nkey_seed(seed: bytes) -> str:
    """The private nkey (SU…) that the client signs the server's challenge with."""
    return _spell(bytes([_SEED | _USER >> 5, (_USER & 31) << 3]) + seed)


def _spell(data: bytes) -> str:
    return base64.b32encode(data + binascii.crc_hqx(data, 0).to_bytes(2, "little")).decode().rstrip("=")

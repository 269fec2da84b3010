"""Hashes, derived keys, signatures, key exchange, sealed boxes, tags and key files.

Rule 1: nothing is hashed, signed or derived from bare concatenation: `pack` gives every field its type and length.
Rule 2: every use names its purpose, so that bytes made for one use are worthless in another.
Rule 3: whatever a peer can get wrong raises PeerError; what the caller gets wrong raises UsageError.
Rule 4: nothing here draws randomness: seeds come in by argument. Python cannot promise to wipe them from memory.
"""

import hashlib
import hmac
import os
import re
import stat
import tempfile
from functools import lru_cache
from pathlib import Path

from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hmac import HMAC
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from atdm.errors import DataError, PeerError, UsageError

Field = bytes | str | int

KEY_BYTES = 32
DIGEST_BYTES = 32
TAG_BYTES = 16
_SUITE = "atdm-1"  # first field of everything packed: another version of the format shares no hash with this one
_ZERO_NONCE = bytes(12)  # allowed because each sealing key is used for one message
_HKDF_LIMIT = 255 * 32  # RFC 5869 §2.3
_KEY_FILE = re.compile(rb"atdm-key-1 ([0-9a-f]{64})\n")


def pack(purpose: str, *fields: Field) -> bytes:
    """Unambiguous bytes of a purpose and its fields: type letter, 8-byte little-endian length, content; for each."""
    return b"".join((_prefix(purpose), *_packed(fields)))


@lru_cache(maxsize=256)
def _prefix(purpose: str) -> bytes:
    return b"".join(_packed((_SUITE, purpose)))


def _packed(fields: tuple[Field, ...]) -> list[bytes]:
    parts: list[bytes] = []
    for field in fields:
        if isinstance(field, bytes):
            parts += (b"b", len(field).to_bytes(8, "little"), field)
        elif isinstance(field, str | int):
            parts.append(_packed_word(field))
        else:
            raise UsageError(f"cannot pack a {type(field).__name__}: give bytes, text or an integer")
    return parts


@lru_cache(maxsize=256)
def _packed_word(field: str | int) -> bytes:
    """Purposes, phases and versions, which come again and again."""
    kind, text = (b"s", field) if isinstance(field, str) else (b"i", str(int(field)))  # decimal: any size, one form
    return kind + len(text.encode()).to_bytes(8, "little") + text.encode()


def digest(*fields: Field) -> bytes:
    """SHA-256 of the packed fields."""
    return hashlib.sha256(pack("digest", *fields)).digest()


def hkdf(secret: bytes, *, salt: bytes, info: bytes, length: int = KEY_BYTES) -> bytes:
    """HKDF-SHA256 exactly as in RFC 5869. Prefer `derive`, which packs the info."""
    if not 1 <= length <= _HKDF_LIMIT:
        raise UsageError(f"{length} bytes from HKDF-SHA256: give between 1 and {_HKDF_LIMIT}")
    return HKDF(algorithm=hashes.SHA256(), length=length, salt=salt, info=info).derive(secret)


def derive(secret: bytes, *fields: Field, salt: bytes = b"", length: int = KEY_BYTES) -> bytes:
    """A key for the use that `fields` name, from a secret."""
    if not secret:
        raise UsageError("cannot derive a key from an empty secret: give the secret's bytes")
    return hkdf(secret, salt=salt, info=pack("derive", *fields), length=length)


class SigningKey:
    """A long-term identity: Ed25519, from a 32-byte seed."""

    __slots__ = ("_key", "public")

    def __init__(self, seed: bytes) -> None:
        self._key = Ed25519PrivateKey.from_private_bytes(_own_key(seed, "signing seed"))
        self.public = self._key.public_key().public_bytes_raw()

    def __repr__(self) -> str:
        return f"SigningKey(public={self.public.hex()})"

    def sign(self, *fields: Field) -> bytes:
        """64-byte signature over the packed fields."""
        return self._key.sign(pack("signature", *fields))


def verify(public: bytes, signature: bytes, *fields: Field) -> None:
    """Raise PeerError unless `signature` is `public`'s over exactly these fields."""
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, pack("signature", *fields))
    except (InvalidSignature, ValueError):
        raise PeerError(
            f"signature by key {public[:8].hex()}… does not verify: refuse the message, and compare the roster"
        ) from None


class ExchangeKey:
    """A key pair for one run: X25519, from 32 fresh random bytes."""

    __slots__ = ("_key", "public")

    def __init__(self, seed: bytes) -> None:
        self._key = X25519PrivateKey.from_private_bytes(_own_key(seed, "exchange seed"))
        self.public = self._key.public_key().public_bytes_raw()

    def __repr__(self) -> str:
        return f"ExchangeKey(public={self.public.hex()})"

    def shared(
        self,
        peer_public: bytes,
        *,
        version: Field,
        run_id: bytes,
        ids: tuple[bytes, bytes],
        roster: bytes,
        config: bytes,
    ) -> bytes:
        """The 32-byte key of a pair: equal on both sides if both were shown the same run, roster and config.

        `ids` are the two identity keys in either order; `roster` and `config` are digests.
        """
        info = _pair_info(version, run_id, ids, roster, config)
        return hkdf(self.agree(peer_public), salt=run_id, info=info)

    def agree(self, peer_public: bytes) -> bytes:
        """The bare X25519 function (RFC 7748). Biased bytes, not a key: use `shared`."""
        try:
            return self._key.exchange(X25519PublicKey.from_public_bytes(peer_public))
        except ValueError:  # wrong length, or a low-order point, whose shared secret everybody knows: all zero
            raise PeerError(
                f"exchange key {peer_public[:8].hex()}… is malformed or of low order: the peer must send a fresh key"
            ) from None


def seal(pair_key: bytes, plaintext: bytes, *associated: Field, purpose: str, sender: Field, receiver: Field) -> bytes:
    """Encrypt one message from sender to receiver; `associated` is bound to it, not carried.

    One use: the cipher key is derived from pair key, direction, purpose and associated fields, and its nonce is zero,
    so these together may seal one plaintext only, ever. Put a counter or a context among the associated fields.
    """
    key, data = _box_key(pair_key, purpose, sender, receiver, associated)
    return ChaCha20Poly1305(key).encrypt(_ZERO_NONCE, plaintext, data)


def open_sealed(pair_key: bytes, box: bytes, *associated: Field, purpose: str, sender: Field, receiver: Field) -> bytes:
    """The plaintext of `seal`; PeerError if box, direction, purpose or any associated field differs."""
    key, data = _box_key(pair_key, purpose, sender, receiver, associated)
    try:
        return ChaCha20Poly1305(key).decrypt(_ZERO_NONCE, box, data)
    except InvalidTag:
        raise PeerError(f"sealed message ({purpose}) does not open: it was altered or is of another run") from None


class Tagger:
    """16-byte HMAC-SHA256 tags of messages under one key, which is set up once. Messages are packed by the caller."""

    __slots__ = ("_fresh",)

    def __init__(self, key: bytes) -> None:
        self._fresh = HMAC(_own_key(key, "tag key"), hashes.SHA256())

    def __repr__(self) -> str:
        return "Tagger()"

    def tag(self, packed: bytes) -> bytes:
        mac = self._fresh.copy()
        mac.update(packed)
        return mac.finalize()[:TAG_BYTES]

    def check(self, received: bytes, packed: bytes) -> None:
        """Raise PeerError unless `received` is the tag of this message; takes the same time for any wrong one."""
        if not hmac.compare_digest(self.tag(packed), received):
            raise PeerError("a tag does not verify: the message was altered, or belongs to another run")


def write_key_file(path: Path, key: bytes) -> None:
    """Write a 32-byte key readable by its owner only. All or nothing; an existing file is never replaced."""
    _own_key(key, "key")
    if path.exists():
        raise UsageError(f"{path} exists: a key is never overwritten; move it away or choose another name")
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")  # created with mode 0600
    except OSError as error:
        raise UsageError(f"cannot write to {path.parent}: {error.strerror}; choose a folder you may write to") from None
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(b"atdm-key-1 " + key.hex().encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
        os.replace(name, path)
    except OSError as error:
        Path(name).unlink(missing_ok=True)
        raise UsageError(f"cannot write the key file {path}: {error.strerror}; nothing was written") from None


def read_key_file(path: Path) -> bytes:
    """The 32 bytes of a key file; refuses a file that others may read."""
    try:
        with path.open("rb") as file:
            _check_private(path, os.fstat(file.fileno()))
            content = file.read(1024)  # the file opened is the file checked
    except OSError as error:
        raise DataError(f"cannot read the key file {path}: {error.strerror}; check the path") from None
    match = _KEY_FILE.fullmatch(content)
    if match is None:
        raise DataError(f"{path} is not a key file: expected one line 'atdm-key-1' and 64 hex digits; restore it")
    return bytes.fromhex(match[1].decode())


def _pair_info(version: Field, run_id: bytes, ids: tuple[bytes, bytes], roster: bytes, config: bytes) -> bytes:
    low, high = sorted(ids)
    if low == high:
        raise UsageError("both ends of a pair have the same identity: an agent shares no key with itself")
    for name, value in (("roster", roster), ("config", config)):
        if len(value) != DIGEST_BYTES:
            raise UsageError(f"{name} is {len(value)} bytes, expected a {DIGEST_BYTES}-byte digest: pass digest(...)")
    return pack("pair", version, run_id, low, high, roster, config)


def _box_key(
    pair_key: bytes, purpose: str, sender: Field, receiver: Field, associated: tuple[Field, ...]
) -> tuple[bytes, bytes]:
    data = pack("seal", purpose, sender, receiver, *associated)
    return hkdf(_own_key(pair_key, "pair key"), salt=b"", info=data), data


def _own_key(key: bytes, name: str) -> bytes:
    if len(key) != KEY_BYTES:
        raise UsageError(f"{name} is {len(key)} bytes: give {KEY_BYTES} bytes from a secure source")
    return key


def _check_private(path: Path, status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise UsageError(f"{path} is not a plain file: give the path of a key file")
    if os.name == "posix" and stat.S_IMODE(status.st_mode) & 0o077:
        raise UsageError(f"{path} can be read by others: run `chmod 600 {path}`, and renew the key if they may have")

"""Numbers other people published: through our functions where they take bare bytes, else the primitive they call."""

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hmac import HMAC

from atdm.crypto import keys, prg, ring

from . import second

unhex = bytes.fromhex


@pytest.mark.parametrize(
    "secret, salt, info, okm",
    [
        (
            "0b" * 22,
            "000102030405060708090a0b0c",
            "f0f1f2f3f4f5f6f7f8f9",
            "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf34007208d5b887185865",
        ),
        ("0b" * 22, "", "", "8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d9d201395faa4b61a96c8"),
    ],
    ids=["case 1", "case 3"],
)
def test_hkdf_matches_rfc_5869(secret, salt, info, okm):
    assert keys.hkdf(unhex(secret), salt=unhex(salt), info=unhex(info), length=42).hex() == okm
    assert second.hkdf(unhex(secret), unhex(salt), unhex(info), 42).hex() == okm


@pytest.mark.parametrize(
    "scalar, point, result",
    [
        (
            "a546e36bf0527c9d3b16154b82465edd62144c0ac1fc5a18506a2244ba449ac4",
            "e6db6867583030db3594c1a424b15f7c726624ec26b3353b10a903a6d0ab1c4c",
            "c3da55379de9c6908e94ea4df28d084f32eccf03491c71f754b4075577a28552",
        ),
        (
            "4b66e9d4d1b4673c5ad22691957d6af5c11b6421e0ea01d42ca4169e7918ba0d",
            "e5210f12786811d3f4b7959d0538ae2c31dbe7106fc03c3efc4cd549c715a493",
            "95cbde9476e8907d7aade45cb4b873f88b595a68799fa152e6f8f7647aac7957",
        ),
    ],
)
def test_x25519_matches_rfc_7748(scalar, point, result):
    assert keys.ExchangeKey(unhex(scalar)).agree(unhex(point)).hex() == result
    assert second.x25519(unhex(scalar), unhex(point)).hex() == result


def test_x25519_matches_the_iterations_of_rfc_7748():
    scalar = point = (9).to_bytes(32, "little")
    seen = {}
    for iteration in range(1, 1001):
        scalar, point = keys.ExchangeKey(scalar).agree(point), scalar
        seen[iteration] = scalar.hex()
    assert seen[1] == "422c8e7a6227d7bca1350b3e2bb7279f7897b87bb6854b783c60e80311ae3079"
    assert seen[1000] == "684cf59ba83309552800ef566f2f4d3c1c3887c49360e3875f2eb94d99532c51"


@pytest.mark.parametrize(
    "seed, public, message, signature",
    [
        (
            "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60",
            "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
            "",
            "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e06522490155"
            "5fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b",
        ),
        (
            "4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb",
            "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c",
            "72",
            "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da"
            "085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00",
        ),
        (
            "c5aa8df43f9f837bedb7442f31dcb7b166d38535076f094b85ce3a2e0b4458f7",
            "fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025",
            "af82",
            "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac"
            "18ff9b538d16f290ae67f760984dc6594a7c15e9716ed28dc027beceea1ec40a",
        ),
    ],
    ids=["test 1", "test 2", "test 3"],
)
def test_ed25519_matches_rfc_8032(seed, public, message, signature):
    assert keys.SigningKey(unhex(seed)).public.hex() == public
    assert Ed25519PrivateKey.from_private_bytes(unhex(seed)).sign(unhex(message)).hex() == signature


def test_aes_256_ctr_matches_nist_sp_800_38a():
    cipher = prg._open(unhex("603deb1015ca71be2b73aef0857d77811f352c073b6108d72d9810a30914dff4"), prg.CTR(bytes(16)))
    cipher.reset_nonce(unhex("f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff"))
    plaintext = (
        "6bc1bee22e409f96e93d7e117393172aae2d8a571e03ac9c9eb76fac45af8e51"
        "30c81c46a35ce411e5fbc1191a0a52eff69f2445df4f9b17ad2b417be66c3710"
    )
    assert cipher.update(unhex(plaintext)).hex() == (
        "601ec313775789a5b7a7f504bbf3d228f443e3ca4d62b59aca84e990cacaf5c5"
        "2b0930daa23de94ce87017ba2d84988ddfc9c58db67aada613c2dd08457941a6"
    )


def test_stream_starts_with_the_aes_256_block_of_zeros():
    words = prg.Stream(bytes(32)).words(2, bytes(16))
    assert ring.to_bytes(words).hex() == "dc95c078a2408989ad48a21492842087"


def test_chacha20_poly1305_matches_rfc_8439():
    text = (
        b"Ladies and Gentlemen of the class of '99: If I could offer you only one tip for the future, "
        b"sunscreen would be it."
    )
    box = ChaCha20Poly1305(bytes(range(0x80, 0xA0))).encrypt(
        unhex("070000004041424344454647"), text, unhex("50515253c0c1c2c3c4c5c6c7")
    )
    assert box.hex() == (
        "d31a8d34648e60db7b86afbc53ef7ec2a4aded51296e08fea9e2b5a736ee62d63dbea45e8ca9671282fafb69da92728b"
        "1a71de0a9e060b2905d6a5b67ecd3b3692ddbd7f2d778b8c9803aee328091b58fab324e4fad675945585808b4831d7bc"
        "3ff4def08e4b7a9de576d26586cec64b61161ae10b594f09e26a7e902ecbd0600691"
    )


def test_hmac_sha256_matches_rfc_4231():
    mac = HMAC(b"\x0b" * 20, hashes.SHA256())
    mac.update(b"Hi There")
    assert mac.finalize().hex() == "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7"

"""Cryptographic building blocks: fixed-point ring, masks, keys, mask graph. Knows no parties, protocol or network."""

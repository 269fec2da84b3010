"""Building blocks: fixed-point ring, sums, masks, keys, mask graph. Knows no parties, protocol or network."""

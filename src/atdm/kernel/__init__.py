"""The mathematics: numpy and scipy only, pure functions; it knows no parties, no files and no clocks.

Numbers in parentheses, as in Eq. (2), are those of docs/spec.md.
"""

"""`blind` with fitted weights: the agents run the descent on sums that only they can open, and release the model.

script     an agent's run, top to bottom
veil       a sum that only agents can open: masks, veil, check words, range and count
direction  what an agent adds to the next total, from opened sums and its own series
layouts    the words of each sum
release    the numbers that are sealed, verified, vouched for and released
desk       the aggregator's side
"""

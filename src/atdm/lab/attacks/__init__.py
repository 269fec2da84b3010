"""What a curious or dishonest party could learn.

Rule 1: an attack sees a transcript and public knowledge, never the data. Only the scorer (score.py) sees the data.
Rule 2: an attack returns what it would claim (Guess); whether it is true is the scorer's business.
Rule 3: scikit-learn and fpylll are imported where they are used, so that nothing else needs them.
"""

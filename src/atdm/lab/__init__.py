"""Experiments on the method: protocols side by side, speed, the paper's tables and figures, audit and attacks."""

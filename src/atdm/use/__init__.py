"""What a fitted model is for: forecasts, flexibility, choosing order and season, noticing drift."""

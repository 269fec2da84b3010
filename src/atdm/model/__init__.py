"""The fitted model, its file, and every estimate made on released series: diagnostics, bands, selection."""

"""Procedurally generated data sets, used when the real data are unavailable."""

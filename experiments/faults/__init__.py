"""Runs that are killed at every moment and hit by other faults, and what becomes of them."""

"""Fault injection: runs are killed at every stage."""

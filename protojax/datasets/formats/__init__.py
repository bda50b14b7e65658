"""Readers of foreign formats, which trust nothing that a file says."""

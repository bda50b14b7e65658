"""Readers of foreign formats, which trust nothing that a file says."""


class Damaged(Exception):
    """Why a file cannot be read."""

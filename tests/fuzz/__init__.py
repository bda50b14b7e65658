"""Fuzzing of every reader: valid files (seeds), changes (mutations), the table of formats, and processes that read."""

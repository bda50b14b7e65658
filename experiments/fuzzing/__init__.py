"""Mutated files for every reader: seeds to begin with, mutations, the table of formats, and the processes that read."""

"""Data sets on the host: each module's `load` returns the `Splits` of one data set."""

from collections.abc import Callable
from typing import NamedTuple

from protojax.episodes import Dataset


class Splits(NamedTuple):
    """A data set in memory, one `Dataset` per split; None for a split that was not prepared."""

    title: str  # name in tables and logs; contains 'synthetic' for synthetic data
    synthetic: bool  # True for generated data
    train: Dataset | None
    validation: Dataset | None = None
    test: Dataset | None = None

    @property
    def item_shape(self) -> tuple[int, ...]:
        """Return the shape of one example, the same in all splits."""
        return next(split for split in self[2:] if split is not None).items.shape[2:]

    def map(self, function: Callable[[Dataset], Dataset]) -> 'Splits':
        """Apply a function to every split."""
        return Splits(*self[:2], *(None if split is None else function(split) for split in self[2:]))

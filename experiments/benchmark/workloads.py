"""What the contenders are given to do: sizes, random data of these sizes, and the arithmetic that they cost."""

from typing import NamedTuple

import numpy as np

FILTERS = 64


class Workload(NamedTuple):
    """Episodes of a size, drawn from a data set of a size."""

    way: int
    shot: int
    query: int
    image: tuple  # height, width, channels
    classes: int
    items: int  # images per class
    episodes: int = 1  # in one evaluation

    @property
    def images(self):
        """Images in one episode."""
        return self.way * (self.shot + self.query)

    @property
    def embedding_flops(self):
        """Operations of each of the four convolutions on one image, as a textbook counts them."""
        height, width, channels = self.image
        flops = []
        for _ in range(4):
            flops.append(2 * 9 * height * width * channels * FILTERS)
            height, width, channels = height // 2, width // 2, FILTERS
        return flops

    @property
    def training_flops(self):
        """Operations of a training step: forward, and twice as many backward but for the gradient of the images."""
        first, *others = self.embedding_flops
        return self.images * (2 * first + 3 * sum(others))


OMNIGLOT = Workload(way=60, shot=1, query=5, image=(28, 28, 1), classes=4112, items=20)
# A tenth of miniImageNet's images: a step takes no longer with all of them, and each contender holds its own copy.
MINIIMAGENET = Workload(way=20, shot=5, query=15, image=(84, 84, 3), classes=64, items=60)
EVALUATION = Workload(way=20, shot=5, query=15, image=(28, 28, 1), classes=1692, items=20, episodes=1000)


def random_images(workload):
    """Noise in the form of a data set: uint8 [classes, items, *image]."""
    shape = (workload.classes, workload.items, *workload.image)
    return np.random.default_rng(0).integers(0, 256, shape, np.uint8)

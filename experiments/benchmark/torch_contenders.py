"""PyTorch as a contender, computing what the paper's official code computes. Imports torch, which is an extra."""

import torch
from torch import nn
from torch.nn import functional

from experiments.benchmark.workloads import FILTERS, random_images


def encoder(channels):
    """Four blocks of convolution, batch normalisation, ReLU and max-pool: [N, C, H, W] -> [N, D]."""
    layers = []
    for inputs in (channels, FILTERS, FILTERS, FILTERS):
        layers += [nn.Conv2d(inputs, FILTERS, 3, padding=1), nn.BatchNorm2d(FILTERS), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*layers, nn.Flatten())


def episode_loss(model, support, query, *, layout=torch.contiguous_format):
    """Mean loss and accuracy of an episode: [way, shot, C, H, W], [way, query, C, H, W] -> [], []."""
    way, shot, queries = *support.shape[:2], query.shape[1]
    images = torch.cat([support.flatten(0, 1), query.flatten(0, 1)]).contiguous(memory_format=layout)
    of_support, of_query = model(images).split([way * shot, way * queries])
    prototypes = of_support.view(way, shot, -1).mean(1)
    shape = (way * queries, way, prototypes.shape[1])
    distances = torch.pow(of_query.unsqueeze(1).expand(shape) - prototypes.unsqueeze(0).expand(shape), 2).sum(2)
    log_probabilities = functional.log_softmax(-distances, dim=1)
    labels = torch.arange(way).repeat_interleave(queries)
    loss = -log_probabilities.gather(1, labels.unsqueeze(1)).mean()
    return loss, (log_probabilities.argmax(1) == labels).float().mean()


def draw_episode(images, workload):
    """Random classes and images of them, scaled to 0-1: [way, shot, C, H, W], [way, query, C, H, W]."""
    number = workload.shot + workload.query
    classes = torch.randperm(images.shape[0])[: workload.way]
    places = torch.stack([torch.randperm(images.shape[1])[:number] for _ in range(workload.way)])
    chosen = images[classes.unsqueeze(1), places].float() / 255
    return chosen[:, : workload.shot], chosen[:, workload.shot :]


def training(workload, *, layout):
    """One step: draw an episode and update the parameters."""
    layout = getattr(torch, layout)
    model, images = start(workload, layout)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    def run(steps):
        for _ in range(steps):
            loss, accuracy = episode_loss(model, *draw_episode(images, workload), layout=layout)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            loss.item(), accuracy.item()

    return run


def evaluation(workload, *, layout):
    """One step: draw an episode, embed it with the running statistics and score it."""
    layout = getattr(torch, layout)
    model, images = start(workload, layout)
    model.eval()

    @torch.no_grad()
    def run(steps):
        for _ in range(steps):
            loss, accuracy = episode_loss(model, *draw_episode(images, workload), layout=layout)
            loss.item(), accuracy.item()
        return loss.item()

    return run


def matmul(size):
    """One step: the product of two square matrices."""
    x = torch.ones(size, size)

    def run(steps):
        for _ in range(steps):
            x @ x

    return run


def start(workload, layout):
    """Model, and the data set as the layers want it: uint8 [classes, items, C, H, W]."""
    torch.manual_seed(0)
    height, width, channels = workload.image
    model = encoder(channels).to(memory_format=layout)
    images = torch.from_numpy(random_images(workload._replace(image=(channels, height, width))))
    return model, images

"""Measured functions of PyTorch, which compute the same as the paper's official code. Imports torch, an extra."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from experiments.benchmark.plan import FILTERS, Photos, Run, Workload, random_images, repeated


def _encoder(channels: int) -> nn.Module:
    """Build four blocks of convolution, batch normalisation, ReLU and max-pool: [N, C, H, W] -> [N, D]."""
    layers = []
    for inputs in (channels, FILTERS, FILTERS, FILTERS):
        layers += [nn.Conv2d(inputs, FILTERS, 3, padding=1), nn.BatchNorm2d(FILTERS), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*layers, nn.Flatten())


def episode_loss(model: nn.Module, support: Tensor, query: Tensor, *, layout: Any = torch.contiguous_format) -> tuple:
    """Return mean loss and accuracy of an episode: [way, shot, C, H, W], [way, query, C, H, W] -> [], []."""
    way, shot, queries = *support.shape[:2], query.shape[1]
    images = torch.cat([support.flatten(0, 1), query.flatten(0, 1)]).contiguous(memory_format=layout)
    return _score(*model(images).split([way * shot, way * queries]), way)


def _score(support, query, way):
    """Return mean loss and accuracy of an embedded episode: [way * shot, D], [way * queries, D] -> [], []."""
    prototypes = support.view(way, -1, support.shape[1]).mean(1)
    shape = (len(query), way, prototypes.shape[1])
    distances = torch.pow(query.unsqueeze(1).expand(shape) - prototypes.unsqueeze(0).expand(shape), 2).sum(2)
    log_probabilities = functional.log_softmax(-distances, dim=1)
    labels = torch.arange(way).repeat_interleave(len(query) // way)
    loss = -log_probabilities.gather(1, labels.unsqueeze(1)).mean()
    return loss, (log_probabilities.argmax(1) == labels).float().mean()


def _sample(items, workload):
    """Sample classes and items: [classes, items, ...] -> [way, shot, ...], [way, query, ...]."""
    number = workload.shot + workload.query
    classes = torch.randperm(items.shape[0])[: workload.way]
    indices = torch.stack([torch.randperm(items.shape[1])[:number] for _ in range(workload.way)])
    chosen = items[classes.unsqueeze(1), indices]
    return chosen[:, : workload.shot], chosen[:, workload.shot :]


def sample_episode(images: Tensor, workload: Workload) -> list[Tensor]:
    """Sample an episode of images scaled to 0-1: [way, shot, C, H, W], [way, query, C, H, W]."""
    return [part.float() / 255 for part in _sample(images, workload)]


def training(workload: Workload, *, layout: str, autocast: bool = False, compiled: bool = False) -> Run:
    """Step: sample an episode and update the parameters; `autocast` uses bfloat16 if PyTorch considers it safe."""
    layout, model, images = start(workload, layout)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    embed = torch.compile(model) if compiled else model

    def once():
        with torch.autocast('cpu', torch.bfloat16, enabled=autocast):
            loss, accuracy = episode_loss(embed, *sample_episode(images, workload), layout=layout)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item(), accuracy.item()

    return repeated(once)


def evaluation(workload: Workload, *, layout: str) -> Run:
    """Step: sample an episode, embed it with the running statistics and score it."""
    layout, model, images = start(workload, layout, train=False)

    @torch.no_grad()
    def once():
        loss, accuracy = episode_loss(model, *sample_episode(images, workload), layout=layout)
        return loss.item(), accuracy.item()

    return repeated(once)


def stored_evaluation(workload: Workload, *, layout: str, batch: int = 500) -> Run:
    """Step: embed every image once, then sample all episodes from the embeddings and score them."""
    layout, model, images = start(workload, layout, train=False)

    @torch.no_grad()
    def once():
        pieces = images.flatten(0, 1).split(batch)
        stored = torch.cat([model((piece.float() / 255).contiguous(memory_format=layout)) for piece in pieces])
        stored = stored.view(workload.classes, workload.items, -1)
        scores = []
        for _ in range(workload.episodes):
            support, query = _sample(stored, workload)
            scores.append(_score(support.flatten(0, 1), query.flatten(0, 1), workload.way)[1])
        return torch.stack(scores).mean().item()

    return repeated(once)


def start(workload: Workload, layout: str, *, train: bool = True) -> tuple:
    """Return memory format, model and data set, uint8 [classes, items, C, H, W]."""
    torch.manual_seed(0)
    memory_format, (height, width, channels) = getattr(torch, layout), workload.image
    model = _encoder(channels).to(memory_format=memory_format).train(train)
    images = torch.from_numpy(random_images(workload._replace(image=(channels, height, width))))
    return memory_format, model, images


def encoding(workload: Photos, *, layout: str) -> Run:
    """Step: embed a batch of photographs by the same network in timm."""
    import timm

    model = timm.create_model(workload.timm, num_classes=0, **workload.options).eval()
    model = model.to(memory_format=getattr(torch, layout))
    images = torch.from_numpy(workload.images).permute(0, 3, 1, 2)  # channels last in memory
    return repeated(torch.inference_mode()(lambda: model(images.float() / 255).shape))

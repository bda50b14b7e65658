"""PyTorch as a contender, computing what the paper's official code computes. Imports torch, which is an extra."""

import torch
from torch import nn
from torch.nn import functional

from experiments.benchmark.workloads import FILTERS, random_images


def _torch_encoder(channels):
    """Four blocks of convolution, batch normalisation, ReLU and max-pool: [N, C, H, W] -> [N, D]."""
    layers = []
    for inputs in (channels, FILTERS, FILTERS, FILTERS):
        layers += [nn.Conv2d(inputs, FILTERS, 3, padding=1), nn.BatchNorm2d(FILTERS), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*layers, nn.Flatten())


def torch_episode_loss(model, support, query, *, layout=torch.contiguous_format):
    """Mean loss and accuracy of an episode: [way, shot, C, H, W], [way, query, C, H, W] -> [], []."""
    way, shot, queries = *support.shape[:2], query.shape[1]
    images = torch.cat([support.flatten(0, 1), query.flatten(0, 1)]).contiguous(memory_format=layout)
    return _score_torch_episode(*model(images).split([way * shot, way * queries]), way)


def _score_torch_episode(support, query, way):
    """Mean loss and accuracy of an embedded episode, class by class: [way * shot, D], [way * queries, D] -> [], []."""
    prototypes = support.view(way, -1, support.shape[1]).mean(1)
    shape = (len(query), way, prototypes.shape[1])
    distances = torch.pow(query.unsqueeze(1).expand(shape) - prototypes.unsqueeze(0).expand(shape), 2).sum(2)
    log_probabilities = functional.log_softmax(-distances, dim=1)
    labels = torch.arange(way).repeat_interleave(len(query) // way)
    loss = -log_probabilities.gather(1, labels.unsqueeze(1)).mean()
    return loss, (log_probabilities.argmax(1) == labels).float().mean()


def _draw_torch_items(items, workload):
    """Random classes and items of them: [classes, items, ...] -> [way, shot, ...], [way, query, ...]."""
    number = workload.shot + workload.query
    classes = torch.randperm(items.shape[0])[: workload.way]
    places = torch.stack([torch.randperm(items.shape[1])[:number] for _ in range(workload.way)])
    chosen = items[classes.unsqueeze(1), places]
    return chosen[:, : workload.shot], chosen[:, workload.shot :]


def draw_torch_episode(images, workload):
    """An episode of images, scaled to 0-1: [way, shot, C, H, W], [way, query, C, H, W]."""
    return [part.float() / 255 for part in _draw_torch_items(images, workload)]


def torch_training(workload, *, layout, autocast=False, compiled=False):
    """One step: draw an episode and update the parameters; with `autocast` in bfloat16 where PyTorch deems it safe."""
    layout = getattr(torch, layout)
    model, images = start_torch(workload, layout)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    embed = torch.compile(model) if compiled else model

    def run(steps):
        for _ in range(steps):
            with torch.autocast('cpu', torch.bfloat16, enabled=autocast):
                loss, accuracy = torch_episode_loss(embed, *draw_torch_episode(images, workload), layout=layout)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            loss.item(), accuracy.item()

    return run


def torch_evaluation(workload, *, layout):
    """One step: draw an episode, embed it with the running statistics and score it."""
    layout = getattr(torch, layout)
    model, images = start_torch(workload, layout)
    model.eval()

    @torch.no_grad()
    def run(steps):
        for _ in range(steps):
            loss, accuracy = torch_episode_loss(model, *draw_torch_episode(images, workload), layout=layout)
            loss.item(), accuracy.item()
        return loss.item()

    return run


def torch_stored_evaluation(workload, *, layout, batch=500):
    """One step: embed every image once, then draw all episodes from the embeddings and score them."""
    layout = getattr(torch, layout)
    model, images = start_torch(workload, layout)
    model.eval()

    @torch.no_grad()
    def once():
        pieces = images.flatten(0, 1).split(batch)
        stored = torch.cat([model((piece.float() / 255).contiguous(memory_format=layout)) for piece in pieces])
        stored = stored.view(workload.classes, workload.items, -1)
        scores = []
        for _ in range(workload.episodes):
            support, query = _draw_torch_items(stored, workload)
            scores.append(_score_torch_episode(support.flatten(0, 1), query.flatten(0, 1), workload.way)[1])
        return torch.stack(scores).mean().item()

    def run(steps):
        for _ in range(steps):
            accuracy = once()
        return accuracy

    return run


def torch_matmul(size):
    """One step: the product of two square matrices."""
    x = torch.ones(size, size)

    def run(steps):
        for _ in range(steps):
            x @ x

    return run


def start_torch(workload, layout):
    """Model, and the data set as the layers want it: uint8 [classes, items, C, H, W]."""
    torch.manual_seed(0)
    height, width, channels = workload.image
    model = _torch_encoder(channels).to(memory_format=layout)
    images = torch.from_numpy(random_images(workload._replace(image=(channels, height, width))))
    return model, images

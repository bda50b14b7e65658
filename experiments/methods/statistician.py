"""The neural statistician (Edwards and Storkey 2017): a class is a set of drawings that share a context c.

c has a standard normal prior; each item x of a set has a code z with p(z | c), and p(x | c, z) is Bernoulli on black
and white pixels. Networks give the approximate posteriors q(c | D), from the mean over the set of embedded items, and
q(z | c, x). Training maximises the bound on log p(D)

    sum over items of E[log p(x | c, z)] - KL(q(z | c, x) || p(z | c)),   minus KL(q(c | D) || p(c)).

A query x takes the class with the lowest KL(q(c | D_k) || q(c | {x})). One layer of codes z, without the batch norm of
the authors' decoder.

A Gaussian with a variance per dimension is a vector [2 C], its mean and then its log-variance.
"""

from collections.abc import Sequence
from functools import partial
from typing import ClassVar

import flax.linen as nn
import jax
import jax.numpy as jnp

from experiments.methods import batches
from experiments.methods.options import Config, ConfigError, Finetuned, Method
from protojax import Learner, Parametric, Splits, devices, few_shot_learner, pairwise, prototypes, sample_episode
from protojax.encoders.block import EPSILON, MOMENTUM
from protojax.encoders.images import scaled_pixels

HIDDEN = 256  # units of all layers between the encoder and the Gaussians
WIDTHS = (64, 128, 256)  # filters of each block


class Options(Finetuned):
    """Neural statistician"""


def build(config: Config, data: Splits, encoder: None) -> Learner:
    if data.item_shape[-1] != 1:
        raise ConfigError('--model=statistician needs images with one channel, as in Omniglot; choose another --model')
    return learner(data.item_shape, way=config.episodes.way, items=config.episodes.per_class)


METHOD = Method(build, Options, {'way': 16, 'query': 4, 'halve_every': 0})


class Stack(nn.Module):
    """Blocks of three 3x3 convolutions, the last of stride 2, and a layer of 256: [N, H, W, C] -> [N, HIDDEN]."""

    widths: Sequence[int] = WIDTHS
    item_shape: Sequence[int] | None = None
    settings: ClassVar[tuple[str, ...]] = ('widths', 'item_shape')

    @nn.compact
    def __call__(self, images, *, train=False, axis_name=None):
        x = scaled_pixels(images, (0.0,), (1.0,), jnp.float32)
        norm = {'use_running_average': not train, 'momentum': MOMENTUM, 'epsilon': EPSILON, 'axis_name': axis_name}
        for width in self.widths:
            for stride in (1, 1, 2):
                # Equivalent to a stride, for which XLA has slow gradients on CPU.
                x = nn.Conv(width, (3, 3), use_bias=False)(x)[:, ::stride, ::stride]
                x = nn.elu(nn.BatchNorm(**norm)(x))
        return nn.elu(nn.Dense(HIDDEN)(x.reshape(len(x), -1)))


class Decoder(nn.Module):
    """The stack mirrored, from codes and context to the log odds of pixels: [N, Z + C] -> [N, pixels]."""

    widths: Sequence[int]
    item_shape: Sequence[int]

    @nn.compact
    def __call__(self, x):
        height, width, channels = self.item_shape
        scale = 2 ** len(self.widths)
        small = -(-height // scale), -(-width // scale), self.widths[-1]
        x = nn.elu(nn.Dense(small[0] * small[1] * small[2])(nn.elu(nn.Dense(HIDDEN)(x))))
        x = x.reshape(-1, *small)
        for filters in self.widths[::-1]:
            for _ in range(2):
                x = nn.elu(nn.Conv(filters, (3, 3))(x))
            x = nn.elu(enlarged(nn.Dense(4 * filters)(x)))
        x = nn.Conv(channels, (1, 1))(x[:, :height, :width])
        return x.reshape(len(x), -1)


def enlarged(x: jax.Array) -> jax.Array:
    """Double height and width; each pixel takes a quarter of the channels: [N, H, W, 4 C] -> [N, 2 H, 2 W, C].

    After a dense layer this is a transposed convolution of stride 2, whose gradients are slow on CPU.
    """
    count, height, width, channels = x.shape
    x = x.reshape(count, height, width, 2, 2, channels // 4)
    return x.transpose(0, 1, 3, 2, 4, 5).reshape(count, 2 * height, 2 * width, channels // 4)


class Gaussian(nn.Module):
    """A Gaussian that depends on the input through a hidden layer, its log-variances within +-5: [N, I] -> [N, 2 size].

    Without a bound the ratio of two variances may overflow early in training.
    """

    size: int

    @nn.compact
    def __call__(self, x):
        mean, log_variance = jnp.split(nn.Dense(2 * self.size)(nn.elu(nn.Dense(HIDDEN)(x))), 2, 1)
        return jnp.concatenate([mean, 5 * jnp.tanh(log_variance / 5)], 1)


def learner(
    item_shape: Sequence[int],
    *,
    way: int,
    items: int,
    widths: Sequence[int] = WIDTHS,
    context: int = 512,
    code: int = 16,
) -> Learner:
    """Build a learner from `way` sets of `items` examples of one class each."""
    encoder, decoder = Stack(tuple(widths), tuple(item_shape)), Decoder(tuple(widths), tuple(item_shape))
    networks = {  # name: network, number of inputs
        'context': (Gaussian(context), HIDDEN),  # q(c | D)
        'prior': (Gaussian(code), context),  # p(z | c)
        'posterior': (Gaussian(code), HIDDEN + context),  # q(z | c, x)
        'decoder': (decoder, code + context),  # p(x | c, z)
    }

    @partial(jax.jit, static_argnums=1)
    def init(key, dimensions):
        keys = jax.random.split(key, len(networks))
        sizes = zip(keys, networks.items(), strict=True)
        return {name: net.init(k, jnp.zeros((1, inputs)))['params'] for k, (name, (net, inputs)) in sizes}

    def apply(params, name, *inputs):
        return networks[name][0].apply({'params': params[name]}, jnp.concatenate(inputs, 1))

    def classify(params, episode):
        sets = prototypes(episode.support, episode.support_labels, way=episode.way)
        of_sets, of_queries = (apply(params, 'context', h) for h in (sets, episode.query))
        return -pairwise(divergence)(of_sets, of_queries).T

    tested = few_shot_learner(encoder, item_shape, way=way, shot=items, query=0, classify=Parametric(init, classify))

    def loss(params, batch_stats, dataset, key, *, axis_name=None):
        episode = sample_episode(key, dataset, way=way, shot=items, query=0)
        images, of_set, own = episode.support, episode.support_labels, params['classifier']
        h, batch_stats = batches.embed(encoder, params['encoder'], batch_stats, images, axis_name)
        q_c = apply(own, 'context', prototypes(h, of_set, way=way))
        c = sample_gaussian(jax.random.fold_in(key, 1), q_c)[of_set]
        q_z, p_z = apply(own, 'posterior', h, c), apply(own, 'prior', c)
        z = sample_gaussian(jax.random.fold_in(key, 2), q_z)
        codes = jnp.concatenate([z, c], 1)
        odds, _ = devices.spread(lambda part: (apply(own, 'decoder', part), ()), codes, axis_name)
        terms = bounds(odds, images.reshape(len(h), -1) > 127, q_z, p_z)
        bound = terms.sum() - context_divergence(q_c).sum()
        correct = classify(own, episode._replace(support=h, query=h, query_labels=of_set)).argmax(1) == of_set
        return -bound / len(h), (batch_stats, {'loss': -bound / len(h), 'accuracy': correct.mean()})

    return tested._replace(loss=loss)


def bounds(odds: jax.Array, pixels: jax.Array, q_z: jax.Array, p_z: jax.Array) -> jax.Array:
    """Compute log p(x | c, z) - KL(q(z | c, x) || p(z | c)) of each item: [N, P], [N, P], [N, 2 Z], [N, 2 Z] -> [N]."""
    likelihood = jnp.where(pixels, jax.nn.log_sigmoid(odds), jax.nn.log_sigmoid(-odds)).sum(1)
    return likelihood - jax.vmap(divergence)(q_z, p_z)


def context_divergence(q_c: jax.Array) -> jax.Array:
    """Compute KL(q(c | D) || p(c)) of each set: [way, 2 C] -> [way]."""
    return jax.vmap(divergence, (0, None))(q_c, jnp.zeros(q_c.shape[1]))


def divergence(q: jax.Array, p: jax.Array) -> jax.Array:
    """Compute KL(q || p) of two Gaussians: [2 C], [2 C] -> []."""
    (q_mean, q_log), (p_mean, p_log) = jnp.split(q, 2), jnp.split(p, 2)
    terms = p_log - q_log + jnp.exp(q_log - p_log) + jnp.square(q_mean - p_mean) * jnp.exp(-p_log) - 1
    return 0.5 * terms.sum()


def sample_gaussian(key: jax.Array, gaussian: jax.Array) -> jax.Array:
    """Sample one point of each Gaussian; gradients flow through it: [N, 2 C] -> [N, C]."""
    mean, log_variance = jnp.split(gaussian, 2, 1)
    return mean + jnp.exp(0.5 * log_variance) * jax.random.normal(key, mean.shape)

"""Vision Transformer (Dosovitskiy et al. 2021) with the variations of DINOv2 and CLIP.

`protojax.hub_weights` loads trained weights. NAMES maps the names of parameters to the names of tensors on the
Hugging Face hub.

Axis letters: N images, T tokens, D dimensions of a token, h and w patches per column and row.
"""

import functools
import re
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from flax.traverse_util import flatten_dict, unflatten_dict

from protojax.distances import unit_length
from protojax.encoders.images import scaled_pixels

LEAVES = {'kernel': '.weight', 'scale': '.weight', 'bias': '.bias'}  # parameters of modules -> ends of tensor names
# Parameters -> tensors of DINOv2 and of CLIP; # is the number of a block.
NAMES = {
    'patches': ('embeddings.patch_embeddings.projection', 'vision_model.embeddings.patch_embedding'),
    'class_token': ('embeddings.cls_token', 'vision_model.embeddings.class_embedding'),
    'register_tokens': ('embeddings.register_tokens', ''),
    'positions': ('embeddings.position_embeddings', 'vision_model.embeddings.position_embedding.weight'),
    'first_norm': ('', 'vision_model.pre_layrnorm'),  # [sic]
    'block#/norm1': ('encoder.layer.#.norm1', 'vision_model.encoder.layers.#.layer_norm1'),
    'block#/query': ('encoder.layer.#.attention.attention.query', 'vision_model.encoder.layers.#.self_attn.q_proj'),
    'block#/key': ('encoder.layer.#.attention.attention.key', 'vision_model.encoder.layers.#.self_attn.k_proj'),
    'block#/value': ('encoder.layer.#.attention.attention.value', 'vision_model.encoder.layers.#.self_attn.v_proj'),
    'block#/out': ('encoder.layer.#.attention.output.dense', 'vision_model.encoder.layers.#.self_attn.out_proj'),
    'block#/scale1': ('encoder.layer.#.layer_scale1.lambda1', ''),
    'block#/norm2': ('encoder.layer.#.norm2', 'vision_model.encoder.layers.#.layer_norm2'),
    'block#/expand': ('encoder.layer.#.mlp.fc1', 'vision_model.encoder.layers.#.mlp.fc1'),
    'block#/reduce': ('encoder.layer.#.mlp.fc2', 'vision_model.encoder.layers.#.mlp.fc2'),
    'block#/scale2': ('encoder.layer.#.layer_scale2.lambda1', ''),
    'norm': ('layernorm', 'vision_model.post_layernorm'),
    'project': ('', 'visual_projection'),
}


class Block(nn.Module):
    """Self-attention and a perceptron, each after a norm and with a skip connection: [N, T, D] -> [N, T, D]."""

    heads: int
    hidden: int
    layer_scale: bool
    quick_gelu: bool
    epsilon: float
    dtype: jnp.dtype

    @nn.compact
    def __call__(self, x):
        norm = functools.partial(nn.LayerNorm, use_fast_variance=False, epsilon=self.epsilon, dtype=self.dtype)
        dense = functools.partial(nn.Dense, dtype=self.dtype)
        y, heads = norm(name='norm1')(x), (*x.shape[:2], self.heads, -1)
        query, key, value = (dense(x.shape[-1], name=name)(y).reshape(heads) for name in ('query', 'key', 'value'))
        y = nn.dot_product_attention(query, key, value).reshape(x.shape)
        x = x + self.scaled('scale1', dense(x.shape[-1], name='out')(y))
        y = dense(self.hidden, name='expand')(norm(name='norm2')(x))
        y = y * nn.sigmoid(1.702 * y) if self.quick_gelu else y * (1 + jax.scipy.special.erf(y * 0.5**0.5)) * 0.5
        return x + self.scaled('scale2', dense(x.shape[-1], name='reduce')(y))

    def scaled(self, name: str, y: jax.Array) -> jax.Array:
        if not self.layer_scale:
            return y
        return y * self.param(name, nn.initializers.ones, (y.shape[-1],)).astype(self.dtype).reshape(1, 1, -1)


class VisionTransformer(nn.Module):
    """Features of images, uint8 or floats in 0..255, divisible into patches: [N, H, W, 3] -> [N, D].

    The embedding is the class token of the last block, normalised and, if `projection` is positive, projected.
    """

    patch: int = 14  # size of a patch in pixels
    grid: int = 37  # patches per row and column of the images used in training; other grids are interpolated
    width: int = 384  # dimensions of a token
    blocks: int = 12
    heads: int = 6
    hidden: int = 1536  # dimensions between the layers of the perceptron
    registers: int = 0  # additional tokens without an image patch
    projection: int = 0  # dimensions of the projection; 0 disables it
    layer_scale: bool = True
    patch_bias: bool = True
    first_norm: bool = False  # normalise the tokens before the first block
    quick_gelu: bool = False  # the sigmoid approximation of GELU
    antialias: bool = False  # smooth the positions when interpolating to a smaller grid
    epsilon: float = 1e-6  # epsilon of the layer norms
    mean: Sequence[float] = (0.485, 0.456, 0.406)
    std: Sequence[float] = (0.229, 0.224, 0.225)
    crop: float | None = 0.875
    item_shape: Sequence[int] | None = (224, 224, 3)
    unit_length: bool = True  # L2-normalise the embeddings before scaling
    scale: float = 4.0  # factor of the embeddings; with unit norm, 4 as in `EfficientNetLite`
    dtype: jnp.dtype = jnp.float32  # type of the activations; parameters and embeddings are float32
    resize_first: ClassVar[bool] = True  # as in the image processors of the hub
    settings: ClassVar[tuple[str, ...]] = (
        *('patch', 'grid', 'width', 'blocks', 'heads', 'hidden', 'registers', 'projection', 'layer_scale'),
        *('patch_bias', 'first_norm', 'quick_gelu', 'antialias', 'epsilon', 'mean', 'std', 'crop', 'item_shape'),
        *('unit_length', 'scale'),
    )

    @nn.compact
    def __call__(self, images, *, train=False, axis_name=None):
        norm = functools.partial(nn.LayerNorm, use_fast_variance=False, epsilon=self.epsilon, dtype=self.dtype)
        x = self.tokens(scaled_pixels(images, self.mean, self.std, self.dtype))
        x = norm(name='first_norm')(x) if self.first_norm else x
        for number in range(self.blocks):
            settings = self.heads, self.hidden, self.layer_scale, self.quick_gelu, self.epsilon, self.dtype
            x = Block(*settings, name=f'block{number}')(x)
        x = norm(name='norm')(x[:, 0])
        if self.projection:
            x = nn.Dense(self.projection, use_bias=False, dtype=self.dtype, name='project')(x)
        x = x.astype(jnp.promote_types(self.dtype, jnp.float32))
        return self.scale * (unit_length(x) if self.unit_length else x)

    def tokens(self, images: jax.Array) -> jax.Array:
        """Concatenate class token, registers and embedded patches: [N, H, W, 3] -> [N, T, D]."""
        if images.shape[1] % self.patch or images.shape[2] % self.patch:
            raise ValueError(f'expected images divisible into patches of {self.patch} pixels, got {images.shape[1:3]}')
        normal, size = nn.initializers.normal(0.02), (self.patch, self.patch)
        convolution = nn.Conv(self.width, size, size, use_bias=self.patch_bias, dtype=self.dtype, name='patches')
        x = convolution(images)
        positions = self.param('positions', normal, (1 + self.grid**2, self.width))
        x = x + self.resized(positions[1:], x.shape[1:3]).astype(self.dtype)[None]
        first = self.param('class_token', normal, (1, self.width)) + positions[:1]
        if self.registers:
            first = jnp.concatenate([first, self.param('register_tokens', normal, (self.registers, self.width))])
        first = jnp.broadcast_to(first.astype(self.dtype), (x.shape[0], *first.shape))
        return jnp.concatenate([first, x.reshape(x.shape[0], -1, self.width)], 1)

    def resized(self, positions: jax.Array, size: Sequence[int]) -> jax.Array:
        """Interpolate the positions to another grid, bicubically: [grid * grid, D] -> [h, w, D]."""
        rows, columns = (bicubic(self.grid, new, self.antialias) for new in size)
        positions = positions.reshape(self.grid, self.grid, -1)
        return jnp.einsum('hi,wj,ijd->hwd', rows, columns, positions, precision='highest')


def bicubic(old: int, new: int, antialias: bool) -> np.ndarray:
    """Make the matrix that resizes one axis like the bicubic mode of `torch.nn.functional.interpolate`: [new, old]."""
    a, spread = (-0.5, max(old / new, 1)) if antialias else (-0.75, 1)
    centers = (np.arange(new) + 0.5) * old / new - 0.5
    taps = np.arange(-3 * old, 4 * old)  # beyond both ends
    x = np.abs(taps - centers[:, None]) / spread
    near, far = ((a + 2) * x - (a + 3)) * x * x + 1, ((x - 5) * x + 8) * x * a - 4 * a
    weights = np.where(x < 1, near, np.where(x < 2, far, 0))
    if antialias:  # pixels beyond the ends do not count; otherwise, the last pixel is repeated
        weights *= (taps >= 0) & (taps < old)
    matrix = np.zeros((old, new))
    np.add.at(matrix, taps.clip(0, old - 1), weights.T)
    return (matrix / matrix.sum(0)).T.astype(np.float32)


def from_hub(encoder: VisionTransformer, read: Callable[[str], np.ndarray], *, clip: bool) -> Any:
    """Return the parameters of the encoder, given a function that reads one tensor of DINOv2 or CLIP by its name.

    Raises:
        ValueError: If a tensor does not fit.
    """
    images = jax.ShapeDtypeStruct((1, encoder.patch, encoder.patch, 3), jnp.uint8)
    params = flatten_dict(jax.eval_shape(encoder.init, jax.random.key(0), images)['params'], sep='/')
    for path, expected in params.items():
        module, _, leaf = path.rpartition('/')
        number = re.search(r'block(\d+)', path)
        key, suffix = (module, LEAVES[leaf]) if leaf in LEAVES else (path, '')
        name = NAMES[re.sub(r'block\d+', 'block#', key)][clip].replace('#', number[1] if number else '') + suffix
        tensor = np.asarray(read(name), np.float32)
        if leaf == 'kernel':  # [out, in, ...] -> [..., in, out]
            tensor = np.moveaxis(tensor, (0, 1), (-1, -2)) if tensor.ndim == len(expected.shape) else tensor
        elif tensor.size == expected.size and tensor.shape[-1:] == expected.shape[-1:]:
            tensor = tensor.reshape(expected.shape)  # without axes of length one
        if tensor.shape != expected.shape or not np.isfinite(tensor).all():
            raise ValueError(f'{name}: expected finite numbers of shape {expected.shape}, got {tensor.shape}')
        params[path] = jnp.asarray(tensor)
    return unflatten_dict(params, sep='/')

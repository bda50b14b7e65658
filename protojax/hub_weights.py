"""Weights of Vision Transformers in the format of the Hugging Face hub: DINOv2, and the vision tower of CLIP.

A network is a file model.safetensors with config.json in the same folder, downloaded by huggingface_hub or by hand.
"""

import json
import logging
import os
import pathlib
from typing import Any

import safetensors

from protojax import encoders, files
from protojax.encoders import vit
from protojax.errors import WeightsError, first_line

DINOV2 = ('small', 'base', 'large')
REPOSITORIES = {
    **{f'dinov2-{size}': f'facebook/dinov2-{size}' for size in DINOV2},
    **{f'dinov2-with-registers-{size}': f'facebook/dinov2-with-registers-{size}' for size in DINOV2},
    **{f'clip-vit-{size}': f'openai/clip-vit-{size}' for size in ('base-patch32', 'base-patch16', 'large-patch14')},
}
# The main branch has no safetensors file; this is the conversion by the hub (pull request 66), which transformers uses.
REVISIONS = {'clip-vit-base-patch32': 'c237dc49a33fc61debc9276459120b7eac67e7ef'}
FILES = ('config.json', 'model.safetensors')
# Defaults of transformers, which a config.json may omit.
COMMON = {'hidden_size': 768, 'num_hidden_layers': 12, 'num_attention_heads': 12, 'image_size': 224, 'mlp_ratio': 4}
DEFAULTS = {
    'dinov2': {'patch_size': 14, 'hidden_act': 'gelu', 'layer_norm_eps': 1e-6},
    'dinov2_with_registers': {'patch_size': 16, 'hidden_act': 'gelu', 'layer_norm_eps': 1e-6, 'num_register_tokens': 4},
    'clip': {'patch_size': 32, 'hidden_act': 'quick_gelu', 'layer_norm_eps': 1e-5, 'intermediate_size': 3072},
}
CLIP = {
    **{'layer_scale': False, 'patch_bias': False, 'first_norm': True, 'crop': 1.0},
    **{'mean': (0.48145466, 0.4578275, 0.40821073), 'std': (0.26862954, 0.26130258, 0.27577711)},
}


def recognizes(name: str | os.PathLike) -> bool:
    """Return whether `load` handles a name: one on the hub, or a file of the hub's format, not of protojax."""
    if str(name) in REPOSITORIES:
        return True
    try:
        path = pathlib.Path(name).expanduser()
        files.open_file(path).close()
        with safetensors.safe_open(path, 'np') as file:
            metadata = file.metadata() or {}
    except Exception:  # missing or corrupted, which `load_pretrained` reports
        return False
    return files.KEY not in metadata and (metadata.get('format') == 'pt' or path.with_name(FILES[0]).is_file())


def load(name: str | os.PathLike) -> tuple[vit.VisionTransformer, Any, dict]:
    """Load an encoder by its name on the hub or from a file, and return it with its parameters and their origin.

    Raises:
        WeightsError: If the files are unavailable, corrupted, or of a different network.
    """
    path = pathlib.Path(_download(str(name)) if str(name) in REPOSITORIES else name).expanduser()
    try:
        config = json.loads(files.read_whole(path.with_name(FILES[0])))
        encoder = _encoder(config)
        encoders.check_settings(encoder)
        with safetensors.safe_open(path, 'np') as file:
            params = vit.from_hub(encoder, file.get_tensor, clip=config['model_type'] == 'clip')
        encoders.dimensions(encoder, encoder.item_shape)
        digest = files.sha256(path)
    except Exception as error:  # corrupted files raise many types
        raise WeightsError(f'{path} is not a usable DINOv2 or CLIP network ({first_line(error)})') from error
    return encoder, params, {'model_type': config['model_type'], 'digest': digest}


def _encoder(config):
    """Build the network that a config.json describes."""
    kind = config.get('model_type')
    if kind not in DEFAULTS:
        raise ValueError(f'config.json: expected model_type {", ".join(DEFAULTS)}, got {kind}')
    values = {**COMMON, **DEFAULTS[kind], **(config.get('vision_config') or {} if kind == 'clip' else config)}
    if values['hidden_act'] not in ('gelu', 'quick_gelu'):
        raise ValueError(f'config.json: expected hidden_act gelu or quick_gelu, got {values["hidden_act"]}')
    settings = {
        'patch': values['patch_size'],
        'grid': values['image_size'] // values['patch_size'],
        'width': values['hidden_size'],
        'blocks': values['num_hidden_layers'],
        'heads': values['num_attention_heads'],
        'hidden': values.get('intermediate_size') or int(values['hidden_size'] * values['mlp_ratio']),
        'registers': values.get('num_register_tokens', 0),
        'quick_gelu': values['hidden_act'] == 'quick_gelu',
        'antialias': kind == 'dinov2_with_registers',
        'epsilon': values['layer_norm_eps'],
    }
    if kind != 'clip':
        return vit.VisionTransformer(**settings)
    size, projection = values['image_size'], config.get('projection_dim', 512)
    return vit.VisionTransformer(**settings, **CLIP, projection=projection, item_shape=(size, size, 3))


def cached(name: str, file: str = FILES[1]) -> str | None:
    """Return the path of a file of a network in the cache of huggingface_hub, or None if it was not downloaded."""
    try:
        import huggingface_hub
    except ImportError:
        return None
    found = huggingface_hub.try_to_load_from_cache(REPOSITORIES[name], file, revision=REVISIONS.get(name))
    return found if isinstance(found, str) else None


def _download(name):
    """Download the missing files of a network to the cache of huggingface_hub and return the path of its weights."""
    try:
        import huggingface_hub
    except ImportError as error:
        raise WeightsError(f"weights {name} need huggingface_hub; pip install 'protojax[hub]'") from error
    logging.getLogger('huggingface_hub').setLevel(logging.ERROR)  # it logs each retry
    try:
        for file in FILES:
            where = {'revision': REVISIONS.get(name)}
            found = cached(name, file) or huggingface_hub.hf_hub_download(REPOSITORIES[name], file, **where)
    except Exception as error:  # network, disk and hub raise many types
        hint = 'retry, or pass the path of model.safetensors with config.json beside it'
        raise WeightsError(f'weights {name} cannot be downloaded ({first_line(error)}); {hint}') from error
    return found

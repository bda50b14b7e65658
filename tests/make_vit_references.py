"""Write the references of tests/protojax/encoders/test_vit.py with the code of Hugging Face.

python tests/make_vit_references.py  # needs torch and transformers; writes tests/protojax/encoders/vit/
"""

import pathlib

import numpy as np
import torch
import transformers
from PIL import Image

FOLDER = pathlib.Path(__file__).parent / 'protojax' / 'encoders' / 'vit'
TINY = {'hidden_size': 16, 'num_hidden_layers': 2, 'num_attention_heads': 2, 'image_size': 70, 'patch_size': 14}
SIZES = ((70, 70), (42, 56), (98, 84))  # of images: as in training, and with a smaller and a larger grid of patches
PICTURES = ((40, 40), (61, 90), (133, 75), (24, 30))  # height and width of the images that processors take
DINOV2 = {'image_mean': [0.485, 0.456, 0.406], 'image_std': [0.229, 0.224, 0.225]}


def models():
    """The three kinds of networks; CLIP with its text tower, as on the hub."""
    text = {'hidden_size': 8, 'num_hidden_layers': 1, 'num_attention_heads': 2, 'intermediate_size': 8, 'vocab_size': 9}
    vision = {**TINY, 'intermediate_size': 24}
    clip = transformers.CLIPConfig(text_config=text, vision_config=vision, projection_dim=12)
    yield 'dinov2', transformers.Dinov2Model(transformers.Dinov2Config(**TINY)), processor('dinov2')
    config = transformers.Dinov2WithRegistersConfig(**TINY, num_register_tokens=3)
    yield 'dinov2_with_registers', transformers.Dinov2WithRegistersModel(config), processor('dinov2')
    yield 'clip', transformers.CLIPModel(clip), processor('clip')


def processor(kind, crop=28):
    """Image processor with the ratios of sizes on the hub: 256 and 224 for DINOv2, 224 and 224 for CLIP."""
    sizes = {'crop_size': {'height': crop, 'width': crop}}
    if kind == 'dinov2':
        return transformers.BitImageProcessorPil(size={'shortest_edge': crop * 8 // 7}, **sizes, **DINOV2)
    return transformers.CLIPImageProcessorPil(size={'shortest_edge': crop}, **sizes)


def pixels(process, images, **settings):
    values = process(images=list(images), return_tensors='np', **settings)['pixel_values']
    return values if settings else np.moveaxis(values, 1, -1)


def embeddings(name, model, process, images):
    values = torch.from_numpy(pixels(process, images, do_resize=False, do_center_crop=False))
    with torch.inference_mode():
        if name != 'clip':
            return model(values).pooler_output.numpy()
        hidden = model.vision_model(values, interpolate_pos_encoding=True).pooler_output
        return model.visual_projection(hidden).numpy()


def picture(rng, height, width):
    """A smooth image with noise."""
    y, x = np.mgrid[:height, :width] / 20
    waves = np.stack([np.sin(x + 2 * y), np.cos(x * y), np.sin(3 * x - y)], -1)
    return (127 + 90 * waves + rng.normal(0, 12, waves.shape)).clip(0, 255).astype(np.uint8)


def write():
    rng = np.random.default_rng(0)
    inputs = {f'{h}x{w}': rng.integers(0, 256, (2, h, w, 3), np.uint8) for h, w in SIZES}
    raw = {f'{h}x{w}': picture(rng, h, w) for h, w in PICTURES}
    FOLDER.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(FOLDER / 'inputs.npz', **inputs)
    np.savez_compressed(FOLDER / 'pictures.npz', **raw)
    torch.manual_seed(0)
    for name, model, process in models():
        model.eval()
        for parameter in model.parameters():  # also those that start as zeros or ones
            torch.nn.init.normal_(parameter, 0.1, 0.3 if parameter.ndim == 1 else 0.2)
        model.save_pretrained(FOLDER / name)
        outputs = {size: embeddings(name, model, process, images) for size, images in inputs.items()}
        processed = {f'pixels {size}': pixels(process, [Image.fromarray(image)])[0] for size, image in raw.items()}
        np.savez_compressed(FOLDER / name / 'outputs.npz', **outputs, **processed)
        (FOLDER / name / 'generation_config.json').unlink(missing_ok=True)


if __name__ == '__main__':
    write()

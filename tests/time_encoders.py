"""Time the encoders of photographs beside other libraries, interleaved: milliseconds of one core per image.

python -m tests.time_encoders      # photos beside onnxruntime, which runs the exported file
python -m tests.time_encoders vit  # a Vision Transformer of the size of dinov2-small beside PyTorch and transformers
"""

import os
import sys
import time

os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # times on one core hardly depend on the load of the machine

import jax  # noqa: E402  (imported after the core is chosen)
import numpy as np  # noqa: E402

import protojax  # noqa: E402
from protojax import encoders, export  # noqa: E402

BATCHES, ROUNDS = (1, 16, 64), 5


def photos():
    import onnxruntime

    weights = protojax.load_pretrained('photos')
    session = onnxruntime.InferenceSession(export.to_onnx(weights), providers=['CPUExecutionProvider'])
    return weights.encoder, weights.params, {'onnxruntime': lambda images: session.run(None, {'images': images})}


def vit():
    import torch
    import transformers

    encoder = encoders.vit.VisionTransformer()
    sizes = {'hidden_size': 384, 'num_attention_heads': 6, 'image_size': 518, 'patch_size': 14}
    model = transformers.Dinov2Model(transformers.Dinov2Config(**sizes)).eval()

    def by_torch(images):
        with torch.inference_mode():
            return model(torch.from_numpy(images).permute(0, 3, 1, 2) / 255).pooler_output.numpy()

    return encoder, encoders.init(encoder, jax.random.key(0), encoder.item_shape)[0], {'PyTorch': by_torch}


def main():
    encoder, params, others = vit() if 'vit' in sys.argv else photos()
    embed = jax.jit(encoder.apply)
    programs = {'protojax': lambda images: np.asarray(embed({'params': params}, images)), **others}
    for batch in BATCHES:
        images = np.random.default_rng(0).integers(0, 256, (batch, *encoder.item_shape), np.uint8)
        times = {name: [] for name in programs}
        for _ in range(1 + ROUNDS):  # the first compiles
            for name, run in programs.items():
                start = time.process_time()
                run(images)
                times[name].append(1000 * (time.process_time() - start) / batch)
        print(f'batch {batch}:', ', '.join(f'{name} {min(found[1:]):.1f} ms' for name, found in times.items()))


if __name__ == '__main__':
    main()

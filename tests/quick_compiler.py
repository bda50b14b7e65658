"""Flags with which XLA compiles quickly: tests spend their time compiling, not computing, so it need not try hard.

It neither optimizes nor emits fusions by way of MLIR, and makes one part of each program, where eight devices on two
cores gain nothing from several.
"""

FLAGS = (
    '--xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1'
)


def flags(devices=1):
    """The value of XLA_FLAGS for a program that sees so many devices."""
    return f'{FLAGS} --xla_force_host_platform_device_count={devices}'

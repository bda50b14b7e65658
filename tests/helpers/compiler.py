"""XLA flags for quick compilation: tests spend their time compiling, not computing.

No optimization, no fusion emitters (MLIR), and one part per program, because two cores gain nothing from more.
"""

FLAGS = (
    '--xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1'
)


def flags(devices: int = 1) -> str:
    """Return the value of XLA_FLAGS for a program with this number of devices."""
    return f'{FLAGS} --xla_force_host_platform_device_count={devices}'

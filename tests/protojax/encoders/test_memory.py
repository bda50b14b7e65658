"""Page faults and memory of compiled functions, in processes of their own: what XLA's library calls stays replaced."""

import os
import subprocess
import sys

import pytest

from protojax.encoders import cpu

CODE = """
import resource, sys
import jax, jax.numpy as jnp
from protojax.encoders import cpu
if sys.argv[1] == 'kernels':
    assert cpu._unavailable() is None
function, x = jax.jit(lambda x: x + 1), jnp.zeros(12 * 2**20)
for _ in range(8):
    function(x).block_until_ready()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(8):
    function(x).block_until_ready()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
larger = jnp.zeros(16 * 2**20)  # another size: blocks that were kept are given back
function(larger).block_until_ready()
print(*(float(function(x)[i] + function(larger)[i]) for i in (0, 2**23)))
"""
PLAIN_CONVOLUTION = """
import jax, jax.numpy as jnp
from protojax.encoders import block, cpu
assert cpu._unavailable() is None
x = jnp.ones((100, 14, 14, 64))
gradient = jax.jit(jax.grad(lambda kernel: jnp.sum(block.convolution(x, kernel) ** 2)))
held = []
for _ in range(60):
    gradient(jnp.ones((3, 3, 64, 64))).block_until_ready()
    held.append(int(open('/proc/self/statm').read().split()[1]) * 4096)
print(min(held[-10:]) - min(held[10:20]))  # of several calls: a thread may still hold what it is about to free
"""
needs_linux = pytest.mark.skipif(sys.platform != 'linux' or cpu._unavailable() is not None, reason='no kernels')


def printed(code, *arguments):
    """The lines that a program prints."""
    environment = {name: value for name, value in os.environ.items() if 'MALLOC' not in name and name != 'XLA_FLAGS'}
    environment |= {'PYTHONPATH': os.pathsep.join(sys.path), 'GLIBC_TUNABLES': ''}
    command = [sys.executable, '-c', code, *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.splitlines()


def page_faults(choice):
    """Page faults of eight calls that return 48 MB each, after eight others."""
    faults, values = printed(CODE, choice)
    assert values == '2.0 2.0'
    return int(faults)


@needs_linux
def test_buffers_are_used_again_without_page_faults_once_the_kernels_are_loaded():
    usual, kept = page_faults('none'), page_faults('kernels')
    assert usual >= 100  # one for each 2 MB, or many more
    assert kept < usual / 5


@needs_linux
def test_scratch_memory_of_plain_convolutions_is_given_back():
    (growth,) = printed(PLAIN_CONVOLUTION)
    assert int(growth) < 100e6  # forty calls with 7 MB of scratch memory each

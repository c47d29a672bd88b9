"""Compiling and launching: names, templates, options, arguments."""

import numpy as np

from llmlab.kernels import emulator


def test_a_kernel_runs():
    module = emulator.Module('extern "C" __global__ void fill(float* y) { y[threadIdx.x] = threadIdx.x; }')
    y = np.zeros(40, np.float32)
    module.launch("fill", 1, 40, [emulator.Out(y)])
    assert (y == np.arange(40)).all()

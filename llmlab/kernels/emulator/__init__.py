"""CUDA kernels on a CPU: the same text, compiled as C++ and run thread by thread, watched if wanted.

>>> from llmlab.kernels import emulator
>>> module = emulator.Module('extern "C" __global__ void fill(float* y) { y[threadIdx.x] = 7.0f; }')
>>> import numpy as np
>>> y = np.zeros(3, np.float32)
>>> module.launch("fill", 1, 3, [emulator.Out(y)])
>>> y
array([7., 7., 7.], dtype=float32)
"""

from .arguments import Out, ParameterType
from .errors import (
    AssertionFault,
    CompileError,
    CompilerNotFoundError,
    DivergentBarrierError,
    DivisionByZeroError,
    EmulatorError,
    EndlessLoopError,
    InactiveLaneError,
    KernelFault,
    LimitError,
    MemoryFaultError,
    MisalignedError,
    NeverWrittenError,
    OutOfBoundsError,
    PlatformError,
    ProfileLimitError,
    RaceError,
    UninitialisedError,
)
from .module import Module
from .profile import ArrayTraffic, LineTraffic, Profile, Request

__all__ = [
    "ArrayTraffic",
    "AssertionFault",
    "CompileError",
    "CompilerNotFoundError",
    "DivergentBarrierError",
    "DivisionByZeroError",
    "EmulatorError",
    "EndlessLoopError",
    "InactiveLaneError",
    "KernelFault",
    "LimitError",
    "LineTraffic",
    "MemoryFaultError",
    "MisalignedError",
    "Module",
    "NeverWrittenError",
    "Out",
    "OutOfBoundsError",
    "ParameterType",
    "PlatformError",
    "Profile",
    "ProfileLimitError",
    "RaceError",
    "Request",
    "UninitialisedError",
]

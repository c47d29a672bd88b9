"""CUDA kernels that run on a GPU through CuPy, and on any other machine through an emulator.

accelerated    gives an op's NumPy text its kernel: the arrays decide which of the two runs
emulated       inside it, NumPy arrays go to the kernels too, run thread by thread on the CPU
load           a kernel file of llmlab: ``load("gelu").get_function("gelu_forward<float>")``
RawModule      a kernel text of yours, with the interface of CuPy's
null           an explicit null pointer among a kernel's arguments
"""

from llmlab.kernels.door import accelerated
from llmlab.kernels.emulation import emulated
from llmlab.kernels.loader import load
from llmlab.kernels.rawmodule import RawModule
from llmlab.kernels.signature import Out, null

__all__ = ["Out", "RawModule", "accelerated", "emulated", "load", "null"]

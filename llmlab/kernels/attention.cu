// Causal attention by mma.sync, for GPUs from compute capability 8.0.
#include "attention_warp.cuh"
#include "attention_kernels.cuh"

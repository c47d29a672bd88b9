// Causal attention by wgmma, for compute capability 9.0: compile with --gpu-architecture=sm_90a.
#include "attention_warpgroup.cuh"
#include "attention_kernels.cuh"

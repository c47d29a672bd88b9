// The residual connection: y = x + branch, one read of each and one write.
#include "common.cuh"

// A thread takes one pack and ends: 2048 threads of a multiprocessor have 64 KiB of loads under way, and more for each
// was slower on an H200. The first pack may hang over the arrays' start and the last over their end; arrays that do not
// share an alignment are read element by element.
template <class T, bool ALIGNED>
__global__ void __launch_bounds__(128) residual_forward(T* y, const T* x, const T* branch, index_t n) {
  constexpr int size = Pack<T>::size;
  const index_t pack = static_cast<index_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const index_t i = (ALIGNED ? 0 : first_pack(y)) + pack * size;
  if (i >= n) return;
  float a[size], b[size];
  load_row<ALIGNED>(a, x, i, n, 0.0f);
  load_row<ALIGNED>(b, branch, i, n, 0.0f);
#pragma unroll
  for (int k = 0; k < size; k++) a[k] += b[k];
  store_row<ALIGNED>(y, i, n, a);
}

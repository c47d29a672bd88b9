// The residual connection: y = x + branch, one read of each and one write.
#include "common.cuh"

// Packs whose loads a thread starts before it adds the first: two streams of four keep enough bytes under way.
constexpr int IN_FLIGHT = 4;

// A block takes IN_FLIGHT * blockDim.x neighbouring packs. The first pack may hang over the arrays' start and the last
// over their end; arrays that do not share an alignment are read element by element.
template <class T, bool ALIGNED>
__global__ void __launch_bounds__(256) residual_forward(T* y, const T* x, const T* branch, index_t n) {
  constexpr int size = Pack<T>::size;
  const index_t start = static_cast<index_t>(blockIdx.x) * IN_FLIGHT * blockDim.x + threadIdx.x;
  const index_t first = ALIGNED ? 0 : first_pack(y);
  float a[IN_FLIGHT][size], b[IN_FLIGHT][size];
#pragma unroll
  for (int k = 0; k < IN_FLIGHT; k++) {
    const index_t i = first + (start + k * blockDim.x) * size;
    if (i >= n) break;
    load_row<ALIGNED>(a[k], x, i, n, 0.0f);
    load_row<ALIGNED>(b[k], branch, i, n, 0.0f);
  }
#pragma unroll
  for (int k = 0; k < IN_FLIGHT; k++) {
    const index_t i = first + (start + k * blockDim.x) * size;
    if (i >= n) break;
#pragma unroll
    for (int e = 0; e < size; e++) a[k][e] += b[k][e];
    store_row<ALIGNED>(y, i, n, a[k]);
  }
}

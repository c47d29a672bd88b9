// mma, ldmatrix and cp.async, each alone.
// One product of a warp, with fragments filled by hand from global memory: a[16][16] row by row, b[16][8] column by column.
template <bool bf16>
__global__ void product(float* c, const unsigned* a, const unsigned* b) {
  int g = threadIdx.x / 4, t = threadIdx.x % 4;
  unsigned fa[4] = {a[g * 8 + t], a[(g + 8) * 8 + t], a[g * 8 + t + 4], a[(g + 8) * 8 + t + 4]};
  unsigned fb[2] = {b[g * 8 + t], b[g * 8 + t + 4]};
  float d[4] = {c[g * 8 + 2 * t], c[g * 8 + 2 * t + 1], c[(g + 8) * 8 + 2 * t], c[(g + 8) * 8 + 2 * t + 1]};
  if (bf16) emulated::mma_m16n8k16_bf16(d, fa, fb, d);
  else emulated::mma_m16n8k16_f16(d, fa, fb, d);
  c[g * 8 + 2 * t] = d[0];
  c[g * 8 + 2 * t + 1] = d[1];
  c[(g + 8) * 8 + 2 * t] = d[2];
  c[(g + 8) * 8 + 2 * t + 1] = d[3];
}

template <int count, bool transposed>
__global__ void load(unsigned* y, const unsigned short* x) {
  __shared__ __align__(16) unsigned short tile[32][8];
  for (int i = 0; i < 8; i++) tile[threadIdx.x][i] = x[8 * threadIdx.x + i];
  __syncthreads();
  unsigned r[count];
  emulated::ldmatrix<count, transposed>(r, tile[threadIdx.x % (8 * count)]);
  for (int i = 0; i < count; i++) y[32 * i + threadIdx.x] = r[i];
}

extern "C" __global__ void half_a_warp(float* c, const unsigned* a) {
  unsigned fa[4] = {}, fb[2] = {};
  float d[4] = {};
  if (threadIdx.x < 16) emulated::mma_m16n8k16_bf16(d, fa, fb, d);  // FAULT
  c[threadIdx.x] = d[0];
}

// A two-stage pipeline: while one tile is summed the next is on its way.
extern "C" __global__ void pipeline(float* y, const float* x, int tiles) {
  __shared__ __align__(16) float s[2][128];
  const int t = threadIdx.x;
  float sum = 0.0f;
  emulated::cp_async16(&s[0][4 * t], x + 4 * t);
  emulated::cp_async_commit();
  for (int k = 0; k < tiles; k++) {
    if (k + 1 < tiles) emulated::cp_async16(&s[(k + 1) % 2][4 * t], x + 128 * (k + 1) + 4 * t);
    emulated::cp_async_commit();
    emulated::cp_async_wait<1>();
    __syncthreads();
    for (int j = 0; j < 4; j++) sum += s[k % 2][(4 * t + 4 + j) % 128];
    __syncthreads();
  }
  y[t] = sum;
}

extern "C" __global__ void copy_with_zeros(float* y, const float* x, int bytes) {
  __shared__ __align__(16) float s[128];
  emulated::cp_async16(&s[4 * threadIdx.x], x + 4 * threadIdx.x, bytes);
  emulated::cp_async_commit();
  emulated::cp_async_wait<0>();
  for (int j = 0; j < 4; j++) y[4 * threadIdx.x + j] = s[4 * threadIdx.x + j];
}

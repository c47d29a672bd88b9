// The kernels that every CUDA course writes, written as courses write them.

// ---- sums: a ladder of reductions within a block

enum Step { interleaved, strided, sequential, unrolled_last_warp, shuffled };

template <int step>
__global__ void block_sums(float* sums, const float* x, int n) {
  extern __shared__ float s[];
  const unsigned t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
  s[t] = i < n ? x[i] : 0.0f;
  __syncthreads();
  if (step == interleaved) {
    for (unsigned k = 1; k < blockDim.x; k *= 2) {
      if (t % (2 * k) == 0) s[t] += s[t + k];
      __syncthreads();
    }
  } else if (step == strided) {
    for (unsigned k = 1; k < blockDim.x; k *= 2) {
      unsigned at = 2 * k * t;
      if (at < blockDim.x) s[at] += s[at + k];
      __syncthreads();
    }
  } else if (step == sequential) {
    for (unsigned k = blockDim.x / 2; k > 0; k >>= 1) {
      if (t < k) s[t] += s[t + k];
      __syncthreads();
    }
  } else if (step == unrolled_last_warp) {
    for (unsigned k = blockDim.x / 2; k >= 32; k >>= 1) {
      if (t < k) s[t] += s[t + k];
      __syncthreads();
    }
    if (t < 32) {
#pragma unroll
      for (int k = 16; k > 0; k >>= 1) {
        float other = s[t + k];
        __syncwarp();
        if (t < k) s[t] += other;
        __syncwarp();
      }
    }
  } else {
    float v = s[t];
    for (int k = 16; k > 0; k /= 2) v += __shfl_down_sync(0xffffffff, v, k);
    __syncthreads();
    if (t % 32 == 0) s[t / 32] = v;
    __syncthreads();
    if (t < 32) {
      v = t < blockDim.x / 32 ? s[t] : 0.0f;
      for (int k = 16; k > 0; k /= 2) v += __shfl_xor_sync(0xffffffff, v, k);
      if (t == 0) s[0] = v;
    }
  }
  if (t == 0) sums[blockIdx.x] = s[0];
}

__device__ __forceinline__ float warp_sum(float v) {
#pragma unroll
  for (int offset = 16; offset; offset >>= 1) v += __shfl_xor_sync(0xffffffffu, v, offset);
  return v;
}

// One launch: the block that finishes last adds up the partial sums of all.
__device__ unsigned blocks_done = 0;

extern "C" __global__ void sum_in_one_launch(float* sum, volatile float* partial, const float* __restrict__ x, int n) {
  __shared__ float part[32];
  __shared__ bool last;
  float v = 0.0f;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) v += x[i];
  v = warp_sum(v);
  if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = v;
  __syncthreads();
  if (threadIdx.x == 0) {
    for (int w = 1; w < blockDim.x / 32; w++) v += part[w];
    partial[blockIdx.x] = v;
    __threadfence();
    last = atomicInc(&blocks_done, gridDim.x - 1) == gridDim.x - 1;
  }
  __syncthreads();
  if (last && threadIdx.x == 0) {
    v = 0.0f;
    for (int b = 0; b < gridDim.x; b++) v += partial[b];
    *sum = v;
  }
}

extern "C" __global__ void sum_by_atomics(float* sum, const float* x, int n) {
  float v = 0.0f;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) v += x[i];
  v = warp_sum(v);
  if ((threadIdx.x & 31) == 0) atomicAdd(sum, v);
}

// ---- transposition

extern "C" __global__ void transpose_naive(float* y, const float* x, int rows, int columns) {
  int c = blockIdx.x * blockDim.x + threadIdx.x, r = blockIdx.y * blockDim.y + threadIdx.y;
  if (r < rows && c < columns) y[c * rows + r] = x[r * columns + c];
}

template <int TILE, int ROWS>
__global__ void transpose_tiled(float* y, const float* x, int rows, int columns) {
  __shared__ float tile[TILE][TILE + 1];
  int c = blockIdx.x * TILE + threadIdx.x, r = blockIdx.y * TILE + threadIdx.y;
  for (int j = 0; j < TILE; j += ROWS)
    if (r + j < rows && c < columns) tile[threadIdx.y + j][threadIdx.x] = x[(r + j) * columns + c];
  __syncthreads();
  c = blockIdx.y * TILE + threadIdx.x;
  r = blockIdx.x * TILE + threadIdx.y;
  for (int j = 0; j < TILE; j += ROWS)
    if (r + j < columns && c < rows) y[(r + j) * rows + c] = tile[threadIdx.x][threadIdx.y + j];
}

// ---- histogram

extern "C" __global__ void histogram_global(unsigned int* counts, const unsigned char* x, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) atomicAdd(&counts[x[i]], 1u);
}

extern "C" __global__ void histogram_shared(unsigned int* counts, const unsigned char* x, int n) {
  __shared__ unsigned int local[256];
  for (int bin = threadIdx.x; bin < 256; bin += blockDim.x) local[bin] = 0;
  __syncthreads();
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) atomicAdd(&local[x[i]], 1);
  __syncthreads();
  for (int bin = threadIdx.x; bin < 256; bin += blockDim.x) atomicAdd(&counts[bin], local[bin]);
}

// ---- prefix sums of one block

extern "C" __global__ void scan_hillis_steele(int* y, const int* x, int n) {
  extern __shared__ int buffers[];
  int t = threadIdx.x, out = 0, in = 1;
  buffers[t] = t > 0 && t <= n ? x[t - 1] : 0;
  __syncthreads();
  for (int offset = 1; offset < n; offset *= 2) {
    out = 1 - out;
    in = 1 - out;
    if (t >= offset) buffers[out * n + t] = buffers[in * n + t] + buffers[in * n + t - offset];
    else buffers[out * n + t] = buffers[in * n + t];
    __syncthreads();
  }
  y[t] = buffers[out * n + t];
}

extern "C" __global__ void scan_blelloch(int* y, const int* x, int n) {
  extern __shared__ int temp[];
  int t = threadIdx.x, offset = 1;
  temp[2 * t] = x[2 * t];
  temp[2 * t + 1] = x[2 * t + 1];
  for (int d = n >> 1; d > 0; d >>= 1) {
    __syncthreads();
    if (t < d) temp[offset * (2 * t + 2) - 1] += temp[offset * (2 * t + 1) - 1];
    offset *= 2;
  }
  if (t == 0) temp[n - 1] = 0;
  for (int d = 1; d < n; d *= 2) {
    offset >>= 1;
    __syncthreads();
    if (t < d) {
      int ai = offset * (2 * t + 1) - 1, bi = offset * (2 * t + 2) - 1;
      int old = temp[ai];
      temp[ai] = temp[bi];
      temp[bi] += old;
    }
  }
  __syncthreads();
  y[2 * t] = temp[2 * t];
  y[2 * t + 1] = temp[2 * t + 1];
}

extern "C" __global__ void scan_by_warps(int* y, const int* x, int n) {
  __shared__ int totals[32];
  int t = threadIdx.x, lane = t & 31, warp = t >> 5;
  int v = t < n ? x[t] : 0, sum = v;
  for (int k = 1; k < 32; k *= 2) {
    int other = __shfl_up_sync(0xffffffff, sum, k);
    if (lane >= k) sum += other;
  }
  if (lane == 31) totals[warp] = sum;
  __syncthreads();
  if (warp == 0) {
    int total = lane < blockDim.x / 32 ? totals[lane] : 0;
    for (int k = 1; k < 32; k *= 2) {
      int other = __shfl_up_sync(0xffffffff, total, k);
      if (lane >= k) total += other;
    }
    if (lane < blockDim.x / 32) totals[lane] = total;
  }
  __syncthreads();
  if (t < n) y[t] = sum - v + (warp ? totals[warp - 1] : 0);
}

// Keeps the positive elements, in order within each warp.
extern "C" __global__ void compact_by_ballot(float* y, int* count, const float* x, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x, lane = threadIdx.x % 32, start = 0;
  float v = i < n ? x[i] : 0.0f;
  unsigned kept = __ballot_sync(0xffffffff, v > 0.0f);
  if (lane == 0) start = atomicAdd(count, __popc(kept));
  start = __shfl_sync(0xffffffff, start, 0);
  if (v > 0.0f) y[start + __popc(kept & ((1u << lane) - 1))] = v;
}

// ---- stencils and convolution

#define RADIUS 3
#define STENCIL_BLOCK 64

extern "C" __global__ void stencil_1d(float* y, const float* x, int n) {
  __shared__ float tile[STENCIL_BLOCK + 2 * RADIUS];
  int i = blockIdx.x * blockDim.x + threadIdx.x, at = threadIdx.x + RADIUS;
  tile[at] = i < n ? x[i] : 0.0f;
  if (threadIdx.x < RADIUS) {
    tile[at - RADIUS] = i >= RADIUS ? x[i - RADIUS] : 0.0f;
    tile[at + STENCIL_BLOCK] = i + STENCIL_BLOCK < n ? x[i + STENCIL_BLOCK] : 0.0f;
  }
  __syncthreads();
  float sum = 0.0f;
  for (int k = -RADIUS; k <= RADIUS; k++) sum += tile[at + k];
  if (i < n) y[i] = sum;
}

__constant__ float laplace[3][3] = {{0, 1, 0}, {1, -4, 1}, {0, 1, 0}};

extern "C" __global__ void convolve_2d(float* y, const float* x, int rows, int columns) {
  int c = blockIdx.x * blockDim.x + threadIdx.x, r = blockIdx.y * blockDim.y + threadIdx.y;
  if (r >= rows || c >= columns) return;
  float sum = 0.0f;
  for (int i = -1; i <= 1; i++)
    for (int j = -1; j <= 1; j++)
      if (r + i >= 0 && r + i < rows && c + j >= 0 && c + j < columns) sum += laplace[i + 1][j + 1] * x[(r + i) * columns + c + j];
  y[r * columns + c] = sum;
}

// ---- matrix products

extern "C" __global__ void matmul_naive(float* c, const float* a, const float* b, int m, int n, int k) {
  int column = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y * blockDim.y + threadIdx.y;
  if (row >= m || column >= n) return;
  float sum = 0.0f;
  for (int i = 0; i < k; i++) sum += a[row * k + i] * b[i * n + column];
  c[row * n + column] = sum;
}

template <class T, int TILE>
__global__ void matmul_tiled(T* __restrict__ c, const T* __restrict__ a, const T* __restrict__ b, int m, int n, int k) {
  __shared__ T as[TILE][TILE];
  __shared__ T bs[TILE][TILE];
  int column = blockIdx.x * TILE + threadIdx.x, row = blockIdx.y * TILE + threadIdx.y;
  float sum = 0.0f;
  for (int start = 0; start < k; start += TILE) {
    int ka = start + threadIdx.x, kb = start + threadIdx.y;
    as[threadIdx.y][threadIdx.x] = row < m && ka < k ? a[row * k + ka] : T(0.0f);
    bs[threadIdx.y][threadIdx.x] = kb < k && column < n ? b[kb * n + column] : T(0.0f);
    __syncthreads();
#pragma unroll
    for (int i = 0; i < TILE; i++) sum += float(as[threadIdx.y][i]) * float(bs[i][threadIdx.x]);
    __syncthreads();
  }
  if (row < m && column < n) c[row * n + column] = T(sum);
}

// Each thread computes a 4 x 4 square of c.
extern "C" __global__ void matmul_in_registers(float* c, const float* a, const float* b, int n) {
  __shared__ float as[8][64], bs[8][64];
  int tx = threadIdx.x % 16, ty = threadIdx.x / 16;
  float sums[4][4] = {};
  for (int start = 0; start < n; start += 8) {
    for (int i = threadIdx.x; i < 8 * 64; i += blockDim.x) {
      as[i % 8][i / 8] = a[(blockIdx.y * 64 + i / 8) * n + start + i % 8];
      bs[i / 64][i % 64] = b[(start + i / 64) * n + blockIdx.x * 64 + i % 64];
    }
    __syncthreads();
    for (int k = 0; k < 8; k++) {
      float4 left = *reinterpret_cast<float4*>(&as[k][4 * ty]), right = *reinterpret_cast<float4*>(&bs[k][4 * tx]);
      float l[4] = {left.x, left.y, left.z, left.w}, r[4] = {right.x, right.y, right.z, right.w};
      for (int i = 0; i < 4; i++)
        for (int j = 0; j < 4; j++) sums[i][j] += l[i] * r[j];
    }
    __syncthreads();
  }
  for (int i = 0; i < 4; i++) {
    float4 row = make_float4(sums[i][0], sums[i][1], sums[i][2], sums[i][3]);
    reinterpret_cast<float4*>(c)[((blockIdx.y * 64 + 4 * ty + i) * n + blockIdx.x * 64) / 4 + tx] = row;
  }
}

// ---- sorting, and one row's softmax in one pass

extern "C" __global__ void bitonic_sort(float* values, int n) {
  extern __shared__ float s[];
  int t = threadIdx.x;
  s[t] = values[t];
  __syncthreads();
  for (int size = 2; size <= n; size *= 2)
    for (int stride = size / 2; stride > 0; stride /= 2) {
      int other = t ^ stride;
      if (other > t) {
        bool ascending = (t & size) == 0;
        if ((s[t] > s[other]) == ascending) {
          float kept = s[t];
          s[t] = s[other];
          s[other] = kept;
        }
      }
      __syncthreads();
    }
  values[t] = s[t];
}

struct Running {
  float largest, sum;
};

__device__ Running join(Running a, Running b) {
  float largest = fmaxf(a.largest, b.largest);
  return {largest, a.sum * __expf(a.largest - largest) + b.sum * __expf(b.largest - largest)};
}

extern "C" __global__ void softmax_online(float* y, const float* x, int columns) {
  const float* row = x + blockIdx.x * columns;
  Running mine = {-INFINITY, 0.0f};
  for (int c = threadIdx.x; c < columns; c += 32) mine = mine.sum == 0.0f ? Running{row[c], 1.0f} : join(mine, {row[c], 1.0f});
  for (int offset = 16; offset; offset /= 2) {
    Running other = {__shfl_xor_sync(~0u, mine.largest, offset), __shfl_xor_sync(~0u, mine.sum, offset)};
    mine = join(mine, other);
  }
  for (int c = threadIdx.x; c < columns; c += 32) y[blockIdx.x * columns + c] = __expf(row[c] - mine.largest) / mine.sum;
}

// Kernels whose traffic the emulator's profile and Nsight Compute both count.
extern "C" __global__ void copy(float* y, const float* x, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i];
}

extern "C" __global__ void copy_from_offset(float* y, const float* x, int n, int offset) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i + offset];
}

extern "C" __global__ void copy_strided(float* y, const float* x, int n, int stride) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[(long long)i * stride];
}

extern "C" __global__ void copy_by_four(float4* y, const float4* x, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i];
}

extern "C" __global__ void transpose_naive(float* y, const float* x, int n) {
  int column = blockIdx.x * 32 + threadIdx.x;
  for (int row = threadIdx.y; row < 32; row += blockDim.y)
    y[column * n + blockIdx.y * 32 + row] = x[(blockIdx.y * 32 + row) * n + column];
}

template <int padding>
__global__ void transpose_tiled(float* y, const float* x, int n) {
  __shared__ float tile[32][32 + padding];
  for (int row = threadIdx.y; row < 32; row += blockDim.y)
    tile[row][threadIdx.x] = x[(blockIdx.y * 32 + row) * n + blockIdx.x * 32 + threadIdx.x];
  __syncthreads();
  for (int row = threadIdx.y; row < 32; row += blockDim.y)
    y[(blockIdx.x * 32 + row) * n + blockIdx.y * 32 + threadIdx.x] = tile[threadIdx.x][row];
}

extern "C" __global__ void histogram(unsigned* counts, const unsigned char* x, int n) {
  __shared__ unsigned local[256];
  local[threadIdx.x] = 0;
  __syncthreads();
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) atomicAdd(&local[x[i]], 1u);
  __syncthreads();
  atomicAdd(&counts[threadIdx.x], local[threadIdx.x]);
}

extern "C" __global__ void row_sums(float* sums, const float* x, int columns) {
  const float* row = x + (long long)blockIdx.x * columns;
  __shared__ float partial[256];
  float sum = 0.0f;
  for (int c = threadIdx.x; c < columns; c += blockDim.x) sum += row[c];
  partial[threadIdx.x] = sum;
  for (int half = blockDim.x / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) partial[threadIdx.x] += partial[threadIdx.x + half];
  }
  if (threadIdx.x == 0) sums[blockIdx.x] = partial[0];
}

// Each lane reads sizeof(T) bytes of shared memory, `stride` elements apart.
template <class T>
__global__ void shared_strided(T* y, const T* x, int stride) {
  __shared__ T tile[1024];
  for (int i = threadIdx.x; i < 1024; i += blockDim.x) tile[i] = x[i];
  __syncthreads();
  y[threadIdx.x] = tile[threadIdx.x * stride % 1024];
}

// One warp reads, and one writes, shared memory at places of its choice; a lane with index -1 does not take part.
template <class T>
__global__ void shared_gather(T* y, const T* x, const int* index) {
  __shared__ T tile[1024];
  for (int i = threadIdx.x; i < 1024; i += 32) tile[i] = x[i];
  __syncthreads();
  int i = index[threadIdx.x];
  if (i >= 0) y[threadIdx.x] = tile[i];
}

template <class T>
__global__ void shared_scatter(T* y, const T* x, const int* index) {
  __shared__ T tile[1024];
  for (int i = threadIdx.x; i < 1024; i += 32) tile[i] = x[i];
  __syncthreads();
  int i = index[threadIdx.x];
  if (i >= 0) tile[i] = x[threadIdx.x];
  __syncthreads();
  for (int i = threadIdx.x; i < 1024; i += 32) y[i] = tile[i];
}

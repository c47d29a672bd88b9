// Every fault that check mode finds, planted alone, and beside it the same kernel without the fault.
// The line where the fault must be reported ends in `// FAULT`.
#define N 128

// ---- outside an array

extern "C" __global__ void read_past_end(float* y, const float* x, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float v = x[i];  // FAULT
  if (i < n) y[i] = v;
}
extern "C" __global__ void read_past_end_right(float* y, const float* x, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i];
}

extern "C" __global__ void write_past_end(float* y, const float* x, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float v = i < n ? x[i] : 0.0f;
  y[i] = v;  // FAULT
}
extern "C" __global__ void write_past_end_right(float* y, const float* x, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float v = i < n ? x[i] : 0.0f;
  if (i < n) y[i] = v;
}

extern "C" __global__ void read_before_start(float* y, const float* x, int n) {
  int i = threadIdx.x;
  if (i >= n) return;
  float left = x[i - 1];  // FAULT
  y[i] = x[i] - left;
}
extern "C" __global__ void read_before_start_right(float* y, const float* x, int n) {
  int i = threadIdx.x;
  if (i >= n) return;
  float left = i > 0 ? x[i - 1] : 0.0f;
  y[i] = x[i] - left;
}

extern "C" __global__ void atomic_past_end(float* y, const float* x, int n) {
  atomicAdd(&y[threadIdx.x], x[threadIdx.x % n]);  // FAULT
}
extern "C" __global__ void atomic_past_end_right(float* y, const float* x, int n) {
  atomicAdd(&y[threadIdx.x % n], x[threadIdx.x % n]);
}

extern "C" __global__ void vector_past_end(float* y, const float* x, int n) {
  int i = 4 * threadIdx.x;
  if (i >= n) return;
  float4 v = *reinterpret_cast<const float4*>(x + i);  // FAULT
  y[i] = v.x;
  if (i + 1 < n) y[i + 1] = v.y;
  if (i + 2 < n) y[i + 2] = v.z;
  if (i + 3 < n) y[i + 3] = v.w;
}
extern "C" __global__ void vector_past_end_right(float* y, const float* x, int n) {
  int i = 4 * threadIdx.x;
  if (i + 4 <= n) {
    *reinterpret_cast<float4*>(y + i) = *reinterpret_cast<const float4*>(x + i);
  } else {
    for (; i < n; i++) y[i] = x[i];
  }
}

__device__ __forceinline__ float at(const float* values, int i) {
  return values[i];
}
extern "C" __global__ void inlined_past_end(float* y, const float* x, int n) {
  if (threadIdx.x < n) y[threadIdx.x] = at(x, threadIdx.x + 1);
}
extern "C" __global__ void inlined_past_end_right(float* y, const float* x, int n) {
  if (threadIdx.x + 1 < n) y[threadIdx.x] = at(x, threadIdx.x + 1);
}

extern "C" __global__ void null_pointer(float* y, const float* x, int n) {
  if (threadIdx.x < n) y[threadIdx.x] = x[threadIdx.x];  // FAULT
}
extern "C" __global__ void null_pointer_right(float* y, const float* x, int n) {
  if (threadIdx.x < n) y[threadIdx.x] = x ? x[threadIdx.x] : 0.0f;
}

extern "C" __global__ void shared_past_end(float* y, const float* x, int n) {
  __shared__ float before[N], s[N], after[N];
  float* p = s;
  before[threadIdx.x] = after[threadIdx.x] = 0.0f;
  p[threadIdx.x + 1] = x[threadIdx.x];  // FAULT
  __syncthreads();
  y[threadIdx.x] = p[threadIdx.x] + before[threadIdx.x] + after[threadIdx.x];
}
extern "C" __global__ void shared_past_end_right(float* y, const float* x, int n) {
  __shared__ float before[N], s[N + 1], after[N];
  float* p = s;
  before[threadIdx.x] = after[threadIdx.x] = 0.0f;
  p[threadIdx.x + 1] = x[threadIdx.x];
  __syncthreads();
  y[threadIdx.x] = p[threadIdx.x + 1] + before[threadIdx.x] + after[threadIdx.x];
}

extern "C" __global__ void shared_row_overrun(float* y, const float* x, int n) {
  __shared__ float tile[8][16];
  tile[threadIdx.x / 16][threadIdx.x % 16] = x[threadIdx.x];
  __syncthreads();
  y[threadIdx.x] = tile[0][threadIdx.x % 17];  // FAULT
}
extern "C" __global__ void shared_row_overrun_right(float* y, const float* x, int n) {
  __shared__ float tile[8][16];
  tile[threadIdx.x / 16][threadIdx.x % 16] = x[threadIdx.x];
  __syncthreads();
  y[threadIdx.x] = tile[0][threadIdx.x % 16];
}

extern "C" __global__ void dynamic_shared_overrun(float* y, const float* x, int n) {
  extern __shared__ float row[];
  row[threadIdx.x] = x[threadIdx.x];  // FAULT
  __syncthreads();
  y[threadIdx.x] = row[n - 1 - threadIdx.x];
}
extern "C" __global__ void dynamic_shared_overrun_right(float* y, const float* x, int n) {
  extern __shared__ float row[];
  if (threadIdx.x < 64) row[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  y[threadIdx.x] = row[threadIdx.x / 2];
}

extern "C" __global__ void local_past_end(float* y, const float* x, int n) {
  float local[4];
  float sum = 0.0f;
  for (int i = 0; i < 4; i++) local[i] = x[i];
  for (int i = 0; i < n; i++) sum += local[i];  // FAULT
  y[threadIdx.x] = sum;
}
extern "C" __global__ void local_past_end_right(float* y, const float* x, int n) {
  float local[4];
  float sum = 0.0f;
  for (int i = 0; i < 4; i++) local[i] = x[i];
  for (int i = 0; i < n; i++) sum += local[i % 4];
  y[threadIdx.x] = sum;
}

extern "C" __global__ void foreign_local(float* y, const float* x, int n) {
  __shared__ float* whose;
  float mine[1] = {x[threadIdx.x]};
  if (threadIdx.x == 0) whose = mine;
  __syncthreads();
  y[threadIdx.x] = *whose;  // FAULT
  __syncthreads();
}
extern "C" __global__ void foreign_local_right(float* y, const float* x, int n) {
  __shared__ float first;
  float mine[1] = {x[threadIdx.x]};
  if (threadIdx.x == 0) first = mine[0];
  __syncthreads();
  y[threadIdx.x] = first;
}

// ---- alignment

extern "C" __global__ void misaligned(float* y, const float* x, int n) {
  int i = 4 * threadIdx.x;
  if (i + 5 > n) return;
  *reinterpret_cast<float4*>(y + i) = *reinterpret_cast<const float4*>(x + i + 1);  // FAULT
}
extern "C" __global__ void misaligned_right(float* y, const float* x, int n) {
  int i = 4 * threadIdx.x;
  if (i + 5 > n) return;
  *reinterpret_cast<float4*>(y + i) = *reinterpret_cast<const float4*>(x + i + 4);
}

extern "C" __global__ void misaligned_shared(float* y, const float* x, int n) {
  __shared__ float s[2 * N + 2];
  s[2 * threadIdx.x] = s[2 * threadIdx.x + 1] = x[threadIdx.x];
  float2 pair = *reinterpret_cast<float2*>(&s[2 * threadIdx.x - threadIdx.x % 2]);  // FAULT
  y[threadIdx.x] = pair.x;
}
extern "C" __global__ void misaligned_shared_right(float* y, const float* x, int n) {
  __shared__ float s[2 * N + 2];
  s[2 * threadIdx.x] = s[2 * threadIdx.x + 1] = x[threadIdx.x];
  float2 pair = *reinterpret_cast<float2*>(&s[2 * threadIdx.x]);
  y[threadIdx.x] = pair.x;
}

// ---- races

extern "C" __global__ void missing_barrier(float* y, const float* x, int n) {
  __shared__ float s[N];
  s[threadIdx.x] = x[threadIdx.x];  // FAULT
  y[threadIdx.x] = s[N - 1 - threadIdx.x];
}
extern "C" __global__ void missing_barrier_right(float* y, const float* x, int n) {
  __shared__ float s[N];
  s[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  y[threadIdx.x] = s[N - 1 - threadIdx.x];
}

extern "C" __global__ void missing_second_barrier(float* y, const float* x, int n) {
  __shared__ float part[4];
  float sum = 0.0f;
  for (int k = 0; k < 3; k++) {
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = x[threadIdx.x] * k;
    __syncthreads();
    for (int j = 0; j < 4; j++) sum += part[j];  // FAULT
  }
  y[threadIdx.x] = sum;
}
extern "C" __global__ void missing_second_barrier_right(float* y, const float* x, int n) {
  __shared__ float part[4];
  float sum = 0.0f;
  for (int k = 0; k < 3; k++) {
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = x[threadIdx.x] * k;
    __syncthreads();
    for (int j = 0; j < 4; j++) sum += part[j];
    __syncthreads();
  }
  y[threadIdx.x] = sum;
}

extern "C" __global__ void missing_syncwarp(float* y, const float* x, int n) {
  __shared__ float s[N];
  s[threadIdx.x] = x[threadIdx.x];
  __syncwarp();
  float v = s[threadIdx.x ^ 1];  // FAULT
  s[threadIdx.x] = v;
  __syncwarp();
  y[threadIdx.x] = s[threadIdx.x];
}
extern "C" __global__ void missing_syncwarp_right(float* y, const float* x, int n) {
  __shared__ float s[N];
  s[threadIdx.x] = x[threadIdx.x];
  __syncwarp();
  float v = s[threadIdx.x ^ 1];
  __syncwarp();
  s[threadIdx.x] = v;
  __syncwarp();
  y[threadIdx.x] = s[threadIdx.x];
}

// Two halves of a warp, each in step with itself only.
extern "C" __global__ void half_warps(float* y, const float* x, int n) {
  __shared__ float s[N];
  unsigned half = threadIdx.x % 32 < 16 ? 0x0000ffffu : 0xffff0000u;
  s[threadIdx.x] = x[threadIdx.x];  // FAULT
  __syncwarp(half);
  float v = s[threadIdx.x ^ 16];
  __syncwarp(half);
  y[threadIdx.x] = v;
}
extern "C" __global__ void half_warps_right(float* y, const float* x, int n) {
  __shared__ float s[N];
  unsigned half = threadIdx.x % 32 < 16 ? 0x0000ffffu : 0xffff0000u;
  s[threadIdx.x] = x[threadIdx.x];
  __syncwarp(half);
  float v = s[threadIdx.x ^ 8];
  __syncwarp(half);
  y[threadIdx.x] = v;
}

extern "C" __global__ void global_race(float* y, const float* x, int n) {
  y[threadIdx.x / 64] = x[threadIdx.x];  // FAULT
}
extern "C" __global__ void global_race_right(float* y, const float* x, int n) {
  if (threadIdx.x % 64 == 0) y[threadIdx.x / 64] = x[threadIdx.x];
}

extern "C" __global__ void block_race(float* y, const float* x, int n) {
  if (threadIdx.x == 0) y[0] += x[blockIdx.x];  // FAULT
}
extern "C" __global__ void block_race_right(float* y, const float* x, int n) {
  if (threadIdx.x == 0) atomicAdd(&y[0], x[blockIdx.x]);
}

// A block reads what another block writes in the same launch.
extern "C" __global__ void block_reads_neighbour(float* y, const float* x, int n) {
  y[blockIdx.x * blockDim.x + threadIdx.x] = x[0];
  if (blockIdx.x > 0 && threadIdx.x == 0) y[blockIdx.x * blockDim.x] += y[blockIdx.x * blockDim.x - 1];  // FAULT
}
extern "C" __global__ void block_reads_neighbour_right(float* y, const float* x, int n) {
  y[blockIdx.x * blockDim.x + threadIdx.x] = x[0];
  __syncthreads();
  if (threadIdx.x == 0) y[blockIdx.x * blockDim.x] += y[blockIdx.x * blockDim.x + 1];
}

// The last block adds up what all blocks wrote: right only with a fence between writing and counting.
template <bool with_fence>
__device__ void sum_by_last_block(float* y, const float* x, int n) {
  __shared__ bool last;
  if (threadIdx.x == 0) {
    y[1 + blockIdx.x] = x[blockIdx.x];
    if (with_fence) __threadfence();
    last = atomicAdd(reinterpret_cast<unsigned*>(&y[0]), 1u) == gridDim.x - 1;
  }
  __syncthreads();
  if (last && threadIdx.x == 0) {
    float sum = 0.0f;
    for (int b = 0; b < gridDim.x; b++) sum += y[1 + b];  // FAULT
    y[1] = sum;
  }
}
extern "C" __global__ void missing_fence(float* y, const float* x, int n) { sum_by_last_block<false>(y, x, n); }
extern "C" __global__ void missing_fence_right(float* y, const float* x, int n) { sum_by_last_block<true>(y, x, n); }

// ---- barriers

extern "C" __global__ void exit_before_barrier(float* y, const float* x, int n) {
  __shared__ float s[N];
  int t = threadIdx.x;
  if (t >= n) return;
  s[t] = x[t];
  __syncthreads();  // FAULT
  y[t] = s[n - 1 - t];
}
extern "C" __global__ void exit_before_barrier_right(float* y, const float* x, int n) {
  __shared__ float s[N];
  int t = threadIdx.x;
  if (t < n) s[t] = x[t];
  __syncthreads();
  if (t < n) y[t] = s[n - 1 - t];
}

extern "C" __global__ void barrier_in_branch(float* y, const float* x, int n) {
  if (threadIdx.x < 64) {
    __syncthreads();  // FAULT
    y[threadIdx.x] = x[threadIdx.x];
  } else {
    y[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
  }
}
extern "C" __global__ void barrier_in_branch_right(float* y, const float* x, int n) {
  if (n > 64) {
    __syncthreads();
    y[threadIdx.x] = x[threadIdx.x];
  } else {
    __syncthreads();
  }
}

extern "C" __global__ void barrier_in_loop(float* y, const float* x, int n) {
  float sum = 0.0f;
  for (int i = threadIdx.x; i < n; i += blockDim.x) {
    sum += x[i];
    __syncthreads();  // FAULT
  }
  y[threadIdx.x] = sum;
}
extern "C" __global__ void barrier_in_loop_right(float* y, const float* x, int n) {
  float sum = 0.0f;
  for (int start = 0; start < n; start += blockDim.x) {
    if (start + threadIdx.x < n) sum += x[start + threadIdx.x];
    __syncthreads();
  }
  y[threadIdx.x] = sum;
}

extern "C" __global__ void barrier_against_shuffle(float* y, const float* x, int n) {
  float v = x[threadIdx.x];
  if (threadIdx.x % 32 == 0) __syncthreads();  // FAULT
  else v += __shfl_xor_sync(0xffffffffu, v, 1);
  y[threadIdx.x] = v;
}
extern "C" __global__ void barrier_against_shuffle_right(float* y, const float* x, int n) {
  float v = x[threadIdx.x];
  v += __shfl_xor_sync(0xffffffffu, v, 1);
  __syncthreads();
  y[threadIdx.x] = v;
}

// ---- lanes

extern "C" __global__ void shuffle_from_outside(float* y, const float* x, int n) {
  float v = x[threadIdx.x];
  if (threadIdx.x % 32 < 16) v += __shfl_down_sync(0x0000ffffu, v, 8);  // FAULT
  y[threadIdx.x] = v;
}
extern "C" __global__ void shuffle_from_outside_right(float* y, const float* x, int n) {
  float v = x[threadIdx.x];
  if (threadIdx.x % 32 < 16) v += __shfl_down_sync(0x0000ffffu, v, 8, 16);
  y[threadIdx.x] = v;
}

extern "C" __global__ void shuffle_mask_too_wide(float* y, const float* x, int n) {
  float v = x[threadIdx.x];
  if (threadIdx.x % 32 < 16) v += __shfl_xor_sync(0xffffffffu, v, 8);  // FAULT
  y[threadIdx.x] = v;
}
extern "C" __global__ void shuffle_mask_too_wide_right(float* y, const float* x, int n) {
  float v = x[threadIdx.x];
  if (threadIdx.x % 32 < 16) v += __shfl_xor_sync(0x0000ffffu, v, 8);
  y[threadIdx.x] = v;
}

extern "C" __global__ void shuffle_outside_mask(float* y, const float* x, int n) {
  float v = x[threadIdx.x];
  v += __shfl_sync(0x0000ffffu, v, 0);  // FAULT
  y[threadIdx.x] = v;
}
extern "C" __global__ void shuffle_outside_mask_right(float* y, const float* x, int n) {
  float v = x[threadIdx.x];
  v += __shfl_sync(__activemask(), v, 0);
  y[threadIdx.x] = v;
}

extern "C" __global__ void shuffle_after_return(float* y, const float* x, int n) {
  if (threadIdx.x >= n) return;
  float v = x[threadIdx.x];
  v += __shfl_xor_sync(0xffffffffu, v, 16);  // FAULT
  y[threadIdx.x] = v;
}
extern "C" __global__ void shuffle_after_return_right(float* y, const float* x, int n) {
  float v = threadIdx.x < n ? x[threadIdx.x] : 0.0f;
  v += __shfl_xor_sync(0xffffffffu, v, 16);
  if (threadIdx.x < n) y[threadIdx.x] = v;
}

// ---- never written

extern "C" __global__ void shared_never_written(float* y, const float* x, int n) {
  __shared__ float s[N];
  if (threadIdx.x < 100) s[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  y[threadIdx.x] = s[threadIdx.x];  // FAULT
}
extern "C" __global__ void shared_never_written_right(float* y, const float* x, int n) {
  __shared__ float s[N];
  s[threadIdx.x] = threadIdx.x < 100 ? x[threadIdx.x] : 0.0f;
  __syncthreads();
  y[threadIdx.x] = s[threadIdx.x];
}

extern "C" __global__ void output_read_first(float* y, const float* x, int n) {
  y[threadIdx.x] += x[threadIdx.x];  // FAULT
}
extern "C" __global__ void output_read_first_right(float* y, const float* x, int n) {
  y[threadIdx.x] = 1.0f;
  y[threadIdx.x] += x[threadIdx.x];
}

extern "C" __global__ void output_never_written(float* y, const float* x, int n) {
  if (threadIdx.x < n - 1) y[threadIdx.x] = x[threadIdx.x];
}
extern "C" __global__ void output_never_written_right(float* y, const float* x, int n) {
  if (threadIdx.x < n) y[threadIdx.x] = x[threadIdx.x];
}

// Reads what cp.async has not yet brought.
template <int groups_left>
__device__ void double_by_copy(float* y, const float* x) {
  __shared__ __align__(16) float s[4 * N];
  emulated::cp_async16(&s[4 * threadIdx.x], &x[4 * threadIdx.x]);
  emulated::cp_async_commit();
  emulated::cp_async_wait<groups_left>();
  y[threadIdx.x] = 2.0f * s[4 * threadIdx.x];  // FAULT
}
extern "C" __global__ void missing_copy_wait(float* y, const float* x, int n) { double_by_copy<1>(y, x); }
extern "C" __global__ void missing_copy_wait_right(float* y, const float* x, int n) { double_by_copy<0>(y, x); }

// ---- limits

extern "C" __global__ void too_much_static_shared(float* y, const float* x, int n) {
  __shared__ float first[8192];
  __shared__ float second[8192];  // FAULT
  first[threadIdx.x] = second[threadIdx.x] = x[threadIdx.x];
  y[threadIdx.x] = first[threadIdx.x] + second[threadIdx.x];
}
extern "C" __global__ void too_much_static_shared_right(float* y, const float* x, int n) {
  __shared__ float first[6144];
  __shared__ float second[6144];
  first[threadIdx.x] = second[threadIdx.x] = x[threadIdx.x];
  y[threadIdx.x] = first[threadIdx.x] + second[threadIdx.x];
}

extern "C" __global__ void too_much_shared(float* y, const float* x, int n) {
  extern __shared__ float big[];
  __shared__ float small[256];  // FAULT
  big[threadIdx.x] = small[threadIdx.x] = x[threadIdx.x];
  y[threadIdx.x] = big[threadIdx.x] + small[threadIdx.x];
}
extern "C" __global__ void too_much_shared_right(float* y, const float* x, int n) {
  extern __shared__ float big[];
  __shared__ float small[128];
  big[threadIdx.x] = small[threadIdx.x] = x[threadIdx.x];
  y[threadIdx.x] = big[threadIdx.x] + small[threadIdx.x];
}

extern "C" __global__ void __launch_bounds__(128) bounded(float* y, const float* x, int n) {
  if (threadIdx.x < n) y[threadIdx.x] = x[threadIdx.x];
}

// ---- arithmetic and time

extern "C" __global__ void division_by_zero(float* y, const float* x, int n) {
  int row = threadIdx.x / (n - N);  // FAULT
  y[threadIdx.x] = x[threadIdx.x] + row;
}
extern "C" __global__ void division_by_zero_right(float* y, const float* x, int n) {
  int row = threadIdx.x / (n - N + 1);
  y[threadIdx.x] = x[threadIdx.x] + row;
}

extern "C" __global__ void remainder_by_zero(float* y, const float* x, int n) {
  int column = threadIdx.x % (n - N);  // FAULT
  y[threadIdx.x] = x[threadIdx.x] + column;
}
extern "C" __global__ void remainder_by_zero_right(float* y, const float* x, int n) {
  int column = threadIdx.x % (n - N + 1);
  y[threadIdx.x] = x[threadIdx.x] + column;
}

extern "C" __global__ void endless_loop(float* y, const float* x, int n) {
  int i = threadIdx.x;
  while (i < n) {
    y[i] = x[i];  // FAULT
    i += n - N;
  }
}
extern "C" __global__ void endless_loop_right(float* y, const float* x, int n) {
  int i = threadIdx.x;
  while (i < n) {
    y[i] = x[i];
    i += blockDim.x;
  }
}

extern "C" __global__ void endless_wait(float* y, const float* x, int n) {
  volatile float* flag = y;
  while (flag[0] == 0.0f) {  // FAULT
  }
  y[1] = x[0];
}
extern "C" __global__ void endless_wait_right(float* y, const float* x, int n) {
  volatile float* flag = y;
  if (threadIdx.x == 0) {
    y[0] = 1.0f;
    while (flag[0] == 0.0f) {
    }
  }
}

extern "C" __global__ void failed_assert(float* y, const float* x, int n) {
  assert(x[threadIdx.x] < 1.0f);  // FAULT
  y[threadIdx.x] = x[threadIdx.x];
}
extern "C" __global__ void failed_assert_right(float* y, const float* x, int n) {
  assert(x[threadIdx.x] < 1000.0f);
  y[threadIdx.x] = x[threadIdx.x];
}

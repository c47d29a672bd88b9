// Kernels with parameters of every kind.
struct Settings { float scale; int shift; };

extern "C" __global__ void scale(float* y, const float* x, float by, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = by * x[i];
}
extern "C" __global__ void values(double* y, bool b, signed char c, unsigned u, long long l, __half h, __nv_bfloat16 f, double d, float4 q, Settings s) {
  y[0] = b; y[1] = c; y[2] = u; y[3] = l; y[4] = float(h); y[5] = float(f); y[6] = d; y[7] = q.z; y[8] = s.scale + s.shift;
}
extern "C" __global__ void types(__nv_bfloat16* b, __half* h, unsigned char* u, void* v, float4* q, bool* f) {}
extern "C" __global__ void maybe(float* y, const float* bias) { y[0] = bias ? bias[0] : -1.0f; }
extern "C" __global__ void add_in_place(float* y, const float* x) { y[threadIdx.x] = x[threadIdx.x] + 1.0f; }
extern "C" __global__ void shift_in_place(float* y, const float* x) {
  float v = x[threadIdx.x];
  __syncthreads();
  y[threadIdx.x] = v;
}
extern "C" __global__ void nothing() {}
extern "C" __global__ void by_four(float4* y, const float4* x) { y[threadIdx.x] = x[threadIdx.x]; }

// Every form in which shared memory is declared.
extern __shared__ float outside[];

struct Pair { float x, y; };
template <class T> struct Box { typedef T type; };

template <class T, int n>
__device__ T twice_sum(T v) {
  __shared__ typename Box<T>::type s[n];          // each instantiation has its own
  __syncthreads();
  s[threadIdx.x] = v;
  __syncthreads();
  T sum = 0;
  for (int i = 0; i < n; i++) sum += s[i];
  return sum;
}

extern "C" __global__ void forms(float* y) {
  static __shared__ int count;
  __shared__ Pair pairs[4], one;
  __shared__ struct { float values[3]; int n; } record;
  __shared__ union { float f[2]; unsigned bits[2]; } both;
  __shared__ volatile float seen[4];
  __shared__ float *where;
  extern __shared__ __align__(16) float4 quads[];
  int t = threadIdx.x;
  if (t == 0) {
    count = 3;
    one = Pair{1, 2};
    record.n = 5;
    record.values[1] = 7;
    both.f[0] = 1.0f;
    where = y;
    outside[1] = 9;
    quads[1].x = 11;
  }
  pairs[t].y = t;
  seen[t] = 2 * t;
  __syncthreads();
  float a = twice_sum<float, 4>(t), b = twice_sum<int, 4>(10 * t);
  where[t] = count + pairs[3 - t].y + one.y + record.n + record.values[1] + (both.bits[0] == 0x3f800000u) + seen[t] +
             outside[1] + quads[1].x + a + b;
}

// ldmatrix.sync.aligned.m8n8.xN[.trans].shared.b16: N matrices of 8 rows of 16 bytes from shared memory to registers.
// Lane 8 i + r gives the address of row r of matrix i; each lane receives two neighbouring elements of each matrix.
#pragma once
#include "warp.h"

namespace emulated {

void load_matrices(int count, bool transposed, unsigned *registers, const void *row, Site site);

template <int count, bool transposed = false>
EMULATED_INLINE void ldmatrix(unsigned *registers, const void *row, EMULATED_HERE) {
  static_assert(count == 1 || count == 2 || count == 4, "ldmatrix loads 1, 2 or 4 matrices");
  load_matrices(count, transposed, registers, row, {file, line});
}

}  // namespace emulated

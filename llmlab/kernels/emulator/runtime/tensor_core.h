// mma.m16n8k16 and ldmatrix for a whole warp, by the fragment layouts of the PTX manual.
#pragma once
#include "waiting.h"

namespace emulated {

struct MmaLane {
  Fragments fragments;
  ToFloat to_float;
};

static float element(const MmaLane &lane, unsigned pair, unsigned half) {
  return lane.to_float(uint16_t(pair >> 16 * half));
}

// Lane l holds rows l/4 and l/4 + 8 of a and c, columns (or, of b, rows) 2 (l%4) and the next, and the same + 8.
static void multiply(void **data, unsigned) {
  float a[16][16], b[16][8];
  for (unsigned l = 0; l < WARP; l++) {
    const MmaLane &lane = *static_cast<MmaLane *>(data[l]);
    const unsigned group = l / 4, first = 2 * (l % 4);
    for (unsigned half = 0; half < 2; half++) {
      for (unsigned i = 0; i < 4; i++) a[group + 8 * (i % 2)][first + 8 * (i / 2) + half] = element(lane, lane.fragments.a[i], half);
      for (unsigned i = 0; i < 2; i++) b[first + 8 * i + half][group] = element(lane, lane.fragments.b[i], half);
    }
  }
  for (unsigned l = 0; l < WARP; l++) {
    const Fragments &f = static_cast<MmaLane *>(data[l])->fragments;
    for (unsigned i = 0; i < 4; i++) {
      const unsigned row = l / 4 + 8 * (i / 2), column = 2 * (l % 4) + i % 2;
      float sum = f.c[i];
      for (unsigned k = 0; k < 16; k++) sum += a[row][k] * b[k][column];
      f.d[i] = sum;
    }
  }
}

void mma_m16n8k16(Fragments fragments, ToFloat to_float, Site site) {
  MmaLane lane{fragments, to_float};
  site.pc = __builtin_return_address(0);
  meet("mma.m16n8k16", 0xffffffffu, &lane, multiply, true, site);
}

struct MatrixLane {
  int count;
  bool transposed;
  unsigned *registers;
  const char *row;
};

static void distribute(void **data, unsigned) {
  for (unsigned l = 0; l < WARP; l++) {
    const MatrixLane &to = *static_cast<MatrixLane *>(data[l]);
    for (int matrix = 0; matrix < to.count; matrix++) {
      unsigned pair = 0;
      for (unsigned half = 0; half < 2; half++) {
        const unsigned major = l / 4, minor = 2 * (l % 4) + half;
        const unsigned row = to.transposed ? minor : major, column = to.transposed ? major : minor;
        uint16_t bits;
        memcpy(&bits, static_cast<MatrixLane *>(data[8 * matrix + row])->row + 2 * column, 2);
        pair |= unsigned(bits) << 16 * half;
      }
      to.registers[matrix] = pair;
    }
  }
}

void load_matrices(int count, bool transposed, unsigned *registers, const void *row, Site site) {
  MatrixLane lane{count, transposed, registers, static_cast<const char *>(row)};
  site.pc = __builtin_return_address(0);
  if (context.self->lane < unsigned(8 * count)) touch(row, 16, 16, Access::read, site.pc);
  meet("ldmatrix", 0xffffffffu, &lane, distribute, true, site);
}

}  // namespace emulated

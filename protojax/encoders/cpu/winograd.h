// 3x3 convolution from 64 channels to 64 filters by Winograd's minimal filtering F(2x2, 3x3), and its gradients.
//
// The output is cut into tiles of 2x2 pixels, which are also the windows of the max-pooling. Each depends on 4x4 input
// pixels. With the transforms B (input), G (kernel) and A (output),
//
//   V = B' d B,   U = G g G',   M[k] = V[k] U[k] for each of the 16 positions k,   y = A' M A
//
// gives the 4 outputs with 16 products per channel and filter instead of 36. The three matrices hold only 0, 1, -1 and
// 1/2, so the result is as accurate as that of the textbook sum. The gradients are the adjoint of each step:
//
//   dM = A dy A',   dU[k] += V[k]' dM[k],   dg = G' dU G,   dV[k] = dM[k] U[k]',   dd = B dV B' (tiles overlap: a sum)
//
// Tiles are numbered through all images, row by row, and go through the matrix products in batches that fit the cache.
#ifndef PROTOJAX_CPU_WINOGRAD_H_
#define PROTOJAX_CPU_WINOGRAD_H_

#include "vectors.h"

namespace protojax {

constexpr int kFilters = 64;    // and input channels, but for the first block
constexpr int kPositions = 16;  // of a transformed 4x4 tile
constexpr int kMatrix = kFilters * kFilters;
// Tiles in a batch: whole register tiles, few enough for V, dM, U and dU to share a second-level cache of 1 MB.
constexpr int kBatch = 42;
// Distance between positions in a transformed batch; the odd cache line keeps the 16 of them out of one cache set.
constexpr int kStride = kBatch * kFilters + 16;
constexpr int kTransformed = kPositions * kStride;

static_assert(kBatch % kTileRows == 0, "a batch must be whole tiles of registers");
static_assert(kFilters % (kLanes * kTileVectors) == 0, "a row of the matrices must be whole tiles");

alignas(64) const float kZeros[kFilters] = {};

// How an image of height x width pixels is cut into rows x columns tiles.
struct Tiling {
  int height, width, rows, columns;
  int64_t tiles() const { return int64_t(rows) * columns; }
};

// One tile: its image, place in the grid, and the offset of its first pixel (in pixels of all images).
struct Tile {
  int64_t image;
  int row, column;

  Tile(const Tiling& tiling, int64_t index) {
    image = index / tiling.tiles();
    int64_t within = index % tiling.tiles();
    row = int(within / tiling.columns);
    column = int(within % tiling.columns);
  }
  void advance(const Tiling& tiling) {
    if (++column < tiling.columns) return;
    column = 0;
    if (++row < tiling.rows) return;
    row = 0;
    image++;
  }
  // Whether pixel (i, j), counted from the tile's first output pixel, lies in the image.
  bool inside(const Tiling& tiling, int i, int j) const {
    int y = 2 * row + i, x = 2 * column + j;
    return y >= 0 && y < tiling.height && x >= 0 && x < tiling.width;
  }
  int64_t pixel(const Tiling& tiling, int i, int j) const {
    return (image * tiling.height + 2 * row + i) * tiling.width + 2 * column + j;
  }
  // Whether all four output pixels lie in the image: the pooling drops the others.
  bool whole(const Tiling& tiling) const { return inside(tiling, 1, 1); }
  int64_t window(const Tiling& tiling) const {
    return (image * (tiling.height / 2) + row) * (tiling.width / 2) + column;
  }
};

// U[k] = (G g G')[k] for kernels g [3, 3, entries], entries being channels times filters.
inline void transform_kernel(const float* kernel, int entries, float* U) {
  for (int i = 0; i < entries; i += kLanes) {
    Vector half[4][3];  // G g
    for (int j = 0; j < 3; j++) {
      const float* from = kernel + j * entries + i;
      Vector g0 = load(from), g1 = load(from + 3 * entries), g2 = load(from + 6 * entries);
      half[0][j] = g0, half[1][j] = (g0 + g2 + g1) * 0.5f, half[2][j] = (g0 + g2 - g1) * 0.5f, half[3][j] = g2;
    }
    for (int k = 0; k < 4; k++) {
      float* to = U + 4 * k * entries + i;
      Vector *h = half[k], even = h[0] + h[2];
      store(to, h[0]), store(to + entries, (even + h[1]) * 0.5f);
      store(to + 2 * entries, (even - h[1]) * 0.5f), store(to + 3 * entries, h[2]);
    }
  }
}

// dg = G' dU G, the adjoint of transform_kernel, for one vector of entries.
inline void untransform_kernel(const float* dU, int entries, float* gradient) {
  Vector half[3][4];  // G' dU
  for (int k = 0; k < 4; k++) {
    const float* from = dU + k * entries;
    Vector u1 = load(from + 4 * entries), u2 = load(from + 8 * entries), even = (u1 + u2) * 0.5f;
    half[0][k] = load(from) + even, half[1][k] = (u1 - u2) * 0.5f, half[2][k] = even + load(from + 12 * entries);
  }
  for (int i = 0; i < 3; i++) {
    Vector *h = half[i], even = (h[1] + h[2]) * 0.5f;
    float* to = gradient + 3 * i * entries;
    store(to, h[0] + even), store(to + entries, (h[1] - h[2]) * 0.5f), store(to + 2 * entries, even + h[3]);
  }
}

// V[k] = (B' d B)[k] for one vector of channels; from[] are the 4x4 pixels, `stride` lies between positions.
inline void transform_input(const float* const from[16], float* V, int64_t stride) {
  Vector half[4][4];  // B' d
  PROTOJAX_UNROLL for (int j = 0; j < 4; j++) {
    Vector d0 = load(from[j]), d1 = load(from[4 + j]), d2 = load(from[8 + j]), d3 = load(from[12 + j]);
    half[0][j] = d0 - d2, half[1][j] = d1 + d2, half[2][j] = d2 - d1, half[3][j] = d1 - d3;
  }
  PROTOJAX_UNROLL for (int k = 0; k < 4; k++, V += 4 * stride) {
    Vector* h = half[k];
    store(V, h[0] - h[2]), store(V + stride, h[1] + h[2]);
    store(V + 2 * stride, h[2] - h[1]), store(V + 3 * stride, h[1] - h[3]);
  }
}

// V[k][tile][c] for `count` tiles of x [N, H, W, 64]; pixels outside the image are zero.
inline void transform_tiles(const Tiling& tiling, Tile tile, int count, const float* x, float* V) {
  for (int t = 0; t < count; t++, tile.advance(tiling), V += kFilters) {
    const float* pixels[16];
    for (int i = 0; i < 16; i++) {
      int y = i / 4 - 1, z = i % 4 - 1;
      pixels[i] = tile.inside(tiling, y, z) ? x + tile.pixel(tiling, y, z) * kFilters : kZeros;
    }
    for (int c = 0; c < kFilters; c += kLanes) {
      const float* from[16];
      PROTOJAX_UNROLL for (int i = 0; i < 16; i++) from[i] = pixels[i] + c;
      transform_input(from, V + c, kStride);
    }
  }
}

// dx += B dV B', the adjoint of transform_tiles. Tiles come in order, so whether an earlier one has already written to
// a pixel follows from its place: the first writes, the others add, and dx need not be cleared.
inline void untransform_tiles(const Tiling& tiling, Tile tile, int count, const float* dV, float* dx) {
  alignas(64) float outside[kFilters];
  for (int t = 0; t < count; t++, tile.advance(tiling), dV += kFilters) {
    float* to[16];
    const float* before[16];
    for (int i = 0; i < 16; i++) {
      int y = i / 4 - 1, z = i % 4 - 1;
      bool inside = tile.inside(tiling, y, z), written = (y < 1 && tile.row > 0) || (z < 1 && tile.column > 0);
      to[i] = inside ? dx + tile.pixel(tiling, y, z) * kFilters : outside;
      before[i] = inside && written ? to[i] : kZeros;
    }
    for (int c = 0; c < kFilters; c += kLanes) {
      Vector half[4][4];  // B dV
      PROTOJAX_UNROLL for (int k = 0; k < 4; k++) {
        const float* v = dV + k * kStride + c;
        Vector v0 = load(v), v1 = load(v + 4 * kStride), v2 = load(v + 8 * kStride), v3 = load(v + 12 * kStride);
        half[0][k] = v0, half[1][k] = v1 - v2 + v3, half[2][k] = v1 + v2 - v0, half[3][k] = -v3;
      }
      PROTOJAX_UNROLL for (int i = 0; i < 4; i++) {
        Vector* h = half[i];
        Vector d[4] = {h[0], h[1] - h[2] + h[3], h[1] + h[2] - h[0], -h[3]};
        PROTOJAX_UNROLL for (int j = 0; j < 4; j++) store(to[4 * i + j] + c, load(before[4 * i + j] + c) + d[j]);
      }
    }
  }
}

// The four outputs y = A' M A of one tile, for the channels of one vector.
inline void untransform_output(const float* M, Vector y[4]) {
  Vector half[2][4];  // A' M
  PROTOJAX_UNROLL for (int k = 0; k < 4; k++) {
    const float* from = M + k * kStride;
    Vector m1 = load(from + 4 * kStride), m2 = load(from + 8 * kStride);
    half[0][k] = load(from) + m1 + m2, half[1][k] = m1 - m2 - load(from + 12 * kStride);
  }
  PROTOJAX_UNROLL for (int i = 0; i < 2; i++) {
    Vector* h = half[i];
    y[2 * i] = h[0] + h[1] + h[2], y[2 * i + 1] = h[1] - h[2] - h[3];
  }
}

// dM = A dy A', the adjoint of untransform_output.
inline void transform_output(const Vector dy[4], float* dM) {
  Vector half[4][2];  // A dy
  PROTOJAX_UNROLL for (int j = 0; j < 2; j++) {
    half[0][j] = dy[j], half[1][j] = dy[j] + dy[2 + j], half[2][j] = dy[j] - dy[2 + j], half[3][j] = -dy[2 + j];
  }
  PROTOJAX_UNROLL for (int k = 0; k < 4; k++) {
    float* to = dM + 4 * k * kStride;
    Vector* h = half[k];
    store(to, h[0]), store(to + kStride, h[0] + h[1]);
    store(to + 2 * kStride, h[0] - h[1]), store(to + 3 * kStride, -h[1]);
  }
}

// product = left right: [rows, 64], [64, 64] -> [rows, 64]. Works on whole register tiles: up to kTileRows - 1 rows
// after the last are read and written too.
inline void multiply(const float* left, const float* right, float* product, int rows) {
  for (int column = 0; column < kFilters; column += kLanes * kTileVectors) {
    for (int row = 0; row < rows; row += kTileRows) {
      Vector sum[kTileRows][kTileVectors] = {};
      const float* a = left + row * kFilters;
      const float* b = right + column;
      for (int c = 0; c < kFilters; c++, a++, b += kFilters) {
        Vector factor[kTileVectors];
        PROTOJAX_UNROLL for (int v = 0; v < kTileVectors; v++) factor[v] = load(b + v * kLanes);
        PROTOJAX_UNROLL for (int r = 0; r < kTileRows; r++) {
          Vector value = broadcast(a[r * kFilters]);
          PROTOJAX_UNROLL for (int v = 0; v < kTileVectors; v++) sum[r][v] += value * factor[v];
        }
      }
      float* to = product + row * kFilters + column;
      PROTOJAX_UNROLL for (int r = 0; r < kTileRows; r++) {
        PROTOJAX_UNROLL for (int v = 0; v < kTileVectors; v++) store(to + r * kFilters + v * kLanes, sum[r][v]);
      }
    }
  }
}

// sum[row .. row + Rows] += left' right: [count, 64], [count, 64] -> [64, 64].
template <int Rows>
inline void accumulate_rows(const float* left, const float* right, float* sum, int row, int count) {
  for (int column = 0; column < kFilters; column += kLanes * kTileVectors) {
    float* to = sum + row * kFilters + column;
    Vector total[Rows][kTileVectors] = {};  // of this batch alone: long sums lose less in two stages
    const float* a = left + row;
    const float* b = right + column;
    for (int t = 0; t < count; t++, a += kFilters, b += kFilters) {
      Vector factor[kTileVectors];
      PROTOJAX_UNROLL for (int v = 0; v < kTileVectors; v++) factor[v] = load(b + v * kLanes);
      PROTOJAX_UNROLL for (int r = 0; r < Rows; r++) {
        Vector value = broadcast(a[r]);
        PROTOJAX_UNROLL for (int v = 0; v < kTileVectors; v++) total[r][v] += value * factor[v];
      }
    }
    PROTOJAX_UNROLL for (int r = 0; r < Rows; r++) {
      PROTOJAX_UNROLL for (int v = 0; v < kTileVectors; v++) {
        float* element = to + r * kFilters + v * kLanes;
        store(element, load(element) + total[r][v]);
      }
    }
  }
}

inline void accumulate(const float* left, const float* right, float* sum, int count) {
  int row = 0;
  for (; row + kTileRows <= kFilters; row += kTileRows) accumulate_rows<kTileRows>(left, right, sum, row, count);
  if (row < kFilters) accumulate_rows<kFilters % kTileRows>(left, right, sum, row, count);
}

// Largest of the four outputs of a tile: its max-pooling.
inline Vector pool(const Vector y[4]) { return maximum(maximum(y[0], y[1]), maximum(y[2], y[3])); }

// Hands the gradient of a pooled value to its winners; equal ones share it, as in the plain JAX form. A flat background
// makes such ties common, and the transforms keep them: where the input is flat, the outputs are equal to the last bit.
inline void unpool(const Vector y[4], Vector gradient, Vector dy[4]) {
  const Vector none = {}, one = broadcast(1.0f), pooled = pool(y);
  Vector share[4], winners = {};
  PROTOJAX_UNROLL for (int q = 0; q < 4; q++) {
    share[q] = y[q] == pooled ? one : none;
    winners += share[q];
  }
  gradient /= winners;
  PROTOJAX_UNROLL for (int q = 0; q < 4; q++) dy[q] = share[q] * gradient;
}

}  // namespace protojax

#endif  // PROTOJAX_CPU_WINOGRAD_H_

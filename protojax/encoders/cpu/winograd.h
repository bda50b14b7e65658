// 3x3 convolution from 64 channels to 64 filters by Winograd's minimal filtering F(RxC, 3x3), and its gradients.
//
// The output is divided into tiles of R x C pixels, which contain complete windows of the max-pooling. Each depends on
// (R + 2) x (C + 2) input pixels. With the maps of filtering.h along both axes, V = B' d B, U = G g G' and y = A' M A,
// the products
//
//   M[k] = V[k] U[k] for each of the (R + 2) x (C + 2) positions k
//
// give the outputs with (R + 2) x (C + 2) products per channel and filter instead of 9 R x C: 36 instead of 144 for
// tiles of 4x4 pixels, 64 instead of 324 for 6x6. The gradients are the adjoint of each step:
//
//   dM = A dy A',   dU[k] += V[k]' dM[k],   dg = G' dU G,   dV[k] = dM[k] U[k]',   dd = B dV B' (tiles overlap: a sum)
//
// Tiles are indexed through all images, row by row, and multiplied in batches: V [positions, tiles, 64].
#ifndef PROTOJAX_CPU_WINOGRAD_H_
#define PROTOJAX_CPU_WINOGRAD_H_

#include <algorithm>

#include "filtering.h"
#include "products.h"

namespace protojax {

constexpr int points(int pixels) { return pixels + 2; }
constexpr int positions(int R, int C) { return points(R) * points(C); }

// Distance between the positions of a batch of tiles; the extra cache line spreads them over cache sets.
inline int64_t batch_stride(int64_t tiles) { return tiles * kFilters + 16; }

// A region of images of height x width pixels that is divided into tiles: its first pixel and its numbers of tiles.
template <int Rows, int Columns>
struct Tiling {
  static constexpr int R = Rows, C = Columns;
  int height, width, top, left, rows, columns;

  int tiles() const { return rows * columns; }
};

// One tile: its image and its position in the grid.
template <int R, int C>
struct Tile {
  Tiling<R, C> tiling;
  int64_t image;
  int row, column;

  Tile(const Tiling<R, C>& tiling, int64_t index) : tiling(tiling), image(index / tiling.tiles()) {
    int64_t within = index % tiling.tiles();
    row = int(within / tiling.columns), column = int(within % tiling.columns);
  }
  void advance() {
    if (++column < tiling.columns) return;
    column = 0;
    if (++row < tiling.rows) return;
    row = 0;
    image++;
  }
  int y(int i) const { return tiling.top + R * row + i; }
  int x(int j) const { return tiling.left + C * column + j; }
  // Whether row i and column j of pixels, counted from the tile's first output pixel, are in the image.
  bool has_row(int i) const { return unsigned(y(i)) < unsigned(tiling.height); }
  bool has_column(int j) const { return unsigned(x(j)) < unsigned(tiling.width); }
  bool inside(int i, int j) const { return has_row(i) && has_column(j); }
  // Whether all output pixels are in the image.
  bool whole() const { return inside(R - 1, C - 1); }
  // Offset of a pixel in all images, and of the pooled value of window (i, j) of the tile.
  int64_t pixel(int i, int j) const { return ((image * tiling.height + y(i)) * tiling.width + x(j)) * kFilters; }
  int64_t window(int i, int j) const {
    return ((image * (tiling.height / 2) + y(2 * i) / 2) * (tiling.width / 2) + x(2 * j) / 2) * kFilters;
  }
};

// U[k] = (G g G')[k] for kernels g [3, 3, entries], entries being channels times filters.
template <int R, int C>
void transform_kernel(const float* kernel, int entries, float* U) {
  for (int e = 0; e < entries; e += kLanes) {
    along_both_axes<Filtering<R>::kernel, 3, points(R), Filtering<C>::kernel, 3, points(C)>(
        [&](auto i, auto j) PROTOJAX_INLINE { return load(kernel + (3 * i + j) * entries + e); },
        [&](auto i, auto j, Vector u) PROTOJAX_INLINE { store(U + (points(C) * i + j) * entries + e, u); });
  }
}

// dg = G' dU G, the adjoint of transform_kernel, for one vector of entries.
template <int R, int C>
void untransform_kernel(const float* dU, int entries, float* gradient) {
  along_both_axes<Filtering<R>::kernel_adjoint, points(R), 3, Filtering<C>::kernel_adjoint, points(C), 3>(
      [&](auto i, auto j) PROTOJAX_INLINE { return load(dU + (points(C) * i + j) * entries); },
      [&](auto i, auto j, Vector g) PROTOJAX_INLINE { store(gradient + (3 * i + j) * entries, g); });
}

// The rows of input pixels of a tile: in the image, or zero-padded copies if the tile extends beyond the image.
template <int R, int C, class Value>
struct Patch {
  const Value* rows[points(R)];
  alignas(64) Value copies[points(R)][points(C)][kFilters], zeros[points(C)][kFilters] = {};

  void find(const Tile<R, C>& tile, const Value* x) {
    bool within = tile.has_column(-1) && tile.has_column(C);
    for (int i = 0; i < points(R); i++) {
      if (!tile.has_row(i - 1)) {
        rows[i] = zeros[0];
      } else if (within) {
        rows[i] = x + tile.pixel(i - 1, -1);
      } else {
        rows[i] = copies[i][0];
        for (int j = 0; j < points(C); j++) {
          const Value* pixel = tile.has_column(j - 1) ? x + tile.pixel(i - 1, j - 1) : zeros[0];
          std::memcpy(copies[i][j], pixel, sizeof copies[i][j]);
        }
      }
    }
  }
};

// V[k][tile] for `count` tiles of x [N, H, W, 64].
template <int R, int C, class Value>
void transform_tiles(Tile<R, C> tile, int count, const Value* x, float* V, int64_t stride) {
  Patch<R, C, Value> patch;
  for (int t = 0; t < count; t++, tile.advance(), V += kFilters) {
    patch.find(tile, x);
    for (int c = 0; c < kFilters; c += kLanes) {
      along_both_axes<Filtering<R>::input, points(R), points(R), Filtering<C>::input, points(C), points(C)>(
          [&](auto i, auto j) PROTOJAX_INLINE { return load(patch.rows[i] + j * kFilters + c); },
          [&](auto i, auto j, Vector v) PROTOJAX_INLINE { store(V + (points(C) * i + j) * stride + c, v); });
    }
  }
}

// dx = B dV B', the adjoint of transform_tiles, for rows of tiles that come in order. Tiles overlap by two pixels: the
// contributions of a tile to the next one in its row and to the next row of tiles are carried over to them.
template <int T>
class Overlap {
 public:
  static constexpr int P = points(T);

  Overlap(const Tiling<T, T>& tiling, float* buffer, bool beyond_cache)
      : tiling_(tiling), width_((T * tiling.columns + 2) * kLanes), below_(buffer), beyond_cache_(beyond_cache) {}
  static int64_t size(const Tiling<T, T>& tiling) { return 2 * int64_t(T * tiling.columns + 2) * kFilters; }

  // Writes the rows of pixels that are complete after row `row` of tiles; dx starts at the first pixel of the image.
  template <class Value>
  void add(int row, const float* dV, int64_t stride, Value* dx) {
    for (int c = 0; c < kFilters; c += kLanes) {
      float* below = below_ + c / kLanes * 2 * width_;
      if (row == 0) std::memset(below, 0, 2 * width_ * sizeof(float));
      alignas(64) float right[2 * P * kLanes] = {};
      for (int column = 0; column < tiling_.columns; column++) {
        bool inside = row > 0 && column > 0 && T * (row + 1) < tiling_.height && T * (column + 1) < tiling_.width;
        with_constant(inside, [&](auto inside) {
          float *under = below + T * column * kLanes;
          add_tile<inside>(row, column, dV + column * kFilters + c, stride, right, under, dx + c);
        });
      }
      finish_row(row, right, below + T * tiling_.columns * kLanes, dx + c);
      if (row + 1 == tiling_.rows) finish_image(below, dx + c);
    }
  }

 private:
  template <bool Inside, class Value>
  void add_tile(int row, int column, const float* dV, int64_t stride, float* right, float* below, Value* dx) {
    along_both_axes<Filtering<T>::input_adjoint, P, P, Filtering<T>::input_adjoint, P, P>(
        [&](auto i, auto j) PROTOJAX_INLINE { return load(dV + (P * i + j) * stride); },
        [&](auto i, auto j, Vector d) PROTOJAX_INLINE {
          float *beside = right + (2 * i + j % T) * kLanes, *under = below + i % T * width_ + j * kLanes;
          if (j < 2) d += load(beside);
          if (j >= T) return store(beside, d);
          if (i >= T) return store(under, d);
          if (i < 2) d += load(under);
          write<Inside>(T * row + i - 1, T * column + j - 1, d, dx);
        });
  }

  // Write the remainder right of a row's last tile, and the remainder below an image's last row.
  template <class Value>
  void finish_row(int row, const float* right, float* below, Value* dx) {
    for (int i = 0; i < P; i++) {
      for (int j = 0; j < 2; j++) {
        float* under = below + i % T * width_ + j * kLanes;
        Vector d = load(right + (2 * i + j) * kLanes);
        if (i < 2) d += load(under);
        i < T ? write<false>(T * row + i - 1, T * tiling_.columns + j - 1, d, dx) : store(under, d);
      }
    }
  }
  template <class Value>
  void finish_image(const float* below, Value* dx) {
    for (int i = 0; i < 2; i++) {
      for (int j = 0; j < T * tiling_.columns + 2; j++) {
        write<false>(T * tiling_.rows + i - 1, j - 1, load(below + i * width_ + j * kLanes), dx);
      }
    }
  }

  template <bool Inside, class Value>
  PROTOJAX_INLINE void write(int y, int x, Vector d, Value* dx) const {
    if (!Inside && (unsigned(y) >= unsigned(tiling_.height) || unsigned(x) >= unsigned(tiling_.width))) return;
    dx += (int64_t(y) * tiling_.width + x) * kFilters;
    beyond_cache_ ? stream(dx, d) : store(dx, d);
  }

  Tiling<T, T> tiling_;
  int64_t width_;  // of a row of pixels in `below`, with one more on each side of the image
  float* below_;   // [64 / lanes, 2, T * columns + 2, lanes]
  bool beyond_cache_;
};

// Calls write(i, j, y) for the outputs y = A' M A of one tile, row by row, for the channels of one vector.
template <int R, int C, class Write>
PROTOJAX_INLINE inline void untransform_output(const float* M, int64_t stride, const Write& write) {
  along_both_axes<Filtering<R>::output, points(R), R, Filtering<C>::output, points(C), C>(
      [&](auto i, auto j) PROTOJAX_INLINE { return load(M + (points(C) * i + j) * stride); }, write);
}

// dM = A dy A', the adjoint of untransform_output; read(i, j) returns dy, column by column.
template <int R, int C, class Read>
PROTOJAX_INLINE inline void transform_output(const Read& read, float* dM, int64_t stride) {
  along_both_axes<Filtering<R>::output_adjoint, R, points(R), Filtering<C>::output_adjoint, C, points(C)>(
      read, [&](auto i, auto j, Vector m) PROTOJAX_INLINE { store(dM + (points(C) * i + j) * stride, m); });
}

// Adds the gradient of a window's pooled value to the gradient of the first maximum among its outputs y.
PROTOJAX_INLINE inline void unpool(const Vector y[4], Vector gradient, Vector dy[4]) {
  const Vector none = {}, pooled = larger(larger(y[0], y[1]), larger(y[2], y[3]));
  unroll<4>([&](auto q) PROTOJAX_INLINE {
    dy[q] += y[q] == pooled ? gradient : none;
    gradient = y[q] == pooled ? none : gradient;
  });
}

}  // namespace protojax

#endif  // PROTOJAX_CPU_WINOGRAD_H_

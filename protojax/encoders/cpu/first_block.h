// The first block: 1 or 3 input channels, and a kernel that already contains the normalisation.
//
// There is little to compute and much to write, so the convolution's output never leaves the registers: a few tiles at
// a time are computed, pooled and stored. The gradient computes the same outputs again to find the winners. The
// arithmetic is that of winograd.h, one row of tiles at a time; V[k] holds 2 C floats per tile, of which the first C
// count.
//
// Batch statistics of this block follow from the moments of its 3x3 patches, at the end of this file.
#ifndef PROTOJAX_CPU_FIRST_BLOCK_H_
#define PROTOJAX_CPU_FIRST_BLOCK_H_

#include "winograd.h"

namespace protojax {

constexpr bool kManyRegisters = kTileRows * kTileVectors > 16;
constexpr int kTiles = kManyRegisters ? 3 : 1;  // computed at once; each needs 8 registers

// An image with a border of zeros: [height + 2, width + 2, C], and room for a vector that starts at its last element.
template <int C>
struct PaddedImage {
  const float* pixels;
  int height, width;
  int64_t stride;  // of rows

  PaddedImage(const float* image, int height, int width, float* buffer)
      : pixels(buffer), height(height), width(width), stride(int64_t(width + 2) * C) {
    std::memset(buffer, 0, size(height, width) * sizeof(float));
    for (int row = 0; row < height; row++) {
      std::memcpy(buffer + (row + 1) * stride + C, image + int64_t(row) * width * C, sizeof(float) * width * C);
    }
  }
  static int64_t size(int height, int width) { return int64_t(height + 2) * (width + 2) * C + 2 * kLanes; }
};

// The transformed input of one row of tiles.
template <int C>
struct TransformedRow {
  float* V;
  int64_t stride;  // of positions

  TransformedRow(const PaddedImage<C>& image, int row, float* buffer)
      : V(buffer), stride(size(image.width) / kPositions) {
    const float* from[16];
    for (int i = 0; i < 16; i++) from[i] = image.pixels + (2 * row + i / 4) * image.stride + i % 4 * C;
    for (int offset = 0; offset < image.width * C; offset += kLanes) {
      transform_input(from, V + offset, stride);
      for (int i = 0; i < 16; i++) from[i] += kLanes;
    }
  }
  const float* tile(int column) const { return V + 2 * column * C; }
  static int64_t size(int width) { return kPositions * int64_t((width * C / kLanes + 1) * kLanes + 16); }
};

// Outputs of `Tiles` neighbouring tiles for one vector of filters; U [16, C, 64] starts at its first filter. The rows
// of the transformed tile are taken two by two, which is what the registers hold.
template <int C, int Tiles>
inline void tile_outputs(const float* V, int64_t stride, const float* U, Vector y[Tiles][4]) {
  Vector top[Tiles][4], bottom[Tiles][4];  // A' M
  PROTOJAX_UNROLL for (int pair = 0; pair < 2; pair++) {
    Vector m[Tiles][8];
    PROTOJAX_UNROLL for (int k = 0; k < 8; k++) {
      PROTOJAX_UNROLL for (int t = 0; t < Tiles; t++) m[t][k] = Vector{};
      PROTOJAX_UNROLL for (int c = 0; c < C; c++) {
        Vector u = load(U + ((8 * pair + k) * C + c) * kFilters);
        const float* v = V + (8 * pair + k) * stride + c;
        PROTOJAX_UNROLL for (int t = 0; t < Tiles; t++) m[t][k] += broadcast(v[2 * t * C]) * u;
      }
    }
    PROTOJAX_UNROLL for (int t = 0; t < Tiles; t++) {
      PROTOJAX_UNROLL for (int k = 0; k < 4; k++) {
        top[t][k] = pair == 0 ? m[t][k] + m[t][4 + k] : top[t][k] + m[t][k];
        bottom[t][k] = pair == 0 ? m[t][4 + k] : bottom[t][k] - m[t][k] - m[t][4 + k];
      }
    }
  }
  PROTOJAX_UNROLL for (int t = 0; t < Tiles; t++) {
    y[t][0] = top[t][0] + top[t][1] + top[t][2], y[t][1] = top[t][1] - top[t][2] - top[t][3];
    y[t][2] = bottom[t][0] + bottom[t][1] + bottom[t][2], y[t][3] = bottom[t][1] - bottom[t][2] - bottom[t][3];
  }
}

// Calls use(column, outputs of that tile) for every tile of a row, for one vector of filters.
template <int C, class Use>
inline void each_tile(const TransformedRow<C>& row, int columns, const float* U, const Use& use) {
  int column = 0;
  for (; column + kTiles <= columns; column += kTiles) {
    Vector y[kTiles][4];
    tile_outputs<C, kTiles>(row.tile(column), row.stride, U, y);
    PROTOJAX_UNROLL for (int t = 0; t < kTiles; t++) use(column + t, y[t]);
  }
  for (; column < columns; column++) {
    Vector y[1][4];
    tile_outputs<C, 1>(row.tile(column), row.stride, U, y);
    use(column, y[0]);
  }
}

// relu(max_pool(convolution) + bias) of one image: [height / 2, width / 2, 64].
template <int C>
void forward_image(const PaddedImage<C>& image, const float* U, const float* bias, float* buffer, float* result) {
  int columns = image.width / 2;
  for (int r = 0; r < image.height / 2; r++, result += columns * kFilters) {
    TransformedRow<C> row(image, r, buffer);
    for (int f = 0; f < kFilters; f += kLanes) {
      Vector shift = load(bias + f);
      each_tile(row, columns, U + f, [&](int column, const Vector y[4]) {
        store(result + column * kFilters + f, relu(pool(y) + shift));
      });
    }
  }
}

// dU [16, C, 64] += V' dM over a row of tiles, for one vector of filters; dy is [columns, 4] vectors. As many channels
// at once as the registers hold.
template <int C>
inline void accumulate_row(const TransformedRow<C>& row, int columns, const float* dy, float* dU) {
  constexpr int kChannels = kManyRegisters ? C : 1;
  for (int first = 0; first < C; first += kChannels) {
    PROTOJAX_UNROLL for (int pair = 0; pair < 2; pair++) {
      Vector sum[8][kChannels] = {};
      for (int column = 0; column < columns; column++) {
        const float* from = dy + column * 4 * kLanes;
        Vector d0 = load(from), d1 = load(from + kLanes), d2 = load(from + 2 * kLanes), d3 = load(from + 3 * kLanes);
        Vector half[2][2] = {{pair == 0 ? d0 : d0 - d2, pair == 0 ? d1 : d1 - d3},  // rows of A dy
                             {pair == 0 ? d0 + d2 : -d2, pair == 0 ? d1 + d3 : -d3}};
        PROTOJAX_UNROLL for (int i = 0; i < 2; i++) {
          Vector dM[4] = {half[i][0], half[i][0] + half[i][1], half[i][0] - half[i][1], -half[i][1]};
          PROTOJAX_UNROLL for (int j = 0; j < 4; j++) {
            const float* v = row.tile(column) + (8 * pair + 4 * i + j) * row.stride + first;
            PROTOJAX_UNROLL for (int c = 0; c < kChannels; c++) sum[4 * i + j][c] += broadcast(v[c]) * dM[j];
          }
        }
      }
      PROTOJAX_UNROLL for (int k = 0; k < 8; k++) {
        PROTOJAX_UNROLL for (int c = 0; c < kChannels; c++) {
          float* to = dU + ((8 * pair + k) * C + first + c) * kFilters;
          store(to, load(to) + sum[k][c]);
        }
      }
    }
  }
}

// Adds one image's gradients to those of the transformed kernel, dU [16, C, 64], and of the bias [64]. `buffer` holds a
// TransformedRow, `dy` the gradients of a row's outputs: [columns, 4] vectors.
template <int C>
void backward_image(const PaddedImage<C>& image, const float* U, const float* bias, const float* gradient,
                    float* buffer, float* dy, float* dU, float* bias_gradient) {
  int columns = image.width / 2;
  for (int r = 0; r < image.height / 2; r++, gradient += columns * kFilters) {
    TransformedRow<C> row(image, r, buffer);
    for (int f = 0; f < kFilters; f += kLanes) {
      Vector shift = load(bias + f), sum = {};
      each_tile(row, columns, U + f, [&](int column, const Vector y[4]) {
        Vector g = load(gradient + column * kFilters + f), d[4];
        g = pool(y) + shift > 0 ? g : Vector{};
        sum += g;
        unpool(y, g, d);
        PROTOJAX_UNROLL for (int q = 0; q < 4; q++) store(dy + (4 * column + q) * kLanes, d[q]);
      });
      store(bias_gradient + f, load(bias_gradient + f) + sum);
      accumulate_row(row, columns, dy, dU + f);
    }
  }
}

// Sums over patches p of (p, 1)' (p, 1): every product of two taps, and in column 9 C the taps themselves.
template <int C>
struct Moments {
  static constexpr int kSize = 9 * C, kVectors = (kSize + kLanes) / kLanes, kRow = kVectors * kLanes;
  static constexpr int kStep = 9;  // rows summed at once

  // Adds one row of pixels; `patches` is scratch [width, kRow], zero beyond column 9 C.
  static void add_row(const PaddedImage<C>& image, int row, float* patches, float* sums) {
    for (int column = 0; column < image.width; column++) {
      float* patch = patches + column * kRow;
      const float* taps = image.pixels + row * image.stride + column * C;
      for (int i = 0; i < 3; i++) std::memcpy(patch + 3 * C * i, taps + i * image.stride, 3 * C * sizeof(float));
      patch[kSize] = 1;
    }
    for (int first = 0; first < kSize; first += kStep) {
      // Symmetry: columns left of the diagonal follow from the others.
      for (int v = first / kLanes; v < kVectors; v++) add_column(patches, image.width, first, v, sums);
    }
  }

  static void add_column(const float* patches, int width, int first, int vector, float* sums) {
    Vector sum[kStep] = {};
    for (int column = 0; column < width; column++, patches += kRow) {
      Vector factor = load(patches + vector * kLanes);
      PROTOJAX_UNROLL for (int k = 0; k < kStep; k++) sum[k] += broadcast(patches[first + k]) * factor;
    }
    PROTOJAX_UNROLL for (int k = 0; k < kStep; k++) {
      float* to = sums + (first + k) * kRow + vector * kLanes;
      store(to, load(to) + sum[k]);
    }
  }
};

}  // namespace protojax

#endif  // PROTOJAX_CPU_FIRST_BLOCK_H_

// The first block: 1 or 3 input channels, and a kernel that already contains the normalisation.
//
// There is little to compute and much to write, so the convolution's output stays in registers: a few tiles at a time
// are computed, pooled and stored. In training, the index of each pooling winner is stored too, in one byte; the
// gradient needs nothing else of the output. The algorithm is the one of winograd.h with tiles of 2x2 pixels, the
// pooling windows, one row of tiles at a time. V[k] has 2 C floats per tile, of which the first C are used.
#ifndef PROTOJAX_CPU_FIRST_BLOCK_H_
#define PROTOJAX_CPU_FIRST_BLOCK_H_

#include "parallel.h"
#include "shape.h"
#include "winograd.h"

namespace protojax {

constexpr int kTilesAtOnce = kManyRegisters ? 3 : 1;  // each needs 8 registers
constexpr int kNobody = 4;  // instead of the index of a winner: the ReLU stops the gradient

typedef uint8_t Places __attribute__((vector_size(kLanes)));

// An image with a border of zeros: [height + 2, width + 2, C], and room for a vector that starts at its last element.
template <int C>
struct PaddedImage {
  const float* pixels;
  int height, width;
  int64_t stride;  // of rows

  template <class Value>
  PaddedImage(const Value* image, int height, int width, float* buffer)
      : pixels(buffer), height(height), width(width), stride(int64_t(width + 2) * C) {
    std::memset(buffer, 0, size(height, width) * sizeof(float));
    for (int row = 0; row < height; row++) {
      copy(image + int64_t(row) * width * C, width * C, buffer + (row + 1) * stride + C);
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
      : V(buffer), stride(size(image.width) / positions(2, 2)) {
    const float* from = image.pixels + 2 * row * image.stride;
    for (int offset = 0; offset < image.width * C; offset += kLanes, from += kLanes) {
      along_both_axes<Filtering<2>::input, 4, 4, Filtering<2>::input, 4, 4>(
          [&](auto i, auto j) PROTOJAX_INLINE { return load(from + i * image.stride + j * C); },
          [&](auto i, auto j, Vector v) PROTOJAX_INLINE { store(V + (4 * i + j) * stride + offset, v); });
    }
  }
  const float* tile(int column) const { return V + 2 * column * C; }
  static int64_t size(int width) { return positions(2, 2) * int64_t((width * C / kLanes + 1) * kLanes + 16); }
};

// Computes the outputs of `Tiles` neighbouring tiles for one vector of filters; U [16, C, 64] starts at its first
// filter. Positions are processed column by column, so that few of them are in registers at a time.
template <int C, int Tiles>
PROTOJAX_INLINE inline void tile_outputs(const float* V, int64_t stride, const float* U, Vector y[Tiles][4]) {
  unroll<4>([&](auto j) PROTOJAX_INLINE {
    Vector m[Tiles][4];  // column j of M
    unroll<4>([&](auto i) PROTOJAX_INLINE {
      unroll<C>([&](auto c) PROTOJAX_INLINE {
        Vector u = keep(load(U + ((4 * i + j) * C + c) * kFilters));
        const float* v = V + (4 * i + j) * stride + c;
        unroll<Tiles>([&](auto t) PROTOJAX_INLINE {
          m[t][i] = c == 0 ? broadcast(v[2 * t * C]) * u : m[t][i] + broadcast(v[2 * t * C]) * u;
        });
      });
    });
    unroll<Tiles>([&](auto t) PROTOJAX_INLINE {
      Vector half[2];  // column j of A' M; then y = (A' M) A, column by column
      Filtering<2>::output(m[t], half);
      unroll<2>([&](auto i) PROTOJAX_INLINE {
        Vector *left = &y[t][2 * i], *right = &y[t][2 * i + 1];
        *left = j == 0 ? half[i] : j < 3 ? *left + half[i] : *left;
        *right = j == 1 ? half[i] : j > 1 ? *right - half[i] : *right;
      });
    });
  });
}

// Calls use(column, outputs of that tile) for every tile of a row, for one vector of filters.
template <int C, class Use>
PROTOJAX_INLINE inline void each_tile(const TransformedRow<C>& row, int columns, const float* U, const Use& use) {
  int column = 0;
  for (; column + kTilesAtOnce <= columns; column += kTilesAtOnce) {
    Vector y[kTilesAtOnce][4];
    tile_outputs<C, kTilesAtOnce>(row.tile(column), row.stride, U, y);
    unroll<kTilesAtOnce>([&](auto t) PROTOJAX_INLINE { use(column + t, y[t]); });
  }
  for (; column < columns; column++) {
    Vector y[1][4];
    tile_outputs<C, 1>(row.tile(column), row.stride, U, y);
    use(column, y[0]);
  }
}

// The largest of a window's outputs y and its index, the first if several are equal. A NaN may be lost here; in
// training it appears in the moments of the patches.
PROTOJAX_INLINE inline Vector winner(const Vector y[4], Bits& place) {
  auto right_above = y[1] > y[0], right_below = y[3] > y[2];
  Vector above = right_above ? y[1] : y[0], below = right_below ? y[3] : y[2];
  place = below > above ? (right_below ? Bits{} + 3 : Bits{} + 2) : (right_above ? Bits{} + 1 : Bits{});
  return below > above ? below : above;
}

// relu(max_pool(convolution) + bias) of one image, [height / 2, width / 2, 64], and the winners if requested.
template <bool Winners, int C, class Value>
void forward_image(const PaddedImage<C>& image, const float* U, const float* bias, float* buffer, bool beyond_cache,
                   Value* result, uint8_t* winners) {
  int columns = image.width / 2;
  for (int r = 0; r < image.height / 2; r++) {
    TransformedRow<C> row(image, r, buffer);
    for (int f = 0; f < kFilters; f += kLanes) {
      Vector shift = load(bias + f);
      int64_t first = int64_t(r) * columns * kFilters + f;
      each_tile(row, columns, U + f, [&](int column, const Vector y[4]) PROTOJAX_INLINE {
        Bits place;
        Vector highest = Winners ? winner(y, place) : maximum(maximum(y[0], y[1]), maximum(y[2], y[3]));
        Vector value = relu(highest + shift);
        int64_t at = first + column * kFilters;
        beyond_cache ? stream(result + at, value) : store(result + at, value);
        if (!Winners) return;
        Places bytes = __builtin_convertvector(value > 0 ? place : Bits{} + kNobody, Places);
        std::memcpy(winners + at, &bytes, sizeof bytes);
      });
    }
  }
}

// relu(max_pool(convolution(x, kernel)) + bias), and the winners of the pooling unless they are null.
template <int C, class Value>
void convolve_pool_relu_first(ThreadPool& threads, const Shape& shape, const Value* x, const float* kernel,
                              const float* bias, Value* result, uint8_t* winners) {
  float* U = scratch<KernelScratch>(positions(2, 2) * C * kFilters);
  transform_kernel<2, 2>(kernel, C * kFilters, U);
  bool beyond_cache = shape.images * shape.pooled_size() * sizeof(Value) > kBeyondCache;
  parallel(threads, shape.images, [&](int64_t n) {
    float* padded = scratch<InputScratch>(PaddedImage<C>::size(shape.height, shape.width));
    float* row = scratch<OutputScratch>(TransformedRow<C>::size(shape.width));
    PaddedImage<C> image(x + n * shape.image_size(), shape.height, shape.width, padded);
    int64_t at = n * shape.pooled_size();
    with_constant(winners != nullptr, [&](auto wanted) {
      forward_image<wanted>(image, U, bias, row, beyond_cache, result + at, wanted ? winners + at : nullptr);
    });
  });
}

// dU [16, C, 64] += V' dM over a row of tiles, for one vector of filters; dy is [columns, 4] vectors. Processes as many
// channels at once as fit in registers, and half of the positions.
template <int C>
void accumulate_row(const TransformedRow<C>& row, int columns, const float* dy, float* dU, Ahead& ahead) {
  constexpr int kChannels = kManyRegisters ? C : 1;
  for (int first = 0; first < C; first += kChannels) {
    unroll<2>([&](auto half) PROTOJAX_INLINE {
      Vector sum[8][kChannels] = {};
      for (int column = 0; column < columns; column++) {
        ahead.fetch_line();
        Vector d[2][2], rows[2][4];
        unroll<4>([&](auto q) PROTOJAX_INLINE { d[q % 2][q / 2] = load(dy + (4 * column + q) * kLanes); });
        unroll<2>([&](auto j) PROTOJAX_INLINE { Filtering<2>::output_adjoint(d[j], rows[j]); });  // A dy, transposed
        unroll<2>([&](auto i) PROTOJAX_INLINE {
          Vector left_right[2] = {rows[0][2 * half + i], rows[1][2 * half + i]}, dM[4];
          Filtering<2>::output_adjoint(left_right, dM);
          unroll<4>([&](auto j) PROTOJAX_INLINE {
            const float* v = row.tile(column) + (8 * half + 4 * i + j) * row.stride + first;
            unroll<kChannels>([&](auto c) PROTOJAX_INLINE { sum[4 * i + j][c] += broadcast(v[c]) * dM[j]; });
          });
        });
      }
      unroll<8>([&](auto k) PROTOJAX_INLINE {
        unroll<kChannels>([&](auto c) PROTOJAX_INLINE {
          float* to = dU + ((8 * half + k) * C + first + c) * kFilters;
          store(to, load(to) + sum[k][c]);
        });
      });
    });
  }
}

// Adds one image's gradients to the gradients of the transformed kernel, dU [16, C, 64], and of the bias [64].
// `buffer` is scratch memory for a TransformedRow, `dy` for the gradients of a row's outputs: [columns, 4] vectors.
template <int C, class Value>
void backward_image(const PaddedImage<C>& image, const uint8_t* winners, const Value* gradient, float* buffer,
                    float* dy, float* dU, float* bias_gradient) {
  int columns = image.width / 2;
  for (int r = 0; r < image.height / 2; r++) {
    TransformedRow<C> row(image, r, buffer);
    Ahead ahead(gradient + (r + 1) * columns * kFilters, columns * kFilters);
    for (int f = 0; f < kFilters; f += kLanes) {
      Vector sum = {}, none = {};
      for (int column = 0; column < columns; column++) {
        int64_t at = (int64_t(r) * columns + column) * kFilters + f;
        Halves places = __builtin_convertvector(load_as<Places>(winners + at), Halves);
        Bits place = __builtin_convertvector(places, Bits);  // two steps: in one, gcc would convert element by element
        Vector g = load(gradient + at);
        sum += place == kNobody ? none : g;
        unroll<4>([&](auto q) PROTOJAX_INLINE {
          store(dy + (4 * column + q) * kLanes, place == unsigned(q) ? g : none);
        });
      }
      store(bias_gradient + f, load(bias_gradient + f) + sum);
      accumulate_row(row, columns, dy, dU + f, ahead);
    }
  }
}

// Gradients of convolve_pool_relu_first with respect to kernel and bias.
template <int C, class Value>
void convolve_pool_relu_first_gradient(ThreadPool& threads, const Shape& shape, const Value* x, const uint8_t* winners,
                                       const Value* gradient, float* kernel_gradient, float* bias_gradient) {
  constexpr int64_t kKernel = C * kFilters, kGradient = positions(2, 2) * kKernel + kFilters;  // dU, then the bias gradient
  Ranges ranges(shape.images, kManyRanges);
  float* sums = scratch<GradientScratch>(ranges.count * kGradient);
  parallel(threads, ranges.count, [&](int64_t range) {
    float* sum = sums + range * kGradient;
    std::memset(sum, 0, kGradient * sizeof(float));
    int64_t row_size = TransformedRow<C>::size(shape.width);
    float* padded = scratch<InputScratch>(PaddedImage<C>::size(shape.height, shape.width));
    float* row = scratch<OutputScratch>(row_size + 2 * shape.width * kLanes);
    for (int64_t n = ranges.begin(range); n < ranges.end(range); n++) {
      PaddedImage<C> image(x + n * shape.image_size(), shape.height, shape.width, padded);
      int64_t at = n * shape.pooled_size();
      backward_image(image, winners + at, gradient + at, row, row + row_size, sum, sum + positions(2, 2) * kKernel);
    }
  });
  for (int64_t i = 0; i < kGradient; i++) {
    double total = 0;
    for (int64_t range = 0; range < ranges.count; range++) total += sums[range * kGradient + i];
    sums[i] = float(total);
  }
  for (int i = 0; i < kKernel; i += kLanes) untransform_kernel<2, 2>(sums + i, kKernel, kernel_gradient + i);
  std::memcpy(bias_gradient, sums + positions(2, 2) * kKernel, kFilters * sizeof(float));
}

}  // namespace protojax

#endif  // PROTOJAX_CPU_FIRST_BLOCK_H_

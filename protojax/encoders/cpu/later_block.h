// The blocks after the first: 64 channels to 64 filters.
//
// In training, the convolution's output y is stored for the gradient, together with its pooled values; the moments for
// the batch normalisation are accumulated at the same time. Otherwise the kernel contains the normalisation, and only
// the result of the block is stored.
//
// Sums are accumulated within ranges that depend only on the shapes, then over the ranges in order, so results are
// bit-identical however the threads share the work.
#ifndef PROTOJAX_CPU_LATER_BLOCK_H_
#define PROTOJAX_CPU_LATER_BLOCK_H_

#include "parallel.h"
#include "regions.h"
#include "shape.h"

namespace protojax {

// Tiles in a batch. The transformed tiles of a forward batch, or both factors of a backward batch, leave room in a
// second-level cache of 1 MB for the other factors of the products, which are read once per batch.
constexpr int forward_batch(int R, int C) { return (448 << 10) / (positions(R, C) * kFilters * 4); }
constexpr int backward_batch(int T) { return (384 << 10) / (positions(T, T) * kFilters * 4); }

// Groups of images that are convolved region by region, 1.5 MB each, so that they stay in a cache.
template <class Value>
Ranges image_groups(const Shape& shape) {
  return Ranges(shape.images, std::max<int64_t>(16, shape.images * shape.image_size() * sizeof(Value) / (3 << 19)));
}

// Convolves the tiles of one region in some images and passes each to finish(tile, M, stride), where `stride` is the
// distance between the positions of M. U is the transformed kernel.
template <int R, int C, class Value, class Finish>
void convolve_region(const Tiling<R, C>& tiling, int64_t first, int64_t last, const Value* x, const float* U,
                     const Finish& finish) {
  constexpr int kBatch = forward_batch(R, C);
  int64_t tiles = (last - first) * tiling.tiles(), stride = batch_stride(kBatch);
  int64_t image_size = int64_t(tiling.height) * tiling.width * kFilters;
  float* V = scratch<InputScratch>(positions(R, C) * stride);
  Ranges batches(tiles, (tiles + kBatch - 1) / kBatch);
  for (int64_t batch = 0; batch < batches.count; batch++) {
    int64_t begin = first * tiling.tiles() + batches.begin(batch);
    int count = int(batches.end(batch) - batches.begin(batch));
    Tile<R, C> tile(tiling, begin);
    transform_tiles(tile, count, x, V, stride);
    bool more = batch + 1 < batches.count;
    Ahead ahead(x + Tile<R, C>(tiling, begin + count).pixel(0, 0), more ? image_size * count / tiling.tiles() : 0);
    for (int k = 0; k < positions(R, C); k++) {
      multiply(V + k * stride, U + k * kMatrix, count, ahead);  // V[k] becomes M[k]
    }
    for (int t = 0; t < count; t++, tile.advance()) finish(tile, V + t * kFilters, stride);
  }
}

// Convolves the first rows x columns outputs of all images, or a few more, and passes each tile to finish(group, tile,
// M, stride), as above, with the groups of image_groups.
template <class Value, class Finish>
void convolve(ThreadPool& threads, const Shape& shape, int rows, int columns, const Value* x, const float* kernel,
              const Finish& finish) {
  float* U = scratch<KernelScratch>(kAllPositions * kMatrix);
  each_region(shape.height, shape.width, rows, columns, [&](auto tiling, int before) {
    transform_kernel<tiling.R, tiling.C>(kernel, kMatrix, U + before * kMatrix);
  });
  Ranges groups = image_groups<Value>(shape);
  parallel(threads, groups.count, [&](int64_t group) {
    each_region(shape.height, shape.width, rows, columns, [&](auto tiling, int before) {
      convolve_region(tiling, groups.begin(group), groups.end(group), x, U + before * kMatrix,
                      [&](auto& tile, const float* M, int64_t stride) { finish(group, tile, M, stride); });
    });
  });
}

// The outputs y of one tile and its pooled values; adds y and y * y to sums [2, 64].
template <bool Whole, int R, int C, class Value>
void finish_training_tile(const Tile<R, C>& tile, const float* M, int64_t stride, Value* y, bool beyond_cache,
                          Value* pooled, double* sums) {
  for (int f = 0; f < kFilters; f += kLanes) {
    Vector window[R / 2][C / 2], sum = {}, squares = {};  // few enough terms for float
    untransform_output<R, C>(M + f, stride, [&](auto i, auto j, Vector value) PROTOJAX_INLINE {
      Vector& highest = window[i / 2][j / 2];
      highest = i % 2 == 0 && j % 2 == 0 ? value : larger(highest, value);  // a NaN appears in the means
      if (!Whole && !tile.inside(i, j)) return;
      beyond_cache ? stream(y + tile.pixel(i, j) + f, value) : store(y + tile.pixel(i, j) + f, value);
      sum += value, squares += value * value;
      if (i % 2 == 1 && j % 2 == 1) store(pooled + tile.window(i / 2, j / 2) + f, highest);
    });
    for (int lane = 0; lane < kLanes; lane++) {
      sums[f + lane] += sum[lane], sums[kFilters + f + lane] += squares[lane];
    }
  }
}

// y = convolution(x, kernel), its 2x2 maximum, and the mean of y and of y * y over all pixels.
template <class Value>
void convolve_and_pool(ThreadPool& threads, const Shape& shape, const Value* x, const float* kernel, Value* y,
                       Value* pooled, float* mean, float* mean_square) {
  bool beyond_cache = shape.images * shape.image_size() * sizeof(Value) > kBeyondCache;
  int64_t groups = image_groups<Value>(shape).count;
  std::vector<double> sums(groups * 2 * kFilters);
  auto finish = [&](int64_t group, auto& tile, const float* M, int64_t stride) {
    with_constant(tile.whole(), [&](auto whole) {
      finish_training_tile<whole>(tile, M, stride, y, beyond_cache, pooled, &sums[group * 2 * kFilters]);
    });
  };
  convolve(threads, shape, shape.height, shape.width, x, kernel, finish);
  for (int i = 0; i < 2 * kFilters; i++) {
    double total = 0;
    for (int64_t group = 0; group < groups; group++) total += sums[group * 2 * kFilters + i];
    float* moments = i < kFilters ? mean : mean_square;  // a named pointer: g++ 12 with sanitizers needs it
    moments[i % kFilters] = float(total / double(shape.pixels()));
  }
}

// The results of one tile if y is not needed.
template <int R, int C, class Value>
void finish_fixed_tile(const Tile<R, C>& tile, const float* M, int64_t stride, const float* bias, Value* result) {
  for (int f = 0; f < kFilters; f += kLanes) {
    Vector window[R / 2][C / 2], shift = load(bias + f);
    untransform_output<R, C>(M + f, stride, [&](auto i, auto j, Vector value) PROTOJAX_INLINE {
      Vector& highest = window[i / 2][j / 2];
      highest = i % 2 == 0 && j % 2 == 0 ? value : maximum(highest, value);
      if (i % 2 == 0 || j % 2 == 0 || !tile.inside(i, j)) return;
      store(result + tile.window(i / 2, j / 2) + f, relu(highest + shift));
    });
  }
}

// relu(max_pool(convolution(x, kernel)) + bias).
template <class Value>
void convolve_pool_relu_later(ThreadPool& threads, const Shape& shape, const Value* x, const float* kernel,
                              const float* bias, Value* result) {
  convolve(threads, shape, shape.height / 2 * 2, shape.width / 2 * 2, x, kernel,
           [&](int64_t, auto& tile, const float* M, int64_t stride) {
             finish_fixed_tile(tile, M, stride, bias, result);
           });
}

// Calls run with the tile size, in pixels per side, that needs the fewest products for height x width outputs. Larger
// tiles must save clearly more, because their results are less exact. The gradient has tiles of one size, so that
// contributions of a tile to its neighbours can be carried from one to the next.
template <class Run>
void with_tile(int height, int width, const Run& run) {
  auto products = [&](int T) {
    return ((height + T - 1) / T) * ((width + T - 1) / T) * positions(T, T);
  };
  if (products(6) * 8 < products(4) * 7) {
    run(std::integral_constant<int, 6>{});
  } else {
    run(std::integral_constant<int, 4>{});
  }
}

// Terms of the gradient of y: the gradient of the pooled value at its winners, and slope * y + offset everywhere.
template <class Value>
struct OutputGradient {
  const Value *y, *pooled;
  const float *slope, *offset;

  // Gradients dy of column j of windows of a tile, for one vector of filters.
  template <bool Whole, int T>
  PROTOJAX_INLINE void columns(const Tile<T, T>& tile, int j, int f, Vector dy[T][2]) const {
    Vector a = load(slope + f), b = load(offset + f);
    unroll<T / 2>([&](auto i) PROTOJAX_INLINE {
      Vector out[4] = {}, d[4] = {};
      unroll<4>([&](auto q) PROTOJAX_INLINE {
        if (!Whole && !tile.inside(2 * i + q / 2, 2 * j + q % 2)) return;
        out[q] = load(y + tile.pixel(2 * i + q / 2, 2 * j + q % 2) + f);
        d[q] = a * out[q] + b;
      });
      if (Whole || tile.inside(2 * i + 1, 2 * j + 1)) unpool(out, load(pooled + tile.window(i, j) + f), d);
      unroll<4>([&](auto q) PROTOJAX_INLINE { dy[2 * i + q / 2][q % 2] = d[q]; });
    });
  }
};

// Transformed gradient dM of one tile.
template <bool Whole, int T, class Value>
void transform_gradient(const Tile<T, T>& tile, const OutputGradient<Value>& gradient, float* dM, int64_t stride) {
  for (int f = 0; f < kFilters; f += kLanes) {
    Vector dy[T][2];
    transform_output<T, T>(
        [&](auto i, auto j) PROTOJAX_INLINE {
          if constexpr (i == 0 && j % 2 == 0) gradient.template columns<Whole>(tile, j / 2, f, dy);
          return dy[i][j % 2];
        },
        dM + f, stride);
  }
}

template <int T, class Value>
void transform_gradients(Tile<T, T> tile, int count, const OutputGradient<Value>& gradient, float* dM, int64_t stride) {
  for (int t = 0; t < count; t++, tile.advance(), dM += kFilters) {
    with_constant(tile.whole(), [&](auto whole) { transform_gradient<whole>(tile, gradient, dM, stride); });
  }
}

// Gradients of convolve_and_pool with respect to x and kernel; the kernel comes transposed: [3, 3, filter, channel].
// x_gradient may be the same buffer as x: pixels are written after all tiles have read them.
template <class Value>
void convolve_and_pool_gradient(ThreadPool& threads, const Shape& shape, const Value* x,
                                const float* transposed_kernel, const OutputGradient<Value>& gradient,
                                Value* x_gradient, float* kernel_gradient) {
  with_tile(shape.height, shape.width, [&](auto T) {
    constexpr int kPositions = positions(T, T), kSize = kPositions * kMatrix;
    Tiling<T, T> tiling{shape.height, shape.width, 0, 0, (shape.height + T - 1) / T, (shape.width + T - 1) / T};
    int batch = std::max(1, backward_batch(T) / tiling.columns);  // in rows of tiles
    int64_t stride = batch_stride(batch * tiling.columns);
    bool beyond_cache = shape.images * shape.image_size() * sizeof(Value) > kBeyondCache;
    // Ranges of complete images; few, because each has a separate dU.
    Ranges ranges(shape.images, std::clamp<int64_t>(shape.images * tiling.tiles() / 180, 4, 16));
    float *Ut = scratch<KernelScratch>(kSize), *dU = scratch<GradientScratch>(ranges.count * kSize);
    transform_kernel<T, T>(transposed_kernel, kMatrix, Ut);
    parallel(threads, ranges.count, [&](int64_t range) {
      float *V = scratch<InputScratch>(kPositions * stride), *dM = scratch<OutputScratch>(kPositions * stride);
      Overlap<T> overlap(tiling, scratch<OverlapScratch>(Overlap<T>::size(tiling)), beyond_cache);
      float* sum = dU + range * kSize;
      std::memset(sum, 0, kSize * sizeof(float));
      int64_t end = ranges.end(range) * tiling.rows;  // in rows of tiles through all images, like `row`
      for (int64_t row = ranges.begin(range) * tiling.rows; row < end; row += batch) {
        int rows = int(std::min<int64_t>(batch, end - row)), count = rows * tiling.columns;
        Tile<T, T> tile(tiling, row * tiling.columns);
        transform_tiles(tile, count, x, V, stride);
        transform_gradients(tile, count, gradient, dM, stride);
        int64_t next = Tile<T, T>(tiling, row + rows < end ? (row + rows) * tiling.columns : 0).pixel(0, 0);
        int64_t values = int64_t(rows) * T * shape.width * kFilters;
        Ahead x_ahead(x + next, values), y_ahead(gradient.y + next, values);
        for (int k = 0; k < kPositions; k++) {
          accumulate(V + k * stride, dM + k * stride, sum + k * kMatrix, count, y_ahead);
          multiply(dM + k * stride, Ut + k * kMatrix, count, x_ahead);  // dM[k] becomes dV[k]
        }
        for (int r = 0; r < rows; r++, dM += tiling.columns * kFilters) {
          int64_t image = (row + r) / tiling.rows;
          overlap.add(int((row + r) % tiling.rows), dM, stride, x_gradient + image * shape.image_size());
        }
        dM -= count * kFilters;
      }
    });
    parallel(threads, kFilters, [&](int64_t channel) {
      for (int64_t i = channel * kFilters; i < (channel + 1) * kFilters; i += kLanes) {
        for (int k = 0; k < kPositions; k++) {
          float* first = dU + k * kMatrix + i;
          Vector total = load(first);
          for (int64_t range = 1; range < ranges.count; range++) total += load(first + range * kSize);
          store(first, total);
        }
        untransform_kernel<T, T>(dU + i, kMatrix, kernel_gradient + i);
      }
    });
  });
}

}  // namespace protojax

#endif  // PROTOJAX_CPU_LATER_BLOCK_H_

// The convolution blocks of the encoder as XLA FFI handlers: float32, NHWC, 3x3 kernels with 64 filters.
//
// Every sum is taken over ranges fixed by the shapes and then over the ranges in order, so results have the same bits
// whichever thread did what.
#include "first_block.h"
#include "memory.h"
#include "parallel.h"
#include "winograd.h"
#include "xla/ffi/api/ffi.h"

namespace protojax {
namespace {

namespace ffi = xla::ffi;
template <size_t Rank>
using Input = ffi::Buffer<ffi::F32, Rank>;
template <size_t Rank>
using Output = ffi::Result<ffi::Buffer<ffi::F32, Rank>>;

constexpr int64_t kForwardRanges = 256, kBackwardRanges = 32;

template <class Buffer>
bool has_shape(const Buffer& buffer, std::initializer_list<int64_t> shape) {
  auto dimensions = buffer.dimensions();
  return std::equal(dimensions.begin(), dimensions.end(), shape.begin(), shape.end());
}

ffi::Error shape_error(const char* handler) {
  return ffi::Error::InvalidArgument(std::string(handler) + ": the shapes of the arguments do not belong together");
}

struct Shape {
  int64_t images;
  int height, width, channels;

  explicit Shape(const Input<4>& x)
      : images(x.dimensions()[0]), height(int(x.dimensions()[1])), width(int(x.dimensions()[2])),
        channels(int(x.dimensions()[3])) {}
  int64_t pixels() const { return images * height * width; }
  bool valid() const { return images > 0 && height > 1 && width > 1; }
  // Grid that covers every pixel, or only those that the pooling keeps.
  Tiling tiling() const { return {height, width, (height + 1) / 2, (width + 1) / 2}; }
  Tiling pooled_tiling() const { return {height, width, height / 2, width / 2}; }
};

// Scratch buffers alive at the same time in one thread.
struct KernelScratch {};
struct GradientScratch {};
struct InputScratch {};
struct OutputScratch {};

// Adds ranges 1, 2, ... to range 0 of sums [ranges, size].
void sum_ranges(float* sums, int64_t ranges, int64_t size) {
  for (int64_t i = 0; i < size; i++) {
    double total = 0;
    for (int64_t range = 0; range < ranges; range++) total += sums[range * size + i];
    sums[i] = float(total);
  }
}

// Convolves batches [begin, end) of all `tiles` and hands each to finish(first tile, count, M).
template <class Finish>
void convolve(const Tiling& tiling, int64_t tiles, int64_t begin, int64_t end, const float* x, const float* U,
              const Finish& finish) {
  float *V = scratch<InputScratch>(kTransformed), *M = scratch<OutputScratch>(kTransformed);
  for (int64_t batch = begin; batch < end; batch++) {
    int count = int(std::min<int64_t>(kBatch, tiles - batch * kBatch));
    Tile tile(tiling, batch * kBatch);
    transform_tiles(tiling, tile, count, x, V);
    for (int k = 0; k < kPositions; k++) multiply(V + k * kStride, U + k * kMatrix, M + k * kStride, count);
    finish(tile, count, M);
  }
}

// Writes the outputs y and pooled values of a batch of tiles; adds up y and y * y: sums [2, 64].
void finish_outputs(const Tiling& tiling, Tile tile, int count, const float* M, float* y, float* pooled, double* sums) {
  alignas(64) float sum[kFilters] = {}, sum_of_squares[kFilters] = {};  // one batch has few enough terms for float
  for (int t = 0; t < count; t++, tile.advance(tiling), M += kFilters) {
    bool whole = tile.whole(tiling);
    for (int f = 0; f < kFilters; f += kLanes) {
      Vector out[4], total = load(sum + f), squares = load(sum_of_squares + f);
      untransform_output(M + f, out);
      PROTOJAX_UNROLL for (int q = 0; q < 4; q++) {
        if (!whole && !tile.inside(tiling, q / 2, q % 2)) continue;
        store(y + tile.pixel(tiling, q / 2, q % 2) * kFilters + f, out[q]);
        total += out[q], squares += out[q] * out[q];
      }
      store(sum + f, total), store(sum_of_squares + f, squares);
      if (whole) store(pooled + tile.window(tiling) * kFilters + f, pool(out));
    }
  }
  for (int f = 0; f < kFilters; f++) sums[f] += sum[f], sums[kFilters + f] += sum_of_squares[f];
}

// y = convolution(x, kernel), its 2x2 maximum, and the mean of y and of y * y over all pixels.
ffi::Error ConvolveAndPool(ffi::ThreadPool threads, Input<4> x, Input<4> kernel, Output<4> y, Output<4> pooled,
                           Output<1> mean, Output<1> mean_square) {
  Shape shape(x);
  if (!shape.valid() || !has_shape(x, {shape.images, shape.height, shape.width, kFilters}) ||
      !has_shape(kernel, {3, 3, kFilters, kFilters}) ||
      !has_shape(*y, {shape.images, shape.height, shape.width, kFilters}) ||
      !has_shape(*pooled, {shape.images, shape.height / 2, shape.width / 2, kFilters}) ||
      !has_shape(*mean, {kFilters}) || !has_shape(*mean_square, {kFilters})) {
    return shape_error("convolve_and_pool");
  }
  Tiling tiling = shape.tiling();
  float* U = scratch<KernelScratch>(kPositions * kMatrix);
  transform_kernel(kernel.typed_data(), kMatrix, U);
  int64_t tiles = shape.images * tiling.tiles();
  Ranges ranges((tiles + kBatch - 1) / kBatch, kForwardRanges);
  std::vector<double> sums(ranges.count * 2 * kFilters);
  parallel(threads, ranges.count, [&](int64_t range) {
    auto finish = [&](Tile tile, int count, const float* M) {
      finish_outputs(tiling, tile, count, M, y->typed_data(), pooled->typed_data(), &sums[range * 2 * kFilters]);
    };
    convolve(tiling, tiles, ranges.begin(range), ranges.end(range), x.typed_data(), U, finish);
  });
  for (int i = 0; i < 2 * kFilters; i++) {
    double total = 0;
    for (int64_t range = 0; range < ranges.count; range++) total += sums[range * 2 * kFilters + i];
    (i < kFilters ? mean : mean_square)->typed_data()[i % kFilters] = float(total / double(shape.pixels()));
  }
  return ffi::Error::Success();
}

// Transformed gradients dM of a batch of tiles: of the pooled value at its winners, and slope * y + offset everywhere.
void transform_gradients(const Tiling& tiling, Tile tile, int count, const float* y, const float* pooled_gradient,
                         const float* slope, const float* offset, float* dM) {
  for (int t = 0; t < count; t++, tile.advance(tiling), dM += kFilters) {
    bool whole = tile.whole(tiling);
    for (int f = 0; f < kFilters; f += kLanes) {
      Vector out[4] = {}, dy[4] = {}, a = load(slope + f), b = load(offset + f);
      PROTOJAX_UNROLL for (int q = 0; q < 4; q++) {
        if (!whole && !tile.inside(tiling, q / 2, q % 2)) continue;
        out[q] = load(y + tile.pixel(tiling, q / 2, q % 2) * kFilters + f);
        dy[q] = a * out[q] + b;
      }
      if (whole) {
        Vector routed[4];
        unpool(out, load(pooled_gradient + tile.window(tiling) * kFilters + f), routed);
        PROTOJAX_UNROLL for (int q = 0; q < 4; q++) dy[q] += routed[q];
      }
      transform_output(dy, dM + f);
    }
  }
}

// Gradients of ConvolveAndPool with respect to x and kernel. The gradient of y is that of the pooled value at the
// winners plus slope * y + offset from the two means. The kernel comes transposed: [3, 3, filter, channel].
ffi::Error ConvolveAndPoolGradient(ffi::ThreadPool threads, Input<4> x, Input<4> transposed_kernel, Input<4> y,
                                   Input<4> pooled_gradient, Input<1> slope, Input<1> offset, Output<4> x_gradient,
                                   Output<4> kernel_gradient) {
  Shape shape(x);
  if (!shape.valid() || !has_shape(x, {shape.images, shape.height, shape.width, kFilters}) ||
      !has_shape(transposed_kernel, {3, 3, kFilters, kFilters}) ||
      !has_shape(y, {shape.images, shape.height, shape.width, kFilters}) ||
      !has_shape(pooled_gradient, {shape.images, shape.height / 2, shape.width / 2, kFilters}) ||
      !has_shape(slope, {kFilters}) || !has_shape(offset, {kFilters}) ||
      !has_shape(*x_gradient, {shape.images, shape.height, shape.width, kFilters}) ||
      !has_shape(*kernel_gradient, {3, 3, kFilters, kFilters})) {
    return shape_error("convolve_and_pool_gradient");
  }
  Tiling tiling = shape.tiling();
  float* Ut = scratch<KernelScratch>(kPositions * kMatrix);
  transform_kernel(transposed_kernel.typed_data(), kMatrix, Ut);
  Ranges ranges(shape.images, kBackwardRanges);  // whole images, whose tiles add to the same pixels of x_gradient
  float* dU = scratch<GradientScratch>(ranges.count * kPositions * kMatrix);
  parallel(threads, ranges.count, [&](int64_t range) {
    float *V = scratch<InputScratch>(kTransformed), *dM = scratch<OutputScratch>(kTransformed);
    float* sum = dU + range * kPositions * kMatrix;
    std::memset(sum, 0, kPositions * kMatrix * sizeof(float));
    int64_t end = ranges.end(range) * tiling.tiles();
    for (int64_t first = ranges.begin(range) * tiling.tiles(); first < end; first += kBatch) {
      int count = int(std::min<int64_t>(kBatch, end - first));
      Tile tile(tiling, first);
      transform_tiles(tiling, tile, count, x.typed_data(), V);
      transform_gradients(tiling, tile, count, y.typed_data(), pooled_gradient.typed_data(), slope.typed_data(),
                          offset.typed_data(), dM);
      for (int k = 0; k < kPositions; k++) {
        accumulate(V + k * kStride, dM + k * kStride, sum + k * kMatrix, count);
        multiply(dM + k * kStride, Ut + k * kMatrix, V + k * kStride, count);  // V[k] has served and becomes dV[k]
      }
      untransform_tiles(tiling, tile, count, V, x_gradient->typed_data());
    }
  });
  parallel(threads, kFilters, [&](int64_t channel) {
    for (int64_t i = channel * kFilters; i < (channel + 1) * kFilters; i += kLanes) {
      for (int k = 0; k < kPositions; k++) {
        float* first = dU + k * kMatrix + i;
        Vector total = load(first);
        for (int64_t range = 1; range < ranges.count; range++) total += load(first + range * kPositions * kMatrix);
        store(first, total);
      }
      untransform_kernel(dU + i, kMatrix, kernel_gradient->typed_data() + i);
    }
  });
  return ffi::Error::Success();
}

template <int C>
void convolve_pool_relu_first(ffi::ThreadPool& threads, const Shape& shape, const float* x,
                              const float* kernel, const float* bias, float* result) {
  int64_t image_size = int64_t(shape.height) * shape.width * C;
  int64_t result_size = int64_t(shape.height / 2) * (shape.width / 2) * kFilters;
  float* U = scratch<KernelScratch>(kPositions * C * kFilters);
  transform_kernel(kernel, C * kFilters, U);
  parallel(threads, shape.images, [&](int64_t n) {
    float* padded = scratch<InputScratch>(PaddedImage<C>::size(shape.height, shape.width));
    float* row = scratch<OutputScratch>(TransformedRow<C>::size(shape.width));
    PaddedImage<C> image(x + n * image_size, shape.height, shape.width, padded);
    forward_image(image, U, bias, row, result + n * result_size);
  });
}

void convolve_pool_relu_later(ffi::ThreadPool& threads, const Shape& shape, const float* x,
                              const float* kernel, const float* bias, float* result) {
  Tiling tiling = shape.pooled_tiling();
  float* U = scratch<KernelScratch>(kPositions * kMatrix);
  transform_kernel(kernel, kMatrix, U);
  int64_t tiles = shape.images * tiling.tiles();
  Ranges ranges((tiles + kBatch - 1) / kBatch, kForwardRanges);
  parallel(threads, ranges.count, [&](int64_t range) {
    auto finish = [&](Tile tile, int count, const float* M) {
      for (int t = 0; t < count; t++, tile.advance(tiling), M += kFilters) {
        for (int f = 0; f < kFilters; f += kLanes) {
          Vector y[4];
          untransform_output(M + f, y);
          Vector pooled = pool(y);
          store(result + tile.window(tiling) * kFilters + f, relu(pooled + load(bias + f)));
        }
      }
    };
    convolve(tiling, tiles, ranges.begin(range), ranges.end(range), x, U, finish);
  });
}

// relu(max_pool(convolution(x, kernel)) + bias), storing nothing else.
ffi::Error ConvolvePoolRelu(ffi::ThreadPool threads, Input<4> x, Input<4> kernel, Input<1> bias,
                            Output<4> result) {
  Shape shape(x);
  if (!shape.valid() || !has_shape(kernel, {3, 3, shape.channels, kFilters}) || !has_shape(bias, {kFilters}) ||
      !has_shape(*result, {shape.images, shape.height / 2, shape.width / 2, kFilters})) {
    return shape_error("convolve_pool_relu");
  }
  auto run = shape.channels == 1    ? convolve_pool_relu_first<1>
             : shape.channels == 3  ? convolve_pool_relu_first<3>
             : shape.channels == 64 ? convolve_pool_relu_later
                                    : nullptr;
  if (run == nullptr) return shape_error("convolve_pool_relu");
  run(threads, shape, x.typed_data(), kernel.typed_data(), bias.typed_data(), result->typed_data());
  return ffi::Error::Success();
}

template <int C>
void convolve_pool_relu_gradient(ffi::ThreadPool& threads, const Shape& shape, const float* x,
                                 const float* kernel, const float* bias, const float* gradient,
                                 float* kernel_gradient, float* bias_gradient) {
  constexpr int64_t kKernel = C * kFilters, kGradient = kPositions * kKernel + kFilters;  // dU, then that of the bias
  int64_t image_size = int64_t(shape.height) * shape.width * C;
  int64_t result_size = int64_t(shape.height / 2) * (shape.width / 2) * kFilters;
  float* U = scratch<KernelScratch>(kPositions * kKernel);
  transform_kernel(kernel, kKernel, U);
  Ranges ranges(shape.images, kForwardRanges);
  float* sums = scratch<GradientScratch>(ranges.count * kGradient);
  parallel(threads, ranges.count, [&](int64_t range) {
    float* sum = sums + range * kGradient;
    std::memset(sum, 0, kGradient * sizeof(float));
    int64_t row_size = TransformedRow<C>::size(shape.width);
    float* padded = scratch<InputScratch>(PaddedImage<C>::size(shape.height, shape.width));
    float* row = scratch<OutputScratch>(row_size + 2 * shape.width * kLanes);
    for (int64_t n = ranges.begin(range); n < ranges.end(range); n++) {
      PaddedImage<C> image(x + n * image_size, shape.height, shape.width, padded);
      backward_image(image, U, bias, gradient + n * result_size, row, row + row_size, sum, sum + kPositions * kKernel);
    }
  });
  sum_ranges(sums, ranges.count, kGradient);
  for (int i = 0; i < kKernel; i += kLanes) untransform_kernel(sums + i, kKernel, kernel_gradient + i);
  std::memcpy(bias_gradient, sums + kPositions * kKernel, kFilters * sizeof(float));
}

// Gradients of ConvolvePoolRelu with respect to kernel and bias, for 1 or 3 channels.
ffi::Error ConvolvePoolReluGradient(ffi::ThreadPool threads, Input<4> x, Input<4> kernel, Input<1> bias,
                                    Input<4> gradient, Output<4> kernel_gradient, Output<1> bias_gradient) {
  Shape shape(x);
  if (!shape.valid() || !has_shape(kernel, {3, 3, shape.channels, kFilters}) || !has_shape(bias, {kFilters}) ||
      !has_shape(gradient, {shape.images, shape.height / 2, shape.width / 2, kFilters}) ||
      !has_shape(*kernel_gradient, {3, 3, shape.channels, kFilters}) || !has_shape(*bias_gradient, {kFilters}) ||
      (shape.channels != 1 && shape.channels != 3)) {
    return shape_error("convolve_pool_relu_gradient");
  }
  auto run = shape.channels == 1 ? convolve_pool_relu_gradient<1> : convolve_pool_relu_gradient<3>;
  run(threads, shape, x.typed_data(), kernel.typed_data(), bias.typed_data(), gradient.typed_data(),
      kernel_gradient->typed_data(), bias_gradient->typed_data());
  return ffi::Error::Success();
}

template <int C>
void patch_moments(ffi::ThreadPool& threads, const Shape& shape, const float* x, float* mean,
                   float* second_moment) {
  constexpr int kSize = Moments<C>::kSize, kRow = Moments<C>::kRow, kSums = kSize * kRow;
  int64_t image_size = int64_t(shape.height) * shape.width * C;
  Ranges ranges(shape.images, kForwardRanges);
  std::vector<double> sums(ranges.count * kSums);
  parallel(threads, ranges.count, [&](int64_t range) {
    float* buffer = scratch<InputScratch>(PaddedImage<C>::size(shape.height, shape.width));
    std::vector<float> patches(shape.width * kRow), image_sums(kSums);
    for (int64_t n = ranges.begin(range); n < ranges.end(range); n++) {
      PaddedImage<C> image(x + n * image_size, shape.height, shape.width, buffer);
      std::fill(image_sums.begin(), image_sums.end(), 0.0f);
      for (int row = 0; row < shape.height; row++) Moments<C>::add_row(image, row, patches.data(), image_sums.data());
      for (int i = 0; i < kSums; i++) sums[range * kSums + i] += image_sums[i];
    }
  });
  for (int i = 0; i < kSize; i++) {
    for (int j = i; j <= kSize; j++) {  // column kSize holds the sums of the taps themselves
      double total = 0;
      for (int64_t range = 0; range < ranges.count; range++) total += sums[range * kSums + i * kRow + j];
      float moment = float(total / double(shape.pixels()));
      if (j == kSize) {
        mean[i] = moment;
      } else {
        second_moment[i * kSize + j] = second_moment[j * kSize + i] = moment;
      }
    }
  }
}

// Mean and second moment of all 3x3 patches, for 1 or 3 channels.
ffi::Error PatchMoments(ffi::ThreadPool threads, Input<4> x, Output<1> mean, Output<2> second_moment) {
  Shape shape(x);
  int64_t size = 9 * shape.channels;
  if (!shape.valid() || !has_shape(*mean, {size}) || !has_shape(*second_moment, {size, size}) ||
      (shape.channels != 1 && shape.channels != 3)) {
    return shape_error("patch_moments");
  }
  auto run = shape.channels == 1 ? patch_moments<1> : patch_moments<3>;
  run(threads, shape, x.typed_data(), mean->typed_data(), second_moment->typed_data());
  return ffi::Error::Success();
}

}  // namespace
}  // namespace protojax

using namespace protojax;

XLA_FFI_DEFINE_HANDLER_SYMBOL(protojax_convolve_and_pool, ConvolveAndPool,
                              ffi::Ffi::Bind().Ctx<ffi::ThreadPool>().Arg<Input<4>>().Arg<Input<4>>()
                                  .Ret<Input<4>>().Ret<Input<4>>().Ret<Input<1>>().Ret<Input<1>>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(protojax_convolve_and_pool_gradient, ConvolveAndPoolGradient,
                              ffi::Ffi::Bind().Ctx<ffi::ThreadPool>().Arg<Input<4>>().Arg<Input<4>>().Arg<Input<4>>()
                                  .Arg<Input<4>>().Arg<Input<1>>().Arg<Input<1>>().Ret<Input<4>>().Ret<Input<4>>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(protojax_convolve_pool_relu, ConvolvePoolRelu,
                              ffi::Ffi::Bind().Ctx<ffi::ThreadPool>().Arg<Input<4>>().Arg<Input<4>>().Arg<Input<1>>()
                                  .Ret<Input<4>>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(protojax_convolve_pool_relu_gradient, ConvolvePoolReluGradient,
                              ffi::Ffi::Bind().Ctx<ffi::ThreadPool>().Arg<Input<4>>().Arg<Input<4>>().Arg<Input<1>>()
                                  .Arg<Input<4>>().Ret<Input<4>>().Ret<Input<1>>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(protojax_patch_moments, PatchMoments,
                              ffi::Ffi::Bind().Ctx<ffi::ThreadPool>().Arg<Input<4>>().Ret<Input<1>>().Ret<Input<2>>());

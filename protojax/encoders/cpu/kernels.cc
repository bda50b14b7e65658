// Blocks of encoders as XLA FFI handlers: NHWC, 3x3 kernels with 64 filters, and inverted residual blocks.
//
// Activations are float32, or bfloat16 if PROTOJAX_BFLOAT16 is defined; these are separate libraries, because few
// programs need both. Kernels, statistics and their gradients are float32. Handlers check shapes and call the headers.
#include "first_block.h"
#include "inverted_block.h"
#include "later_block.h"
#include "memory.h"
#include "normalization.h"
#include "patch_moments.h"
#include "xla/ffi/api/ffi.h"

namespace protojax {
namespace {

namespace ffi = xla::ffi;
#if defined(PROTOJAX_BFLOAT16)
using Value = BFloat16;
using Activations = ffi::Buffer<ffi::BF16, 4>;
#else
using Value = float;
using Activations = ffi::Buffer<ffi::F32, 4>;
#endif
using ActivationsResult = ffi::Result<Activations>;
template <size_t Rank>
using Floats = ffi::Buffer<ffi::F32, Rank>;
template <size_t Rank>
using FloatsResult = ffi::Result<Floats<Rank>>;
using Winners = ffi::Buffer<ffi::U8, 4>;
using WinnersResult = ffi::Result<Winners>;

template <class Buffer>
bool has_shape(const Buffer& buffer, std::initializer_list<int64_t> shape) {
  auto dimensions = buffer.dimensions();
  return std::equal(dimensions.begin(), dimensions.end(), shape.begin(), shape.end());
}

ffi::Error wrong_arguments(const char* handler) {
  return ffi::Error::InvalidArgument(std::string(handler) + ": the shapes of the arguments do not belong together");
}

// The shape of images, all zero if it is invalid.
Shape shape_of(const Activations& x) {
  auto d = x.dimensions();
  if (*std::min_element(d.begin(), d.end()) < 1 || d[1] < 2 || d[2] < 2) return {};
  return {d[0], int(d[1]), int(d[2]), int(d[3])};
}
template <class Buffer>
bool is_image(const Buffer& buffer, const Shape& shape) {
  return shape.images > 0 && has_shape(buffer, {shape.images, shape.height, shape.width, kFilters});
}
template <class Buffer>
bool is_pooled(const Buffer& buffer, const Shape& shape) {
  return shape.images > 0 && has_shape(buffer, {shape.images, shape.height / 2, shape.width / 2, kFilters});
}

// The values of a buffer of activations.
const Value* data(const Activations& buffer) { return static_cast<const Value*>(buffer.untyped_data()); }
Value* data(ActivationsResult& buffer) { return static_cast<Value*>(buffer->untyped_data()); }

// Calls run with a number of channels that is known to the compiler.
template <class Run>
void with_few_channels(int channels, const Run& run) {
  channels == 1 ? run(std::integral_constant<int, 1>{}) : run(std::integral_constant<int, 3>{});
}

// y = convolution(x, kernel), its 2x2 maximum, and the mean of y and of y * y over all pixels.
ffi::Error ConvolveAndPool(ThreadPool threads, Activations x, Floats<4> kernel, ActivationsResult y,
                           ActivationsResult pooled, FloatsResult<1> mean, FloatsResult<1> mean_square) {
  Shape shape = shape_of(x);
  if (!is_image(x, shape) || !has_shape(kernel, {3, 3, kFilters, kFilters}) || !is_image(*y, shape) ||
      !is_pooled(*pooled, shape) || !has_shape(*mean, {kFilters}) || !has_shape(*mean_square, {kFilters})) {
    return wrong_arguments("convolve_and_pool");
  }
  convolve_and_pool(threads, shape, data(x), kernel.typed_data(), data(y), data(pooled), mean->typed_data(),
                    mean_square->typed_data());
  return ffi::Error::Success();
}

// Gradients of ConvolveAndPool with respect to x and kernel. The gradient of y is the gradient of the pooled value at
// the winners plus slope * y + offset from the two means. The kernel comes transposed: [3, 3, filter, channel].
ffi::Error ConvolveAndPoolGradient(ThreadPool threads, Activations x, Floats<4> transposed_kernel, Activations y,
                                   Activations pooled_gradient, Floats<1> slope, Floats<1> offset,
                                   ActivationsResult x_gradient, FloatsResult<4> kernel_gradient) {
  Shape shape = shape_of(x);
  if (!is_image(x, shape) || !has_shape(transposed_kernel, {3, 3, kFilters, kFilters}) || !is_image(y, shape) ||
      !is_pooled(pooled_gradient, shape) || !has_shape(slope, {kFilters}) || !has_shape(offset, {kFilters}) ||
      !is_image(*x_gradient, shape) || !has_shape(*kernel_gradient, {3, 3, kFilters, kFilters})) {
    return wrong_arguments("convolve_and_pool_gradient");
  }
  OutputGradient<Value> gradient{data(y), data(pooled_gradient), slope.typed_data(), offset.typed_data()};
  convolve_and_pool_gradient(threads, shape, data(x), transposed_kernel.typed_data(), gradient, data(x_gradient),
                             kernel_gradient->typed_data());
  return ffi::Error::Success();
}

// relu(max_pool(convolution(x, kernel)) + bias), storing nothing else.
ffi::Error ConvolvePoolRelu(ThreadPool threads, Activations x, Floats<4> kernel, Floats<1> bias,
                            ActivationsResult result) {
  Shape shape = shape_of(x);
  int channels = shape.channels;
  if ((channels != 1 && channels != 3 && channels != kFilters) || !has_shape(kernel, {3, 3, channels, kFilters}) ||
      !has_shape(bias, {kFilters}) || !is_pooled(*result, shape)) {
    return wrong_arguments("convolve_pool_relu");
  }
  if (channels == kFilters) {
    convolve_pool_relu_later(threads, shape, data(x), kernel.typed_data(), bias.typed_data(), data(result));
  } else {
    with_few_channels(channels, [&](auto C) {
      convolve_pool_relu_first<C>(threads, shape, data(x), kernel.typed_data(), bias.typed_data(), data(result),
                                  nullptr);
    });
  }
  return ffi::Error::Success();
}

// The same for 1 or 3 channels, and the winner of each pooling window.
ffi::Error ConvolvePoolReluWinners(ThreadPool threads, Activations x, Floats<4> kernel, Floats<1> bias,
                                   ActivationsResult result, WinnersResult winners) {
  Shape shape = shape_of(x);
  int channels = shape.channels;
  if ((channels != 1 && channels != 3) || !has_shape(kernel, {3, 3, channels, kFilters}) ||
      !has_shape(bias, {kFilters}) || !is_pooled(*result, shape) || !is_pooled(*winners, shape)) {
    return wrong_arguments("convolve_pool_relu_winners");
  }
  with_few_channels(channels, [&](auto C) {
    convolve_pool_relu_first<C>(threads, shape, data(x), kernel.typed_data(), bias.typed_data(), data(result),
                                winners->typed_data());
  });
  return ffi::Error::Success();
}

// Gradients of ConvolvePoolReluWinners with respect to kernel and bias.
ffi::Error ConvolvePoolReluGradient(ThreadPool threads, Activations x, Winners winners, Activations gradient,
                                    FloatsResult<4> kernel_gradient, FloatsResult<1> bias_gradient) {
  Shape shape = shape_of(x);
  int channels = shape.channels;
  if ((channels != 1 && channels != 3) || !is_pooled(winners, shape) || !is_pooled(gradient, shape) ||
      !has_shape(*kernel_gradient, {3, 3, channels, kFilters}) || !has_shape(*bias_gradient, {kFilters})) {
    return wrong_arguments("convolve_pool_relu_gradient");
  }
  with_few_channels(channels, [&](auto C) {
    convolve_pool_relu_first_gradient<C>(threads, shape, data(x), winners.typed_data(), data(gradient),
                                         kernel_gradient->typed_data(), bias_gradient->typed_data());
  });
  return ffi::Error::Success();
}

// relu(pooled * multiplier + shift).
ffi::Error ScaleShiftRelu(ThreadPool threads, Activations pooled, Floats<1> multiplier, Floats<1> shift,
                          ActivationsResult result) {
  auto d = pooled.dimensions();
  if (d[3] != kFilters || !has_shape(multiplier, {kFilters}) || !has_shape(shift, {kFilters}) ||
      !has_shape(*result, {d[0], d[1], d[2], d[3]})) {
    return wrong_arguments("scale_shift_relu");
  }
  scale_shift_relu(threads, d[0] * d[1] * d[2], data(pooled), multiplier.typed_data(), shift.typed_data(),
                   data(result));
  return ffi::Error::Success();
}

// Gradients of ScaleShiftRelu with respect to all its arguments.
ffi::Error ScaleShiftReluGradient(ThreadPool threads, Activations pooled, Floats<1> multiplier, Floats<1> shift,
                                  Activations gradient, ActivationsResult pooled_gradient,
                                  FloatsResult<1> multiplier_gradient, FloatsResult<1> shift_gradient) {
  auto d = pooled.dimensions();
  if (d[3] != kFilters || !has_shape(multiplier, {kFilters}) || !has_shape(shift, {kFilters}) ||
      !has_shape(gradient, {d[0], d[1], d[2], d[3]}) ||
      !has_shape(*pooled_gradient, {d[0], d[1], d[2], d[3]}) || !has_shape(*multiplier_gradient, {kFilters}) ||
      !has_shape(*shift_gradient, {kFilters})) {
    return wrong_arguments("scale_shift_relu_gradient");
  }
  scale_shift_relu_gradient(threads, d[0] * d[1] * d[2], data(pooled), multiplier.typed_data(),
                            shift.typed_data(), data(gradient), data(pooled_gradient),
                            multiplier_gradient->typed_data(), shift_gradient->typed_data());
  return ffi::Error::Success();
}

// Mean and second moment of all 3x3 patches, for 1 or 3 channels.
ffi::Error PatchMoments(ThreadPool threads, Activations x, FloatsResult<1> mean, FloatsResult<2> second_moment) {
  Shape shape = shape_of(x);
  int channels = shape.channels;
  int64_t taps = 9 * channels;
  if ((channels != 1 && channels != 3) || !has_shape(*mean, {taps}) || !has_shape(*second_moment, {taps, taps})) {
    return wrong_arguments("patch_moments");
  }
  with_few_channels(channels, [&](auto C) {
    patch_moments<C>(threads, shape, data(x), mean->typed_data(), second_moment->typed_data());
  });
  return ffi::Error::Success();
}

// An inverted residual block; the stride follows from the shapes.
ffi::Error RunInvertedBlock(ThreadPool threads, Floats<4> x, Floats<2> expand, Floats<1> expand_bias, Floats<3> kernel,
                            Floats<1> bias, Floats<2> project, Floats<1> project_bias, FloatsResult<4> y) {
  auto in = x.dimensions(), out = y->dimensions();
  int64_t size = kernel.dimensions()[0], wide = expand.dimensions()[1];
  if (*std::min_element(in.begin(), in.end()) < 1 || *std::min_element(out.begin(), out.end()) < 1) {
    return wrong_arguments("inverted_block");
  }
  int64_t stride = std::max((in[1] + out[1] - 1) / out[1], (in[2] + out[2] - 1) / out[2]);
  InvertedBlock block{int(in[1]), int(in[2]), int(in[3]), int(size), int(stride),
                      {expand.typed_data(), expand_bias.typed_data(), int(in[3]), int(wide)},
                      {project.typed_data(), project_bias.typed_data(), int(wide), int(out[3])},
                      kernel.typed_data(), bias.typed_data()};
  if ((size != 3 && size != 5) || stride > size || wide < kLanes || out[3] < kLanes ||
      !has_shape(*y, {in[0], block.rows(), block.columns(), out[3]}) || !has_shape(expand, {in[3], wide}) ||
      !has_shape(expand_bias, {wide}) || !has_shape(kernel, {size, size, wide}) || !has_shape(bias, {wide}) ||
      !has_shape(project, {wide, out[3]}) || !has_shape(project_bias, {out[3]})) {
    return wrong_arguments("inverted_block");
  }
  inverted_block(threads, block, in[0], x.typed_data(), y->typed_data());
  return ffi::Error::Success();
}

}  // namespace
}  // namespace protojax

// Arguments and results of a handler follow from the function; the threads come from XLA.
template <>
struct xla::ffi::CtxBinding<xla::ffi::ThreadPool> {
  using Ctx = xla::ffi::ThreadPool;
};

using namespace protojax;
XLA_FFI_DEFINE_HANDLER_SYMBOL(protojax_convolve_and_pool, ConvolveAndPool);
XLA_FFI_DEFINE_HANDLER_SYMBOL(protojax_convolve_and_pool_gradient, ConvolveAndPoolGradient);
XLA_FFI_DEFINE_HANDLER_SYMBOL(protojax_convolve_pool_relu, ConvolvePoolRelu);
XLA_FFI_DEFINE_HANDLER_SYMBOL(protojax_convolve_pool_relu_winners, ConvolvePoolReluWinners);
XLA_FFI_DEFINE_HANDLER_SYMBOL(protojax_convolve_pool_relu_gradient, ConvolvePoolReluGradient);
XLA_FFI_DEFINE_HANDLER_SYMBOL(protojax_scale_shift_relu, ScaleShiftRelu);
XLA_FFI_DEFINE_HANDLER_SYMBOL(protojax_scale_shift_relu_gradient, ScaleShiftReluGradient);
XLA_FFI_DEFINE_HANDLER_SYMBOL(protojax_patch_moments, PatchMoments);
XLA_FFI_DEFINE_HANDLER_SYMBOL(protojax_inverted_block, RunInvertedBlock);

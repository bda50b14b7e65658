// The convolution blocks of the encoder as XLA FFI handlers: NHWC, 3x3 kernels with 64 filters.
//
// Activations are float32 or bfloat16; kernels, statistics and their gradients are float32. Handlers check shapes and
// types and leave the work to the headers.
#include "first_block.h"
#include "later_block.h"
#include "memory.h"
#include "normalization.h"
#include "patch_moments.h"
#include "xla/ffi/api/ffi.h"

namespace protojax {
namespace {

namespace ffi = xla::ffi;
using Activations = ffi::AnyBuffer;  // of rank 4
using ActivationsResult = ffi::Result<ffi::AnyBuffer>;
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
  return ffi::Error::InvalidArgument(std::string(handler) + ": shapes or types of the arguments do not belong together");
}

// The shape of images, all zero where they are none.
Shape shape_of(const Activations& x) {
  auto d = x.dimensions();
  if (d.size() != 4 || *std::min_element(d.begin(), d.end()) < 1 || d[1] < 2 || d[2] < 2) return {};
  return {d[0], int(d[1]), int(d[2]), int(d[3])};
}

// Buffers of activations that belong to each other: all images, or all pooled, and of one type.
struct Group {
  Shape shape;
  ffi::DataType type;

  explicit Group(const Activations& x) : shape(shape_of(x)), type(x.element_type()) {}
  bool image(const Activations& buffer) const {
    return buffer.element_type() == type && has_shape(buffer, {shape.images, shape.height, shape.width, kFilters});
  }
  bool pooled(const Activations& buffer) const {
    return buffer.element_type() == type && has_shape(buffer, {shape.images, shape.height / 2, shape.width / 2, kFilters});
  }
  bool winners(const Winners& buffer) const {
    return has_shape(buffer, {shape.images, shape.height / 2, shape.width / 2, kFilters});
  }
};

// Calls run with a value of the type of activations, and of the number of channels where it matters.
template <class Run>
ffi::Error with_type(ffi::DataType type, const char* handler, const Run& run) {
  if (type == ffi::F32) {
    run(float{});
  } else if (type == ffi::BF16) {
    run(BFloat16{});
  } else {
    return wrong_arguments(handler);
  }
  return ffi::Error::Success();
}
template <class Run>
void with_few_channels(int channels, const Run& run) {
  channels == 1 ? run(std::integral_constant<int, 1>{}) : run(std::integral_constant<int, 3>{});
}

template <class Value>
const Value* data(const Activations& buffer, Value) {
  return static_cast<const Value*>(buffer.untyped_data());
}
template <class Value>
Value* data(ActivationsResult& buffer, Value) {
  return static_cast<Value*>(buffer->untyped_data());
}

// y = convolution(x, kernel), its 2x2 maximum, and the mean of y and of y * y over all pixels.
ffi::Error ConvolveAndPool(ThreadPool threads, Activations x, Floats<4> kernel, ActivationsResult y,
                           ActivationsResult pooled, FloatsResult<1> mean, FloatsResult<1> mean_square) {
  constexpr char kName[] = "convolve_and_pool";
  Group group(x);
  if (!group.image(x) || !has_shape(kernel, {3, 3, kFilters, kFilters}) || !group.image(*y) || !group.pooled(*pooled) ||
      !has_shape(*mean, {kFilters}) || !has_shape(*mean_square, {kFilters})) {
    return wrong_arguments(kName);
  }
  return with_type(group.type, kName, [&](auto value) {
    convolve_and_pool(threads, group.shape, data(x, value), kernel.typed_data(), data(y, value), data(pooled, value),
                      mean->typed_data(), mean_square->typed_data());
  });
}

// Gradients of ConvolveAndPool with respect to x and kernel. The gradient of y is that of the pooled value at the
// winners plus slope * y + offset from the two means. The kernel comes transposed: [3, 3, filter, channel].
ffi::Error ConvolveAndPoolGradient(ThreadPool threads, Activations x, Floats<4> transposed_kernel, Activations y,
                                   Activations pooled_gradient, Floats<1> slope, Floats<1> offset,
                                   ActivationsResult x_gradient, FloatsResult<4> kernel_gradient) {
  constexpr char kName[] = "convolve_and_pool_gradient";
  Group group(x);
  if (!group.image(x) || !has_shape(transposed_kernel, {3, 3, kFilters, kFilters}) || !group.image(y) ||
      !group.pooled(pooled_gradient) || !has_shape(slope, {kFilters}) || !has_shape(offset, {kFilters}) ||
      !group.image(*x_gradient) || !has_shape(*kernel_gradient, {3, 3, kFilters, kFilters})) {
    return wrong_arguments(kName);
  }
  return with_type(group.type, kName, [&](auto value) {
    OutputGradient<decltype(value)> gradient{data(y, value), data(pooled_gradient, value), slope.typed_data(),
                                             offset.typed_data()};
    convolve_and_pool_gradient(threads, group.shape, data(x, value), transposed_kernel.typed_data(), gradient,
                               data(x_gradient, value), kernel_gradient->typed_data());
  });
}

// relu(max_pool(convolution(x, kernel)) + bias), storing nothing else.
ffi::Error ConvolvePoolRelu(ThreadPool threads, Activations x, Floats<4> kernel, Floats<1> bias,
                            ActivationsResult result) {
  constexpr char kName[] = "convolve_pool_relu";
  Group group(x);
  int channels = group.shape.channels;
  if ((channels != 1 && channels != 3 && channels != kFilters) || !has_shape(kernel, {3, 3, channels, kFilters}) ||
      !has_shape(bias, {kFilters}) || !group.pooled(*result)) {
    return wrong_arguments(kName);
  }
  return with_type(group.type, kName, [&](auto value) {
    if (channels == kFilters) {
      convolve_pool_relu_later(threads, group.shape, data(x, value), kernel.typed_data(), bias.typed_data(),
                               data(result, value));
    } else {
      with_few_channels(channels, [&](auto C) {
        convolve_pool_relu_first<C>(threads, group.shape, data(x, value), kernel.typed_data(), bias.typed_data(),
                                    data(result, value), nullptr);
      });
    }
  });
}

// The same for 1 or 3 channels, and who won each window of the pooling.
ffi::Error ConvolvePoolReluWinners(ThreadPool threads, Activations x, Floats<4> kernel, Floats<1> bias,
                                   ActivationsResult result, WinnersResult winners) {
  constexpr char kName[] = "convolve_pool_relu_winners";
  Group group(x);
  int channels = group.shape.channels;
  if ((channels != 1 && channels != 3) || !has_shape(kernel, {3, 3, channels, kFilters}) ||
      !has_shape(bias, {kFilters}) || !group.pooled(*result) || !group.winners(*winners)) {
    return wrong_arguments(kName);
  }
  return with_type(group.type, kName, [&](auto value) {
    with_few_channels(channels, [&](auto C) {
      convolve_pool_relu_first<C>(threads, group.shape, data(x, value), kernel.typed_data(), bias.typed_data(),
                                  data(result, value), winners->typed_data());
    });
  });
}

// Gradients of ConvolvePoolReluWinners with respect to kernel and bias.
ffi::Error ConvolvePoolReluGradient(ThreadPool threads, Activations x, Winners winners, Activations gradient,
                                    FloatsResult<4> kernel_gradient, FloatsResult<1> bias_gradient) {
  constexpr char kName[] = "convolve_pool_relu_gradient";
  Group group(x);
  int channels = group.shape.channels;
  if ((channels != 1 && channels != 3) || !group.winners(winners) || !group.pooled(gradient) ||
      !has_shape(*kernel_gradient, {3, 3, channels, kFilters}) || !has_shape(*bias_gradient, {kFilters})) {
    return wrong_arguments(kName);
  }
  return with_type(group.type, kName, [&](auto value) {
    with_few_channels(channels, [&](auto C) {
      convolve_pool_relu_first_gradient<C>(threads, group.shape, data(x, value), winners.typed_data(),
                                           data(gradient, value), kernel_gradient->typed_data(),
                                           bias_gradient->typed_data());
    });
  });
}

// relu(pooled * multiplier + shift).
ffi::Error ScaleShiftRelu(ThreadPool threads, Activations pooled, Floats<1> multiplier, Floats<1> shift,
                          ActivationsResult result) {
  constexpr char kName[] = "scale_shift_relu";
  auto d = pooled.dimensions();
  if (d.size() != 4 || d[3] != kFilters || !has_shape(multiplier, {kFilters}) || !has_shape(shift, {kFilters}) ||
      !has_shape(*result, {d[0], d[1], d[2], d[3]}) || result->element_type() != pooled.element_type()) {
    return wrong_arguments(kName);
  }
  return with_type(pooled.element_type(), kName, [&](auto value) {
    scale_shift_relu(threads, d[0] * d[1] * d[2], data(pooled, value), multiplier.typed_data(), shift.typed_data(),
                     data(result, value));
  });
}

// Gradients of ScaleShiftRelu with respect to all its arguments.
ffi::Error ScaleShiftReluGradient(ThreadPool threads, Activations pooled, Floats<1> multiplier, Floats<1> shift,
                                  Activations gradient, ActivationsResult pooled_gradient,
                                  FloatsResult<1> multiplier_gradient, FloatsResult<1> shift_gradient) {
  constexpr char kName[] = "scale_shift_relu_gradient";
  auto d = pooled.dimensions();
  if (d.size() != 4 || d[3] != kFilters || !has_shape(multiplier, {kFilters}) || !has_shape(shift, {kFilters}) ||
      !has_shape(gradient, {d[0], d[1], d[2], d[3]}) || gradient.element_type() != pooled.element_type() ||
      !has_shape(*pooled_gradient, {d[0], d[1], d[2], d[3]}) ||
      pooled_gradient->element_type() != pooled.element_type() || !has_shape(*multiplier_gradient, {kFilters}) ||
      !has_shape(*shift_gradient, {kFilters})) {
    return wrong_arguments(kName);
  }
  return with_type(pooled.element_type(), kName, [&](auto value) {
    scale_shift_relu_gradient(threads, d[0] * d[1] * d[2], data(pooled, value), multiplier.typed_data(),
                              shift.typed_data(), data(gradient, value), data(pooled_gradient, value),
                              multiplier_gradient->typed_data(), shift_gradient->typed_data());
  });
}

// Mean and second moment of all 3x3 patches, for 1 or 3 channels.
ffi::Error PatchMoments(ThreadPool threads, Activations x, FloatsResult<1> mean, FloatsResult<2> second_moment) {
  constexpr char kName[] = "patch_moments";
  Group group(x);
  int channels = group.shape.channels;
  int64_t taps = 9 * channels;
  if ((channels != 1 && channels != 3) || !has_shape(*mean, {taps}) || !has_shape(*second_moment, {taps, taps})) {
    return wrong_arguments(kName);
  }
  return with_type(group.type, kName, [&](auto value) {
    with_few_channels(channels, [&](auto C) {
      patch_moments<C>(threads, group.shape, data(x, value), mean->typed_data(), second_moment->typed_data());
    });
  });
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

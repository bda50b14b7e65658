// Scale, shift and ReLU after the pooling in training, relu(pooled * multiplier + shift) per filter, and its gradient.
#ifndef PROTOJAX_CPU_NORMALIZATION_H_
#define PROTOJAX_CPU_NORMALIZATION_H_

#include "parallel.h"
#include "shape.h"

namespace protojax {

constexpr int64_t kRowRanges = 64;  // a row contains all filters of one pixel

template <class Value>
void scale_shift_relu(ThreadPool& threads, int64_t rows, const Value* pooled, const float* multiplier,
                      const float* shift, Value* result) {
  Ranges ranges(rows, kRowRanges);
  bool beyond_cache = rows * kFilters * sizeof(Value) > kBeyondCache;
  parallel(threads, ranges.count, [&](int64_t range) {
    for (int64_t i = ranges.begin(range) * kFilters; i < ranges.end(range) * kFilters; i += kLanes) {
      int f = i % kFilters;
      Vector value = relu(load(pooled + i) * load(multiplier + f) + load(shift + f));
      beyond_cache ? stream(result + i, value) : store(result + i, value);
    }
  });
}

// Gradients with respect to pooled, multiplier and shift; pooled_gradient may be the same buffer as gradient.
template <class Value>
void scale_shift_relu_gradient(ThreadPool& threads, int64_t rows, const Value* pooled, const float* multiplier,
                               const float* shift, const Value* gradient, Value* pooled_gradient,
                               float* multiplier_gradient, float* shift_gradient) {
  Ranges ranges(rows, kRowRanges);
  std::vector<double> sums(ranges.count * 2 * kFilters);
  parallel(threads, ranges.count, [&](int64_t range) {
    double* sum = &sums[range * 2 * kFilters];
    for (int64_t begin = ranges.begin(range), end; begin < ranges.end(range); begin = end) {
      end = std::min<int64_t>(begin + 64, ranges.end(range));  // few enough terms for float
      Ahead pooled_ahead(pooled + end * kFilters, 64 * kFilters), gradient_ahead(gradient + end * kFilters, 64 * kFilters);
      for (int f = 0; f < kFilters; f += kLanes) {
        Vector m = load(multiplier + f), s = load(shift + f), none = {}, of_multiplier = {}, of_shift = {};
        for (int64_t i = begin * kFilters + f; i < end * kFilters; i += kFilters) {
          pooled_ahead.fetch_line(), gradient_ahead.fetch_line();
          Vector p = load(pooled + i), g = p * m + s > 0 ? load(gradient + i) : none;
          of_multiplier += g * p, of_shift += g;
          store(pooled_gradient + i, g * m);
        }
        for (int lane = 0; lane < kLanes; lane++) {
          sum[f + lane] += of_multiplier[lane], sum[kFilters + f + lane] += of_shift[lane];
        }
      }
    }
  });
  for (int i = 0; i < 2 * kFilters; i++) {
    double total = 0;
    for (int64_t range = 0; range < ranges.count; range++) total += sums[range * 2 * kFilters + i];
    float* gradient = i < kFilters ? multiplier_gradient : shift_gradient;  // a named pointer, as in later_block.h
    gradient[i % kFilters] = float(total);
  }
}

}  // namespace protojax

#endif  // PROTOJAX_CPU_NORMALIZATION_H_

// Definitions common to all blocks: the shape of a batch of images, limits, and names for scratch memory.
#ifndef PROTOJAX_CPU_SHAPE_H_
#define PROTOJAX_CPU_SHAPE_H_

#include "products.h"

namespace protojax {

constexpr int64_t kManyRanges = 256;        // number of ranges of work whose sums are small
constexpr int64_t kBeyondCache = 4 << 20;  // bytes, beyond which data leave the near caches before they are read again

// Scratch buffers alive at the same time in one thread.
struct KernelScratch {};
struct GradientScratch {};
struct InputScratch {};
struct OutputScratch {};
struct OverlapScratch {};

struct Shape {
  int64_t images;
  int height, width, channels;

  int64_t pixels() const { return images * height * width; }
  int64_t image_size() const { return int64_t(height) * width * channels; }
  int64_t pooled_size() const { return int64_t(height / 2) * (width / 2) * kFilters; }
};

}  // namespace protojax

#endif  // PROTOJAX_CPU_SHAPE_H_

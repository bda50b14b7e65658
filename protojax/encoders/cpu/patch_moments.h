// Mean and second moment of all 3x3 patches of images with 1 or 3 channels, with zeros around the images.
//
// The product of two taps of a patch is the product of two pixels at a distance d. Its sum over all patches is nearly
// the same for every pair of taps at that distance: if the first tap is in the middle, the first pixel runs over the
// complete image; if it is in the top row, the image's last row is left out; and so on. The sum therefore follows from
// sums of products over all pixels, over the first and last row and column, and at the corners:
//
//   S(tap, tap + d) = E(all, all) - E(all, left out) - E(left out, all) + E(left out, left out)
//
// where E(rows, columns) is the sum over these pixels. This takes a fifth of the products of the patches themselves.
#ifndef PROTOJAX_CPU_PATCH_MOMENTS_H_
#define PROTOJAX_CPU_PATCH_MOMENTS_H_

#include "parallel.h"
#include "shape.h"

namespace protojax {

enum Part { kAll, kFirst, kLast, kParts };  // of the rows or columns of an image
constexpr Part kLeftOut[3] = {kLast, kParts, kFirst};  // by a tap above, in (none) and below the middle; columns alike

// An image, channel by channel, with two zeros before each row, at least two after it (up to a multiple of the vector
// size), and two rows of zeros below.
template <int C>
struct Planes {
  int height, width;
  int64_t stride, plane;
  float* pixels;

  static int64_t row_size(int width) { return (width + kLanes - 1) / kLanes * kLanes + 4; }
  static int64_t size(int height, int width) { return C * (height + 2) * row_size(width) + kLanes; }

  template <class Value>
  Planes(const Value* image, int height, int width, float* buffer)
      : height(height), width(width), stride(row_size(width)), plane((height + 2) * stride), pixels(buffer) {
    std::memset(buffer, 0, size(height, width) * sizeof(float));
    for (int y = 0; y < height; y++) {
      for (int x = 0; x < width; x++) {
        for (int c = 0; c < C; c++, image++) *at(c, y, x) = to_float(*image);
      }
    }
  }
  float* at(int c, int y, int x) const { return pixels + c * plane + y * stride + x + 2; }
};

// E, indexed by rows, columns, d (rows, and columns + 2) and channels. The sixth column of d: sums of first pixels
// alone.
template <int C>
struct Products {
  static constexpr int kColumns = 6, kPixels = 5;
  double sums[kParts][kParts][3][kColumns][C][C] = {};

  void add(const Planes<C>& image) {
    for (int second = 0; second < C; second++) {
      for (int dy = 0; dy < 3; dy++) {
        add_rows(image, second, dy, kFirst, 0, 1);
        add_rows(image, second, dy, kAll, 1, image.height - 1);
        add_rows(image, second, dy, kLast, image.height - 1, image.height);
      }
    }
  }

  void add(const Products& other) {
    double* to = &sums[0][0][0][0][0][0];
    const double* from = &other.sums[0][0][0][0][0][0];
    for (size_t i = 0; i < sizeof sums / sizeof(double); i++) to[i] += from[i];
  }

  // The sum of products of two taps, t = (ty, tx) and t + (dy, dx - 2).
  double of_taps(int ty, int tx, int dy, int dx, int first, int second) const {
    auto sum = [&](Part rows, Part columns) {
      return rows == kParts || columns == kParts ? 0 : sums[rows][columns][dy][dx][first][second];
    };
    Part rows = kLeftOut[ty], columns = kLeftOut[tx];
    return sum(kAll, kAll) - sum(kAll, columns) - sum(rows, kAll) + sum(rows, columns);
  }

 private:
  // Adds products of pixels in some rows with pixels of channel `second`, dy rows below and up to two columns beside.
  void add_rows(const Planes<C>& image, int second, int dy, Part part, int begin, int end) {
    Vector all[C][kColumns] = {};
    for (int x = 0; x < image.width; x += kLanes) {
      Vector block[C][kColumns] = {};
      for (int y = begin; y < end; y++) {
        Vector pixel[C];
        unroll<C>([&](auto c) PROTOJAX_INLINE { pixel[c] = keep(load(image.at(c, y, x))), block[c][kPixels] += pixel[c]; });
        unroll<5>([&](auto dx) PROTOJAX_INLINE {
          Vector other = keep(load(image.at(second, y + dy, x) + dx - 2));
          unroll<C>([&](auto c) PROTOJAX_INLINE { block[c][dx] += pixel[c] * other; });
        });
      }
      int last = image.width - 1 - x;
      unroll<C * kColumns>([&](auto i) PROTOJAX_INLINE {
        Vector sum = block[i / kColumns][i % kColumns];
        all[i / kColumns][i % kColumns] += sum;
        if (x == 0) add(part, kFirst, dy, i % kColumns, i / kColumns, second, sum[0]);
        if (last < kLanes) add(part, kLast, dy, i % kColumns, i / kColumns, second, sum[last]);
      });
    }
    unroll<C * kColumns>([&](auto i) PROTOJAX_INLINE {
      double total = 0;
      for (int lane = 0; lane < kLanes; lane++) total += all[i / kColumns][i % kColumns][lane];
      add(part, kAll, dy, i % kColumns, i / kColumns, second, total);
    });
  }

  void add(Part rows, Part columns, int dy, int dx, int first, int second, double sum) {
    sums[kAll][columns][dy][dx][first][second] += sum;
    if (rows != kAll) sums[rows][columns][dy][dx][first][second] += sum;
  }
};

template <int C, class Value>
void patch_moments(ThreadPool& threads, const Shape& shape, const Value* x, float* mean, float* second_moment) {
  constexpr int kTaps = 9 * C;
  Ranges ranges(shape.images, kManyRanges);
  std::vector<Products<C>> products(ranges.count);
  parallel(threads, ranges.count, [&](int64_t range) {
    float* buffer = scratch<InputScratch>(Planes<C>::size(shape.height, shape.width));
    for (int64_t n = ranges.begin(range); n < ranges.end(range); n++) {
      products[range].add(Planes<C>(x + n * shape.image_size(), shape.height, shape.width, buffer));
    }
  });
  for (int64_t range = 1; range < ranges.count; range++) products[0].add(products[range]);
  for (int i = 0; i < kTaps; i++) {
    int ty = i / (3 * C), tx = i / C % 3, c = i % C;
    mean[i] = float(products[0].of_taps(ty, tx, 0, Products<C>::kPixels, c, 0) / double(shape.pixels()));
    for (int j = i; j < kTaps; j++) {
      int dy = j / (3 * C) - ty, dx = j / C % 3 - tx;
      double sum = products[0].of_taps(ty, tx, dy, dx + 2, c, j % C);
      second_moment[i * kTaps + j] = second_moment[j * kTaps + i] = float(sum / double(shape.pixels()));
    }
  }
}

}  // namespace protojax

#endif  // PROTOJAX_CPU_PATCH_MOMENTS_H_

// Inverted residual blocks: 1x1 expansion, depthwise convolution, 1x1 projection, and a skip connection.
//
// An image passes through the three steps a few rows at a time, so that its expanded rows, the largest arrays of these
// networks, are used while they are in the cache.
#ifndef PROTOJAX_CPU_INVERTED_BLOCK_H_
#define PROTOJAX_CPU_INVERTED_BLOCK_H_

#include <array>

#include "parallel.h"
#include "vectors.h"

namespace protojax {

constexpr int kGroup = 28;  // minimum pixels in a group of rows, so that kernels in the cache are reused often

// A matrix with a bias for each column: [depth, columns], [columns].
struct Layer {
  const float *matrix, *bias;
  int depth, columns;
};

struct InvertedBlock {
  int height, width, channels, size, stride;  // of the images, and of the depthwise kernel
  Layer expand, project;
  const float *kernel, *bias;  // of the depthwise convolution: [size, size, expand.columns], [expand.columns]
  int rows() const { return (height + stride - 1) / stride; }
  int columns() const { return (width + stride - 1) / stride; }
  bool skip() const { return rows() == height && columns() == width && channels == project.columns; }
};

// NaN remains, as in jnp.clip: x86 returns the second of two values if one is NaN.
inline Vector relu6(Vector a) {
#if defined(__AVX512F__)
  return _mm512_min_ps(broadcast(6), _mm512_max_ps(Vector{}, a));
#elif defined(__AVX__)
  return _mm256_min_ps(broadcast(6), _mm256_max_ps(Vector{}, a));
#else
  a = relu(a);
  return a > 6 ? broadcast(6) : a;
#endif
}

// Padding before the first element of an axis, if both ends share the padding evenly ('SAME').
inline int padding(int length, int size, int stride) {
  return std::max((length - 1) / stride * stride + size - length, 0) / 2;
}

// Destination of the rows of a product, with ReLU6 (`clip`) or with `skip`, if not null, added to them.
struct Results {
  float* const* rows;
  const float* skip;  // [rows, columns]
  bool clip;
};

// Some rows and columns of left * layer: [rows, depth] -> [rows, columns].
template <int Rows, int Vectors>
void multiply_tile(const float* left, const Layer& layer, int row, int column, const Results& results) {
  int at[Vectors];  // the last vector overlaps the one before if it would reach beyond the last column
  Vector sum[Rows][Vectors];
  unroll<Vectors>([&](auto v) PROTOJAX_INLINE {
    at[v] = std::min(column + v * kLanes, layer.columns - kLanes);
    unroll<Rows>([&](auto r) PROTOJAX_INLINE { sum[r][v] = load(layer.bias + at[v]); });
  });
  left += int64_t(row) * layer.depth;
  const float* right = layer.matrix;
  PROTOJAX_KEEP_LOOP for (int k = 0; k < layer.depth; k++, right += layer.columns) {
    Vector factor[Vectors];
    unroll<Vectors>([&](auto v) PROTOJAX_INLINE { factor[v] = load(right + at[v]); });
    unroll<Rows>([&](auto r) PROTOJAX_INLINE {
      Vector value = broadcast(left[r * layer.depth + k]);
      unroll<Vectors>([&](auto v) PROTOJAX_INLINE { sum[r][v] += value * factor[v]; });
    });
  }
  auto store_rows = [&](auto finish) PROTOJAX_INLINE {
    unroll<Rows>([&](auto r) PROTOJAX_INLINE {
      unroll<Vectors>([&](auto v) PROTOJAX_INLINE {
        store(results.rows[row + r] + at[v], finish(row + r, at[v], sum[r][v]));
      });
    });
  };
  if (results.clip) {
    store_rows([](int, int, Vector v) PROTOJAX_INLINE { return relu6(v); });
  } else if (results.skip) {
    store_rows([&](int row, int column, Vector v) PROTOJAX_INLINE {
      return v + load(results.skip + row * layer.columns + column);
    });
  } else {
    store_rows([](int, int, Vector v) PROTOJAX_INLINE { return v; });
  }
}

template <int Vectors, int... Rows>
constexpr auto tiles_by_rows(std::integer_sequence<int, Rows...>) {
  using Tile = void (*)(const float*, const Layer&, int, int, const Results&);
  return std::array<Tile, sizeof...(Rows) + 1>{nullptr, multiply_tile<Rows + 1, Vectors>...};
}
constexpr auto kWide = tiles_by_rows<kTileVectors>(std::make_integer_sequence<int, kTileRows>{});
constexpr auto kNarrow = tiles_by_rows<1>(std::make_integer_sequence<int, kTileRows>{});

inline void multiply(const float* left, int rows, const Layer& layer, const Results& results) {
  int tiles = (rows + kTileRows - 1) / kTileRows;
  for (int column = 0; column < layer.columns; column += kTileVectors * kLanes) {
    auto& multiply_rows = layer.columns - column > kLanes ? kWide : kNarrow;
    for (int tile = 0; tile < tiles; tile++) {
      int row = rows * tile / tiles, count = rows * (tile + 1) / tiles - row;
      multiply_rows[count](left, layer, row, column, results);
    }
  }
}

// Ring buffer for rows of expanded pixels with zeros on either side; row r of the image is line r modulo `count`.
struct Lines {
  float* memory;
  int count, length;  // number of lines, and floats of each
  float* line(int y) const { return memory + int64_t((y + count) % count) * length; }
};

// relu6(depthwise convolution): `count` rows, from `first` on, with `columns` pixels each.
template <int Size>
void convolve_depthwise(const InvertedBlock& b, const Lines& lines, int first, int count, float* result) {
  int channels = b.expand.columns, top = padding(b.height, Size, b.stride);
  for (int c = 0; c < channels; c += kLanes) {
    int at = std::min(c, channels - kLanes);
    Vector kernel[Size * Size], bias = load(b.bias + at);
    for (int i = 0; i < Size * Size; i++) kernel[i] = load(b.kernel + i * channels + at);
    float* to = result + at;
    for (int y = first; y < first + count; y++) {
      const float* line[Size];
      for (int i = 0; i < Size; i++) line[i] = lines.line(y * b.stride - top + i) + at;
      for (int x = 0; x < b.columns(); x++, to += channels) {
        Vector sum = bias;
        unroll<Size>([&](auto i) PROTOJAX_INLINE {
          unroll<Size>([&](auto j) PROTOJAX_INLINE {
            sum += load(line[i] + (x * b.stride + j) * channels) * kernel[i * Size + j];
          });
        });
        store(to, relu6(sum));
      }
    }
  }
}

// The rows [begin, end) of the result for one image: [height, width, channels] -> [rows, columns, project.columns].
inline void compute_rows(const InvertedBlock& b, const float* image, int begin, int end, float* result) {
  int group = std::max(1, kGroup / b.columns()), wide = b.expand.columns, count = (group - 1) * b.stride + b.size;
  int top = padding(b.height, b.size, b.stride), left = padding(b.width, b.size, b.stride);
  int length = std::max((b.columns() - 1) * b.stride + b.size, left + b.width) * wide;
  struct Expanded {};
  struct Convolved {};
  Lines lines{scratch<Expanded>(int64_t(length) * count), count, length};
  float* convolved = scratch<Convolved>(int64_t(group) * b.columns() * wide);
  std::fill_n(lines.memory, int64_t(length) * count, 0.0f);
  std::vector<float*> to(count * b.width);
  for (int next = begin * b.stride - top; begin < end; begin += group) {
    int rows = std::min(group, end - begin), last = (begin + rows - 1) * b.stride - top + b.size, pixels = 0;
    const float* from = image + int64_t(next = std::max(next, 0)) * b.width * b.channels;
    for (; next < last; next++) {
      if (next < b.height) {
        for (int x = 0; x < b.width; x++) to[pixels++] = lines.line(next) + (left + x) * wide;
      } else {
        std::fill_n(lines.line(next), length, 0.0f);
      }
    }
    multiply(from, pixels, b.expand, {to.data(), nullptr, true});
    b.size == 3 ? convolve_depthwise<3>(b, lines, begin, rows, convolved)
                : convolve_depthwise<5>(b, lines, begin, rows, convolved);
    int64_t at = int64_t(begin) * b.columns() * b.project.columns;
    pixels = rows * b.columns();
    for (int i = 0; i < pixels; i++) to[i] = result + at + i * b.project.columns;
    multiply(convolved, pixels, b.project, {to.data(), b.skip() ? image + at : nullptr, false});
  }
}

inline void inverted_block(ThreadPool& threads, const InvertedBlock& b, int64_t images, const float* x, float* y) {
  int64_t strips = std::min<int64_t>(b.rows(), std::max<int64_t>(1, threads.num_threads() / images));
  parallel(threads, images * strips, [&](int64_t item) {
    int64_t image = item / strips, strip = item % strips;
    compute_rows(b, x + image * b.height * b.width * b.channels, b.rows() * strip / strips,
                 b.rows() * (strip + 1) / strips, y + image * b.rows() * b.columns() * b.project.columns);
  });
}

}  // namespace protojax

#endif  // PROTOJAX_CPU_INVERTED_BLOCK_H_

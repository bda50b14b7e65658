// Products of the matrices between the transforms, of 64 columns each.
#ifndef PROTOJAX_CPU_PRODUCTS_H_
#define PROTOJAX_CPU_PRODUCTS_H_

#include <array>

#include "vectors.h"

namespace protojax {

constexpr int kFilters = 64;  // also of input channels, except in the first block
constexpr int kMatrix = kFilters * kFilters;

static_assert(kFilters % (kLanes * kTileVectors) == 0, "a row of the matrices must be whole tiles");

// sum += outer product of left, whose elements have a stride, and right.
template <int Rows>
PROTOJAX_INLINE inline void add_product(const float* left, int64_t stride, const float* right,
                                        Vector (&sum)[Rows][kTileVectors]) {
  Vector factor[kTileVectors];
  unroll<kTileVectors>([&](auto v) PROTOJAX_INLINE { factor[v] = load(right + v * kLanes); });
  unroll<Rows>([&](auto r) PROTOJAX_INLINE {
    Vector value = broadcast(left[r * stride]);
    unroll<kTileVectors>([&](auto v) PROTOJAX_INLINE { sum[r][v] += value * factor[v]; });
  });
}

// Memory that will be read next. Products prefetch it into the cache, because they leave the memory bus idle.
struct Ahead {
  const char *next = nullptr, *end = nullptr;

  Ahead() = default;
  template <class Value>
  Ahead(const Value* from, int64_t values)
      : next(reinterpret_cast<const char*>(from)), end(reinterpret_cast<const char*>(from + values)) {}
  void fetch_line() {
    if (next < end) __builtin_prefetch(next);
    next += 64;
  }
};

// rows = rows right: [Rows, 64], [64, 64] -> [Rows, 64].
template <int Rows>
void multiply_rows(float* rows, const float* right, Ahead& ahead) {
  alignas(64) float left[Rows * kFilters];
  std::memcpy(left, rows, sizeof left);
  for (int column = 0; column < kFilters; column += kLanes * kTileVectors) {
    Vector sum[Rows][kTileVectors] = {};
    PROTOJAX_KEEP_LOOP for (int c = 0; c < kFilters; c++) {
      ahead.fetch_line();
      add_product(left + c, kFilters, right + c * kFilters + column, sum);
    }
    unroll<Rows>([&](auto r) PROTOJAX_INLINE {
      unroll<kTileVectors>([&](auto v) PROTOJAX_INLINE {
        store(rows + r * kFilters + column + v * kLanes, sum[r][v]);
      });
    });
  }
}

template <int... Rows>
constexpr auto multiply_by_rows(std::integer_sequence<int, Rows...>) {
  return std::array<void (*)(float*, const float*, Ahead&), sizeof...(Rows) + 1>{nullptr, multiply_rows<Rows + 1>...};
}
constexpr auto kMultiply = multiply_by_rows(std::make_integer_sequence<int, kTileRows>{});

// matrix = matrix right: [rows, 64], [64, 64] -> [rows, 64]; the rows are divided evenly among register tiles.
inline void multiply(float* matrix, const float* right, int rows, Ahead& ahead) {
  int tiles = (rows + kTileRows - 1) / kTileRows;
  for (int tile = 0; tile < tiles; tile++) {
    int row = rows * tile / tiles, count = rows * (tile + 1) / tiles - row;
    kMultiply[count](matrix + row * kFilters, right, ahead);
  }
}

template <int Rows>
void accumulate_rows(const float* left, const float* right, float* sum, int count, Ahead& ahead) {
  Vector total[Rows][kTileVectors] = {};  // of this batch only: sums in two stages are more exact
  PROTOJAX_KEEP_LOOP for (int t = 0; t < count; t++) {
    ahead.fetch_line();
    add_product(left + t * kFilters, 1, right + t * kFilters, total);
  }
  unroll<Rows>([&](auto r) PROTOJAX_INLINE {
    unroll<kTileVectors>([&](auto v) PROTOJAX_INLINE {
      float* element = sum + r * kFilters + v * kLanes;
      store(element, load(element) + total[r][v]);
    });
  });
}

// sum += left' right: [count, 64], [count, 64] -> [64, 64].
inline void accumulate(const float* left, const float* right, float* sum, int count, Ahead& ahead) {
  for (int column = 0; column < kFilters; column += kLanes * kTileVectors) {
    int row = 0;
    for (; row + kTileRows <= kFilters; row += kTileRows) {
      accumulate_rows<kTileRows>(left + row, right + column, sum + row * kFilters + column, count, ahead);
    }
    accumulate_rows<kFilters % kTileRows>(left + row, right + column, sum + row * kFilters + column, count, ahead);
  }
}

}  // namespace protojax

#endif  // PROTOJAX_CPU_PRODUCTS_H_

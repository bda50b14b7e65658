// Division of images into tiles: along each axis, tiles of 6 pixels and then of 4, in the combination with the fewest
// products.
//
// An image therefore has up to four regions, each with tiles of one size. 14 pixels are 6 + 4 + 4: 20 points instead of
// 24 for four tiles of 4 or three tiles of 6.
#ifndef PROTOJAX_CPU_REGIONS_H_
#define PROTOJAX_CPU_REGIONS_H_

#include "winograd.h"

namespace protojax {

// Numbers of tiles along an axis; smaller tiles if they need no more products, because they are more exact.
struct Cut {
  int sixes = 0, fours = 0;

  explicit Cut(int pixels) {
    auto rest = [&](int sixes) { return std::max(0, pixels - 6 * sixes + 3) / 4; };
    auto products = [&](int sixes) { return points(6) * sixes + points(4) * rest(sixes); };
    for (int more = 1; more <= (pixels + 5) / 6; more++) {
      if (products(more) < products(sixes)) sixes = more;
    }
    fours = rest(sixes);
  }
  int tiles(int size) const { return size == 6 ? sixes : fours; }
  int begin(int size) const { return size == 6 ? 0 : 6 * sixes; }
};

constexpr int kAllPositions = (points(6) + points(4)) * (points(6) + points(4));  // of one tile of each size

// Calls run(tiling, before) for each region of the first rows x columns pixels of images of height x width; `before` is
// the number of positions of the regions before it.
template <class Run>
void each_region(int height, int width, int rows, int columns, const Run& run) {
  Cut down(rows), across(columns);
  int before = 0;
  auto region = [&](auto R, auto C) {
    Tiling<R, C> tiling{height, width, down.begin(R), across.begin(C), down.tiles(R), across.tiles(C)};
    if (tiling.tiles() > 0) run(tiling, before), before += positions(R, C);
  };
  std::integral_constant<int, 6> six;
  std::integral_constant<int, 4> four;
  region(six, six), region(six, four), region(four, six), region(four, four);
}

}  // namespace protojax

#endif  // PROTOJAX_CPU_REGIONS_H_

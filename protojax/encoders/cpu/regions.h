// How images are cut into tiles: of 6 pixels along an axis first and then of 4, as many of each as take fewest products.
//
// So an image has up to four regions, and the tiles of each are of one size. 14 pixels are 6 + 4 + 4: 20 points instead
// of the 24 of four tiles of 4 or three of 6.
#ifndef PROTOJAX_CPU_REGIONS_H_
#define PROTOJAX_CPU_REGIONS_H_

#include "winograd.h"

namespace protojax {

// Numbers of tiles along an axis; smaller ones where they take no more products, because they are more exact.
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

// Winograd's minimal filtering in one dimension: F(T, 3) computes T outputs of a filter with 3 taps with T + 2 products
// instead of 3 T.
//
// The T + 2 inputs d and the taps g are treated as polynomials. Their values at T + 1 points and at infinity are
// multiplied, and the outputs are interpolated from the products (in transposed form):
//
//   v = B' d,   u = G g,   m[k] = v[k] u[k],   y = A' m
//
// A larger T needs fewer products per output but more points, so coefficients are further from one and errors grow. In
// two dimensions, rms errors with 64 channels, relative to the plain sum in float32, and products per output are
//
//   F(2, 3)   points 0, 1, -1                       0.7; 4 products per output
//   F(4, 3)   points 0, 1, -1, 1/2, -2              3; 2.25 (the usual 2 instead of 1/2: 4.5)
//   F(6, 3)   points 0, 1, -1, 2, -2, 1/2, -1/2     8.5; 1.78
//
// Gradients need the adjoint of each map. All of them work on vectors of channels.
#ifndef PROTOJAX_CPU_FILTERING_H_
#define PROTOJAX_CPU_FILTERING_H_

#include "vectors.h"

namespace protojax {

template <int T>
struct Filtering;

template <>
struct Filtering<2> {
  static PROTOJAX_INLINE void input(const Vector d[4], Vector v[4]) {
    v[0] = d[0] - d[2], v[1] = d[1] + d[2], v[2] = d[2] - d[1], v[3] = d[1] - d[3];
  }
  static PROTOJAX_INLINE void input_adjoint(const Vector v[4], Vector d[4]) {
    d[0] = v[0], d[1] = v[1] - v[2] + v[3], d[2] = v[1] + v[2] - v[0], d[3] = -v[3];
  }
  static PROTOJAX_INLINE void kernel(const Vector g[3], Vector u[4]) {
    Vector even = g[0] + g[2];
    u[0] = g[0], u[1] = (even + g[1]) * 0.5f, u[2] = (even - g[1]) * 0.5f, u[3] = g[2];
  }
  static PROTOJAX_INLINE void kernel_adjoint(const Vector u[4], Vector g[3]) {
    Vector even = (u[1] + u[2]) * 0.5f;
    g[0] = u[0] + even, g[1] = (u[1] - u[2]) * 0.5f, g[2] = even + u[3];
  }
  static PROTOJAX_INLINE void output(const Vector m[4], Vector y[2]) {
    y[0] = m[0] + m[1] + m[2], y[1] = m[1] - m[2] - m[3];
  }
  static PROTOJAX_INLINE void output_adjoint(const Vector y[2], Vector m[4]) {
    m[0] = y[0], m[1] = y[0] + y[1], m[2] = y[0] - y[1], m[3] = -y[1];
  }
};

template <>
struct Filtering<4> {
  static PROTOJAX_INLINE void input(const Vector d[6], Vector v[6]) {
    Vector a = d[4] - d[2], b = d[3] - d[1], s = a + 1.5f * d[3], t = b + 1.5f * d[2];
    v[0] = d[0] - d[2] + a + 1.5f * b;
    v[1] = s + t, v[2] = s - t, v[3] = a + 2 * b, v[4] = a - 0.5f * b;
    v[5] = d[5] - d[3] - b + 1.5f * a;
  }
  static PROTOJAX_INLINE void input_adjoint(const Vector v[6], Vector d[6]) {
    Vector s = v[1] + v[2], t = v[1] - v[2];
    Vector a = s + v[3] + v[4] + v[0] + 1.5f * v[5], b = t + 2 * v[3] - 0.5f * v[4] + 1.5f * v[0] - v[5];
    d[0] = v[0], d[1] = -b, d[2] = 1.5f * t - a - v[0], d[3] = b + 1.5f * s - v[5], d[4] = a, d[5] = v[5];
  }
  static PROTOJAX_INLINE void kernel(const Vector g[3], Vector u[6]) {
    constexpr float kThird = 1.0f / 3, kFifteenth = 1.0f / 15;
    Vector even = g[0] + g[2];
    u[0] = g[0], u[1] = (even + g[1]) * kThird, u[2] = (g[1] - even) * kThird;
    u[3] = (4 * g[0] + 2 * g[1] + g[2]) * (-4 * kFifteenth);
    u[4] = (g[0] - 2 * g[1] + 4 * g[2]) * kFifteenth, u[5] = g[2];
  }
  static PROTOJAX_INLINE void kernel_adjoint(const Vector u[6], Vector g[3]) {
    constexpr float kThird = 1.0f / 3, kFifteenth = 1.0f / 15;
    Vector even = (u[1] - u[2]) * kThird, odd = (u[1] + u[2]) * kThird, p = u[3] * (-4 * kFifteenth);
    Vector q = u[4] * kFifteenth;
    g[0] = u[0] + even + 4 * p + q, g[1] = odd + 2 * p - 2 * q, g[2] = even + p + 4 * q + u[5];
  }
  static PROTOJAX_INLINE void output(const Vector m[6], Vector y[4]) {
    Vector even = m[1] + m[2], odd = m[1] - m[2];
    y[0] = m[0] + even + m[3] + m[4], y[1] = odd + 0.5f * m[3] - 2 * m[4];
    y[2] = even + 0.25f * m[3] + 4 * m[4], y[3] = odd + 0.125f * m[3] - 8 * m[4] + m[5];
  }
  static PROTOJAX_INLINE void output_adjoint(const Vector y[4], Vector m[6]) {
    Vector even = y[0] + y[2], odd = y[1] + y[3];
    m[0] = y[0], m[1] = even + odd, m[2] = even - odd;
    m[3] = y[0] + 0.25f * y[2] + 0.5f * (y[1] + 0.25f * y[3]);
    m[4] = y[0] + 4 * y[2] - 2 * (y[1] + 4 * y[3]), m[5] = y[3];
  }
};

template <>
struct Filtering<6> {
  static PROTOJAX_INLINE void input(const Vector d[8], Vector v[8]) {
    Vector even = d[2] + d[6] - 4.25f * d[4], odd = d[1] + d[5] - 4.25f * d[3];
    v[0] = d[0] - d[6] + 5.25f * (d[4] - d[2]), v[1] = even + odd, v[2] = even - odd;
    even = d[6] + 0.25f * d[2] - 1.25f * d[4], odd = 0.5f * d[1] - 2.5f * d[3] + 2 * d[5];
    v[3] = even + odd, v[4] = even - odd;
    even = d[6] + 4 * d[2] - 5 * d[4], odd = 2 * d[1] - 2.5f * d[3] + 0.5f * d[5];
    v[5] = even + odd, v[6] = even - odd, v[7] = d[7] - d[1] + 5.25f * (d[3] - d[5]);
  }
  static PROTOJAX_INLINE void input_adjoint(const Vector v[8], Vector d[8]) {
    Vector e1 = v[1] + v[2], o1 = v[1] - v[2], e2 = v[3] + v[4], o2 = v[3] - v[4], e3 = v[5] + v[6], o3 = v[5] - v[6];
    d[0] = v[0], d[1] = o1 + 0.5f * o2 + 2 * o3 - v[7];
    d[2] = e1 + 0.25f * e2 + 4 * e3 - 5.25f * v[0], d[3] = 5.25f * v[7] - 4.25f * o1 - 2.5f * (o2 + o3);
    d[4] = 5.25f * v[0] - 4.25f * e1 - 1.25f * e2 - 5 * e3, d[5] = o1 + 2 * o2 + 0.5f * o3 - 5.25f * v[7];
    d[6] = e1 + e2 + e3 - v[0], d[7] = v[7];
  }
  static PROTOJAX_INLINE void kernel(const Vector g[3], Vector u[8]) {
    Vector even = (g[0] + g[2]) * (-2.0f / 9), odd = g[1] * (-2.0f / 9);
    u[0] = g[0], u[1] = even + odd, u[2] = even - odd;
    even = (g[0] + 4 * g[2]) * (1.0f / 90), odd = g[1] * (1.0f / 45), u[3] = even + odd, u[4] = even - odd;
    even = (4 * g[0] + g[2]) * (1.0f / 180), odd = g[1] * (1.0f / 90), u[5] = even + odd, u[6] = even - odd;
    u[7] = g[2];
  }
  static PROTOJAX_INLINE void kernel_adjoint(const Vector u[8], Vector g[3]) {
    Vector even1 = (u[1] + u[2]) * (-2.0f / 9), even2 = (u[3] + u[4]) * (1.0f / 90);
    Vector even3 = (u[5] + u[6]) * (1.0f / 180);
    Vector odd = (u[1] - u[2]) * (-2.0f / 9) + (u[3] - u[4]) * (1.0f / 45) + (u[5] - u[6]) * (1.0f / 90);
    g[0] = u[0] + even1 + even2 + 4 * even3, g[1] = odd, g[2] = u[7] + even1 + 4 * even2 + even3;
  }
  static PROTOJAX_INLINE void output(const Vector m[8], Vector y[6]) {
    Vector e1 = m[1] + m[2], o1 = m[1] - m[2], e2 = m[3] + m[4], o2 = m[3] - m[4], e3 = m[5] + m[6], o3 = m[5] - m[6];
    y[0] = m[0] + e1 + e2 + 32 * e3, y[1] = o1 + 2 * o2 + 16 * o3, y[2] = e1 + 4 * e2 + 8 * e3;
    y[3] = o1 + 8 * o2 + 4 * o3, y[4] = e1 + 16 * e2 + 2 * e3, y[5] = o1 + 32 * o2 + o3 + m[7];
  }
  static PROTOJAX_INLINE void output_adjoint(const Vector y[6], Vector m[8]) {
    Vector even = y[0] + y[2] + y[4], odd = y[1] + y[3] + y[5];
    m[0] = y[0], m[1] = even + odd, m[2] = even - odd;
    even = y[0] + 4 * y[2] + 16 * y[4], odd = 2 * y[1] + 8 * y[3] + 32 * y[5], m[3] = even + odd, m[4] = even - odd;
    even = 32 * y[0] + 8 * y[2] + 2 * y[4], odd = 16 * y[1] + 4 * y[3] + y[5], m[5] = even + odd, m[6] = even - odd;
    m[7] = y[5];
  }
};

// Maps the columns of a rectangle by Down and then its rows by Across. read(i, j) returns the inputs, column by column;
// write(i, j, value) receives the outputs, row by row. In and Out are the numbers of values before and after.
template <void (*Down)(const Vector*, Vector*), int RowsIn, int RowsOut, void (*Across)(const Vector*, Vector*),
          int ColumnsIn, int ColumnsOut, class Read, class Write>
PROTOJAX_INLINE inline void along_both_axes(const Read& read, const Write& write) {
  Vector half[RowsOut][ColumnsIn];
  unroll<ColumnsIn>([&](auto j) PROTOJAX_INLINE {
    Vector column[RowsIn], mapped[RowsOut];
    unroll<RowsIn>([&](auto i) PROTOJAX_INLINE { column[i] = read(i, j); });
    Down(column, mapped);
    unroll<RowsOut>([&](auto i) PROTOJAX_INLINE { half[i][j] = mapped[i]; });
  });
  unroll<RowsOut>([&](auto i) PROTOJAX_INLINE {
    Vector mapped[ColumnsOut];
    Across(half[i], mapped);
    unroll<ColumnsOut>([&](auto j) PROTOJAX_INLINE { write(i, j, mapped[j]); });
  });
}

}  // namespace protojax

#endif  // PROTOJAX_CPU_FILTERING_H_

// Vectors of floats in the compiler's own vector types: the same source serves AVX-512, AVX2, SSE and ARM.
#ifndef PROTOJAX_CPU_VECTORS_H_
#define PROTOJAX_CPU_VECTORS_H_

#include <cstdint>
#include <cstring>

namespace protojax {

// A matrix tile keeps kTileRows x kTileVectors accumulators in registers, beside kTileVectors loaded vectors and one
// broadcast value: as many as fit, because each loaded value is then used most often.
#if defined(__AVX512F__)
constexpr int kLanes = 16, kTileRows = 14, kTileVectors = 2;  // 32 registers
#elif defined(__AVX__)
constexpr int kLanes = 8, kTileRows = 6, kTileVectors = 2;  // 16 registers
#elif defined(__aarch64__)
constexpr int kLanes = 4, kTileRows = 6, kTileVectors = 4;  // 32 registers
#else
constexpr int kLanes = 4, kTileRows = 6, kTileVectors = 2;  // 16 registers
#endif

typedef float Vector __attribute__((vector_size(kLanes * sizeof(float))));

// Loops over accumulators must vanish, or the accumulators would live in memory.
#if defined(__clang__)
#define PROTOJAX_UNROLL _Pragma("unroll")
#else
#define PROTOJAX_UNROLL _Pragma("GCC unroll 64")
#endif

inline Vector load(const float* from) {
  Vector v;
  std::memcpy(&v, from, sizeof v);  // one unaligned load
  return v;
}
inline void store(float* to, Vector v) { std::memcpy(to, &v, sizeof v); }
inline Vector broadcast(float value) { return value - Vector{}; }

// The larger value; NaN wins, as in jnp.maximum.
inline Vector maximum(Vector a, Vector b) { return ((a > b) | (a != a)) ? a : b; }
inline Vector relu(Vector a) { return a < 0 ? Vector{} : a; }

}  // namespace protojax

#endif  // PROTOJAX_CPU_VECTORS_H_

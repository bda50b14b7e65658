// Vectors of floats in the compiler's vector types: the same source serves AVX-512, AVX2, SSE and ARM.
//
// Values are computed in float. Activations are stored as float or as bfloat16, the upper half of a float.
#ifndef PROTOJAX_CPU_VECTORS_H_
#define PROTOJAX_CPU_VECTORS_H_

#if defined(__SSE__)
#include <immintrin.h>
#endif

#include <cstdint>
#include <cstring>
#include <utility>

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
constexpr bool kManyRegisters = kTileRows * kTileVectors > 16;

typedef float Vector __attribute__((vector_size(kLanes * sizeof(float))));
typedef uint32_t Bits __attribute__((vector_size(kLanes * sizeof(float))));

struct BFloat16 {
  uint16_t bits;
};
inline float to_float(float value) { return value; }
inline float to_float(BFloat16 value) {
  uint32_t bits = uint32_t(value.bits) << 16;
  float result;
  std::memcpy(&result, &bits, sizeof result);
  return result;
}
typedef uint16_t Halves __attribute__((vector_size(kLanes * sizeof(uint16_t))));

// Calls work(i) for i = 0 ... N - 1 with i known to the compiler: loops over accumulators must be unrolled, or the
// accumulators would be stored in memory. With some compilers, a pragma leaves arrays in memory.
#define PROTOJAX_INLINE __attribute__((always_inline))
template <class Work, int... I>
PROTOJAX_INLINE inline void unroll(const Work& work, std::integer_sequence<int, I...>) {
  (work(std::integral_constant<int, I>{}), ...);
}
template <int N, class Work>
PROTOJAX_INLINE inline void unroll(const Work& work) {
  unroll(work, std::make_integer_sequence<int, N>{});
}

// A loop that is not to be unrolled further: some compilers would run out of registers.
#if defined(__clang__)
#define PROTOJAX_KEEP_LOOP _Pragma("clang loop unroll(disable)")
#else
#define PROTOJAX_KEEP_LOOP
#endif

// Calls run with the value of a condition that is known to the compiler.
template <class Run>
PROTOJAX_INLINE inline void with_constant(bool condition, const Run& run) {
  condition ? run(std::true_type{}) : run(std::false_type{});
}

template <class Type, class From>
inline Type load_as(const From* from) {
  Type value;
  std::memcpy(&value, from, sizeof value);  // one unaligned load
  return value;
}

inline Vector load(const float* from) { return load_as<Vector>(from); }
inline Vector load(const BFloat16* from) { return Vector(__builtin_convertvector(load_as<Halves>(from), Bits) << 16); }

inline void store(float* to, Vector v) { std::memcpy(to, &v, sizeof v); }
// Rounds to nearest, ties to even.
inline void store(BFloat16* to, Vector v) {
#if defined(__AVX512BF16__)
  auto halves = _mm512_cvtneps_pbh(v);
#else
  Bits bits = Bits(v);
  bits += 0x7fff + (bits >> 16 & 1);
  Halves halves = __builtin_convertvector(bits >> 16, Halves);
#endif
  std::memcpy(to, &halves, sizeof halves);
}

inline void copy(const float* from, int count, float* to) { std::memcpy(to, from, count * sizeof(float)); }
inline void copy(const BFloat16* from, int count, float* to) {
  int i = 0;
  for (; i + kLanes <= count; i += kLanes) store(to + i, load(from + i));
  for (; i < count; i++) to[i] = to_float(from[i]);
}

// Stores past the caches, for data that are read only after other data have filled them; the line is not read first.
inline void stream(float* to, Vector v) {
#if defined(__clang__)
  __builtin_nontemporal_store(v, reinterpret_cast<Vector*>(to));
#elif defined(__AVX512F__)
  _mm512_stream_ps(to, v);
#elif defined(__AVX__)
  _mm256_stream_ps(to, v);
#elif defined(__SSE__)
  _mm_stream_ps(to, v);
#else
  store(to, v);
#endif
}
inline void stream(BFloat16* to, Vector v) { store(to, v); }  // less than a cache line, which would be read anyway

// Keeps a value in its register; otherwise some compilers load it again for each use.
inline Vector keep(Vector v) {
#if defined(__AVX512F__)
  asm("" : "+v"(v));
#elif defined(__SSE__)
  asm("" : "+x"(v));
#endif
  return v;
}

inline Vector broadcast(float value) { return value - Vector{}; }

inline Vector larger(Vector a, Vector b) { return a > b ? a : b; }
// The larger value, or NaN if one is NaN, as in jnp.maximum.
inline Vector maximum(Vector a, Vector b) { return ((a > b) | (a != a)) ? a : b; }
inline Vector relu(Vector a) { return a < 0 ? Vector{} : a; }

}  // namespace protojax

#endif  // PROTOJAX_CPU_VECTORS_H_

// Buffers that XLA keeps from step to step.
//
// XLA allocates the buffers of a program when it starts and frees them when it ends. The C library returns blocks of
// hundreds of megabytes to the system at once, and the system clears them again for the next step, which takes a tenth
// to a third of the step's time. Therefore the calls of posix_memalign and free in XLA's library, and only there, are
// redirected to two functions of ours: large blocks that XLA frees are kept and reused for allocations of the same
// size. Every block is a normal block of the C library, so it may be freed elsewhere. Blocks that XLA's library gets
// in other ways, such as the scratch memory of a plain convolution, are freed as usual: they would not be reused and
// accumulate.
//
// If no kept block fits an allocation, another program is running: all kept blocks are freed first, so the process
// never holds more memory than it would otherwise.
#ifndef PROTOJAX_CPU_MEMORY_H_
#define PROTOJAX_CPU_MEMORY_H_

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <unordered_set>

#if defined(__linux__) && defined(__LP64__)
#include <link.h>
#include <malloc.h>
#include <sys/mman.h>
#include <unistd.h>

namespace protojax {

constexpr size_t kLargeBlock = 1 << 20;
constexpr char kLibrary[] = "libjax_common.so";

class Blocks {
 public:
  // Returns the smallest kept block that is large enough and at most an eighth larger, or a new block.
  int allocate(void** result, size_t alignment, size_t size) {
    if (size >= kLargeBlock) {
      std::lock_guard<std::mutex> lock(mutex_);
      auto kept = kept_.lower_bound(size);
      if (kept != kept_.end() && kept->first <= size + size / 8 && uintptr_t(kept->second) % alignment == 0) {
        *result = kept->second;
        kept_.erase(kept);
        return 0;
      }
      for (const auto& [unused, block] : kept_) {
        given_.erase(block);
        free(block);
      }
      kept_.clear();
    }
    int error = posix_memalign(result, alignment, size);
    if (error == 0 && size >= kLargeBlock) {
      prefer_huge_pages(*result, size);
      std::lock_guard<std::mutex> lock(mutex_);
      given_.insert(*result);
    }
    return error;
  }

  void release(void* block) {
    if (block == nullptr || malloc_usable_size(block) < kLargeBlock) return free(block);
    std::lock_guard<std::mutex> lock(mutex_);
    if (given_.count(block) == 0) return free(block);
    kept_.emplace(malloc_usable_size(block), block);
  }

 private:
  // 512 times fewer page faults when a block is written for the first time.
  static void prefer_huge_pages(void* begin, size_t bytes) {
    uintptr_t page = sysconf(_SC_PAGESIZE), first = (uintptr_t(begin) + page - 1) / page * page;
    madvise(reinterpret_cast<void*>(first), (uintptr_t(begin) + bytes - first) / page * page, MADV_HUGEPAGE);
  }

  std::mutex mutex_;
  std::multimap<size_t, void*> kept_;  // by size
  std::unordered_set<void*> given_;    // blocks from `allocate`, in use or kept
};

inline Blocks& blocks() {
  static Blocks* blocks = new Blocks;  // never destroyed: XLA frees buffers until the process ends
  return *blocks;
}

inline int allocate_block(void** result, size_t alignment, size_t size) {
  return blocks().allocate(result, alignment, size);
}
inline void release_block(void* block) { blocks().release(block); }

// Redirects the calls of the function `name` in a loaded library to `replacement` (in ELF's procedure linkage table) ->
// whether there were any.
inline bool replace_call(const dl_phdr_info& library, const char* name, void* replacement) {
  const ElfW(Dyn)* dynamic = nullptr;
  for (int i = 0; i < library.dlpi_phnum; i++) {
    const auto& segment = library.dlpi_phdr[i];
    if (segment.p_type == PT_DYNAMIC) dynamic = reinterpret_cast<ElfW(Dyn)*>(library.dlpi_addr + segment.p_vaddr);
  }
  if (dynamic == nullptr) return false;
  auto entry = [&](int64_t tag) -> uintptr_t {
    for (auto* d = dynamic; d->d_tag != DT_NULL; d++) if (d->d_tag == tag) return d->d_un.d_val;
    return 0;
  };
  auto* symbols = reinterpret_cast<const ElfW(Sym)*>(entry(DT_SYMTAB));
  auto* names = reinterpret_cast<const char*>(entry(DT_STRTAB));
  auto* calls = reinterpret_cast<const ElfW(Rela)*>(entry(DT_JMPREL));
  for (size_t i = 0; i < entry(DT_PLTRELSZ) / sizeof *calls; i++) {
    if (std::strcmp(names + symbols[ELF64_R_SYM(calls[i].r_info)].st_name, name) != 0) continue;
    auto* address = reinterpret_cast<void**>(library.dlpi_addr + calls[i].r_offset);
    uintptr_t page = sysconf(_SC_PAGESIZE), first = uintptr_t(address) / page * page;
    if (mprotect(reinterpret_cast<void*>(first), page, PROT_READ | PROT_WRITE) != 0) return false;
    __atomic_store_n(address, replacement, __ATOMIC_RELEASE);
    return true;
  }
  return false;
}

}  // namespace protojax

// Starts to keep buffers -> 1, or 0 and no change if XLA's library is not found or lacks the expected calls.
extern "C" int protojax_keep_buffers() {
  return dl_iterate_phdr(
      [](dl_phdr_info* library, size_t, void*) -> int {
        const char* name = std::strrchr(library->dlpi_name, '/');
        if (name == nullptr || std::strcmp(name + 1, protojax::kLibrary) != 0) return 0;
        return protojax::replace_call(*library, "posix_memalign", reinterpret_cast<void*>(protojax::allocate_block)) &&
               protojax::replace_call(*library, "free", reinterpret_cast<void*>(protojax::release_block));
      },
      nullptr);
}
#else
extern "C" int protojax_keep_buffers() { return 0; }
#endif

#endif  // PROTOJAX_CPU_MEMORY_H_

// Work sharing on XLA's threads, and scratch memory that outlives a call.
#ifndef PROTOJAX_CPU_PARALLEL_H_
#define PROTOJAX_CPU_PARALLEL_H_

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "xla/ffi/api/ffi.h"

namespace protojax {

using xla::ffi::ThreadPool;

// Runs work(item) for every item in [0, items). The calling thread takes part and waits only for items that another
// thread has started, so a pool that is busy or has one thread delays the call but cannot block it. Any thread may run
// any item, so results must depend on the item alone.
template <class Work>
void parallel(ThreadPool& pool, int64_t items, const Work& work) {
  struct Progress {
    std::atomic<int64_t> next{0}, done{0};
    std::mutex mutex;
    std::condition_variable finished;
  };
  auto progress = std::make_shared<Progress>();  // a helper may start after the call is over; it then finds no item
  auto help = [progress, items, &work] {
    for (int64_t item; (item = progress->next.fetch_add(1)) < items;) {
      work(item);
      if (progress->done.fetch_add(1) + 1 == items) {
        std::lock_guard<std::mutex> lock(progress->mutex);
        progress->finished.notify_one();
      }
    }
  };
  int64_t helpers = std::min<int64_t>(pool.num_threads(), items) - 1;
  for (int64_t i = 0; i < helpers; i++) pool.Schedule([help] { help(); });
  help();
  auto is_done = [&] { return progress->done.load() == items; };
  for (int i = 0; i < 100 && !is_done(); i++) sched_yield();  // cheaper than sleeping when the wait is short
  std::unique_lock<std::mutex> lock(progress->mutex);
  progress->finished.wait(lock, is_done);
}

// Splits [0, total) into consecutive ranges; their number depends on the problem alone, never on the machine, so that
// sums taken range by range have the same bits everywhere.
struct Ranges {
  int64_t total, count;
  Ranges(int64_t total, int64_t most) : total(total), count(std::max<int64_t>(1, std::min(total, most))) {}
  int64_t begin(int64_t range) const { return total * range / count; }
  int64_t end(int64_t range) const { return total * (range + 1) / count; }
};

// Scratch memory of this thread, kept between calls: fresh memory would cost page faults in every call. `Tag`
// distinguishes buffers that are in use at the same time.
template <class Tag>
float* scratch(size_t floats) {
  thread_local std::vector<float> memory;
  if (memory.size() < floats + 16) memory.assign(floats + 16, 0.0f);
  auto address = reinterpret_cast<uintptr_t>(memory.data());
  return reinterpret_cast<float*>((address + 63) / 64 * 64);  // whole cache lines
}

}  // namespace protojax

#endif  // PROTOJAX_CPU_PARALLEL_H_

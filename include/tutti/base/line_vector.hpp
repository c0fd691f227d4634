#pragma once

#include <cstddef>
#include <new>
#include <sys/mman.h>
#include <vector>

namespace tutti {

/// Memory from a cache line's begin: a processor's vector that lies in two lines costs up to a
/// quarter of a kernel's speed. What is as long as a huge page begins at one's begin, and Linux is
/// asked for huge pages: to look up where small ones lie costs a kernel up to a third of its speed.
template <class T>
struct line_allocator {
  using value_type = T;

  line_allocator() = default;
  template <class Other>
  line_allocator(const line_allocator<Other>&) {}

  T* allocate(std::size_t n) {
    const std::size_t bytes = n * sizeof(T);
    void* const memory = ::operator new(bytes, alignment(bytes));
#if defined(MADV_HUGEPAGE)
    if (bytes >= huge_page) {
      ::madvise(memory, bytes, MADV_HUGEPAGE);  // without any it is as good as it was
    }
#endif
    return static_cast<T*>(memory);
  }
  void deallocate(T* memory, std::size_t n) { ::operator delete(memory, alignment(n * sizeof(T))); }

 private:
  static constexpr std::size_t huge_page = std::size_t{2} << 20;
  static constexpr std::align_val_t alignment(std::size_t bytes) {
    return std::align_val_t{bytes < huge_page ? 64 : huge_page};
  }

  friend bool operator==(const line_allocator&, const line_allocator&) { return true; }
};

template <class T>
using line_vector = std::vector<T, line_allocator<T>>;

}  // namespace tutti

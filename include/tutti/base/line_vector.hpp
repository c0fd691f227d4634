#pragma once

#include <cstddef>
#include <new>
#include <sys/mman.h>
#include <vector>

namespace tutti {

/// Allocates memory that begins at a cache line, because a vector register's load from two lines
/// costs up to a quarter of a kernel's speed. Memory of at least one huge page begins at a huge
/// page's boundary, and Linux is asked for huge pages: the address translation of small pages costs
/// a kernel up to a third of its speed.
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
      ::madvise(memory, bytes, MADV_HUGEPAGE);  // if refused, small pages remain
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

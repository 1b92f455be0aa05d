// The n-th allocation, or the n-th system call, fails.
//
// A test program that is linked with nth_fails.cc has functions of the C library in its own symbol
// table, before the library's: malloc() and what opens descriptors, maps memory, starts threads.
// They do what the C library's do, except for the n-th call while an NthFails lives. So this
// reaches every library of the program, those that the dynamic linker finds for it too.
//
// Under AddressSanitizer malloc() is the sanitizer's: there operator new and aligned_alloc() fail.
//
// In the same way a thread is cancelled before its n-th system call: then it is asked to end, and
// the call is made. It ends at the next cancellation point (pthread_cancel), which may be that
// call. Here more calls count: those of the C library too that read, write and wait.
#pragma once

#include <cstddef>
#include <string>

namespace weft::test {

enum class Fails {
  kAllocation,
  kSystemCall,
  kAllocationElsewhere,
  kSystemCallElsewhere,
  kNothingButCancelled
};

// Lets the n-th (from 1) allocation or system call of this thread within during() fail, and no
// other; those that happen elsewhere: of all other threads while this one is in during(). One at a
// time.
class NthFails {
 public:
  NthFails(Fails what, int n) : what_(what), n_(n) {}

  // What `call` gives. Once.
  template <class Call>
  auto during(Call call) {
    const Counting counting(*this);
    return call();
  }
  // False: there were fewer than n.
  [[nodiscard]] bool has_failed() const { return error_ != 0; }
  // What the one that failed has left in errno: ENOMEM of an allocation. ECANCELED: see above.
  [[nodiscard]] int error() const { return error_; }
  // "call 3: epoll_ctl"
  [[nodiscard]] std::string name() const;

 private:
  struct Counting {
    explicit Counting(NthFails& owner);
    ~Counting();
    Counting(const Counting&) = delete;
    Counting& operator=(const Counting&) = delete;
    NthFails& owner;
  };
  const Fails what_;
  const int n_;
  int error_ = 0;
  const char* function_ = "none";
};

// How many descriptors this process has.
[[nodiscard]] std::size_t open_descriptors();

// Calls `attempt(fails)` with each allocation, or each system call, failing in turn, until an
// attempt comes to its end without a failure.
template <class Attempt>
void each_fails(Fails what, Attempt attempt) {
  for (int n = 1;; ++n) {
    NthFails fails(what, n);
    attempt(fails);
    if (!fails.has_failed()) return;
  }
}

}  // namespace weft::test

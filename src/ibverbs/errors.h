// How Weft's errors look to programs that know errno.
#pragma once

#include <weft/result.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>

#include "os/guarded.h"

namespace weft::check {
class Observer;
}

namespace weft::ibverbs {

// The rules of `weft run --check`; null where that is off. Each of the two libraries has a pointer,
// set when it is loaded (observed.h).
extern constinit check::Observer* observer;
// In a child of fork(), where nobody observes: that of the parent, for what the child does with the
// parent's objects. Else null.
extern constinit check::Observer* parents_observer;
// It has rules, and not only faults (`weft run --faults`). libibverbs sets it.
extern constinit bool checked;
// Objects that are destroyed are kept for good, so that a handle names one: rules and faults know
// them by it. Times (`weft run --timeline`) do not need it. libibverbs sets it.
extern constinit bool keeps_destroyed;
// Tells it that a call fails. Leaves errno alone.
void observe_failure(int error) noexcept;
// Tells that a call got a handle that is not alive.
void observe_not_live(const void* handle);
// In a child of fork() the observer is the parent's.
void inherit_observer();

// `weft run --shake`: calls that return their error leave another one in errno (shaken.h).
extern constinit bool scrambles_errno;
void scramble_errno() noexcept;

// The errno for `error`, as the man pages of rdma-core use it. Never 0.
[[nodiscard]] int errno_of(Error error) noexcept;

// 0 for success, else the errno: the return style of ibv_modify_qp and its like.
[[nodiscard]] inline int errno_of(const Status& status) noexcept {
  return status ? 0 : errno_of(status.error());
}

// Returns `error`, and leaves it in errno too unless it is 0: the return style of ibv_modify_qp and
// its like. rdma-core's calls do so by way of the kernel, and programs print errno (UCX: %m).
inline int fail_number(int error) noexcept {
  if (error != 0) {
    if (observer != nullptr) observe_failure(error);
    errno = error;
    if (scrambles_errno) scramble_errno();
  }
  return error;
}

// Sets errno and returns null: the return style of ibv_create_qp and its like.
std::nullptr_t fail_null(int error) noexcept;
// Sets errno and returns -1: the return style of ibv_get_cq_event and of all rdma_ functions.
int fail_minus(int error) noexcept;

// A call of the program that may fail, until it returns. `weft faults sweep` lets one of them fail.
// Calls that it makes itself, of the other library too, are not calls of the program.
class MayFail {
 public:
  // `qp`: the handle of the queue pair that it is about. `has_second`: the call posts a list of
  // several requests. `octets`: of what it posts.
  explicit MayFail(const char* call, const void* qp = nullptr, bool has_second = false,
                   std::uint64_t octets = 0) noexcept
      : to_(observer) {
    if (to_ != nullptr) begin_call(call, qp, has_second, octets);
  }
  ~MayFail() {
    if (to_ != nullptr) end_call(*to_);
  }
  MayFail(const MayFail&) = delete;
  MayFail& operator=(const MayFail&) = delete;
  // The errno that it has to fail with, before it has done anything; 0: none.
  [[nodiscard]] int error() const { return error_; }
  // But for the first request, which is posted.
  [[nodiscard]] bool second() const { return second_; }

 private:
  void begin_call(const char* call, const void* qp, bool has_second, std::uint64_t octets) noexcept;
  static void end_call(check::Observer& to) noexcept;

  check::Observer* const to_;
  int error_ = 0;
  bool second_ = false;
};

// The first line of such a function for what is Weft's: `fail` is how it fails (fail_minus, ...).
#define WEFT_MAY_FAIL(call, fail)                 \
  const ::weft::ibverbs::MayFail may_fail(#call); \
  if (may_fail.error() != 0) return fail(may_fail.error())

// Where exceptions end: what `call` gives, or null or -1 with errno.
template <class Call>
auto or_null(Call call) -> decltype(call()) {
  const auto out = os::guarded([&]() -> Result<decltype(call())> { return call(); });
  return out ? *out : fail_null(errno_of(out.error()));
}
template <class Call>
int or_minus(Call call) {
  const auto out = os::guarded([&]() -> Result<int> { return call(); });
  return out ? *out : fail_minus(errno_of(out.error()));
}

// After a wait that a signal interrupted: whether to give up with EINTR. True when some signal has
// a handler that was installed without SA_RESTART; otherwise a read() of a real device would have
// gone on waiting too, and programs that use signal() rely on it.
[[nodiscard]] bool signals_interrupt() noexcept;

}  // namespace weft::ibverbs

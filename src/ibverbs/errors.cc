#include "ibverbs/errors.h"

#include <weft/system_error.h>
#include <cerrno>
#include <csignal>
#include <utility>

#include "check/observer.h"

namespace weft::ibverbs {

constinit check::Observer* observer = nullptr;
constinit check::Observer* parents_observer = nullptr;
constinit bool checked = false;
constinit bool keeps_destroyed = false;
constinit bool scrambles_errno = false;

void observe_failure(int error) noexcept { observer->failed(error); }

void observe_not_live(const void* handle) {
  if (observer != nullptr) observer->not_live(handle);
  if (parents_observer != nullptr) parents_observer->inherited(handle, nullptr);
}

void inherit_observer() {
  if (observer != nullptr) parents_observer = std::exchange(observer, nullptr);
}

void MayFail::begin_call(const char* call, const void* qp, bool has_second,
                         std::uint64_t octets) noexcept {
  const check::Failing failing = to_->may_fail(call, qp, {has_second, octets});
  error_ = failing.error;
  second_ = failing.second;
}
void MayFail::end_call(check::Observer& to) noexcept { to.is_over(); }

int errno_of(Error error) noexcept {
  switch (error) {
    case Error::kInvalidArgument:
    case Error::kBadState:
    case Error::kBadTransition: return EINVAL;
    case Error::kLimitExceeded:
      return EINVAL;  // rdma-core and its kernel drivers answer so to capabilities that are too
                      // large
    case Error::kNoSpace:
    case Error::kNoMemory: return ENOMEM;
    case Error::kNotFound: return ENOENT;
    case Error::kPermission: return EACCES;
    case Error::kBusy: return EBUSY;
    case Error::kUnsupported: return EOPNOTSUPP;
    case Error::kTimedOut: return ETIMEDOUT;
    case Error::kConnectionLost: return ECONNRESET;
    case Error::kRefused: return ECONNREFUSED;
    case Error::kAddressInUse: return EADDRINUSE;
    case Error::kUnreachable: return EHOSTUNREACH;
    case Error::kAborted: return ECONNABORTED;
    case Error::kNotConnected: return ENOTCONN;
    default:
      // The operating system's errno, where the error carries it.
      return system_errno(error) != 0 ? system_errno(error) : EPROTO;
  }
}

std::nullptr_t fail_null(int error) noexcept {
  if (observer != nullptr) observe_failure(error);
  errno = error;
  return nullptr;
}

int fail_minus(int error) noexcept {
  if (observer != nullptr) observe_failure(error);
  errno = error;
  return -1;
}

bool signals_interrupt() noexcept {
  for (int signal = 1; signal < NSIG; ++signal) {
    struct sigaction action {};
    if (sigaction(signal, nullptr, &action) != 0) continue;
    const bool handled = (action.sa_flags & SA_SIGINFO) != 0 ||
                         (action.sa_handler != SIG_DFL && action.sa_handler != SIG_IGN);
    if (handled && (action.sa_flags & SA_RESTART) == 0) return true;
  }
  return false;
}

}  // namespace weft::ibverbs

// Where liburing is not: exs-perf without the mode that needs it.
#include "exs-perf/uring.h"

namespace exs_perf {

std::string uring_missing() { return "exs-perf was built without liburing"; }
UringListener uring_listen(int) { fail_with(uring_missing()); }
void uring_serve(const UringListener&, const Plan&) { fail_with(uring_missing()); }
UringOutcome uring_measure(const std::string&, std::uint32_t, const Plan&) {
  fail_with(uring_missing());
}

}  // namespace exs_perf

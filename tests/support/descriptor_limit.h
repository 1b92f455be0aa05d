// How many descriptors this process may open, for as long as one lives.
#pragma once

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <stdexcept>

namespace weft::test {

class DescriptorLimit {
 public:
  // `most` in all, or what the hard limit lets.
  explicit DescriptorLimit(rlim_t most) {
    if (getrlimit(RLIMIT_NOFILE, &before_) != 0) throw std::runtime_error("getrlimit");
    rlimit now = before_;
    now.rlim_cur = std::min(most, before_.rlim_max);
    if (setrlimit(RLIMIT_NOFILE, &now) != 0) throw std::runtime_error("setrlimit");
  }
  // So many beside those that it has now.
  [[nodiscard]] static DescriptorLimit beyond(rlim_t more) {
    const int next = dup(STDERR_FILENO);
    close(next);
    return DescriptorLimit(static_cast<rlim_t>(next) + more);
  }
  ~DescriptorLimit() { setrlimit(RLIMIT_NOFILE, &before_); }
  DescriptorLimit(const DescriptorLimit&) = delete;
  DescriptorLimit& operator=(const DescriptorLimit&) = delete;

 private:
  rlimit before_{};
};

}  // namespace weft::test

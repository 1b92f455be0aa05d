// A read lease on a file of this machine (fcntl, F_SETLEASE), for `put --strict`: while it is held
// nobody has the file open for writing. Given back as soon as somebody wants to open it so.
//
// Any thread, each lease by one. A thread of its own hears of those who want to write.
#pragma once

#include <cstddef>

namespace weft::files {

class LocalLease {
 public:
  static constexpr std::size_t kMost = 64;  // at a time

  LocalLease() = default;
  ~LocalLease() { give_back(); }
  LocalLease(const LocalLease&) = delete;
  LocalLease& operator=(const LocalLease&) = delete;

  // An errno, as Leases::take().   ENOLCK: there are kMost
  [[nodiscard]] int take(int fd);
  // Whether it was held all the time since.
  [[nodiscard]] bool is_held() const;
  void give_back();

 private:
  int fd_ = -1;
  std::size_t slot_ = 0;
};

}  // namespace weft::files

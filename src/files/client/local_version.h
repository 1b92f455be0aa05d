// Versions of a file of this machine: whether it changed while it was copied.
//
// Any thread.
#pragma once

#include <cstdint>
#include <string>

#include "files/protocol/outcome.h"

namespace weft::files {

// Two versions of a local file differ in one of these.
struct Version {
  std::uint64_t size = 0, device = 0, inode = 0;
  std::int64_t mtime_ns = 0, ctime_ns = 0;
  std::uint32_t mode = 0;
  bool sparse = false;  // has holes
  bool fresh = false;   // changed a moment ago: a further change may leave the times as they are
  bool operator==(const Version&) const = default;
};

// Once the file can tell its versions apart; nobody waits for one that is written to all the time.
// An errno.
[[nodiscard]] int version_of(int fd, Version& out);

// Whether the file is still the one that was sent.
//   ESTALE   it is not, or perhaps not
[[nodiscard]] Outcome<void> check_version(int fd, const Version& before, const std::string& name);

}  // namespace weft::files

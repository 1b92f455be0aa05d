// Whether the kernel may keep the pages of a file when it is opened again: only if the version of
// the file is the one of the opening before, and nobody who has it open still has another one.
// Size and time of the last change do not tell: somebody may set the time back, and two changes may
// fall into one tick of the server's clock.
//
// The kernel has pages for each name, whichever file had it when one of its readers opened it. So
// versions and open files are remembered by name. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>

#include "files/client/data_client.h"
#include "os/lock.h"

namespace weft::mount {

class KeptPages {
 public:
  static constexpr std::size_t kMost = 10000;  // names whose versions are remembered

  // `path` was opened for reading as `file`, and was of this version. Returns whether its pages
  // are, too.
  [[nodiscard]] bool opened(const std::string& path, const files::FileState& state,
                            std::uint64_t file);
  // ... for writing: its pages may be of any version until it is closed.
  void opened_to_write(const std::string& path, std::uint64_t file);
  void closed(std::uint64_t file);
  // The kernel moves pages with their names. All versions are forgotten.
  void renamed(const std::string& from, const std::string& to);
  void forget();

 private:
  // An open file. Without a version: its octets may be of any.
  struct Open {
    std::string path;
    std::optional<files::FileState> version{};
  };
  void open(const std::string& path, std::uint64_t file, std::optional<files::FileState> version)
      WEFT_REQUIRES(mutex_);
  [[nodiscard]] bool all_have(const std::string& path, const files::FileState& version) const
      WEFT_REQUIRES(mutex_);

  os::Mutex mutex_;
  std::unordered_map<std::string, files::FileState> versions_ WEFT_GUARDED_BY(mutex_);
  std::unordered_map<std::uint64_t, Open> open_ WEFT_GUARDED_BY(mutex_);
  std::unordered_multimap<std::string, std::uint64_t> by_path_ WEFT_GUARDED_BY(mutex_);
};

}  // namespace weft::mount

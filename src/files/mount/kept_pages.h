// Whether the kernel may keep the pages of a file when it is opened again: only if the version of
// the file is the one of the opening before, and nobody who has it open still has another one.
// Size and time of the last change do not tell: somebody may set the time back, and two changes may
// fall into one tick of the server's clock.
//
// The kernel has pages for each name, whichever file had it when one of its readers opened it: what
// one of them reads later comes into the pages of all. So versions and open files are remembered by
// name. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>

#include "files/client/data_client.h"
#include "os/lock.h"

namespace weft::mount {

// For the kernel, which has pages of a name that is opened.
enum class Pages : std::uint8_t {
  kKeep,
  kDrop,
  kPass,  // they are of another file or version, for others: this opening reads past them
};

class KeptPages {
 public:
  static constexpr std::size_t kMost = 10000;  // names whose versions are remembered

  // `path` was opened for reading as `file`, and was of this version.
  [[nodiscard]] Pages opened(const std::string& path, const files::FileState& state,
                             std::uint64_t file);
  // ... for writing: its pages may be of any version until it is closed.
  void opened_to_write(const std::string& path, std::uint64_t file);
  void closed(std::uint64_t file);
  // Whether `file` was opened for reading, and its name is another file's by now.
  [[nodiscard]] bool was_replaced(std::uint64_t file, std::uint64_t file_id) const;
  // The kernel moves pages with their names. All versions are forgotten.
  void renamed(const std::string& from, const std::string& to);
  void forget();

 private:
  // An open file. Without a state: it is written to, and its octets may be of any version.
  struct Open {
    std::string path;
    std::optional<files::FileState> state{};
  };
  void open(const std::string& path, std::uint64_t file, std::optional<files::FileState> state)
      WEFT_REQUIRES(mutex_);
  // kKeep: all who have it open have this version.
  [[nodiscard]] Pages beside_others(const std::string& path, const files::FileState& state) const
      WEFT_REQUIRES(mutex_);

  mutable os::Mutex mutex_;
  std::unordered_map<std::string, files::FileState> versions_ WEFT_GUARDED_BY(mutex_);
  std::unordered_map<std::uint64_t, Open> open_ WEFT_GUARDED_BY(mutex_);
  std::unordered_multimap<std::string, std::uint64_t> by_path_ WEFT_GUARDED_BY(mutex_);
};

}  // namespace weft::mount

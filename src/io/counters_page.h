// A page of counters that other processes of the same user can read while this one runs.
//
// A file, see io/page_file.h, removed at exit. It is written on request only: opening the file
// wakes the engine, which then writes fresh values and raises `sequence`. A process that gets no
// request pays nothing.
#pragma once

#include <weft/counters.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/result.h"
#include "io/engine.h"
#include "io/page_file.h"
#include "os/fd.h"

namespace weft::io {

// The file, in the byte order of the machine. Fields are only ever added at the end.
struct CountersPage {
  static constexpr std::uint64_t kMagic = 0x74'66'65'77'73'74'6e'63;  // "cntsweft"
  static constexpr std::uint32_t kVersion = 1;

  std::uint64_t magic = kMagic;
  std::uint32_t version = kVersion;
  std::uint32_t size = 0;       // octets of this struct, by the writer
  std::uint64_t sequence = 0;   // even: values are whole; raised by 2 at each refresh
  std::int64_t updated_ns = 0;  // CLOCK_REALTIME of the refresh
  std::int64_t started_ns = 0;  // CLOCK_REALTIME of the device's opening
  std::uint32_t pid = 0;
  std::uint32_t queue_pairs = 0;  // that exist now
  std::uint32_t connections = 0;  // established now
  std::uint32_t rings = 0;        // of shared memory, held now
  Counters counters;
};
static_assert(offsetof(CountersPage, counters) == 56, "other versions read the page");

// Owned by the device. Its destructor removes the file.
class CountersPublisher {
 public:
  using Fill = std::function<void(CountersPage&)>;  // called on the engine's thread
  // On failure the process runs without a page.
  //   kBusy     another device of this process has the page already
  //   kNoSpace  no folder has room for it
  //   kSystem   no such folder, or no inotify
  [[nodiscard]] static Result<std::unique_ptr<CountersPublisher>> create(Engine& engine, Fill fill);
  ~CountersPublisher();
  CountersPublisher(const CountersPublisher&) = delete;
  CountersPublisher& operator=(const CountersPublisher&) = delete;
  [[nodiscard]] const std::string& path() const { return file_.path; }
  void refresh();

 private:
  class Watcher;
  CountersPublisher(Engine& engine, Fill fill) : engine_(engine), fill_(std::move(fill)) {}
  [[nodiscard]] bool become_owner();
  [[nodiscard]] Status make_page();
  [[nodiscard]] Status watch();

  Engine& engine_;
  const Fill fill_;
  const os::ForkGuard fork_;
  PageFile file_;
  os::Fd inotify_;
  std::shared_ptr<Watcher> watcher_;
  CountersPage* page_ = nullptr;
  bool owner_ = false;  // of the process's one page
};

// For readers: opens the page of `pid` (of this user), waits up to 200 ms for fresh values, copies.
//   kNotFound     no such process, or it has no connections to count
//   kInvalidArgument   several processes of other PID namespaces have this number, and none here
//   kBadVersion   written by an incompatible version
//   kTimedOut     the process does not answer; `out` holds its last values
[[nodiscard]] Status read_counters_page(int pid, CountersPage& out);

}  // namespace weft::io

// PLAY: the records of a file, pushed into a ring of slots in the client's memory, one after the
// other, as far as the client grants. The reply comes when it ends: nothing is written behind it.
//
// A record is a ReadSend like any other. What differs is its end: in place of a reply there is an
// immediate with the record's number, and immediates keep the order of the records, so that the
// client knows the slot by counting.
//
// What is here only says which record comes next; the session sends it. Belongs to that. One
// thread, the server's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>

#include "files/protocol/data_messages.h"
#include "files/server/answers.h"
#include "files/server/open_files.h"

namespace weft::files {

class Plays {
 public:
  static constexpr unsigned kMostRecords = 16;  // of them all, at a time
  static constexpr std::size_t kMost = 8;

  explicit Plays(Answers& answers) : answers_(answers) {}
  Plays(const Plays&) = delete;
  Plays& operator=(const Plays&) = delete;

  // Each returns an errno. start() answers when the PLAY ends.
  [[nodiscard]] int start(const PlayRequest& request, const Asked& asked, OpenFiles::File file);
  [[nodiscard]] int grant(const GrantRequest& request, GrantReply& reply);

  struct Record {
    std::uint64_t play = 0;  // its handle
    std::uint32_t number = 0;
    OpenFiles::File file;
    std::uint64_t offset = 0;
    RemoteMemory slot;
  };
  [[nodiscard]] bool has_next() const;
  // The next record to be sent, which counts as begun.
  [[nodiscard]] std::optional<Record> next();
  // Whether immediates of later records are kept back, since one has failed.
  [[nodiscard]] bool has_failed(std::uint64_t handle) const { return plays_.at(handle).error != 0; }
  // The client has been told of a record. Or it has failed, and the PLAY ends with it. `error` is
  // 0 where the file has become shorter.
  void sent(std::uint64_t handle, bool complete, int error);
  // Nothing of a record is under way.
  void finished();
  // The handle is closed. It may be of no PLAY.
  void close(std::uint64_t handle);

 private:
  struct Play {
    OpenFiles::File file;
    Asked asked;
    PlayReply reply;
    int error = 0;
    std::uint64_t offset = 0;  // of record 0
    RemoteMemory memory;       // slot 0
    std::uint32_t pitch = 0, slots = 0, records = 0;
    std::uint32_t next = 0;     // the record to be read next; `records`: the end
    std::uint64_t started = 0;  // records, in all
    std::uint64_t limit = 0;
    unsigned under_way = 0;
    bool loop = false;
    bool ending = false;
    std::int64_t cpu_ns = 0;  // of the process when it began
  };
  [[nodiscard]] bool can_start(const Play& play) const;
  // The reply, once it ends and nothing of it is under way.
  void end(std::uint64_t handle);

  Answers& answers_;
  std::map<std::uint64_t, Play> plays_;
  unsigned records_ = 0;  // begun, and their immediates not yet taken by the network
};

}  // namespace weft::files

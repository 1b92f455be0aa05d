// Open files that outlive their connections for a while: a client that has lost its connection goes
// on with the very file that it had, whatever has become of its name, and the errors that the
// system keeps for its descriptor are not lost.
//
// A client asks for that by KEEP, and gets a key that nobody can guess. Files that are not whole
// (drafts) are not kept.
//
// Belongs to the server. One thread, the server's.
#pragma once

#include <chrono>
#include <cstddef>
#include <list>
#include <map>
#include <optional>

#include "files/protocol/object_messages.h"
#include "files/server/open_files.h"

namespace weft::files {

class KeptFiles {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::seconds kTime{60};
  // Files. The session that has left most of them makes room: no client can throw out those of
  // all others.
  static constexpr std::size_t kMost = 4096;

  // A key for the files of a session, which calls lost() before they go.  Nothing: no random
  // numbers
  [[nodiscard]] std::optional<KeepKey> add(OpenFiles& files);
  // The session is gone. Its files stay.
  void lost(const KeepKey& key, Clock::time_point now);
  // A file of a session with this key, whether that is gone or seems to be there still. Null: none.
  [[nodiscard]] OpenFiles::File find(const KeepKey& key, std::uint64_t handle);

  // Closes those whose time is over.
  void expire(Clock::time_point now);
  [[nodiscard]] bool has_deadline() const { return !lost_.empty(); }
  [[nodiscard]] std::size_t size() const { return count_; }

 private:
  struct Lost {
    KeepKey key;
    Clock::time_point until;
    std::map<std::uint64_t, OpenFiles::File> files;
  };
  void drop_most();

  std::map<KeepKey, OpenFiles*> present_;
  std::list<Lost> lost_;   // the oldest first
  std::size_t count_ = 0;  // files in lost_
};

}  // namespace weft::files

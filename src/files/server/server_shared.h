// The state that all sessions of a server share: options, counters, files, and who works for it.
//
// Belongs to the server, and outlives the sessions. One thread, the server's, but for the tree, the
// verifier and flush().
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "files/protocol/data_protocol.h"
#include "files/protocol/tree.h"
#include "files/server/background.h"
#include "readsend/pipeline.h"

namespace weft::files {

using Clock = std::chrono::steady_clock;

class KeptFiles;
class Leases;

struct ServeOptions {
  std::vector<std::string> folders;
  std::vector<std::string> files;  // instead of folders
  std::string address;             // empty: every address of the machine
  std::uint16_t port = kDefaultPort;
  bool writable = false;
  bool open_access = false;  // serve clients of other machines without a token
  bool owners = false;       // clients may set owners, and all bits of a mode
  bool direct = false;       // O_DIRECT
  bool log = true;
  std::string token;       // empty: none
  std::string token_file;  // Server::reload() reads the token there; empty: it stays as it is
  unsigned max_clients = 1024;
  unsigned max_open_files = 1024;  // per client
  std::uint64_t staging_bytes = std::uint64_t{64} << 20U;
  unsigned stall_seconds = 30;  // a client that takes nothing for so long is dropped
};

struct ServeCounters {
  std::uint64_t clients = 0, refused_tokens = 0, refused_clients = 0, other_versions = 0,
                requests = 0, errors = 0, stalled = 0;
  std::uint64_t bytes_out = 0, bytes_in = 0;

  // One line, with the CPU time of this process.
  [[nodiscard]] std::string text() const;
};

// State that all sessions share.
struct Shared {
  explicit Shared(ServeOptions what);
  ~Shared();
  Shared(const Shared&) = delete;
  Shared& operator=(const Shared&) = delete;
  ServeOptions options;
  unsigned ready = 0;  // sessions that are ready() and not dead
  // Names this run of the server, and changes when a file could not be written or flushed. Data
  // that was written under another number may not be on the disk. Never 0.
  std::atomic<std::uint64_t> verifier{new_verifier()};
  [[nodiscard]] static std::uint64_t new_verifier();
  // A write has failed. What had been written before may be lost, unless there was just no room.
  void note_lost_write(int error);
  // A flush has failed, on any thread. Later flushes of the file may not say so, and its client
  // may be gone.
  void note_lost_flush() { verifier = new_verifier(); }
  // The bits of a mode that clients may set.
  [[nodiscard]] std::uint32_t mode_bits() const { return options.owners ? 07777U : 0777U; }
  // fsync(), on any thread.   An errno
  [[nodiscard]] int flush(int fd);
  Tree tree;
  std::unique_ptr<readsend::Disk> disk;
  std::unique_ptr<readsend::Pipeline> pipeline;  // what goes to clients
  std::unique_ptr<Background> disposal;          // frees the room of files
  std::unique_ptr<Background> background;        // other work that may take long
  std::unique_ptr<Leases> leases;
  std::unique_ptr<KeptFiles> kept;  // before the disposal that closes them
  ServeCounters counters;
};

}  // namespace weft::files

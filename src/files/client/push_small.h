// Small files on their way to a server, many at a time: while one is made there, the octets of
// others are fetched, and others get their names. So a file costs no wait for the network of its
// own.
//
// One thread.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "files/client/archive.h"
#include "files/client/copy_pace.h"
#include "files/client/data_client.h"
#include "files/client/local_version.h"

namespace weft::files {

// A file of a tree that is put.
struct QueuedFile {
  std::shared_ptr<const std::string> below;  // its folder, below the root of the tree
  std::string name;
  std::string to;  // at the server
  std::uint64_t bytes = 0;
  bool done = false;  // put, or reported
};

class SmallFiles {
 public:
  static constexpr std::uint32_t kMostBytes = 64U << 10U;  // of each

  // One of them, as it was put.
  struct Sent {
    std::uint64_t bytes = 0;
    std::int64_t mtime_ns = 0;
  };
  //   EAGAIN   nothing was done: it has to go by itself. It is larger, or has what takes further
  //            requests, or it changed
  using Done = std::function<void(std::size_t, const Outcome<Sent>&)>;

  // `memory` is the connection's, for the server to read from. `links`: Request::links.
  SmallFiles(Client& client, const Registered& memory, const CopyOptions& options,
             std::uint16_t links, Pace& pace)
      : client_(client), memory_(memory), options_(options), links_(links), pace_(pace) {}

  // Puts files of the tree `root`: those of `which`, in their order. `done` gets each of them once,
  // unless the connection fails before.
  // REQUIRES: nothing is outstanding.
  [[nodiscard]] Outcome<void> put(int root, const std::vector<QueuedFile>& files,
                                  const std::vector<std::size_t>& which, const Done& done);

 private:
  // One that is under way; it has one request outstanding.
  struct Flight {
    Op waits_for = Op::kHello;  // no file
    std::size_t file = 0;
    std::uint64_t handle = 0;
    Version version;
    std::uint32_t uid = 0, gid = 0, mode = 0;
    Outcome<void> failure;
  };
  static constexpr std::size_t kFlights = kCredits;

  [[nodiscard]] Outcome<void> read(const QueuedFile& file, int folder, std::size_t slot);
  [[nodiscard]] Outcome<void> start(const QueuedFile& file, std::size_t slot);
  [[nodiscard]] Outcome<void> go_on(const QueuedFile& file, const Answer& answer, std::size_t slot);
  [[nodiscard]] Outcome<void> commit(std::size_t slot);
  template <class Request>
  [[nodiscard]] Outcome<void> ask(const Request& request, std::size_t slot) {
    flights_[slot].waits_for = Request::kOp;
    return client_.post(request, slot);
  }
  [[nodiscard]] std::uint8_t* room(std::size_t slot) const;

  Client& client_;
  const Registered& memory_;
  const CopyOptions& options_;
  const std::uint16_t links_;
  Pace& pace_;
  std::array<Flight, kFlights> flights_{};
};

}  // namespace weft::files

// The files that a client writes, and has flushed: RDMA Reads to staging memory, chunk by chunk,
// and from there to the disk. The oldest request comes first.
//
// Belongs to a session, which stays until at_rest(). One thread, the server's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>

#include "files/protocol/data_messages.h"
#include "files/server/answers.h"
#include "files/server/open_files.h"
#include "files/server/server_shared.h"
#include "files/server/staging_window.h"
#include "readsend/disk.h"

namespace weft::files {

class Uploads {
 public:
  static constexpr unsigned kMostChunks = 16;

  // `lkey` of the staging memory.
  Uploads(Shared& shared, Answers& answers, const OpenFiles& files, StagingWindow& window,
          std::uint32_t lkey)
      : shared_(shared), answers_(answers), files_(files), window_(window), lkey_(lkey) {}
  Uploads(const Uploads&) = delete;
  Uploads& operator=(const Uploads&) = delete;
  void open(ibv_qp* qp) { qp_ = qp; }

  // Requests that answer by themselves, unless they return an errno.
  [[nodiscard]] int write(const WriteRequest& request, const Asked& asked);
  [[nodiscard]] int sync(const SyncRequest& request, const Asked& asked);

  // Something waits to be started.
  [[nodiscard]] bool wants_memory() const;
  // ... and the disk has room. start_chunk() starts it, unless there is no memory.
  [[nodiscard]] bool can_start() const { return shared_.disk->has_room() && wants_memory(); }
  [[nodiscard]] bool start_chunk();
  // A Read has completed. The octets that it brought
  std::uint32_t network_done(std::uint64_t wr_id);

  // Writes to this file are not all done.
  [[nodiscard]] bool busy_with(const OpenFiles::File& file) const;
  [[nodiscard]] bool on_network() const { return chunks_.size() > on_disk_; }
  // The disk touches none of its memory and files.
  [[nodiscard]] bool at_rest() const { return on_disk_ == 0 && syncs_.empty(); }

 private:
  // A piece of a file that the client writes.
  struct Incoming {
    OpenFiles::File file;
    Asked asked;
    int error = 0;
    std::uint64_t offset = 0;  // in the file
    RemoteMemory memory;
    std::uint32_t started = 0;  // octets that chunks were made for
    unsigned chunks = 0;        // made and not finished
    [[nodiscard]] bool has_more() const { return error == 0 && started < memory.bytes; }
  };
  // Staging memory with octets that came from the client.
  struct Chunk final : readsend::Disk::Waiter {
    Uploads* uploads = nullptr;
    std::list<Incoming>::iterator incoming;
    readsend::Segment memory;
    std::uint32_t at = 0;    // where in the request
    std::uint32_t want = 0;  // octets
    std::uint32_t got = 0;
    std::list<Chunk>::iterator self;
    void disk_done(std::int64_t result) override { uploads->written(*this, result); }
  };
  // A file on its way to the disk.
  struct Sync final : readsend::Disk::Waiter {
    Uploads* uploads = nullptr;
    OpenFiles::File file;
    Asked asked;
    std::list<Sync>::iterator self;
    void disk_done(std::int64_t result) override { uploads->synced(*this, result); }
  };
  [[nodiscard]] Chunk* new_chunk(std::uint32_t bytes);
  void release(Chunk& chunk);
  void write_disk(Chunk& chunk);
  void written(Chunk& chunk, std::int64_t result);
  void finish(std::list<Incoming>::iterator incoming);
  void synced(Sync& sync, std::int64_t result);

  Shared& shared_;
  Answers& answers_;
  const OpenFiles& files_;
  StagingWindow& window_;
  const std::uint32_t lkey_;
  ibv_qp* qp_ = nullptr;
  std::list<Incoming> incoming_;  // in the order of their requests
  std::list<Chunk> chunks_;
  std::size_t on_disk_ = 0;  // ... that the kernel works on
  std::list<Sync> syncs_;
};

}  // namespace weft::files

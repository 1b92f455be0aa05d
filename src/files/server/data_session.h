// One client of the data server.
//
// Requests come as messages (message_ring.h) and each gets one reply (answers.h), behind the last
// Write of its request, so that the client sees the data when it sees the reply. What the client
// reads is a ReadSend (readsend/pipeline.h): disk to staging memory to RDMA Writes, several pieces
// at a time. What it writes goes the other way, see uploads.h.
//
// Belongs to the server. One thread, the server's. A session that failed is `dead`: nothing more is
// posted, and it is deleted once the disk has let go of its memory.
#pragma once

#include <list>
#include <memory>
#include <optional>

#include "files/protocol/data_messages.h"
#include "files/server/admission.h"
#include "files/server/answers.h"
#include "files/server/file_requests.h"
#include "files/server/laters.h"
#include "files/server/listings.h"
#include "files/server/message_ring.h"
#include "files/server/object_requests.h"
#include "files/server/open_files.h"
#include "files/server/plays.h"
#include "files/server/server_device.h"
#include "files/server/server_shared.h"
#include "files/server/staging_window.h"
#include "files/server/uploads.h"
#include "readsend/pipeline.h"

namespace weft::files {

class Session final : private readsend::Link, private Answers::Owner {
 public:
  static constexpr unsigned kMaxPieces = 16;  // of what a client reads, at a time

  [[nodiscard]] static Outcome<std::unique_ptr<Session>> create(Shared& shared, Port& port,
                                                                rdma_cm_id* id);
  ~Session() override;
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  [[nodiscard]] rdma_cm_id* id() const { return id_; }
  // Handles completions; returns how many there were.
  std::size_t poll();
  void arm();
  // Starts as many records and chunks as there is room for; returns how many.
  std::size_t pump();
  // Looks at what has a time limit: set-up, the answer to a wrong token, and a client that holds
  // staging memory and takes nothing.
  void tick(Clock::time_point now);
  [[nodiscard]] bool has_deadline() const { return !ready() || waits_for_network(); }
  [[nodiscard]] Clock::time_point created() const { return admission_.created(); }
  // Has shown all that the server wants to see of a client.
  [[nodiscard]] bool ready() const { return admission_.ready(); }

  // For `weft serve --status`.
  [[nodiscard]] std::uint64_t held_bytes() const { return window_.held_bytes(); }
  [[nodiscard]] std::size_t open_files() const { return files_.size(); }

  void fail() override;  // makes it dead
  [[nodiscard]] bool dead() const { return answers_.closed(); }
  // Has requests that wait for staging memory or the disk's queue.
  [[nodiscard]] bool wants_pump() const {
    return !dead() && (uploads_.wants_memory() || plays_.has_next());
  }
  [[nodiscard]] bool deletable() const {
    return dead() && !on_disk() && uploads_.at_rest() && laters_.running() == 0;
  }
  // Polled without waiting for an event.
  bool hot = true;

 private:
  // A piece of a file that the client reads, or a record of a PLAY.
  struct Outgoing final : readsend::Request {
    OpenFiles::File file;
    Asked asked;
    OpenReply opened;  // of OPEN, but for the octets
    RemoteMemory memory;
    std::uint64_t play = 0;  // the handle of the PLAY that this is a record of, or 0
    std::uint32_t record = 0;
    std::list<Outgoing>::iterator self;
  };

  Session(Shared& shared, Port& port, rdma_cm_id* id);
  [[nodiscard]] Outcome<void> set_up();
  void completion(const ibv_wc& wc);
  void request(std::size_t slot, std::uint32_t bytes);
  void dispatch(const Head& head, const BodyReader& body);
  // Requests that are answered at once. Each returns an errno.
  [[nodiscard]] int close_file(const CloseRequest& request, CloseReply& reply);
  // Those that answer by themselves, perhaps later, unless they return an errno.
  [[nodiscard]] int open(const OpenRequest& request, const Asked& asked);
  [[nodiscard]] int list(const ListRequest& request, const Asked& asked);
  [[nodiscard]] int xattrs(const XattrsRequest& request, const Asked& asked);
  [[nodiscard]] int start_read(const ReadRequest& request, const Asked& asked);
  [[nodiscard]] int start_play(const PlayRequest& request, const Asked& asked);

  // Decodes a request and has it carried out by `work`, a function of `part`, which returns an
  // errno. serve() sends the reply that it gives.
  template <class Request, class Part>
  void serve(const Asked& asked, const BodyReader& body, Part& part,
             int (Part::*work)(const Request&, typename Request::Reply&)) {
    const auto request = Request::decode(body);
    if (!request) return answers_.refuse(asked, EPROTO);
    typename Request::Reply reply;
    const int error = (part.*work)(*request, reply);
    return error == 0 ? answers_.send(asked, reply) : answers_.refuse(asked, error);
  }
  template <class Request, class Part>
  void start(const Asked& asked, const BodyReader& body, Part& part,
             int (Part::*work)(const Request&, const Asked&)) {
    const auto request = Request::decode(body);
    const int error = request ? (part.*work)(*request, asked) : EPROTO;
    if (error != 0) answers_.refuse(asked, error);
  }

  // Fills a page by `fill`, a function of the room for it that returns an errno and sets the octets
  // in `reply`; writes it to the client's memory, and answers.
  template <class Reply, class Fill>
  [[nodiscard]] int send_page(const RemoteMemory& memory, const Asked& asked, Reply& reply,
                              const Fill& fill);
  [[nodiscard]] Outgoing make_outgoing(OpenFiles::File file, const Asked& asked,
                                       std::uint64_t offset, const RemoteMemory& memory) const;
  void begin(Outgoing outgoing);
  void opened(OpenFiles::File file, const FileState& state, const RemoteMemory& memory,
              const Asked& asked);
  void begin_record(const Plays::Record& record);
  void noting_network_use();
  [[nodiscard]] bool waits_for_network() const {
    return !dead() && (on_network() || uploads_.on_network() || listings_.pages() != 0);
  }

  [[nodiscard]] std::optional<readsend::Segment> take_segment(std::uint32_t bytes) override;
  void give_back(const readsend::Segment& segment) override;
  [[nodiscard]] int post(readsend::Request& request, readsend::Piece& piece) override;
  void sent(readsend::Request& request) override;
  void finished(readsend::Request& request) override;

  Shared& shared_;
  Port& port_;
  rdma_cm_id* id_;
  ibv_cq* cq_ = nullptr;
  Registered messages_;  // the memory of ring_
  MessageRing ring_;
  Answers answers_;
  Admission admission_;
  StagingWindow window_;
  OpenFiles files_;
  Listings listings_;
  Laters laters_;
  Uploads uploads_;
  Plays plays_;
  FileRequests file_requests_;
  ObjectRequests object_requests_;
  std::list<Outgoing> outgoing_;
  Clock::time_point moved_at_;  // when the network last took or brought something
};

}  // namespace weft::files

// One client of the data server.
//
// Requests come as messages into posted receives and each gets one reply. What the client reads is
// a ReadSend (readsend/pipeline.h): disk to staging memory to RDMA Writes, several pieces at a
// time. The reply is posted behind the last Write of its request, so that the client sees the data
// when it sees the reply. What the client writes goes the other way in chunks: an RDMA Read to
// staging memory, and from there to the disk.
//
// One thread, the server's. A session that failed is `dead`: nothing more is posted, and it is
// deleted once the disk has let go of its memory.
#pragma once

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "files/protocol/data_messages.h"
#include "files/protocol/draft.h"
#include "files/protocol/folder_stream.h"
#include "files/protocol/token_proof.h"
#include "files/protocol/tree.h"
#include "files/server/background.h"
#include "files/server/server_device.h"
#include "os/fd.h"
#include "readsend/pipeline.h"

namespace weft::files {

using Clock = std::chrono::steady_clock;

struct ServeOptions {
  std::vector<std::string> folders;
  std::vector<std::string> files;  // instead of folders
  std::string address;             // empty: every address of the machine
  std::uint16_t port = kDefaultPort;
  bool writable = false;
  bool open_access = false;  // serve clients of other machines without a token
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
  explicit Shared(ServeOptions what) : options(std::move(what)) {}
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
  // fsync(), on any thread.   An errno
  [[nodiscard]] int flush(int fd);
  Tree tree;
  std::unique_ptr<readsend::Disk> disk;
  std::unique_ptr<readsend::Pipeline> pipeline;  // what goes to clients
  std::unique_ptr<Background> disposal;          // frees the room of files
  std::unique_ptr<Background> background;        // other work that may take long
  ServeCounters counters;
};

class Session final : private readsend::Link {
 public:
  static constexpr unsigned kMaxRecords = 16;      // of all PLAYs of a client, at a time
  static constexpr unsigned kMaxPlays = 8;         // of a client
  static constexpr unsigned kMaxPieces = 16;       // of what a client reads, at a time
  static constexpr unsigned kMaxChunks = 16;       // of what it writes
  static constexpr unsigned kMaxLists = 2;         // lists on their way to it
  static constexpr std::size_t kMaxListings = 16;  // folders that are listed at a time
  static constexpr unsigned kMaxLaters = 2;        // of what is done in the background, at a time

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
  [[nodiscard]] bool has_deadline() const { return state_ != State::kReady || waits_for_network(); }
  [[nodiscard]] Clock::time_point created() const { return created_; }
  // Has shown all that the server wants to see of a client.
  [[nodiscard]] bool ready() const { return state_ == State::kReady; }

  // For `weft serve --status`.
  [[nodiscard]] std::uint64_t held_bytes() const { return held_bytes_; }  // of staging memory
  [[nodiscard]] std::size_t open_files() const { return files_.size(); }

  void fail();  // makes it dead
  [[nodiscard]] bool dead() const { return dead_; }
  // Has requests that wait for staging memory or the disk's queue.
  [[nodiscard]] bool wants_pump() const;
  [[nodiscard]] bool deletable() const {
    return dead_ && !on_disk() && chunks_on_disk_ == 0 && syncs_.empty() && laters_running_ == 0;
  }
  // Polled without waiting for an event.
  bool hot = true;

 private:
  enum class State : std::uint8_t { kNew, kProving, kReady };
  // A request that gets a reply.
  struct Asked {
    Op op = Op::kStat;
    std::uint64_t tag = 0;
  };
  struct OpenFile {
    os::Fd fd;
    std::unique_ptr<Draft> draft;
    bool edited = false;  // written in its place
    [[nodiscard]] bool writable() const { return edited || draft != nullptr; }
    [[nodiscard]] int get() const { return draft != nullptr ? draft->fd() : fd.get(); }
  };
  class Disposal;
  // A name that outlives its message.
  struct KeptPath {
    explicit KeptPath(const PathName& path) : text(path.text), links(path.links) {}
    [[nodiscard]] PathName name() const { return {text, links}; }
    std::string text;
    std::uint16_t links;
  };
  // A piece of a file that the client reads, or a record of a PLAY.
  struct Outgoing final : readsend::Request {
    std::shared_ptr<OpenFile> file;
    Asked asked;
    OpenReply opened;  // of OPEN, but for the octets
    RemoteMemory memory;
    std::uint64_t play = 0;  // the handle of the PLAY that this is a record of, or 0
    std::uint32_t record = 0;
    std::list<Outgoing>::iterator self;
  };
  // A piece of a file that the client writes.
  struct Incoming {
    std::shared_ptr<OpenFile> file;
    Asked asked;
    int error = 0;
    std::uint64_t offset = 0;  // in the file
    RemoteMemory memory;
    std::uint32_t started = 0;  // octets that chunks were made for
    unsigned chunks = 0;        // made and not finished
  };
  // A file whose records are pushed into the slots of a client's memory, one after the other, as
  // far as the client grants. The reply comes when it ends: nothing is written behind it.
  struct Play {
    std::shared_ptr<OpenFile> file;
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
  // Staging memory with octets that came from the client, or with names on their way to it.
  struct Chunk final : readsend::Disk::Waiter {
    Session* session = nullptr;
    bool names = false;
    std::list<Incoming>::iterator incoming;  // unless `names`
    BlockHeap::Handle memory = 0;
    std::uint8_t* data = nullptr;
    std::uint32_t at = 0;    // where in the request
    std::uint32_t want = 0;  // octets
    std::uint32_t got = 0;
    std::list<Chunk>::iterator self;
    void disk_done(std::int64_t result) override { session->disk_done(*this, result); }
  };

  // A folder of which a client has taken some pages, and may take the next.
  struct KeptListing {
    std::string path;
    std::uint16_t links = 0;
    std::uint64_t cursor = 0;
    std::unique_ptr<FolderStream> listing;
  };

  // Work for a request that may take long, and what then answers it.
  struct Later final : Background::Job {
    Session* session = nullptr;
    Asked asked;
    std::function<int()> task;  // returns an errno
    std::function<void()> reply;
    int error = 0;
    void work() noexcept override;
    void done() override { session->later_done(*this); }
  };

  // A file on its way to the disk.
  struct Sync final : readsend::Disk::Waiter {
    Session* session = nullptr;
    std::shared_ptr<OpenFile> file;
    Asked asked;
    std::list<Sync>::iterator self;
    void disk_done(std::int64_t result) override { session->synced(*this, result); }
  };

  Session(Shared& shared, Port& port, rdma_cm_id* id);
  [[nodiscard]] Outcome<void> set_up();
  void completion(const ibv_wc& wc);
  void request(std::size_t slot, std::uint32_t bytes);
  void dispatch(const Head& head, const BodyReader& body);
  // From now on it is a client.   EUSERS: there are too many
  [[nodiscard]] int admit();
  // Requests that are answered at once. Each returns an errno.
  [[nodiscard]] int stat(const StatRequest& request, StatReply& reply);
  [[nodiscard]] int usage(const StatFsRequest& request, StatFsReply& reply);
  [[nodiscard]] int read_link(const ReadLinkRequest& request, ReadLinkReply& reply);
  [[nodiscard]] int make_directory(const MakeDirectoryRequest& request, NoReply& reply);
  [[nodiscard]] int symlink(const SymlinkRequest& request, NoReply& reply);
  [[nodiscard]] int close_file(const CloseRequest& request, CloseReply& reply);
  [[nodiscard]] int grant(const GrantRequest& request, GrantReply& reply);
  // Those that answer by themselves, perhaps later, unless they return an errno.
  [[nodiscard]] int greet(const HelloRequest& request, const Asked& asked);
  [[nodiscard]] int prove_client(const ProveRequest& request, const Asked& asked);
  [[nodiscard]] int open(const OpenRequest& request, const Asked& asked);
  [[nodiscard]] int list(const ListRequest& request, const Asked& asked);
  [[nodiscard]] int start_read(const ReadRequest& request, const Asked& asked);
  [[nodiscard]] int start_write(const WriteRequest& request, const Asked& asked);
  [[nodiscard]] int start_sync(const SyncRequest& request, const Asked& asked);
  [[nodiscard]] int start_play(const PlayRequest& request, const Asked& asked);
  [[nodiscard]] int create(const CreateRequest& request, const Asked& asked);
  [[nodiscard]] int draft(const DraftRequest& request, const Asked& asked);
  [[nodiscard]] int edit(const EditRequest& request, const Asked& asked);
  [[nodiscard]] int set(const SetRequest& request, const Asked& asked);
  [[nodiscard]] int commit(const CommitRequest& request, const Asked& asked);
  [[nodiscard]] int sum(const SumRequest& request, const Asked& asked);
  [[nodiscard]] int extents(const ExtentsRequest& request, const Asked& asked);
  [[nodiscard]] int rename(const RenameRequest& request, const Asked& asked);
  [[nodiscard]] int remove(const RemoveRequest& request, const Asked& asked);

  // Decodes a request, has it carried out, and replies.
  template <class Request>
  void serve(const Asked& asked, const BodyReader& body,
             int (Session::*work)(const Request&, typename Request::Reply&)) {
    const auto request = Request::decode(body);
    if (!request) return refuse(asked, EPROTO);
    typename Request::Reply reply;
    const int error = (this->*work)(*request, reply);
    return error == 0 ? send(asked, reply) : refuse(asked, error);
  }
  template <class Request>
  void start(const Asked& asked, const BodyReader& body,
             int (Session::*work)(const Request&, const Asked&)) {
    const auto request = Request::decode(body);
    const int error = request ? (this->*work)(*request, asked) : EPROTO;
    if (error != 0) refuse(asked, error);
  }
  template <class Reply>
  void send(const Asked& asked, const Reply& reply) {
    const auto room = room_for_reply();
    if (!room.empty()) post_reply(encode_reply(asked.op, reply, asked.tag, room));
  }
  void refuse(const Asked& asked, int error);
  // Empty: the session is dead, perhaps since there is none.
  [[nodiscard]] std::span<std::uint8_t> room_for_reply();
  void post_reply(std::size_t bytes);

  [[nodiscard]] int fill_page(const ListRequest& request, ListReply& reply,
                              std::span<std::uint8_t> room);
  [[nodiscard]] static int check_version(const OpenFile& file, const FileState& before);
  [[nodiscard]] bool may_open() const;
  [[nodiscard]] std::shared_ptr<OpenFile> new_file();
  // Does `task`, and `reply` unless that gives an errno: at once, or if it is slow in the
  // background. Returns the errno of what was done at once.
  [[nodiscard]] int carry_out(const Asked& asked, bool slow, std::function<int()> task,
                              std::function<void()> reply);
  void run_laters();
  void later_done(const Later& later);
  [[nodiscard]] bool frees_much(const PathName& path) const;
  // Its new handle.
  std::uint64_t add(std::shared_ptr<OpenFile> file);
  [[nodiscard]] std::shared_ptr<OpenFile> find(std::uint64_t handle) const;
  [[nodiscard]] Outgoing make_outgoing(std::shared_ptr<OpenFile> file, const Asked& asked,
                                       std::uint64_t offset, const RemoteMemory& memory) const;
  void begin(Outgoing outgoing);
  void opened(std::shared_ptr<OpenFile> file, const FileState& state, const RemoteMemory& memory,
              const Asked& asked);
  [[nodiscard]] bool begin_one();
  void noting_network_use();

  [[nodiscard]] std::optional<readsend::Segment> take_segment(std::uint32_t bytes) override;
  void give_back(const readsend::Segment& segment) override;
  [[nodiscard]] int post(readsend::Request& request, readsend::Piece& piece) override;
  void sent(readsend::Request& request) override;
  void finished(readsend::Request& request) override;

  [[nodiscard]] bool may_take(std::uint32_t bytes) const;
  void drained(std::uint32_t bytes);
  [[nodiscard]] Chunk* new_chunk(std::uint32_t bytes);
  [[nodiscard]] Chunk* new_list();
  void release(Chunk& chunk);
  [[nodiscard]] bool start_chunk();
  [[nodiscard]] static bool has_more(const Incoming& i);
  void write_disk(Chunk& chunk);
  void disk_done(Chunk& chunk, std::int64_t result);
  void network_done(Chunk& chunk);
  void finish_write(std::list<Incoming>::iterator incoming);
  void synced(Sync& sync, std::int64_t result);
  [[nodiscard]] bool waits_for_network() const {
    return !dead_ && (on_network() || chunks_.size() > chunks_on_disk_);
  }

  [[nodiscard]] bool can_start_record(const Play& play) const;
  std::size_t start_records();
  void record_sent(const Outgoing& record);
  void end_play(std::uint64_t handle);

  Shared& shared_;
  Port& port_;
  rdma_cm_id* id_;
  ibv_cq* cq_ = nullptr;
  BlockHeap::Owner owner_, list_owner_;  // in the port's areas
  std::uint64_t held_bytes_ = 0;         // of staging memory
  // How much staging memory it may hold: what it drains in a while, see may_take().
  std::uint64_t window_bytes_;
  std::uint64_t drained_bytes_ = 0;  // since window_from_
  Clock::time_point window_from_ = Clock::now();
  Registered messages_;  // requests, then replies
  std::vector<std::size_t> free_replies_;
  State state_ = State::kNew;
  bool dead_ = false;
  Nonce client_nonce_{}, server_nonce_{};
  Clock::time_point created_ = Clock::now();
  Clock::time_point moved_at_ = created_;  // when the network last took or brought something
  std::optional<Clock::time_point> refuse_at_;
  std::optional<Asked> refusal_;  // the wrong proof, until it is answered
  std::string link_;              // the target that a reply to READLINK shows
  std::map<std::uint64_t, std::shared_ptr<OpenFile>> files_;
  std::uint64_t next_handle_ = 1;
  std::list<KeptListing> listings_;  // the newest first
  std::list<Outgoing> outgoing_;
  std::list<Incoming> incoming_;  // in the order of their requests
  std::list<Sync> syncs_;
  std::deque<std::unique_ptr<Later>> laters_;  // not begun
  unsigned laters_running_ = 0;
  std::size_t unanswered_ = 0;  // of these four
  std::map<std::uint64_t, Play> plays_;
  unsigned records_ = 0;  // begun, and their immediates not yet taken by the network
  std::list<Chunk> chunks_;
  std::size_t lists_ = 0;        // ... that hold names
  unsigned chunks_on_disk_ = 0;  // ... that the kernel works on
};

}  // namespace weft::files

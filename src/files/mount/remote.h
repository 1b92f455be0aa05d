// A data server's tree as a file system needs it: one call at a time, with read-ahead behind it.
//
// A connection that is lost is made again by the next call; open files are opened again, and are
// ESTALE where the server has another file by then.
//
// One thread. Errors are errno values, 0 is success. EIO: the server cannot be reached.
#pragma once

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "files/client/archive.h"
#include "files/client/data_client.h"
#include "files/mount/mount_changes.h"

namespace weft::mount {

// A server short of memory for a list is asked again so often, with a pause.
inline constexpr int kListTries = 50;
inline constexpr std::chrono::milliseconds kListPause{20};

class Remote {
 public:
  static constexpr std::uint32_t kBlockBytes = 1U << 20U;
  static constexpr std::uint32_t kDefaultBlocks =
      16;  // of memory for read-ahead, for all its files

  // `prefix`: the folder of the server that is the root.
  Remote(files::ServerAddress server, std::string prefix, std::uint32_t blocks, Changes& changes)
      : server_(std::move(server)),
        prefix_(std::move(prefix)),
        changes_(changes),
        blocks_(blocks),
        next_call_(blocks) {}

  // With a text for the user. The other calls connect by themselves.
  [[nodiscard]] files::Outcome<void> connect();
  // Whether the server may be written to.  REQUIRES: connect() succeeded.
  [[nodiscard]] bool writable() const { return client_->writable(); }

  // `path` begins with a slash and has no other meaning than below the root.
  [[nodiscard]] int stat(const std::string& path, files::Attributes& out);
  // The same of an open file, which may have no name any more.
  [[nodiscard]] int stat_open(std::uint64_t file, files::Attributes& out);
  [[nodiscard]] int usage(const std::string& path, files::Usage& out);
  [[nodiscard]] int read_link(const std::string& path, std::string& target);
  using EntryFunction = std::function<void(const std::string& name, const files::Attributes&)>;
  [[nodiscard]] int list(const std::string& path, const EntryFunction& entry);

  // Changes of names. What the server did before a connection broke counts as done.
  [[nodiscard]] int rename(const std::string& from, const std::string& to, bool keep);
  [[nodiscard]] int remove(const std::string& path, bool folder);
  [[nodiscard]] int make_directory(const std::string& path, std::uint32_t mode);
  [[nodiscard]] int symlink(const std::string& target, const std::string& path);
  [[nodiscard]] int link(const std::string& from, const std::string& to);
  // Extended attributes.   EOPNOTSUPP: the server is of an older release
  [[nodiscard]] int xattrs(const std::string& path, files::Xattrs& out);
  // Without a value the attribute goes.
  [[nodiscard]] int set_xattr(const std::string& path, const std::string& name,
                              const std::span<const std::uint8_t>* value);
  // `what` and `to` as files::Tree::set() has them. `file`: an open one, or 0.
  [[nodiscard]] int set(const std::string& path, std::uint64_t file, std::uint32_t what,
                        const files::Attributes& to);

  // For reading and writing. `flags`: files::kEditCreate and so on.
  [[nodiscard]] int edit(const std::string& path, std::uint32_t mode, std::uint32_t flags,
                         std::uint64_t& file);
  // All of it, into the server's file, or a negative errno.
  [[nodiscard]] std::int64_t write(std::uint64_t file, const std::uint8_t* from,
                                   std::uint32_t bytes, std::uint64_t offset);
  // Returns when it is on the server's disk, whoever wrote it. EIO: some of what was written may be
  // lost, which each that has the file open is told once.
  [[nodiscard]] int sync(std::uint64_t file);
  // ... of the names in a folder.
  [[nodiscard]] int sync_folder(const std::string& path);

  // A regular file, for reading, and its version when it was opened.
  [[nodiscard]] int open(const std::string& path, std::uint64_t& file, files::FileState& state);
  // Octets read, fewer at the end of the file only; or a negative errno.
  [[nodiscard]] std::int64_t read(std::uint64_t file, std::uint8_t* to, std::uint32_t bytes,
                                  std::uint64_t offset);
  void close(std::uint64_t file);

 private:
  // Parts of the registered memory: a folder's entries, and data to write, in front of the blocks.
  static constexpr std::uint32_t kListBytes = 128U << 10U;
  static constexpr std::uint32_t kWriteBytes = 1U << 20U;
  static constexpr std::uint32_t kCallBytes = kListBytes + kWriteBytes;

  struct File {
    std::string path;
    std::uint64_t renames = 0;  // Changes::renames() when it had this path
    files::FileState state;     // its attributes: when it was opened
    std::uint64_t handle = 0;   // at the server, while `connection` is the present one
    std::uint64_t connection = 0;
    files::KeepKey key{};       // ... by which the server knows that one; zeros: it keeps nothing
    std::uint64_t next = 0;     // where a reader who goes straight on reads next
    std::uint64_t ahead = 0;    // read-ahead has been asked for up to here
    std::uint32_t depth = 0;    // blocks of read-ahead; doubles as long as the reader goes on
    bool edited = false;        // may be written to
    bool size_known = true;     // and the time: nobody has written to it here
    std::uint64_t changes = 0;  // Changes::of() when it was looked at last
    std::uint64_t losses = 0;   // Unsynced::losses() that fsync() has told of
  };
  // A part of a file in memory.
  struct Block {
    enum class State : std::uint8_t { kFree, kAsked, kHere };
    State state = State::kFree;
    std::uint64_t file = 0;
    std::uint64_t offset = 0;
    std::uint32_t want = 0;
    std::uint32_t got = 0;
    int error = 0;
    std::uint64_t used = 0;  // when; the one that was not used for longest is taken
    bool dropped = false;    // nobody wants what it asked for any more
  };

  [[nodiscard]] std::string name_of(const std::string& path) const;
  [[nodiscard]] files::Outcome<void> ready();
  // One request and its answer; replies of read-ahead are taken on the way.
  // Its error is one that the kernel takes.
  template <class Request>
  [[nodiscard]] files::Outcome<files::Answer> call(const Request& request) {
    if (make_room() != 0) return files::failed(EIO, server_.host);
    const std::uint64_t tag = next_call_++;
    if (auto ok = client_->post(request, tag); !ok) return tl::unexpected(ok.error());
    return answer_to(Request::kOp, tag);
  }
  [[nodiscard]] files::Outcome<files::Answer> answer_to(files::Op op, std::uint64_t tag);
  // As call(), on a new connection if the old one turns out to be gone. `make_request` is called
  // for each attempt: memory is registered anew with each connection. `repeated`: whether the
  // answer is to a second attempt, for changes that the first one may have carried out.
  template <class MakeRequest>
  [[nodiscard]] files::Outcome<files::Answer> call_again(const MakeRequest& make_request,
                                                         bool* repeated = nullptr) {
    for (bool again = false;; again = true) {
      if (auto ok = ready(); !ok) return tl::unexpected(ok.error());
      auto answer = call(make_request());
      if (repeated != nullptr) *repeated = again;
      // A connection that stood idle may have been gone for long: one attempt with a new one.
      if (answer || again || !is_lost()) return answer;
    }
  }
  // The reply, or an errno.
  template <class Request>
  [[nodiscard]] int ask(const Request& request, typename Request::Reply& reply) {
    const auto answer = call_again([&] { return request; });
    return take_reply(answer, reply);
  }
  // As ask(), of an open file: on a new connection it has another handle.
  template <class Request>
  [[nodiscard]] int ask_for(File& file, Request request, typename Request::Reply& reply) {
    for (bool again = false;; again = true) {
      if (const int error = ready_with(file)) return error;
      request.handle = file.handle;
      const auto answer = call(request);
      if (answer || again || !is_lost()) return take_reply(answer, reply);
    }
  }
  // A change of `path`, a name. `done`: what says, behind the break of a connection, that it was
  // carried out before.
  template <class Request>
  [[nodiscard]] int change(const std::string& path, const Request& request, int done) {
    bool repeated = false;
    const std::uint64_t before = client_ != nullptr ? client_->verifier() : 0;
    const auto answer = call_again([&] { return request; }, &repeated);
    files::NoReply reply;
    const int error = take_reply(answer, reply);
    if (error != 0 && !(repeated && error == done)) return error;
    const std::uint64_t now = client_->verifier();
    changes_.note_name(path, error == 0 || before == now ? now : Unsynced<std::string>::kMixed);
    return 0;
  }
  template <class Reply>
  [[nodiscard]] int take_reply(const files::Outcome<files::Answer>& answer, Reply& reply) {
    if (!answer) return local_error(answer.error());
    if (answer->error != 0) return static_cast<int>(answer->error);
    const auto found = client_->read<Reply>(*answer);
    if (!found) return EIO;
    reply = *found;
    return 0;
  }
  [[nodiscard]] bool is_lost() const { return client_ != nullptr && !client_->alive(); }
  // The errno that a program gets for a failure between this machine and the server.
  [[nodiscard]] static int local_error(const files::Failed& why);
  // Until there is a connection on which the file is open.
  [[nodiscard]] int ready_with(File& file);
  [[nodiscard]] int reopen(File& file);
  [[nodiscard]] bool reopen_kept(File& file);
  [[nodiscard]] int sync_empty(const File& file);
  void forget_blocks(std::uint64_t id);
  void close_handle(std::uint64_t handle);
  [[nodiscard]] std::int64_t try_read(std::uint64_t id, File& file, std::uint8_t* to,
                                      std::uint32_t bytes, std::uint64_t offset);
  [[nodiscard]] Block* find(std::uint64_t file, std::uint64_t offset);
  [[nodiscard]] Block* ask(std::uint64_t id, const File& file, std::uint64_t offset,
                           std::uint32_t bytes);
  void read_ahead(std::uint64_t id, File& file, std::uint64_t offset, std::uint32_t bytes);
  [[nodiscard]] files::Outcome<void> take(const files::Answer& answer);
  [[nodiscard]] std::uint8_t* data_of(const Block& block) const;
  [[nodiscard]] int make_room();

  files::ServerAddress server_;
  std::string prefix_;
  Changes& changes_;
  std::unique_ptr<files::Client> client_;
  std::uint64_t connection_ = 0;  // counts
  files::KeepKey key_{};          // File::key of the present one
  files::Registered memory_;      // a folder's entries, or what is written; then the blocks
  std::vector<Block> blocks_;
  std::map<std::uint64_t, File> files_;
  std::uint64_t next_file_ = 1;
  std::uint64_t next_call_;  // tags of requests that somebody waits for, above those of blocks
  std::uint64_t clock_ = 0;
  const Block* pinned_ = nullptr;  // not to be taken for something else
};

}  // namespace weft::mount

// Several connections to one server, for calls that come at the same time: a reply that takes long
// delays only the calls on its own connection.
//
// The first connection is made at the first call, another one when all that there are have
// something to do. A file stays on the connection on which it was opened.
//
// Any thread. Each call is that of Remote, with its errors.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "files/mount/remote.h"
#include "os/lock.h"

namespace weft::mount {

class Connections {
 public:
  static constexpr std::size_t kMost = 16;

  // Each connection has `blocks` for read-ahead.
  Connections(files::ServerAddress server, std::string prefix, std::uint32_t blocks)
      : server_(std::move(server)), prefix_(std::move(prefix)), blocks_(blocks) {}

  [[nodiscard]] int stat(const std::string& path, files::Attributes& out);
  [[nodiscard]] int stat_open(std::uint64_t file, files::Attributes& out);
  [[nodiscard]] int usage(const std::string& path, files::Usage& out);
  [[nodiscard]] int read_link(const std::string& path, std::string& target);
  [[nodiscard]] int list(const std::string& path, const Remote::EntryFunction& entry);
  [[nodiscard]] int rename(const std::string& from, const std::string& to, bool keep);
  [[nodiscard]] int remove(const std::string& path, bool folder);
  [[nodiscard]] int make_directory(const std::string& path, std::uint32_t mode);
  [[nodiscard]] int symlink(const std::string& target, const std::string& path);
  [[nodiscard]] int link(const std::string& from, const std::string& to);
  [[nodiscard]] int xattrs(const std::string& path, files::Xattrs& out);
  [[nodiscard]] int set_xattr(const std::string& path, const std::string& name,
                              const std::span<const std::uint8_t>* value);
  // `file`: an open one, or null.
  [[nodiscard]] int set(const std::string& path, const std::uint64_t* file, std::uint32_t what,
                        const files::Attributes& to);
  [[nodiscard]] int open(const std::string& path, std::uint64_t& file, files::FileState& state);
  [[nodiscard]] int edit(const std::string& path, std::uint32_t mode, std::uint32_t flags,
                         std::uint64_t& file);
  [[nodiscard]] std::int64_t write(std::uint64_t file, const std::uint8_t* from,
                                   std::uint32_t bytes, std::uint64_t offset);
  [[nodiscard]] int sync(std::uint64_t file);
  [[nodiscard]] int sync_folder(const std::string& path);
  [[nodiscard]] std::int64_t read(std::uint64_t file, std::uint8_t* to, std::uint32_t bytes,
                                  std::uint64_t offset);
  void close(std::uint64_t file);

 private:
  struct Connection {
    Connection(std::size_t number, const files::ServerAddress& server, const std::string& prefix,
               std::uint32_t blocks, Changes& changes)
        : index(number), remote(server, prefix, blocks, changes) {}
    const std::size_t index;
    os::Mutex busy;
    Remote remote WEFT_GUARDED_BY(busy);
    std::size_t files = 0;  // open ones; with Connections::mutex_
  };
  // A connection of one's own for the time of a call.
  class Held {
   public:
    explicit Held(Connection& connection) : connection_(connection) {}  // its `busy` is locked
    ~Held() WEFT_NOT_ANALYZED { connection_.busy.unlock(); }
    Held(const Held&) = delete;
    Held& operator=(const Held&) = delete;
    Remote* operator->() const WEFT_NOT_ANALYZED { return &connection_.remote; }
    [[nodiscard]] Connection& connection() const { return connection_; }

   private:
    Connection& connection_;
  };
  [[nodiscard]] Held any();
  [[nodiscard]] Held of(std::uint64_t file);
  [[nodiscard]] Connection& lock_any();
  [[nodiscard]] Connection& for_new_file();
  using Opening = std::function<int(Remote& remote, std::uint64_t& id)>;
  [[nodiscard]] int open_by(const Opening& opening, std::uint64_t& file);
  [[nodiscard]] Connection* add() WEFT_REQUIRES(mutex_);

  const files::ServerAddress server_;
  const std::string prefix_;
  const std::uint32_t blocks_;
  Changes changes_;
  os::Mutex mutex_;  // never held while waiting for `busy`
  std::vector<std::unique_ptr<Connection>> connections_ WEFT_GUARDED_BY(mutex_);
  std::size_t turn_ WEFT_GUARDED_BY(mutex_) = 0;  // where the next one waits when all are busy
};

}  // namespace weft::mount

// A data server's tree as a file system needs it: one call at a time, with read-ahead behind it.
//
// A connection that is lost is made again by the next call; open files are opened again, and are
// ESTALE where the server has another file by then.
//
// One thread. Errors are errno values, 0 is success. EIO: the server cannot be reached.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "store/client.h"

namespace weft::mount {

class Remote {
 public:
  static constexpr std::uint32_t kBlockBytes = 1U << 20U;
  static constexpr std::uint32_t kDefaultBlocks =
      16;  // of memory for read-ahead, for all its files

  // `prefix`: the folder of the server that is the root.
  Remote(store::ServerAddress server, std::string prefix, std::uint32_t blocks)
      : server_(std::move(server)),
        prefix_(std::move(prefix)),
        blocks_(blocks),
        next_call_(blocks) {}

  // With a text for the user. The other calls connect by themselves.
  [[nodiscard]] store::Outcome<void> connect();

  // `path` begins with a slash and has no other meaning than below the root.
  [[nodiscard]] int stat(const std::string& path, store::Attributes& out);
  [[nodiscard]] int read_link(const std::string& path, std::string& target);
  using EntryFunction = std::function<void(const std::string& name, const store::Attributes&)>;
  [[nodiscard]] int list(const std::string& path, const EntryFunction& entry);

  // A regular file, for reading.
  [[nodiscard]] int open(const std::string& path, std::uint64_t& file);
  // Octets read, fewer at the end of the file only; or a negative errno.
  [[nodiscard]] std::int64_t read(std::uint64_t file, std::uint8_t* to, std::uint32_t bytes,
                                  std::uint64_t offset);
  void close(std::uint64_t file);

 private:
  struct File {
    std::string path;
    store::Attributes attributes;
    std::uint64_t handle = 0;  // at the server, while `connection` is the present one
    std::uint64_t connection = 0;
    std::uint64_t next = 0;   // where a reader who goes straight on reads next
    std::uint64_t ahead = 0;  // read-ahead has been asked for up to here
    std::uint32_t depth = 0;  // blocks of read-ahead; doubles as long as the reader goes on
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
  [[nodiscard]] store::Outcome<void> ready();
  // One request and its reply; replies of read-ahead are taken on the way.
  [[nodiscard]] store::Outcome<store::Reply> call(store::Request& request);
  // As call(), on a new connection if the old one turns out to be gone.
  [[nodiscard]] int call_again(store::Request& request, store::Reply& reply);
  [[nodiscard]] int reopen(File& file);
  void close_handle(std::uint64_t handle);
  [[nodiscard]] std::int64_t try_read(std::uint64_t id, File& file, std::uint8_t* to,
                                      std::uint32_t bytes, std::uint64_t offset);
  [[nodiscard]] Block* find(std::uint64_t file, std::uint64_t offset);
  [[nodiscard]] Block* ask(std::uint64_t id, const File& file, std::uint64_t offset,
                           std::uint32_t bytes);
  void read_ahead(std::uint64_t id, File& file, std::uint64_t offset, std::uint32_t bytes);
  [[nodiscard]] store::Outcome<void> take(const store::Reply& reply);
  [[nodiscard]] std::uint8_t* data_of(const Block& block) const;
  [[nodiscard]] int make_room();

  store::ServerAddress server_;
  std::string prefix_;
  std::unique_ptr<store::Client> client_;
  std::uint64_t connection_ = 0;  // counts
  store::Registered memory_;      // a folder's entries, then the blocks
  std::vector<Block> blocks_;
  std::map<std::uint64_t, File> files_;
  std::uint64_t next_file_ = 1;
  std::uint64_t next_call_;  // tags of requests that somebody waits for, above those of blocks
  std::uint64_t clock_ = 0;
  const Block* pinned_ = nullptr;  // not to be taken for something else
};

}  // namespace weft::mount

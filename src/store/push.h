// `weft put`, and `sync` to a server. Each file gets its name at the server only when it is whole.
//
// One thread.
#pragma once

#include <memory>
#include <string>
#include <unordered_set>

#include "store/fetch.h"

namespace weft::store {

class Push {
 public:
  Push(ServerAddress server, CopyOptions options, CopyWatcher watcher)
      : server_(std::move(server)), options_(options), watcher_(std::move(watcher)) {}
  //   EROFS   the server was started without --writable
  [[nodiscard]] Outcome<void> connect();

  // A file or a tree, with the conventions of Fetch::get.
  [[nodiscard]] Outcome<void> put(const std::string& from, const std::string& to);
  [[nodiscard]] const CopyTotals& totals() const { return totals_; }

 private:
  [[nodiscard]] Outcome<void> put_folder(int folder, const std::string& from,
                                         const std::string& to);
  [[nodiscard]] Outcome<void> remove_others(const std::string& to,
                                            const std::unordered_set<std::string>& keep);
  [[nodiscard]] Outcome<void> put_link(const Request& request);
  [[nodiscard]] Outcome<void> put_link_of(int folder, const char* name, const std::string& from,
                                          const std::string& to);
  [[nodiscard]] Outcome<void> put_entry(int folder, const char* name, const std::string& from,
                                        const std::string& to);
  [[nodiscard]] Outcome<void> put_file(int fd, const std::string& to);
  [[nodiscard]] Outcome<void> try_file(int fd, const std::string& to);
  [[nodiscard]] Outcome<void> reconnect(const Failed& why);
  [[nodiscard]] Outcome<Reply> ask(const Request& request);
  [[nodiscard]] Outcome<Reply> begin(const std::string& to, std::uint64_t size,
                                     std::int64_t mtime_ns);
  [[nodiscard]] Outcome<void> compare(int fd, std::uint64_t handle, std::uint64_t there,
                                      const std::string& to, std::uint64_t& from);
  [[nodiscard]] Outcome<void> send_blocks(int fd, std::uint64_t handle, std::uint64_t from,
                                          std::uint64_t size, const std::string& to);
  [[nodiscard]] Outcome<void> make_folder(const std::string& to, std::uint32_t mode);
  [[nodiscard]] Outcome<bool> is_there(const std::string& to, std::uint64_t size,
                                       std::int64_t mtime_ns);
  [[nodiscard]] bool is_remote_folder(const std::string& path);
  void report(const Failed& why);

  ServerAddress server_;
  CopyOptions options_;
  CopyWatcher watcher_;
  std::unique_ptr<Client> client_;
  Registered memory_;
  std::uint16_t links_ = kLinksAnywhere;  // Request::links of this copy
  CopyTotals totals_;
};

}  // namespace weft::store

// `weft put`, and `sync` to a server. Each file gets its name at the server only when it is whole.
//
// One thread.
#pragma once

#include <sys/stat.h>

#include <map>
#include <memory>
#include <set>
#include <string>
#include <type_traits>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "files/client/archive.h"
#include "files/client/copy_pace.h"
#include "files/client/fetch.h"
#include "files/client/unflushed.h"
#include "os/fd.h"

namespace weft::files {

// Two versions of a local file differ in one of these.
struct Version {
  std::uint64_t size = 0, device = 0, inode = 0;
  std::int64_t mtime_ns = 0, ctime_ns = 0;
  std::uint32_t mode = 0;
  bool sparse = false;  // has holes
  bool fresh = false;   // changed a moment ago: a further change may leave the times as they are
  bool operator==(const Version&) const = default;
};

class Push {
 public:
  Push(ServerAddress server, CopyOptions options, CopyWatcher watcher)
      : server_(std::move(server)), options_(std::move(options)), watcher_(std::move(watcher)) {}
  //   EROFS   the server was started without --writable
  [[nodiscard]] Outcome<void> connect();

  // A file or a tree, with the conventions of Fetch::get.
  [[nodiscard]] Outcome<void> put(const std::string& from, const std::string& to);
  [[nodiscard]] const CopyTotals& totals() const { return totals_; }

 private:
  static constexpr unsigned kStarts = 10;  // of one file or request, on so many connections

  [[nodiscard]] Outcome<void> put_tree(const std::string& to);
  [[nodiscard]] Outcome<void> put_folder(const std::string& below, const std::string& to);
  [[nodiscard]] Outcome<void> note_extras(const std::string& below, const std::string& to,
                                          const std::unordered_set<std::string>& keep);
  [[nodiscard]] Outcome<void> note_hidden(const std::string& below, const std::string& to);
  [[nodiscard]] Outcome<std::vector<Named>> list_there(const std::string& to);
  [[nodiscard]] Outcome<void> is_gone(const Extra& extra) const;
  [[nodiscard]] Outcome<void> remove_extras(const std::string& to);
  [[nodiscard]] Outcome<void> remove_extra(const std::string& to, const Extra& extra);
  [[nodiscard]] Outcome<bool> put_link(const SymlinkRequest& request);
  [[nodiscard]] Outcome<bool> would_put_link(const SymlinkRequest& request);
  [[nodiscard]] Outcome<bool> is_link_there(const SymlinkRequest& request);
  [[nodiscard]] Outcome<void> replace_by_link(const SymlinkRequest& request);
  [[nodiscard]] Outcome<void> put_link_of(int folder, const char* name, const std::string& to);
  [[nodiscard]] Outcome<void> put_entry(int folder, const std::string& name,
                                        const std::string& below, const std::string& to);
  [[nodiscard]] Outcome<void> put_file(int fd, const std::string& to);
  [[nodiscard]] Outcome<void> try_file(int fd, const std::string& to);
  [[nodiscard]] Outcome<void> send_file(int fd, const Version& version, const DraftReply& made,
                                        const std::string& to);
  [[nodiscard]] Outcome<void> reconnect(const Failed& why);
  // For requests that may be sent twice: again on a new connection, if one breaks.
  // `make` gives the request: one that names memory is another with each connection.
  template <class Make>
  [[nodiscard]] auto ask_made(const Make& make)
      -> Outcome<typename std::invoke_result_t<Make>::Reply> {
    for (unsigned starts = 1;; ++starts) {
      auto reply = client_->call(make());
      if (reply || client_->alive() || starts == kStarts) return reply;
      if (auto again = reconnect(reply.error()); !again) return tl::unexpected(again.error());
    }
  }
  template <class Request>
  [[nodiscard]] Outcome<typename Request::Reply> ask(const Request& request) {
    return ask_made([&request] { return request; });
  }
  [[nodiscard]] PathName named(const std::string& path) const { return {path, links_}; }
  [[nodiscard]] Outcome<DraftReply> begin(const std::string& to, const Version& version);
  [[nodiscard]] Outcome<void> compare(int fd, std::uint64_t handle, std::uint64_t there,
                                      const std::string& to, std::uint64_t& from);
  [[nodiscard]] Outcome<void> send_blocks(int fd, std::uint64_t handle, std::uint64_t from,
                                          const Version& version, const std::string& to);
  [[nodiscard]] Outcome<void> make_folder(const std::string& to, std::uint32_t mode);
  [[nodiscard]] Outcome<void> set_modes();
  [[nodiscard]] Outcome<void> flush_there(const std::string& to, std::int64_t mtime_ns);
  [[nodiscard]] Outcome<void> flush_folders();
  void look_there(const std::string& to);
  [[nodiscard]] Outcome<bool> is_there(const std::string& to, const Version& version);
  [[nodiscard]] bool is_remote_folder(const std::string& path);
  [[nodiscard]] std::string here(const std::string& below) const;
  [[nodiscard]] static Outcome<Details> details_here(int fd, const std::string& name);
  [[nodiscard]] Outcome<Details> details_there(std::uint64_t handle, const std::string& to);
  [[nodiscard]] Privileges may_set(const Details& wanted) const;
  [[nodiscard]] Outcome<void> send_details(std::uint64_t handle, const std::string& to,
                                           const Details& wanted, const Details& now);
  [[nodiscard]] Outcome<void> carry_details(const DraftReply& made, const Details& wanted,
                                            const std::string& to);
  [[nodiscard]] Outcome<bool> update_details(const Details& wanted, const std::string& to,
                                             bool with_time);
  [[nodiscard]] Outcome<void> put_same(int fd, const std::string& to, const Version& version);
  [[nodiscard]] bool is_further_name(int folder, const char* name, const std::string& to);
  void note_parted(const std::string& to, const std::string& first);
  [[nodiscard]] bool is_another(const Attributes& there, const Version& version);
  [[nodiscard]] Outcome<void> make_names();
  [[nodiscard]] Outcome<bool> make_name(const std::string& first, const std::string& name);
  [[nodiscard]] Outcome<bool> replace_by_name(const std::string& first, std::uint64_t file_id,
                                              const std::string& name);
  [[nodiscard]] bool is_name_of(const std::string& name, std::uint64_t file_id);
  [[nodiscard]] Outcome<void> finish_folders();
  [[nodiscard]] Outcome<void> finish_link(int folder, const char* name, const std::string& to);
  [[nodiscard]] Outcome<void> would_make_folder(const std::string& to);
  [[nodiscard]] Outcome<void> would_put_file(const std::string& to, const Version& version);
  void tell(CopyStep::Kind kind, const std::string& to, std::uint64_t bytes = 0,
            std::int64_t mtime_ns = 0) const;
  void report(const Failed& why);

  ServerAddress server_;
  CopyOptions options_;
  Pace pace_{options_.bytes_per_second};
  CopyWatcher watcher_;
  std::unique_ptr<Client> client_;
  Registered memory_;
  os::Fd source_;                                             // the root of a tree
  std::string source_name_;                                   // ... as the user calls it
  std::vector<std::string> folders_;                          // still to walk, below it
  std::vector<std::pair<std::string, std::uint32_t>> modes_;  // to be set at the end
  std::unordered_map<std::string, Attributes> there_;         // what a folder of the server has
  bool knows_there_ = false;                                  // ... the one that is put at present
  // For --archive: names of files with several, first names that were not copied, and folders (here
  // and there) whose attributes are set at the end.
  struct FirstName {
    std::string to;
    Attributes attributes;
  };
  std::map<std::pair<dev_t, ino_t>, FirstName> first_names_;
  // Files of the server with several names, and which one here each of them is.
  std::unordered_map<std::uint64_t, std::pair<dev_t, ino_t>> claimed_;
  std::vector<std::pair<std::string, std::string>> further_names_;  // with their first names
  std::set<std::string> not_copied_;
  std::vector<std::pair<std::string, std::string>> finished_;
  Extras extras_;
  Unflushed unflushed_;
  bool names_lost_ = false;               // ... of which the server may have lost some
  std::uint16_t links_ = kLinksAnywhere;  // Request::links of this copy
  CopyTotals totals_;
};

}  // namespace weft::files

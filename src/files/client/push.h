// `weft put`, and `sync` to a server. Each file gets its name at the server only when it is whole.
//
// One thread; Streams gives each of further connections one of its own.
#pragma once

#include <sys/stat.h>

#include <map>
#include <memory>
#include <optional>
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
#include "files/client/local_version.h"
#include "files/client/push_small.h"
#include "files/client/server_link.h"
#include "files/client/streams.h"
#include "files/client/unflushed.h"
#include "os/fd.h"

namespace weft::files {

class Push {
 public:
  Push(ServerAddress server, CopyOptions options, CopyWatcher watcher);
  Push(const Push&) = delete;
  Push& operator=(const Push&) = delete;
  //   EROFS   the server was started without --writable
  [[nodiscard]] Outcome<void> connect() { return link_.connect(); }

  // A file or a tree, with the conventions of Fetch::get.
  [[nodiscard]] Outcome<void> put(const std::string& from, const std::string& to);
  [[nodiscard]] const CopyTotals& totals() const { return totals_; }

 private:
  [[nodiscard]] Outcome<void> put_tree(const std::string& to,
                                       const std::optional<Attributes>& root);
  [[nodiscard]] Outcome<void> put_files(const std::string& to,
                                        const std::optional<Attributes>& root);
  struct Folder {
    std::string below;
    std::optional<Attributes> before = {};  // of the server's folder, if it was there already
  };
  [[nodiscard]] Outcome<void> put_folder(const Folder& one, const std::string& to);
  [[nodiscard]] Outcome<void> note_extras(const std::string& below, const std::string& to,
                                          const std::unordered_set<std::string>& keep);
  [[nodiscard]] Outcome<std::vector<ExtraFolder>> note_names(
      const ExtraFolder& in, const std::string& to, const std::unordered_set<std::string>& keep);
  [[nodiscard]] bool is_unseen(const Named& one, const std::string& folder);
  [[nodiscard]] Outcome<void> is_gone(const Extra& extra) const;
  [[nodiscard]] Outcome<void> remove_extras(const std::string& to);
  [[nodiscard]] Outcome<void> remove_all(const std::string& to, const std::vector<Extra>& extras);
  [[nodiscard]] Outcome<void> remove_extra(const std::string& to, const Extra& extra);
  [[nodiscard]] Outcome<void> put_link_of(int folder, const char* name, const std::string& to);
  [[nodiscard]] Outcome<void> put_entry(int folder, const std::string& name,
                                        const std::shared_ptr<const std::string>& below,
                                        const std::string& to);
  [[nodiscard]] Outcome<void> take_file(int folder, const struct stat& s, QueuedFile file);
  [[nodiscard]] Outcome<void> put_alone(int folder, const QueuedFile& file, bool asks);
  void note_failed(const QueuedFile& file, const Failed& why);
  [[nodiscard]] Outcome<void> put_queued();
  [[nodiscard]] Outcome<void> put_here();
  [[nodiscard]] Outcome<void> put_each();
  [[nodiscard]] Outcome<void> hand_over(std::size_t count);
  [[nodiscard]] Outcome<void> finish_streams();
  [[nodiscard]] Outcome<void> put_small(std::vector<std::size_t>& alone);
  [[nodiscard]] Outcome<void> put_file(int fd, const std::string& to, bool asks);
  [[nodiscard]] Outcome<void> try_file(int fd, const std::string& to, bool asks);
  [[nodiscard]] Outcome<void> send_file(int fd, const Version& version, const DraftReply& made,
                                        const std::string& to);
  void connected(bool same);
  [[nodiscard]] PathName named(const std::string& path) const { return {path, links_}; }
  [[nodiscard]] Outcome<DraftReply> begin(const std::string& to, const Version& version);
  [[nodiscard]] Outcome<std::uint64_t> compare(int fd, std::uint64_t handle, std::uint64_t there,
                                               const std::string& to);
  [[nodiscard]] Outcome<void> send_blocks(int fd, std::uint64_t handle, std::uint64_t from,
                                          const Version& version, const std::string& to);
  [[nodiscard]] Outcome<std::optional<Attributes>> make_folder(const std::string& to,
                                                               std::uint32_t mode);
  [[nodiscard]] Outcome<Attributes> find_folder(const std::string& to);
  [[nodiscard]] Outcome<void> set_modes();
  [[nodiscard]] Outcome<void> flush_there(const std::string& to, std::int64_t mtime_ns);
  [[nodiscard]] Outcome<void> flush_folders();
  [[nodiscard]] Outcome<void> look_there(const std::string& to);
  [[nodiscard]] Outcome<bool> is_there(const std::string& to, const Version& version);
  [[nodiscard]] std::string here(const std::string& below) const;
  [[nodiscard]] Outcome<Details> details_here(int fd, const std::string& name) const;
  [[nodiscard]] Outcome<Details> details_there(std::uint64_t handle, const std::string& to);
  [[nodiscard]] Privileges may_set(const Details& wanted) const;
  [[nodiscard]] Outcome<void> send_details(std::uint64_t handle, const std::string& to,
                                           const Details& wanted, const Details& now);
  [[nodiscard]] Outcome<void> carry_details(const DraftReply& made, const Details& wanted,
                                            const std::string& to);
  [[nodiscard]] Outcome<bool> update_details(const Details& wanted, const std::string& to,
                                             bool with_time, const Attributes* before = nullptr);
  [[nodiscard]] Outcome<void> put_same(int fd, const std::string& to, const Version& version);
  [[nodiscard]] bool is_further_name(int folder, const char* name, const std::string& to);
  void note_parted(const std::string& to, const std::string& first);
  [[nodiscard]] bool is_another(const Attributes& there, const Version& version);
  [[nodiscard]] Outcome<void> make_names();
  [[nodiscard]] Outcome<bool> make_name(const std::string& first, const std::string& name);
  [[nodiscard]] Outcome<bool> replace_by_name(const std::string& first, std::uint64_t file_id,
                                              const std::string& name);
  [[nodiscard]] Outcome<void> finish_folders();
  [[nodiscard]] Outcome<void> finish_folder(const Folder& one, const std::string& to);
  [[nodiscard]] Outcome<bool> finish_link(int folder, const char* name, const std::string& to);
  [[nodiscard]] Outcome<std::optional<Attributes>> would_make_folder(const std::string& to);
  [[nodiscard]] Outcome<void> would_put_file(const std::string& to, const Version& version);
  void tell(CopyStep::Kind kind, const std::string& to, std::uint64_t bytes = 0,
            std::int64_t mtime_ns = 0, bool is_folder = false) const;
  void report(const Failed& why);

  ServerLink link_;
  CopyOptions options_;
  std::shared_ptr<Pace> pace_ = std::make_shared<Pace>(options_.bytes_per_second);
  CopyWatcher watcher_;
  os::Fd source_;                                             // the root of a tree
  std::string source_name_;                                   // ... as the user calls it
  std::vector<Folder> folders_;                               // still to walk, below it
  std::vector<std::pair<std::string, std::uint32_t>> modes_;  // to be set at the end
  // The names in the folder of the server that is put at present, if they are known.
  std::optional<std::unordered_map<std::string, Attributes>> there_;
  std::vector<QueuedFile> queued_;  // to be put
  Helpers<Push> helpers_;           // with them
  bool looks_again_ = false;        // what is there was told before
  // For --archive: names of files with several, first names that were not copied, and folders with
  // their names there, whose attributes are set at the end.
  struct FirstName {
    std::string to;
    Attributes attributes;
  };
  std::map<std::pair<dev_t, ino_t>, FirstName> first_names_;
  // Files of the server with several names, and which one here each of them is.
  std::unordered_map<std::uint64_t, std::pair<dev_t, ino_t>> claimed_;
  std::vector<std::pair<std::string, std::string>> further_names_;  // with their first names
  std::set<std::string> not_copied_;
  std::vector<std::pair<Folder, std::string>> finished_;
  Extras extras_;
  Unflushed unflushed_;
  bool names_lost_ = false;               // ... of which the server may have lost some
  std::uint16_t links_ = kLinksAnywhere;  // Request::links of this copy
  CopyTotals totals_;
};

}  // namespace weft::files

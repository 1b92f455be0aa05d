// `weft get`, `cat` and `sync` from a server: files and trees, pipelined, resumed after a break.
//
// One thread; Streams gives each of further connections one of its own.
#pragma once

#include <sys/stat.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "files/client/copy_options.h"
#include "files/client/copy_pace.h"
#include "files/client/data_client.h"
#include "files/client/extras.h"
#include "files/client/listing.h"
#include "files/client/local.h"
#include "files/client/streams.h"
#include "files/client/unflushed.h"

namespace weft::files {

class Fetch {
 public:
  static constexpr std::size_t kMemoryBytes = std::size_t{8} << 20U;  // that the server writes to

  Fetch(ServerAddress server, CopyOptions options, CopyWatcher watcher);
  [[nodiscard]] Outcome<void> connect();
  [[nodiscard]] Client& client() { return *client_; }

  // A file or a tree. Where `to` is a folder, or `path` names several, below it under its own name;
  // a slash at the end of `path`: what is in the folder rather than the folder, as rsync has it.
  [[nodiscard]] Outcome<void> get(const std::string& path, const std::string& to);
  // A file's octets, in order, to a descriptor.
  [[nodiscard]] Outcome<void> stream(const std::string& path, int fd);
  [[nodiscard]] Outcome<std::vector<Named>> list(const std::string& path);
  [[nodiscard]] Outcome<Attributes> stat(const std::string& path);

  [[nodiscard]] const CopyTotals& totals() const { return totals_; }

 private:
  struct File {
    std::string path;                          // at the server
    std::string name;                          // here
    std::shared_ptr<const std::string> below;  // ... in this folder of the destination
    Attributes attributes{};
    bool done = false;  // copied, or reported
  };
  // A file of the server that is being read.
  struct Opened {
    std::uint64_t handle = 0;  // 0: it is empty
    FileState state{};
    bool sparse = false;  // has holes to be left out
  };
  // A folder of the destination, as it was before.
  struct Walked {
    std::string below;
    bool made = false;
    std::uint32_t mode = 0;
    std::int64_t mtime_ns = 0;
  };
  using Sink = std::function<Outcome<void>(const std::uint8_t*, std::size_t, std::uint64_t)>;

  [[nodiscard]] Outcome<void> reconnect(const Failed& why);
  [[nodiscard]] Outcome<void> get_tree(const std::string& path);
  [[nodiscard]] Outcome<void> walk(const std::string& path, const std::string& below);
  [[nodiscard]] Outcome<void> take_entry(const std::string& path, const Named& entry,
                                         const std::shared_ptr<const std::string>& below,
                                         int folder);
  [[nodiscard]] Outcome<void> take_link(const std::string& path, const std::string& below,
                                        const Named& entry, int folder);
  [[nodiscard]] Outcome<void> note_extras(const std::string& below, int folder,
                                          const std::vector<Named>& keep);
  [[nodiscard]] Outcome<std::vector<std::string>> note_names(const ExtraFolder& in, int folder,
                                                             const std::vector<Named>* keep);
  [[nodiscard]] Outcome<void> remove_extras(const std::string& path);
  [[nodiscard]] Outcome<void> remove_all(const std::string& path, const std::vector<Extra>& extras);
  [[nodiscard]] Outcome<void> remove_extra(const std::string& path, const Extra& extra);
  [[nodiscard]] Outcome<void> flush_folders();
  [[nodiscard]] bool is_here(int folder, const std::string& name, const Attributes& a);
  [[nodiscard]] bool is_another(const struct stat& here, const Attributes& a);
  [[nodiscard]] Outcome<Destination> open_destination(const std::string& root);
  [[nodiscard]] Outcome<void> would_get_queued();
  void tell(CopyStep::Kind kind, const std::string& below, const Attributes& a = {}) const;
  [[nodiscard]] Outcome<void> get_file_to(const std::string& path, const Attributes& attributes,
                                          const std::string& to, const std::string& name);
  [[nodiscard]] Outcome<void> get_queued();
  [[nodiscard]] Outcome<void> get_here();
  [[nodiscard]] Outcome<void> get_each();
  [[nodiscard]] Outcome<void> get_one(File& file);
  [[nodiscard]] Outcome<void> hand_over(std::size_t count);
  [[nodiscard]] Outcome<void> hand_over_some();
  [[nodiscard]] Outcome<void> finish_streams();
  [[nodiscard]] Outcome<void> get_small(std::size_t count);
  [[nodiscard]] Outcome<void> small_arrived(const Answer& answer, const std::uint8_t* data);
  [[nodiscard]] Outcome<void> get_large(const File& file);
  [[nodiscard]] Outcome<void> try_large(const File& file);
  [[nodiscard]] Outcome<void> fill(const Opened& opened, Part& part, std::uint64_t there,
                                   const std::string& path);
  [[nodiscard]] Outcome<bool> has_holes(const Opened& opened, const std::string& path);
  [[nodiscard]] Outcome<void> read_data(const Opened& opened, const std::string& path,
                                        const Sink& sink);
  [[nodiscard]] Outcome<Opened> open_remote(const std::string& path);
  [[nodiscard]] Outcome<void> take_lease(Opened& opened, const std::string& path);
  [[nodiscard]] bool is_each_opened() const {
    return options_.verify || options_.strict || options_.archive;
  }
  [[nodiscard]] Outcome<Details> details_of(std::uint64_t handle, const std::string& path);
  [[nodiscard]] Outcome<void> carry_details(const Opened& opened, Part& part,
                                            const std::string& path);
  [[nodiscard]] Outcome<void> update_details(int folder, const Named& entry,
                                             const std::string& below, const std::string& path);
  [[nodiscard]] Outcome<void> update_single(int folder, const Named& entry,
                                            const std::string& path);
  [[nodiscard]] Outcome<void> update_to(int folder, const Named& entry, const std::string& below,
                                        const Details& details);
  [[nodiscard]] Outcome<bool> finish_link(int folder, const Named& entry);
  void note_parted(const std::string& below, const std::string& first);
  [[nodiscard]] bool is_further_name(const Named& entry, const std::string& below);
  [[nodiscard]] Outcome<void> take_special(int folder, const Named& entry, const std::string& below,
                                           const std::string& path);
  [[nodiscard]] Outcome<void> make_names();
  [[nodiscard]] Outcome<bool> make_name(const std::string& first, const std::string& name,
                                        const Attributes& attributes);
  [[nodiscard]] Outcome<void> finish_folders(const std::string& path);
  [[nodiscard]] Outcome<void> finish_folder(const std::string& path, const Walked& one);
  void open_to_owner(int folder) const;
  void let_go(const Opened& opened);
  [[nodiscard]] Outcome<void> close_same(const Opened& opened, const std::string& path);
  [[nodiscard]] Outcome<void> read_range(std::uint64_t handle, std::uint64_t from,
                                         std::uint64_t size, const std::string& path,
                                         const Sink& sink);
  [[nodiscard]] tl::unexpected<Failed> drain(const Failed& why);
  void report(const Failed& why);

  ServerAddress server_;
  CopyOptions options_;
  std::shared_ptr<Pace> pace_ = std::make_shared<Pace>(options_.bytes_per_second);
  CopyWatcher watcher_;
  std::unique_ptr<Client> client_;
  Registered memory_;
  std::optional<Destination> destination_;
  std::vector<std::string> folders_;  // still to walk, below the source
  std::size_t folder_bytes_ = 0;      // memory that they take
  std::vector<File> files_;
  Helpers<Fetch> helpers_;          // with files_
  std::vector<std::size_t> again_;  // of files_: changed while they were read among the small ones
  // For --archive: names of files with several, and folders whose attributes are set at the end.
  struct FirstName {
    std::string below;
    Attributes attributes;
  };
  struct FurtherName {
    std::string below;
    std::uint64_t file_id = 0;
  };
  std::unordered_map<std::uint64_t, FirstName> first_names_;  // by Attributes::file_id
  std::vector<FurtherName> further_names_;
  std::vector<Walked> walked_;
  std::size_t kept_bytes_ = 0;  // memory that they all take
  // Files here with several names, and which one of the server each of them is.
  std::map<std::pair<dev_t, ino_t>, std::uint64_t> claimed_;
  Extras extras_;
  Unflushed unflushed_;                   // folders below the destination
  std::uint16_t links_ = kLinksAnywhere;  // Request::links of this copy
  CopyTotals totals_;
};

}  // namespace weft::files

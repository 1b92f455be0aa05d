// Removals of `sync --delete` here, and the steps of a copy (--dry-run).
#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <unordered_set>
#include <utility>

#include "files/client/fetch.h"
#include "files/client/known_source.h"
#include "files/protocol/folder_stream.h"
#include "files/protocol/path_name.h"
#include "os/fd.h"

namespace weft::files {

void Fetch::tell(CopyStep::Kind kind, const std::string& below, const Attributes& a) const {
  if (watcher_.step)
    watcher_.step({kind, destination_->shown(below), a.size, a.mtime_ns, S_ISDIR(a.mode)});
}

// Everything in files_, as get_queued().
Outcome<void> Fetch::would_get_queued() {
  for (const File& file : files_) {
    const std::string below = join(*file.below, file.name);
    const auto folder = destination_->folder(*file.below);
    if (!folder) return tl::unexpected(folder.error());
    struct stat s {};
    if (fstatat((*folder)->get(), file.name.c_str(), &s, AT_SYMLINK_NOFOLLOW) == 0 &&
        S_ISDIR(s.st_mode)) {
      report({EISDIR, destination_->shown(below), {}});
      continue;
    }
    tell(CopyStep::Kind::kCopied, below, file.attributes);
    ++totals_.files;
  }
  files_.clear();
  return {};
}

namespace {

// `visit` gets the name of each entry of a folder, and whether it is a folder. An errno.
template <class Visit>
int for_each_entry(int folder, const Visit& visit) {
  const FolderStream here(os::Fd(openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC)));
  if (!here.good()) return errno;
  for (;;) {
    errno = 0;
    const dirent* entry = readdir(here.stream());
    if (entry == nullptr) return errno;
    const std::string_view name = entry->d_name;
    if (name == "." || name == ".." || is_unfinished(name)) continue;
    struct stat s {};
    if (fstatat(folder, entry->d_name, &s, AT_SYMLINK_NOFOLLOW) != 0) continue;
    visit(std::string(name), S_ISDIR(s.st_mode));
  }
}

}  // namespace

// Names of a folder that only the destination has, or that are excluded; without `keep` all of
// them. Returns the folders among them that go with all that is in them.
Outcome<std::vector<std::string>> Fetch::note_names(const ExtraFolder& in, int folder,
                                                    const std::vector<Named>* keep) {
  extras_.enter(in.below, in.is_hidden);
  std::unordered_set<std::string_view> names;
  if (keep != nullptr) {
    for (const Named& n : *keep) names.insert(n.name);
  }
  std::vector<std::string> out;
  const int error = for_each_entry(folder, [&](const std::string& name, bool is_folder) {
    const bool is_hidden = in.is_hidden || options_.filter.hides(in.below, name, is_folder);
    if (names.contains(name) && !is_hidden) return;
    if (options_.filter.protects(in.below, name, is_folder, options_.delete_excluded)) return;
    extras_.note({in.below, name, is_folder, is_hidden});
    if (is_hidden && is_folder) out.push_back(join(in.below, name));
  });
  if (error != 0) return failed(error, destination_->shown(in.below));
  return out;
}

Outcome<void> Fetch::note_extras(const std::string& below, int folder,
                                 const std::vector<Named>& keep) {
  if (folder < 0) return {};  // it would be made
  auto hidden = note_names({below}, folder, &keep);
  if (!hidden) return tl::unexpected(hidden.error());
  // All that is in a folder that goes because it is excluded: the source's is not walked.
  while (!hidden->empty()) {
    const std::string now = std::move(hidden->back());
    hidden->pop_back();
    const auto one = destination_->folder(now);
    if (!one) return tl::unexpected(one.error());
    auto more = note_names({now, true}, (*one)->get(), nullptr);
    if (!more) return tl::unexpected(more.error());
    std::ranges::move(*more, std::back_inserter(*hidden));
  }
  return {};
}

// Everything has been copied.
Outcome<void> Fetch::remove_extras(const std::string& path) {
  auto where = client_->call(StatFsRequest{{path, links_}});
  if (!where && !client_->alive()) {
    if (auto again = reconnect(where.error()); !again) return again;
    where = client_->call(StatFsRequest{{path, links_}});
  }
  if (!where) return tl::unexpected(where.error());
  const FileSystem& now = where->file_system;
  const KnownSource known(options_.state_folder,
                          server_.host + ":" + std::to_string(server_.port) + ":" + path,
                          absolute_name(destination_->name()));
  if (const auto last = known.last(); last && are_two(*last, now)) extras_.note_other_source();
  if (auto ok = extras_.may_go(options_, totals_); !ok) return ok;
  const std::vector<Extra> first = extras_.take_in_order();
  for (const ExtraFolder& one : extras_.take_folders()) {
    const auto folder = destination_->folder(one.below);
    if (!folder) return tl::unexpected(folder.error());
    const auto keep = one.is_hidden ? Outcome<std::vector<Named>>() : list(join(path, one.below));
    if (!keep) return tl::unexpected(keep.error());
    const auto noted = note_names(one, (*folder)->get(), &*keep);
    if (!noted) return tl::unexpected(noted.error());
    if (auto ok = remove_all(path, extras_.take_in_order()); !ok) return ok;
  }
  if (auto ok = remove_all(path, first); !ok) return ok;
  if (!options_.dry_run) known.keep(now);
  return {};
}

// The first failure but that of a folder that is not empty ends it.
Outcome<void> Fetch::remove_all(const std::string& path, const std::vector<Extra>& extras) {
  for (const Extra& extra : extras) {
    const auto ok = remove_extra(path, extra);
    if (ok) continue;
    if (ok.error().error != ENOTEMPTY) return ok;
    report(ok.error());
  }
  return {};
}

namespace {

// The errno that unlinkat() would give for a folder.
int would_remove_folder(int folder, const std::string& name) {
  const os::Fd found(openat(folder, name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!found) return errno;
  bool empty = true;
  const int error = for_each_entry(found.get(), [&](const std::string&, bool) { empty = false; });
  return error == 0 && !empty ? ENOTEMPTY : error;
}

}  // namespace

Outcome<void> Fetch::remove_extra(const std::string& path, const Extra& extra) {
  const std::string remote = join(join(path, extra.below), extra.name);
  if (!extra.is_hidden) {
    if (const auto found = stat(remote)) {
      return failed(EEXIST, remote, "appeared at the source meanwhile; run this again");
    } else if (found.error().error != ENOENT) {
      return tl::unexpected(found.error());
    }
  }
  const auto folder = destination_->folder(extra.below);
  if (!folder) return tl::unexpected(folder.error());
  int error = 0;
  if (options_.dry_run) {
    if (extra.is_folder && !extra.is_hidden)
      error = would_remove_folder((*folder)->get(), extra.name);
  } else if (unlinkat((*folder)->get(), extra.name.c_str(), extra.is_folder ? AT_REMOVEDIR : 0) !=
             0) {
    // Folders only when they are empty: what a sync removes by mistake should be little.
    error = errno;
  }
  if (error != 0) {
    return failed(
        error, "cannot remove " + join(extra.below, extra.name) + ", which is not at the source");
  }
  tell(CopyStep::Kind::kRemoved, join(extra.below, extra.name));
  ++totals_.removed;
  return {};
}

}  // namespace weft::files

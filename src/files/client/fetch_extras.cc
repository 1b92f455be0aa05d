// Removals of `sync --delete` here, and the steps of a copy (--dry-run).
#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <unordered_set>

#include "files/client/fetch.h"
#include "files/protocol/folder_stream.h"
#include "files/protocol/path_name.h"
#include "os/fd.h"

namespace weft::files {

void Fetch::tell(CopyStep::Kind kind, const std::string& below, const Attributes& a) const {
  if (watcher_.step) watcher_.step({kind, destination_->shown(below), a.size, a.mtime_ns});
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

Outcome<void> Fetch::note_extras(const std::string& below, int folder,
                                 const std::vector<Named>& keep) {
  if (folder < 0) return {};  // it would be made
  std::unordered_set<std::string_view> names;
  for (const Named& n : keep) names.insert(n.name);
  std::vector<std::string> hidden;
  const int error = for_each_entry(folder, [&](const std::string& name, bool is_folder) {
    const bool is_hidden = options_.filter.hides(below, name, is_folder);
    if (names.contains(name) && !is_hidden) return;
    if (options_.filter.protects(below, name, is_folder, options_.delete_excluded)) return;
    extras_.note({below, name, is_folder, is_hidden});
    if (is_hidden && is_folder) hidden.push_back(join(below, name));
  });
  if (error != 0) return failed(error, destination_->shown(below));
  for (const std::string& one : hidden) {
    if (auto ok = note_hidden(one); !ok) return ok;
  }
  return {};
}

// All that is in a folder that goes because it is excluded: the source's is not walked.
Outcome<void> Fetch::note_hidden(const std::string& below) {
  std::vector<std::string> folders = {below};
  while (!folders.empty()) {
    const std::string now = std::move(folders.back());
    folders.pop_back();
    const auto folder = destination_->folder(now);
    if (!folder) return tl::unexpected(folder.error());
    const int error =
        for_each_entry((*folder)->get(), [&](const std::string& name, bool is_folder) {
          if (options_.filter.protects(now, name, is_folder, options_.delete_excluded)) return;
          extras_.note({now, name, is_folder, true});
          if (is_folder) folders.push_back(join(now, name));
        });
    if (error != 0) return failed(error, destination_->shown(now));
  }
  return {};
}

// Everything has been copied. The first failure but that of a folder that is not empty ends it.
Outcome<void> Fetch::remove_extras(const std::string& path) {
  if (auto ok = extras_.may_go(options_, totals_); !ok) return ok;
  for (const Extra& extra : std::move(extras_).in_order()) {
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

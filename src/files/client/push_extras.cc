// Removals of `sync --delete` at a server, and the steps of a copy (--dry-run).
#include <fcntl.h>
#include <sys/stat.h>

#include <utility>

#include "files/client/local.h"
#include "files/client/push.h"
#include "files/protocol/path_name.h"

namespace weft::files {

void Push::tell(CopyStep::Kind kind, const std::string& to, std::uint64_t bytes,
                std::int64_t mtime_ns) const {
  if (watcher_.step) watcher_.step({kind, to, bytes, mtime_ns});
}

// As make_folder(), of a name that is neither the root nor nothing.
Outcome<void> Push::would_make_folder(const std::string& to) {
  const auto there = ask(StatRequest{named(to)});
  if (there && (S_ISDIR(there->attributes.mode) || is_remote_folder(to))) return {};
  if (there) return tl::unexpected(explain(EEXIST, to));
  if (there.error().error != ENOENT) return tl::unexpected(there.error());
  tell(CopyStep::Kind::kFolder, to);
  return {};
}

Outcome<void> Push::would_put_file(const std::string& to, const Version& version) {
  const auto there = ask(StatRequest{named(to)});
  if (there && S_ISDIR(there->attributes.mode)) return tl::unexpected(explain(EISDIR, to));
  if (!there && there.error().error != ENOENT) return tl::unexpected(there.error());
  totals_.expected += version.size;
  ++totals_.files;
  tell(CopyStep::Kind::kCopied, to, version.size, version.mtime_ns);
  return {};
}

Outcome<std::vector<Named>> Push::list_there(const std::string& to) {
  auto there = list_folder(*client_, memory_, to, links_);
  for (unsigned starts = 1; !there && !client_->alive() && starts < kStarts; ++starts) {
    if (auto again = reconnect(there.error()); !again) return tl::unexpected(again.error());
    there = list_folder(*client_, memory_, to, links_);
  }
  return there;
}

namespace {

tl::unexpected<Failed> too_many(const std::string& folder) {
  return failed(EPROTO, folder, "more names that only the server has than 1 GiB of memory holds");
}

}  // namespace

Outcome<void> Push::note_extras(const std::string& below, const std::string& to,
                                const std::unordered_set<std::string>& keep) {
  const auto there = list_there(to);
  if (!there && options_.dry_run && there.error().error == ENOENT) return {};
  if (!there) return tl::unexpected(there.error());
  for (const Named& one : *there) {
    if (is_unfinished(one.name)) continue;
    const bool is_folder = S_ISDIR(one.attributes.mode);
    const bool is_hidden = options_.filter.hides(below, one.name, is_folder);
    if (keep.contains(one.name) && !is_hidden) continue;
    if (options_.filter.protects(below, one.name, is_folder, options_.delete_excluded)) continue;
    extras_.note({below, one.name, is_folder, is_hidden});
    if (extras_.is_full()) return too_many(to);
    if (!is_hidden || !is_folder) continue;
    if (auto ok = note_hidden(join(below, one.name), join(to, one.name)); !ok) return ok;
  }
  return {};
}

// All that is in a folder that goes because it is excluded: the source's is not walked.
Outcome<void> Push::note_hidden(const std::string& below, const std::string& to) {
  std::vector<std::pair<std::string, std::string>> folders = {{below, to}};
  while (!folders.empty()) {
    const auto [here, there] = std::move(folders.back());
    folders.pop_back();
    const auto names = list_there(there);
    if (!names) return tl::unexpected(names.error());
    for (const Named& one : *names) {
      if (is_unfinished(one.name)) continue;
      const bool is_folder = S_ISDIR(one.attributes.mode);
      if (options_.filter.protects(here, one.name, is_folder, options_.delete_excluded)) continue;
      extras_.note({here, one.name, is_folder, true});
      if (extras_.is_full()) return too_many(there);
      if (is_folder) folders.emplace_back(join(here, one.name), join(there, one.name));
    }
  }
  return {};
}

// As Fetch::remove_extras().
Outcome<void> Push::remove_extras(const std::string& to) {
  if (auto ok = extras_.may_go(options_, totals_); !ok) return ok;
  for (const Extra& extra : std::move(extras_).in_order()) {
    const auto ok = remove_extra(to, extra);
    if (ok) continue;
    if (ok.error().error != ENOTEMPTY) return ok;
    report(ok.error());
  }
  return {};
}

// The source was asked for it once more, and does not have it.
Outcome<void> Push::is_gone(const Extra& extra) const {
  // Its folder has to be there still: without it every name is one that is not found.
  const std::string local = here(join(extra.below, extra.name));
  const os::Fd folder(open_folder_below(source_.get(), extra.below));
  if (!folder) return failed(errno, here(extra.below));
  struct stat s {};
  if (fstatat(folder.get(), extra.name.c_str(), &s, AT_SYMLINK_NOFOLLOW) == 0) {
    return failed(EEXIST, local, "appeared at the source meanwhile; run this again");
  }
  return errno == ENOENT ? Outcome<void>() : failed(errno, local);
}

Outcome<void> Push::remove_extra(const std::string& to, const Extra& extra) {
  if (!extra.is_hidden) {
    if (auto ok = is_gone(extra); !ok) return ok;
  }
  const std::string path = join(join(to, extra.below), extra.name);
  if (options_.dry_run) {
    if (extra.is_folder && !extra.is_hidden) {
      const auto names = list_there(path);
      if (!names) return tl::unexpected(names.error());
      if (!names->empty()) return tl::unexpected(explain(ENOTEMPTY, path));
    }
  } else {
    const auto reply = ask(RemoveRequest{extra.is_folder ? kRemoveDirectory : 0U, named(path)});
    // ENOENT: asked twice, or somebody was faster.
    if (!reply && reply.error().error != ENOENT) return tl::unexpected(reply.error());
    if (options_.durable) unflushed_.note_parent_of(path);
  }
  tell(CopyStep::Kind::kRemoved, path);
  ++totals_.removed;
  return {};
}

}  // namespace weft::files

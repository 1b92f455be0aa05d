// Removals of `sync --delete` at a server, and the steps of a copy (--dry-run).
#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "files/client/known_source.h"
#include "files/client/local.h"
#include "files/client/push.h"
#include "files/protocol/file_attributes.h"
#include "files/protocol/folder_stream.h"
#include "files/protocol/path_name.h"

namespace weft::files {

void Push::tell(CopyStep::Kind kind, const std::string& to, std::uint64_t bytes,
                std::int64_t mtime_ns, bool is_folder) const {
  const bool known = looks_again_ && kind == CopyStep::Kind::kSame;
  if (watcher_.step && !known) watcher_.step({kind, to, bytes, mtime_ns, is_folder});
}

// As make_folder(), of a name that is neither the root nor nothing.
Outcome<std::optional<Attributes>> Push::would_make_folder(const std::string& to) {
  const auto name = link_.ask(StatRequest{named(to)});
  if (!name && name.error().error == ENOENT) {
    tell(CopyStep::Kind::kFolder, to);
    return std::nullopt;
  }
  if (!name) return tl::unexpected(name.error());
  const auto there = find_folder(to);
  if (!there) return tl::unexpected(explain(EEXIST, to));
  if (!options_.archive) tell(CopyStep::Kind::kSame, to, 0, 0, true);
  return *there;
}

Outcome<void> Push::would_put_file(const std::string& to, const Version& version) {
  const auto there = link_.ask(StatRequest{named(to)});
  if (there && S_ISDIR(there->attributes.mode)) return tl::unexpected(explain(EISDIR, to));
  if (!there && there.error().error != ENOENT) return tl::unexpected(there.error());
  totals_.expected += version.size;
  ++totals_.files;
  tell(CopyStep::Kind::kCopied, to, version.size, version.mtime_ns);
  return {};
}

// A name that the server cannot look at stays, and so do all the others.
bool Push::is_unseen(const Named& one, const std::string& folder) {
  const int error = one.attributes.failure();
  if (error != 0) report({error, join(folder, one.name)});
  return error != 0;
}

namespace {

// An errno.
int names_of(int root, const std::string& below, std::unordered_set<std::string>& out) {
  const FolderStream folder(os::Fd(open_folder_below(root, below)));
  if (!folder.good()) return errno;
  for (;;) {
    errno = 0;
    const dirent* entry = readdir(folder.stream());
    if (entry == nullptr) return errno;
    out.insert(entry->d_name);
  }
}

}  // namespace

// As Fetch::note_names(), with their names at the server.
Outcome<std::vector<ExtraFolder>> Push::note_names(const ExtraFolder& in, const std::string& to,
                                                   const std::unordered_set<std::string>& keep) {
  extras_.enter(in.below, in.is_hidden);
  const auto there = link_.list(to, links_);
  if (!there && options_.dry_run && there.error().error == ENOENT) return {};
  if (!there) return tl::unexpected(there.error());
  std::vector<ExtraFolder> out;
  for (const Named& one : *there) {
    if (is_unfinished(one.name)) continue;
    const bool is_folder = S_ISDIR(one.attributes.mode);
    const bool is_hidden = in.is_hidden || options_.filter.hides(in.below, one.name, is_folder);
    if ((keep.contains(one.name) && !is_hidden) || is_unseen(one, to)) continue;
    if (options_.filter.protects(in.below, one.name, is_folder, options_.delete_excluded)) continue;
    extras_.note({in.below, one.name, is_folder, is_hidden});
    if (is_hidden && is_folder) out.push_back({join(in.below, one.name), true});
  }
  return out;
}

Outcome<void> Push::note_extras(const std::string& below, const std::string& to,
                                const std::unordered_set<std::string>& keep) {
  const std::size_t above = below.empty() ? 0 : below.size() + 1;
  auto hidden = note_names({below}, to, keep);
  if (!hidden) return tl::unexpected(hidden.error());
  // All that is in a folder that goes because it is excluded: the source's is not walked.
  while (!hidden->empty()) {
    const ExtraFolder now = std::move(hidden->back());
    hidden->pop_back();
    auto more = note_names(now, join(to, now.below.substr(above)), {});
    if (!more) return tl::unexpected(more.error());
    std::ranges::move(*more, std::back_inserter(*hidden));
  }
  return {};
}

// As Fetch::remove_extras().
Outcome<void> Push::remove_extras(const std::string& to) {
  const FileSystem now = file_system_of(source_.get());
  const ServerAddress& server = link_.server();
  const KnownSource known(options_.state_folder, absolute_name(source_name_),
                          server.host + ":" + std::to_string(server.port) + ":" + to);
  if (const auto last = known.last(); last && are_two(*last, now)) extras_.note_other_source();
  if (auto ok = extras_.may_go(options_, totals_); !ok) return ok;
  const std::vector<Extra> first = extras_.take_in_order();
  for (const ExtraFolder& one : extras_.take_folders()) {
    std::unordered_set<std::string> keep;
    if (!one.is_hidden) {
      const int error = names_of(source_.get(), one.below, keep);
      if (error != 0) return failed(error, here(one.below));
    }
    const std::uint64_t failures = totals_.failures;
    const auto noted = note_names(one, join(to, one.below), keep);
    if (!noted) return tl::unexpected(noted.error());
    if (totals_.failures != failures) {
      return failed(ECANCELED, "--delete",
                    "not all was removed, because the server could not look at some names");
    }
    if (auto ok = remove_all(to, extras_.take_in_order()); !ok) return ok;
  }
  if (auto ok = remove_all(to, first); !ok) return ok;
  if (!options_.dry_run) known.keep(now);
  return {};
}

Outcome<void> Push::remove_all(const std::string& to, const std::vector<Extra>& extras) {
  for (const Extra& extra : extras) {
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
      const auto names = link_.list(path, links_);
      if (!names) return tl::unexpected(names.error());
      if (!names->empty()) return tl::unexpected(explain(ENOTEMPTY, path));
    }
  } else {
    const auto reply =
        link_.ask(RemoveRequest{extra.is_folder ? kRemoveDirectory : 0U, named(path)});
    // ENOENT: asked twice, or somebody was faster.
    if (!reply && reply.error().error != ENOENT) return tl::unexpected(reply.error());
    unflushed_.forget(path);
    if (options_.durable) unflushed_.note_parent_of(path);
  }
  tell(CopyStep::Kind::kRemoved, path);
  ++totals_.removed;
  return {};
}

}  // namespace weft::files

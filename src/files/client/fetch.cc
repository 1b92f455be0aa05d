// Walking the source, and deciding what to fetch; fetch_data.cc moves the octets.
#include "files/client/fetch.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "files/protocol/path_name.h"
#include "os/clock.h"
#include "os/fd.h"

namespace weft::files {
namespace {

// The names of folders that are still to be walked, and what is kept to the end, may take so much:
// a server decides how many there are.
constexpr std::size_t kNameBytesMax = std::size_t{256} << 20U;

}  // namespace

Fetch::Fetch(ServerAddress server, CopyOptions options, CopyWatcher watcher)
    : server_(std::move(server)), options_(std::move(options)), watcher_(std::move(watcher)) {}

Outcome<void> Fetch::connect() {
  // The one before stays until this one is whole: callers ask it whether it lives.
  auto client = Client::connect(server_);
  if (!client) return tl::unexpected(client.error());
  auto memory = Registered::create((*client)->pd(), kMemoryBytes,
                                   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
  if (!memory) return tl::unexpected(memory.error());
  memory_ = Registered();  // before the domain that it belongs to
  client_ = std::move(*client);
  memory_ = std::move(*memory);
  return {};
}

Outcome<void> Fetch::reconnect(const Failed& why) {
  if (client_ != nullptr && client_->alive()) return tl::unexpected(why);
  return connect_again(why, options_.retry_seconds, [this] { return connect(); });
}

void Fetch::report(const Failed& why) {
  ++totals_.failures;
  if (watcher_.failed) watcher_.failed(why);
}

Outcome<Attributes> Fetch::stat(const std::string& path) {
  const auto reply = client_->call(StatRequest{{path, links_}});
  if (!reply) return tl::unexpected(reply.error());
  return reply->attributes;
}

Outcome<std::vector<Named>> Fetch::list(const std::string& path) {
  return list_folder(*client_, memory_, path, links_);
}

Outcome<void> Fetch::get(const std::string& path, const std::string& to) {
  links_ = kLinksAnywhere;
  if (options_.archive && !client_->has_objects()) {
    return failed(EOPNOTSUPP, server_.host, "the server's release has no -a; upgrade Weft there");
  }
  if (options_.acls && !client_->has_acls()) {
    return failed(EOPNOTSUPP, server_.host, "the server's release has no -A; upgrade Weft there");
  }
  const auto found = stat(path);
  if (!found) return tl::unexpected(found.error());
  struct stat here {};
  const bool to_folder = ::stat(to.c_str(), &here) == 0 && S_ISDIR(here.st_mode);
  if (!S_ISDIR(found->mode)) {
    if (S_ISLNK(found->mode)) {
      const auto target = open_remote(path);
      if (!target) return tl::unexpected(target.error());
      let_go(*target);
      return get_file_to(path, target->state.attributes, to_folder ? to : std::string(),
                         to_folder ? last_name(path) : to);
    }
    return get_file_to(path, *found, to_folder || to.ends_with('/') ? to : std::string(),
                       to_folder || to.ends_with('/') ? last_name(path) : to);
  }
  if (!options_.recursive) {
    return failed(EISDIR, path.empty() ? "the served folder" : path,
                  "is a folder; use -r to copy folders");
  }
  const bool contents_only = path.empty() || path.ends_with('/') || last_name(path) == ".";
  const std::string root = contents_only || !to_folder ? to : join(to, last_name(path));
  auto destination = open_destination(root);
  if (!destination) return tl::unexpected(destination.error());
  destination_ = std::move(*destination);
  // The user's own path may follow links of the server. Everything below it must be in that folder.
  links_ = static_cast<std::uint16_t>(std::min(path.size(), kPathBytes));
  return get_tree(path);
}

Outcome<Destination> Fetch::open_destination(const std::string& root) {
  // With --archive it gets its mode at the end, and nobody else is to see what is in it before.
  const mode_t mode = options_.archive ? 0700 : 0777;
  return options_.dry_run ? Destination::open_to_look(root) : Destination::open(root, true, mode);
}

Outcome<void> Fetch::get_tree(const std::string& path) {
  extras_.clear(options_);
  first_names_.clear();
  claimed_.clear();
  kept_bytes_ = 0;
  further_names_.clear();
  walked_.clear();
  unflushed_.clear();
  folders_.assign(1, std::string());
  folder_bytes_ = 0;
  const auto walk_all = [&]() -> Outcome<void> {
    while (!folders_.empty()) {
      const std::string below = folders_.back();
      folders_.pop_back();
      folder_bytes_ -= std::min(folder_bytes_, sizeof below + below.size());
      auto ok = walk(path, below);
      if (!ok && !client_->alive()) return ok;
      if (!ok) report(ok.error());
      if (folder_bytes_ + kept_bytes_ > kNameBytesMax) {
        return failed(EPROTO, path,
                      "more folders than 256 MiB of memory can name, or files with several names; "
                      "with --no-durable and without -a fewer are kept");
      }
    }
    return get_queued();
  };
  const auto copied = walk_all();
  if (auto ok = finish_streams(); !copied || !ok) return copied ? ok : copied;
  if (auto ok = make_names(); !ok) return ok;
  // The rest is done also where nothing may be removed.
  auto removed = options_.remove ? remove_extras(path) : Outcome<void>();
  if (!removed && !client_->alive()) return removed;
  auto finished = finish_folders(path);
  if (finished && !options_.dry_run) finished = flush_folders();
  return removed ? finished : removed;
}

// With --durable, the names of what was made, replaced, removed and found. Files are flushed
// before. All folders are, whatever one of them says. The first failure
Outcome<void> Fetch::flush_folders() {
  Outcome<void> ok;
  for (const std::string& below : unflushed_.in_order()) {
    const auto folder = destination_->folder(below);
    if (!folder) {
      if (ok) ok = tl::unexpected(folder.error());
      continue;
    }
    const int error = flush((*folder)->get());
    if (ok && error != 0) ok = failed(error, destination_->shown(below));
  }
  unflushed_.clear();
  const auto named = options_.durable ? destination_->flush_name() : Outcome<void>();
  return ok ? named : ok;
}

Outcome<void> Fetch::get_file_to(const std::string& path, const Attributes& attributes,
                                 const std::string& to, const std::string& name) {
  // A device or a pipe gets the octets and nothing else.
  struct stat here {};
  const std::string full = to.empty() ? name : join(to, name);
  if (::stat(full.c_str(), &here) == 0 && !S_ISREG(here.st_mode) && !S_ISDIR(here.st_mode)) {
    if (options_.dry_run) {
      if (watcher_.step) {
        watcher_.step({CopyStep::Kind::kCopied, full, attributes.size, attributes.mtime_ns});
      }
      ++totals_.files;
      return {};
    }
    const os::Fd fd(open(full.c_str(), O_WRONLY | O_CLOEXEC));
    if (!fd) return failed(errno, full);
    auto ok = stream(path, fd.get());
    const bool flushes = options_.durable && S_ISBLK(here.st_mode);
    return ok && flushes && fsync(fd.get()) != 0 ? failed(errno, full) : ok;
  }
  const std::size_t slash = full.rfind('/');
  auto destination =
      Destination::open(slash == std::string::npos ? "." : full.substr(0, slash + 1), false);
  if (!destination) return tl::unexpected(destination.error());
  destination_ = std::move(*destination);
  const auto folder = destination_->folder("");
  if (!folder) return tl::unexpected(folder.error());
  const std::string last = slash == std::string::npos ? full : full.substr(slash + 1);
  if (is_here((*folder)->get(), last, attributes)) {
    ++totals_.skipped;
    if (!options_.archive) {
      tell(CopyStep::Kind::kSame, last, attributes);
    } else if (auto ok = update_single((*folder)->get(), {last, attributes}, path); !ok) {
      return ok;
    }
  } else {
    files_.push_back({path, last, std::make_shared<std::string>(), attributes});
    totals_.expected += attributes.size;
    const std::uint64_t failures = totals_.failures;
    auto ok = get_queued();
    if (!ok || totals_.failures != failures) return ok;
  }
  const bool flushes = options_.durable && !options_.dry_run;
  const int error = flushes ? flush((*folder)->get()) : 0;
  return error == 0 ? Outcome<void>() : failed(error, full);
}

namespace {

// A file that an earlier copy has left need not be on the disk. As Push::flush_there().
bool flush_here(int folder, const std::string& name, std::int64_t mtime_ns) {
  const os::Fd file(openat(folder, name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (file && fsync(file.get()) == 0) return true;
  const timespec times[2] = {{0, UTIME_OMIT}, os::timespec_of(time_of_changed(mtime_ns))};
  if (file) static_cast<void>(futimens(file.get(), times));
  return false;
}

}  // namespace

// With --durable of sync it is on the disk, too.
bool Fetch::is_here(int folder, const std::string& name, const Attributes& a) {
  if (!options_.only_newer) return false;
  struct stat s {};
  if (fstatat(folder, name.c_str(), &s, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(s.st_mode))
    return false;
  const std::int64_t mtime = os::ns_of(s.st_mtim);
  return static_cast<std::uint64_t>(s.st_size) == a.size && mtime == a.mtime_ns &&
         !is_another(s, a) &&
         (!options_.flush_same || options_.dry_run || flush_here(folder, name, mtime));
}

Outcome<void> Fetch::walk(const std::string& path, const std::string& below) {
  bool made = below.empty() && destination_->was_made();
  const auto folder = destination_->folder(below, below.empty() ? nullptr : &made);
  if (!folder) return tl::unexpected(folder.error());
  if (made) tell(CopyStep::Kind::kFolder, below);
  if (!made && !options_.archive) tell(CopyStep::Kind::kSame, below, {.mode = S_IFDIR});
  if (options_.archive) {
    struct stat s {};
    if (!made && fstat((*folder)->get(), &s) != 0) return failed(errno, below);
    walked_.push_back({below, made, s.st_mode, os::ns_of(s.st_mtim)});
    kept_bytes_ += sizeof(Walked) + below.size();
    open_to_owner((*folder)->get());
  }
  ++totals_.folders;
  if (options_.durable) {
    unflushed_.note(below);
    kept_bytes_ += Unflushed::kBytes + below.size();
  }
  auto entries = list(join(path, below));
  if (!entries && !client_->alive()) {
    // It may have been idle for long: the walk waits for other connections.
    if (auto again = reconnect(entries.error()); !again) return again;
    entries = list(join(path, below));
  }
  if (!entries) return tl::unexpected(entries.error());
  const auto name = std::make_shared<const std::string>(below);
  for (const Named& entry : *entries) {
    auto ok = take_entry(join(join(path, below), entry.name), entry, name, (*folder)->get());
    if (!ok && !client_->alive()) return ok;
    if (!ok) report(ok.error());
    if (folder_bytes_ + kept_bytes_ > kNameBytesMax) return {};  // get_tree() says so
    if (ok = hand_over_some(); !ok) return ok;
  }
  if (below.empty() && entries->empty()) extras_.note_empty_source();
  return options_.remove ? note_extras(below, (*folder)->get(), *entries) : Outcome<void>();
}

Outcome<void> Fetch::take_entry(const std::string& path, const Named& entry,
                                const std::shared_ptr<const std::string>& below, int folder) {
  if (options_.filter.hides(*below, entry.name, S_ISDIR(entry.attributes.mode))) return {};
  if (const int error = entry.attributes.failure(); error != 0) return failed(error, path);
  if (S_ISDIR(entry.attributes.mode)) {
    folders_.push_back(join(*below, entry.name));
    folder_bytes_ += sizeof(std::string) + folders_.back().size();
    return {};
  }
  if (S_ISLNK(entry.attributes.mode)) {
    return take_link(path, *below, entry, folder);
  }
  const std::string here = join(*below, entry.name);
  if (options_.archive && !is_unfinished(entry.name)) {
    if (is_further_name(entry, here)) return {};
    if (!S_ISREG(entry.attributes.mode)) return take_special(folder, entry, here, path);
  }
  if (!S_ISREG(entry.attributes.mode) || is_unfinished(entry.name)) {
    ++totals_.skipped;
    if (!is_unfinished(entry.name)) tell(CopyStep::Kind::kSkipped, here, entry.attributes);
    return {};
  }
  if (is_here(folder, entry.name, entry.attributes)) {
    ++totals_.skipped;
    if (options_.archive) return update_details(folder, entry, here, path);
    tell(CopyStep::Kind::kSame, here, entry.attributes);
    return {};
  }
  // A failure of this file, rather than of the request for many.
  if (path.size() > kPathBytes) return failed(ENAMETOOLONG, path);
  files_.push_back({path, entry.name, below, entry.attributes});
  totals_.expected += entry.attributes.size;
  return {};
}

namespace {

// A name of the destination that is to be a symbolic link.
struct LinkHere {
  bool is_link = false, same = false;
};

LinkHere link_here(int folder, const std::string& name, const std::string& target) {
  char now[4096];
  const ssize_t length = readlinkat(folder, name.c_str(), now, sizeof now);
  if (length < 0) return {};
  return {true, std::string_view(now, static_cast<std::size_t>(length)) == target};
}

}  // namespace

Outcome<void> Fetch::take_link(const std::string& path, const std::string& below,
                               const Named& entry, int folder) {
  const std::string& name = entry.name;
  auto reply = client_->call(ReadLinkRequest{{path, links_}});
  if (!reply && !client_->alive()) {
    if (auto again = reconnect(reply.error()); !again) return again;
    reply = client_->call(ReadLinkRequest{{path, links_}});
  }
  if (!reply) return tl::unexpected(reply.error());
  const std::string target(reply->target);
  LinkHere here = link_here(folder, name, target);
  int error = here.same || options_.dry_run ? 0 : put_link(folder, name, target, here.is_link);
  if (error == EEXIST && !here.is_link) {
    // Another copy may have been faster.
    here = link_here(folder, name, target);
    if (here.is_link) error = here.same ? 0 : put_link(folder, name, target, true);
  }
  if (error != 0) return failed(error, path);
  const bool same = here.same;
  // One that would be made has no attributes yet.
  const bool finishes = options_.archive && (same || !options_.dry_run);
  const auto changed = finishes ? finish_link(folder, entry) : Outcome<bool>(false);
  if (!changed) return tl::unexpected(changed.error());
  const auto kind = *changed ? CopyStep::Kind::kChanged : CopyStep::Kind::kSame;
  tell(same ? kind : CopyStep::Kind::kLink, join(below, name));
  if (!same) ++totals_.links;
  return {};
}

}  // namespace weft::files

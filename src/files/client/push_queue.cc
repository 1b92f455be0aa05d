// The files of a tree on their way to a server: they are noted while it is walked, and then put,
// small ones many at a time, the others one after the other.
#include <fcntl.h>
#include <sys/stat.h>

#include <iterator>
#include <utility>

#include "files/client/local.h"
#include "files/client/push.h"
#include "files/client/streams.h"
#include "files/protocol/path_name.h"
#include "os/clock.h"
#include "os/fd.h"

namespace weft::files {
namespace {

// Files that are noted before the first of them is put: what they need of memory is bounded.
constexpr std::size_t kQueuedFiles = 10000;

}  // namespace

// A file is noted unless there is nothing to do for it but a question or two.
Outcome<void> Push::take_file(int folder, const struct stat& s, QueuedFile file) {
  Version version;
  version.size = static_cast<std::uint64_t>(s.st_size);
  version.device = s.st_dev;
  version.inode = s.st_ino;
  version.mtime_ns = os::ns_of(s.st_mtim);
  bool same = false;
  if (options_.only_newer) {
    const auto there = is_there(file.to, version);
    if (!there) return tl::unexpected(there.error());
    same = *there;
  }
  if (same && !options_.archive && !options_.durable) {
    ++totals_.skipped;
    tell(CopyStep::Kind::kSame, file.to, version.size, version.mtime_ns);
    return {};
  }
  if (same || options_.dry_run) return put_alone(folder, file, true);
  file.bytes = version.size;
  queued_.push_back(std::move(file));
  return queued_.size() < kQueuedFiles ? Outcome<void>() : put_queued();
}

// Something else may have taken the name meanwhile. Opening a pipe must not wait for a writer, and
// what was opened decides.
Outcome<void> Push::put_alone(int folder, const QueuedFile& file, bool asks) {
  const std::string local = join(*file.below, file.name);
  struct stat s {};
  const os::Fd fd(
      openat(folder, file.name.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!fd || fstat(fd.get(), &s) != 0) return failed(errno, here(local));
  if (S_ISREG(s.st_mode)) return put_file(fd.get(), file.to, asks);
  ++totals_.skipped;
  not_copied_.insert(file.to);
  return {};
}

void Push::note_failed(const QueuedFile& file, const Failed& why) {
  if (options_.archive) not_copied_.insert(file.to);
  report(why);
}

// Everything in queued_. A file that fails is reported; a failure is one of all of them.
Outcome<void> Push::put_queued() {
  return options_.streams > 1 && queued_.size() > 1 ? put_by_streams() : put_here();
}

Outcome<void> Push::put_here() {
  std::vector<std::size_t> alone;
  auto ok = put_small(alone);
  for (std::size_t i = 0; ok && i < alone.size(); ++i) {
    const QueuedFile& file = queued_[alone[i]];
    const os::Fd folder(open_folder_below(source_.get(), *file.below));
    const auto done = folder ? put_alone(folder.get(), file, false)
                             : Outcome<void>(failed(errno, here(*file.below)));
    if (!done && !link_.alive()) ok = done;
    if (!done && link_.alive()) note_failed(file, done.error());
  }
  queued_.clear();
  return ok;
}

// As Fetch::get_by_streams().
Outcome<void> Push::put_by_streams() {
  Streams streams(watcher_, totals_);
  CopyOptions options = options_;
  options.streams = 1;
  options.bytes_per_second = options_.bytes_per_second / options_.streams;
  while (streams_.size() < options_.streams) {
    auto one = std::make_unique<Push>(link_.server(), options, CopyWatcher());
    if (!one->connect()) break;
    streams_.push_back(std::move(one));
  }
  if (streams_.empty()) return put_here();
  std::vector<std::uint64_t> weights;
  weights.reserve(queued_.size());
  for (const QueuedFile& file : queued_) weights.push_back(SmallFiles::kMostBytes + file.bytes);
  const std::vector<std::size_t> shares = Streams::share(weights, streams_.size());
  std::vector<Streams::Work> all;
  for (std::size_t i = 0; i < streams_.size(); ++i) {
    Push& one = *streams_[i];
    one.source_ = os::Fd(fcntl(source_.get(), F_DUPFD_CLOEXEC, 0));
    if (!one.source_) return failed(errno, source_name_);
    one.source_name_ = source_name_;
    one.watcher_ = streams.watcher();
    one.links_ = links_;
    one.totals_ = {};
    const auto from = std::make_move_iterator(queued_.begin());
    one.queued_.assign(from + static_cast<std::ptrdiff_t>(shares[i]),
                       from + static_cast<std::ptrdiff_t>(shares[i + 1]));
    all.emplace_back([&one] { return one.put_here(); });
  }
  const auto made = [this] {
    unsigned sum = 0;
    for (const auto& one : streams_) sum += one->link_.connections();
    return sum;
  };
  const unsigned before = made();
  auto ok = Streams::run(all);
  connections_ += made() - before;
  for (const auto& one : streams_) {
    totals_ += one->totals_;
    not_copied_.merge(one->not_copied_);
    unflushed_.take(one->unflushed_);
    names_lost_ = names_lost_ || one->names_lost_;
    one->watcher_ = {};
  }
  queued_.clear();
  return ok;
}

// `alone`: what is left of queued_. When the connection breaks, files of which nothing is known are
// put again on the next one.
Outcome<void> Push::put_small(std::vector<std::size_t>& alone) {
  const bool by_themselves = options_.strict || options_.verify;
  std::vector<bool> done(queued_.size(), false);
  std::vector<std::size_t> which;
  const auto take = [&](std::size_t i, const Outcome<SmallFiles::Sent>& sent) {
    done[i] = true;
    const QueuedFile& file = queued_[i];
    if (sent) {
      totals_.bytes += sent->bytes;
      totals_.expected += sent->bytes;
      ++totals_.files;
      if (options_.durable) unflushed_.note_parent_of(file.to);
      tell(CopyStep::Kind::kCopied, file.to, sent->bytes, sent->mtime_ns);
      if (watcher_.progress) watcher_.progress(totals_);
    } else if (sent.error().error == EAGAIN) {
      alone.push_back(i);
    } else {
      note_failed(file, sent.error());
    }
  };
  for (std::size_t i = 0; i < queued_.size(); ++i) {
    const bool small = !by_themselves && queued_[i].bytes <= SmallFiles::kMostBytes;
    (small ? which : alone).push_back(i);
  }
  for (unsigned starts = 1;; ++starts) {
    const std::size_t before = which.size();
    SmallFiles small(link_.client(), link_.memory(), options_, links_, pace_);
    auto ok = small.put(source_.get(), queued_, which, take);
    if (ok || link_.alive()) return ok;
    std::erase_if(which, [&](std::size_t i) { return done[i]; });
    if (which.size() < before) starts = 1;
    if (starts == ServerLink::kStarts) return ok;
    if (auto again = link_.reconnect(ok.error()); !again) return again;
  }
}

}  // namespace weft::files

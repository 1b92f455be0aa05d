// The files of a tree on their way to a server: they are noted while it is walked, and then put,
// small ones many at a time, the others one after the other.
#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <iterator>
#include <memory>
#include <utility>

#include "files/client/local.h"
#include "files/client/push.h"
#include "files/client/streams.h"
#include "files/protocol/path_name.h"
#include "os/clock.h"
#include "os/fd.h"

namespace weft::files {
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
  // A failure of this file, rather than of the request for many.
  if (file.to.size() > kPathBytes) return failed(ENAMETOOLONG, file.to);
  file.bytes = version.size;
  queued_.push_back(std::move(file));
  if (queued_.size() < options_.queued_files / (options_.streams + 1)) return {};
  // As many streams as are busy, and one more.
  const std::size_t idle = working_ == nullptr ? 0 : working_->idle(streams_.size());
  return hand_over(std::min<std::size_t>(options_.streams, idle + 1));
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

// Everything in queued_; the tree has been walked. As Fetch::get_queued().
Outcome<void> Push::put_queued() {
  std::vector<std::uint64_t> weights;
  weights.reserve(queued_.size());
  for (const QueuedFile& file : queued_) weights.push_back(SmallFiles::kMostBytes + file.bytes);
  const std::size_t useful = Streams::useful(weights, options_.streams);
  if (working_ == nullptr && useful <= 1) return put_here();
  std::vector<QueuedFile> all = std::exchange(queued_, {});
  const std::vector<std::size_t> shares = Streams::share(weights, useful);
  Outcome<void> ok;
  for (std::size_t i = 0; ok && i < useful; ++i) {
    const auto from = std::make_move_iterator(all.begin());
    queued_.assign(from + static_cast<std::ptrdiff_t>(shares[i]),
                   from + static_cast<std::ptrdiff_t>(shares[i + 1]));
    if (!queued_.empty()) ok = hand_over(useful);
  }
  return ok;
}

// Everything in queued_. A file that fails is reported; a failure is one of all of them.
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

// As Fetch::hand_over().
Outcome<void> Push::hand_over(std::size_t count) {
  if (working_ == nullptr) {
    working_ = std::make_unique<Streams>(std::exchange(watcher_, {}));
    watcher_ = working_->watcher(Streams::kCaller);
  }
  if (watcher_.progress) watcher_.progress(totals_);
  open_streams(streams_, count, [this] {
    CopyOptions options = options_;
    options.streams = 1;
    auto one = std::make_unique<Push>(link_.server(), std::move(options), CopyWatcher());
    one->pace_ = pace_;
    return one->connect() ? std::move(one) : nullptr;
  });
  if (streams_.size() < count) {
    options_.streams = std::max(1U, static_cast<unsigned>(streams_.size()));
  }
  if (streams_.empty()) return put_here();
  const auto free = working_->wait_idle(streams_.size());
  if (!free) return tl::unexpected(free.error());
  Push& one = *streams_[*free];
  one.source_ = os::Fd(fcntl(source_.get(), F_DUPFD_CLOEXEC, 0));
  if (!one.source_) return failed(errno, source_name_);
  one.source_name_ = source_name_;
  one.watcher_ = working_->watcher(1 + *free);
  one.links_ = links_;
  one.queued_ = std::exchange(queued_, {});
  working_->begin(*free, [&one] { return one.put_here(); });
  return {};
}

Outcome<void> Push::finish_streams() {
  if (working_ == nullptr) return {};
  auto ok = working_->finish();
  for (const auto& one : streams_) {
    totals_ += std::exchange(one->totals_, {});
    not_copied_.merge(one->not_copied_);
    // Made at an earlier run of the server than the one that this link knows.
    const bool earlier = one->link_.client().verifier() != link_.client().verifier();
    names_lost_ = names_lost_ || one->names_lost_ || (earlier && !one->unflushed_.empty());
    unflushed_.take(one->unflushed_);
    one->watcher_ = {};
  }
  watcher_ = working_->out();
  working_.reset();
  return ok;
}

// Nothing more can be copied.
bool Push::is_lost() const { return !link_.alive() || (working_ != nullptr && !working_->good()); }

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
    SmallFiles small(link_.client(), link_.memory(), options_, links_, *pace_);
    auto ok = small.put(source_.get(), queued_, which, take);
    if (ok || link_.alive()) return ok;
    std::erase_if(which, [&](std::size_t i) { return done[i]; });
    if (which.size() < before) starts = 1;
    if (starts == ServerLink::kStarts) return ok;
    if (auto again = link_.reconnect(ok.error()); !again) return again;
  }
}

}  // namespace weft::files

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
  if (same && !options_.archive && !options_.flush_same) {
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
  return hand_over(helpers_.one_more(options_.streams));
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
  if (!helpers_.work() && useful <= 1) return put_here();
  return Helpers<Push>::share(queued_, weights, useful,
                              [this](std::size_t count) { return hand_over(count); });
}

// Everything in queued_. Behind a failure those of them stay there that have not been looked at.
Outcome<void> Push::put_here() {
  auto ok = put_each();
  std::erase_if(queued_, [&](const QueuedFile& file) { return ok || file.done; });
  return ok;
}

// A file that fails is reported; a failure is one of all of them.
Outcome<void> Push::put_each() {
  std::vector<std::size_t> alone;
  if (auto ok = put_small(alone); !ok) return ok;
  for (const std::size_t i : alone) {
    QueuedFile& file = queued_[i];
    const os::Fd folder(open_folder_below(source_.get(), *file.below));
    const auto done = folder ? put_alone(folder.get(), file, false)
                             : Outcome<void>(failed(errno, here(*file.below)));
    if (!done && !link_.alive()) return done;
    if (!done) note_failed(file, done.error());
    file.done = true;
  }
  return {};
}

// As Fetch::hand_over().
Outcome<void> Push::hand_over(std::size_t count) {
  helpers_.start(watcher_);
  if (watcher_.progress) watcher_.progress(totals_);
  const auto helper = helpers_.wait_for_one(count, [this] {
    CopyOptions options = options_;
    options.streams = 1;
    auto one = std::make_unique<Push>(link_.server(), std::move(options), CopyWatcher());
    one->pace_ = pace_;
    return one->connect() ? std::move(one) : nullptr;
  });
  if (!helper) {
    static_cast<void>(link_.client().call(StatRequest{named("/")}));
    return link_.alive() ? put_here() : tl::unexpected(helper.error());
  }
  if (*helper == nullptr) return put_here();
  os::Fd source(fcntl(source_.get(), F_DUPFD_CLOEXEC, 0));
  if (!source) return failed(errno, source_name_);
  Push& one = **helper;
  one.source_ = std::move(source);
  one.source_name_ = source_name_;
  one.links_ = links_;
  one.queued_ = std::exchange(queued_, {});
  helpers_.begin(one, one.watcher_, [&one] { return one.put_here(); });
  return {};
}

Outcome<void> Push::finish_streams() {
  if (!helpers_.work()) return {};
  auto ok = helpers_.finish(
      [this](Push& one) {
        std::ranges::move(one.queued_, std::back_inserter(queued_));
        return !std::exchange(one.queued_, {}).empty();
      },
      [this](std::size_t count) { return hand_over(count); });
  helpers_.for_each([this](Push& one) {
    totals_ += std::exchange(one.totals_, {});
    not_copied_.merge(one.not_copied_);
    // Made at an earlier run of the server than the one that this link knows.
    const bool earlier = one.link_.client().verifier() != link_.client().verifier();
    const bool lost = std::exchange(one.names_lost_, false);
    names_lost_ = names_lost_ || lost || (earlier && !one.unflushed_.empty());
    unflushed_.take(one.unflushed_);
    one.watcher_ = {};
  });
  helpers_.stop(watcher_);
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
    QueuedFile& file = queued_[i];
    file.done = sent || sent.error().error != EAGAIN;
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

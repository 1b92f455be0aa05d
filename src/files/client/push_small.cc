#include "files/client/push_small.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "files/client/local.h"
#include "files/protocol/file_attributes.h"
#include "files/protocol/path_name.h"
#include "os/fd.h"

namespace weft::files {
namespace {

tl::unexpected<Failed> by_itself(const std::string& to) { return failed(EAGAIN, to); }

// Folders come one after the other, with many files in each.
class LastFolder {
 public:
  explicit LastFolder(int root) : root_(root) {}
  // -1 with errno. It is open until the next call.
  [[nodiscard]] int open(const std::string& below) {
    if (folder_ && below == below_) return folder_.get();
    below_ = below;
    folder_ = os::Fd(open_folder_below(root_, below));
    return folder_.get();
  }

 private:
  const int root_;
  std::string below_;
  os::Fd folder_;
};

}  // namespace

std::uint8_t* SmallFiles::room(std::size_t slot) const {
  return memory_.data() + slot * kMostBytes;
}

Outcome<void> SmallFiles::put(int root, const std::vector<QueuedFile>& files,
                              const std::vector<std::size_t>& which, const Done& done) {
  LastFolder folder(root);
  const std::size_t most = std::min<std::size_t>(kFlights, client_.credits());
  std::size_t under_way = 0;
  for (auto next = which.begin(); next != which.end() || under_way != 0;) {
    if (next != which.end() && under_way < most) {
      const auto free = std::ranges::find(flights_, Op::kHello, &Flight::waits_for);
      const auto slot = static_cast<std::size_t>(free - flights_.begin());
      const QueuedFile& file = files[*next];
      if (const auto ok = read(file, folder.open(*file.below), slot); !ok) {
        done(*next++, tl::unexpected(ok.error()));
        continue;
      }
      flights_[slot].file = *next++;
      ++under_way;
      if (auto ok = start(file, slot); !ok) return ok;
      continue;
    }
    const auto answer = client_.wait();
    if (!answer) return tl::unexpected(answer.error());
    const std::size_t slot = answer->tag;
    const bool ours = slot < kFlights && answer->op == flights_[slot].waits_for;
    if (!ours) return client_.broken("the server answered something else");
    Flight& flight = flights_[slot];
    if (auto ok = go_on(files[flight.file], *answer, slot); !ok) return ok;
    if (flight.waits_for != Op::kHello) continue;
    --under_way;
    if (flight.failure) {
      done(flight.file, Sent{flight.version.size, flight.version.mtime_ns});
    } else {
      done(flight.file, tl::unexpected(flight.failure.error()));
    }
  }
  return {};
}

// All of the file is read before anything is sent, so what is sent is one version of it.
Outcome<void> SmallFiles::read(const QueuedFile& file, int folder, std::size_t slot) {
  if (folder < 0) return failed(errno, file.to);
  // Something else may have the name by now.
  const os::Fd fd(
      openat(folder, file.name.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  struct stat s {};
  if (!fd || fstat(fd.get(), &s) != 0) return failed(errno, file.to);
  Flight flight;
  if (!S_ISREG(s.st_mode) || s.st_size > off_t{kMostBytes}) return by_itself(file.to);
  if (const int error = version_of(fd.get(), flight.version); error != 0) {
    return failed(error, file.to);
  }
  const std::uint64_t size = flight.version.size;
  if (size > kMostBytes) return by_itself(file.to);
  // One octet more would be seen, too.
  const ssize_t got = pread(fd.get(), room(slot), std::min<std::size_t>(size + 1, kMostBytes), 0);
  if (got < 0) return failed(errno, file.to);
  if (static_cast<std::uint64_t>(got) != size) return by_itself(file.to);
  flight.mode = flight.version.mode;
  if (options_.archive) {
    Xattrs xattrs;
    int error = 0;
    const Attributes a = attributes_of(fd.get(), &error);
    if (error == 0) error = get_xattrs(fd.get(), kMostBytes, xattrs);
    // A file that is made where a folder has an ACL for new ones has that, and is not to.
    if (error != 0 || !xattrs.empty() || options_.acls) return by_itself(file.to);
    flight.uid = a.uid;
    flight.gid = a.gid;
    flight.mode = a.mode & kModeBits;
  }
  if (!check_version(fd.get(), flight.version, file.to)) return by_itself(file.to);
  flights_[slot] = std::move(flight);
  return {};
}

Outcome<void> SmallFiles::start(const QueuedFile& file, std::size_t slot) {
  const std::uint64_t size = flights_[slot].version.size;
  pace_.wait(size);
  return ask(CreateRequest{0, size, {file.to, links_}}, slot);
}

Outcome<void> SmallFiles::commit(std::size_t slot) {
  const Flight& flight = flights_[slot];
  CommitRequest request;
  request.handle = flight.handle;
  request.mode = flight.mode;
  request.mtime_ns = flight.version.mtime_ns;
  if (options_.durable) request.flags = kCommitDurable | kCommitNoName;
  return ask(request, slot);
}

// The next request for the file, or `waits_for` says that it is done.
Outcome<void> SmallFiles::go_on(const QueuedFile& file, const Answer& answer, std::size_t slot) {
  Flight& flight = flights_[slot];
  if (answer.error != 0 && answer.op != Op::kClose) {
    flight.failure = tl::unexpected(client_.refusal(answer, file.to));
    flight.waits_for = Op::kHello;
    const bool has_handle = answer.op != Op::kCreate && answer.op != Op::kCommit;
    return has_handle ? ask(CloseRequest{flight.handle}, slot) : Outcome<void>();
  }
  const auto size = static_cast<std::uint32_t>(flight.version.size);
  const RemoteMemory memory{address_of(room(slot)), memory_.rkey(), size};
  switch (answer.op) {
    case Op::kCreate: {
      const auto made = client_.read<CreateReply>(answer);
      if (!made) return tl::unexpected(made.error());
      flight.handle = made->handle;
      if (options_.archive && client_.takes_owners()) {
        return ask(OwnRequest{flight.handle, flight.uid, flight.gid, {}}, slot);
      }
      [[fallthrough]];
    }
    case Op::kOwn:
      return size == 0 ? commit(slot) : ask(WriteRequest{flight.handle, 0, memory}, slot);
    case Op::kWrite: return commit(slot);
    default: flight.waits_for = Op::kHello; return {};
  }
}

}  // namespace weft::files

#include "check/module/time_log.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <fstream>
#include <iterator>
#include <string_view>
#include <utility>

#include "check/module/process_name.h"
#include "os/cancel.h"
#include "os/clock.h"
#include "os/say.h"

namespace weft::check {

using timeline::kNever;
using timeline::Octets64;
using timeline::Op;
using timeline::Record;

namespace {

constexpr std::size_t kRecordsPerThread = 1U << 20U;      // 64 MiB
constexpr std::size_t kRecordsOfConnections = 1U << 16U;  // 4 MiB
constexpr std::size_t kSrqOfQp = 3;                       // of Made::parents

std::uint64_t now_ns() { return static_cast<std::uint64_t>(os::monotonic_ns()); }

template <std::size_t kSize>
void put(std::array<char, kSize>& to, std::string_view text) {
  text = text.substr(0, kSize - 1);
  std::copy(text.begin(), text.end(), to.begin());
}

std::string first_line(const char* file) {
  std::ifstream in(file);
  std::string line;
  std::getline(in, line);
  return line;
}

// The names of observed.cc.
Op op_of(std::string_view name) {
  static constexpr std::pair<std::string_view, Op> kNames[] = {
      {"an RDMA Write", Op::kWrite},
      {"a Send", Op::kSend},
      {"an RDMA Read", Op::kRead},
      {"an RDMA Write with immediate data", Op::kWriteImm},
      {"a Send with immediate data", Op::kImmediate},
      {"a Send with invalidate", Op::kSendInvalidate},
      {"an atomic compare and swap", Op::kCmpSwap},
      {"an atomic fetch and add", Op::kFetchAdd},
      {"a local invalidation", Op::kLocalInvalidate},
      {"a bind", Op::kBindWindow}};
  for (const auto& [text, op] : kNames)
    if (text == name) return op;
  return Op::kUnknown;
}

// The length of a post is with its request; those of receives and of requests for an event are of
// no interest, and there are as many as completions.
bool has_record(std::string_view call) {
  static constexpr std::string_view kNone[] = {"ibv_post_send",     "ibv_wr_complete",
                                               "ibv_bind_mw",       "ibv_post_recv",
                                               "ibv_post_srq_recv", "ibv_req_notify_cq"};
  return std::ranges::find(kNone, call) == std::end(kNone);
}

void read_address(const sockaddr_storage& from, std::array<std::uint8_t, 16>& to,
                  std::uint16_t& port) {
  if (from.ss_family == AF_INET6) {
    const auto& six = reinterpret_cast<const sockaddr_in6&>(from);
    std::memcpy(to.data(), &six.sin6_addr, to.size());
    port = ntohs(six.sin6_port);
  } else if (from.ss_family == AF_INET) {
    const auto& four = reinterpret_cast<const sockaddr_in&>(from);
    to[10] = to[11] = 0xff;
    std::memcpy(to.data() + 12, &four.sin_addr, 4);
    port = ntohs(four.sin_port);
  }
}

// Posts of the call that this thread is in.
thread_local const void* posts_of = nullptr;
thread_local std::uint32_t first_post = 0;
thread_local std::uint64_t call_began = 0;
thread_local bool writing = false;  // a handler of a signal writes nothing meanwhile

class Writing {
 public:
  Writing() { writing = true; }
  ~Writing() { writing = false; }
  Writing(const Writing&) = delete;
  Writing& operator=(const Writing&) = delete;
};

// The file of a thread goes to another one when it ends.
struct OwnFile {
  TimeLog* log = nullptr;
  RecordFile* file = nullptr;
};
thread_local constinit OwnFile own;

}  // namespace

// A destructor of a key is called once more where others behind it have used a file again; one of a
// thread_local object is not.
void TimeLog::thread_ends(void* of) {
  OwnFile& ending = *static_cast<OwnFile*>(of);
  if (ending.file != nullptr) ending.log->give_back(std::exchange(ending.file, nullptr));
}

// --- receives ---

void ReceiveTimes::posted(std::uint64_t now) {
  const os::MutexLock lock(mutex_);
  if (times_.size() == kMost) times_.pop_front();
  times_.push_back(now);
}

void ReceiveTimes::refused(std::size_t count) {
  const os::MutexLock lock(mutex_);
  for (; count != 0 && !times_.empty(); --count) times_.pop_back();
}

std::uint64_t ReceiveTimes::take() {
  const os::MutexLock lock(mutex_);
  if (times_.empty()) return kNever;
  const std::uint64_t first = times_.front();
  times_.pop_front();
  return first;
}

void ReceiveTimes::clear() {
  const os::MutexLock lock(mutex_);
  times_.clear();
}

// --- a queue pair ---

class TimeLog::Queue final : public Follower {
 public:
  explicit Queue(TimeLog& log) : log_(log), receives_(std::make_shared<ReceiveTimes>()) {}

  // Without memory it is lost. The engine tells of it in functions that are noexcept, and in the
  // midst of calls of the program.
  void step(const Step& what) override {
    const os::NoCancel guard;
    const int error = errno;
    try {
      note(what);
    } catch (const std::exception&) {
    }
    errno = error;
  }

  // Requests that are done are written without the lock.
  template <class Work>
  void change(Work work) {
    std::vector<Record> out;
    {
      const os::MutexLock lock(mutex_);
      work(book_, out);
    }
    log_.write(out);
  }

  void made(std::uint32_t number, TimesRef receives) {
    const os::MutexLock lock(mutex_);
    number_ = number;
    book_.set_number(number);
    shares_receives_ = receives != nullptr;
    if (shares_receives_) receives_ = std::move(receives);
  }
  [[nodiscard]] TimesRef receives() {
    const os::MutexLock lock(mutex_);
    return receives_;
  }
  // Those of a shared receive queue stay there.
  [[nodiscard]] TimesRef own_receives() {
    const os::MutexLock lock(mutex_);
    return shares_receives_ ? nullptr : receives_;
  }

 private:
  void note(const Step& what) {
    const std::uint64_t now = now_ns();
    if (what.what == Step::What::kConnected) {
      const std::uint32_t connection = log_.note_connection(what.fd, number_);
      change([&](auto& book, auto&) { book.connected(connection); });
    } else if (what.what == Step::What::kReceiveTaken) {
      const std::uint64_t posted = receives()->take();
      change([&](auto& book, auto&) { book.receive_taken(posted, now); });
    } else {
      change([&](auto& book, auto& out) { book.step(what, now, out); });
    }
  }

  TimeLog& log_;
  std::atomic<std::uint32_t> number_{0};
  os::Mutex mutex_;
  timeline::QueueBook book_ WEFT_GUARDED_BY(mutex_);
  TimesRef receives_ WEFT_GUARDED_BY(mutex_);
  bool shares_receives_ WEFT_GUARDED_BY(mutex_) = false;
};

// --- the log ---

std::unique_ptr<TimeLog> TimeLog::open() {
  const char* const folder = std::getenv("WEFT_TIMELINE");
  if (folder == nullptr || *folder == '\0') return nullptr;
  if (access(folder, W_OK | X_OK) != 0) {
    os::say("weft: WEFT_TIMELINE: %s: %s\n", folder, std::strerror(errno));
    return nullptr;
  }
  return std::make_unique<TimeLog>(folder);
}

TimeLog::TimeLog(std::string folder)
    : folder_(std::move(folder)), process_(getpid()), began_(os::monotonic_ns()) {
  // Without it the files of threads that end are not used again.
  has_key_ = pthread_key_create(&key_, thread_ends) == 0;
}

TimeLog::~TimeLog() = default;

timeline::FileHeader TimeLog::header() const {
  timeline::FileHeader out;
  out.process = static_cast<std::uint32_t>(process_);
  out.thread = static_cast<std::uint32_t>(syscall(SYS_gettid));
  out.began = now_ns();
  out.process_began = static_cast<std::uint64_t>(began_);
  out.began_real = static_cast<std::uint64_t>(os::clock_ns(CLOCK_REALTIME));
  put(out.boot_id, first_line("/proc/sys/kernel/random/boot_id"));
  put(out.rank, rank_of_process());
  gethostname(out.host.data(), out.host.size() - 1);
  std::string words = command_line();
  while (words.ends_with('\0')) words.pop_back();
  std::ranges::replace(words, '\0', ' ');
  put(out.program, words);
  return out;
}

// Processes of two hosts may have the same number, and so may two programs, one after the other.
std::string TimeLog::file_name(std::size_t number) const {
  std::array<char, 64> host{};
  gethostname(host.data(), host.size() - 1);
  std::string name = host.data();
  std::ranges::replace(name, '/', '_');
  return folder_ + "/" + name + "." + std::to_string(process_) + "." + std::to_string(began_) +
         "." + std::to_string(number) + ".weft";
}

RecordFile* TimeLog::take_file() {
  const os::MutexLock lock(files_mutex_);
  if (idle_.empty()) {
    if (failed_) return nullptr;
    const std::string name = file_name(files_.size() + 1);
    auto file = RecordFile::open(name, header(), kRecordsPerThread);
    if (file == nullptr) {
      failed_ = true;
      say_no_room(name, errno);
      return nullptr;
    }
    idle_.push_back(file.get());
    files_.push_back(std::move(file));
  }
  RecordFile* const file = idle_.back();
  idle_.pop_back();
  return file;
}

RecordFile* TimeLog::own_file() {
  if (own.file == nullptr) {
    own.log = this;
    own.file = take_file();
    if (has_key_) pthread_setspecific(key_, &own);
  }
  return own.file;
}

void TimeLog::give_back(RecordFile* file) {
  if (getpid() != process_) return;  // a child of fork(): the mutex may be held
  const os::MutexLock lock(files_mutex_);
  idle_.push_back(file);
}

void TimeLog::write(const Octets64& record) {
  if (writing) return;
  const Writing guard;
  if (RecordFile* const file = own_file(); file != nullptr) file->write(record);
}

void TimeLog::write(std::vector<Record>& records) {
  for (const Record& record : records) write(std::bit_cast<Octets64>(record));
}

std::uint32_t TimeLog::note_connection(int fd, std::uint32_t qp) {
  timeline::Connection out;
  out.start = now_ns();
  out.qp = qp;
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) == 0)
    read_address(address, out.local, out.local_port);
  address = {};
  size = sizeof address;
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&address), &size) == 0)
    read_address(address, out.peer, out.peer_port);
  const os::MutexLock lock(files_mutex_);
  if (connections_ == nullptr && !connections_failed_) {
    const std::string name = file_name(0);
    connections_ = RecordFile::open(name, header(), kRecordsOfConnections);
    connections_failed_ = connections_ == nullptr;
    if (connections_failed_) say_no_room(name, errno);
  }
  out.number = ++connection_count_;
  if (connections_ != nullptr) connections_->write(std::bit_cast<Octets64>(out));
  return out.number;
}

TimeLog::QueueRef TimeLog::queue_of(const void* handle) {
  const os::MutexLock lock(mutex_);
  const auto found = queues_.find(handle);
  return found != queues_.end() ? found->second : nullptr;
}

// The queue: a queue pair, or a shared receive queue.
TimeLog::TimesRef TimeLog::times_of(const void* queue) {
  if (const QueueRef qp = queue_of(queue)) return qp->receives();
  const os::MutexLock lock(mutex_);
  const auto found = times_.find(queue);
  return found != times_.end() ? found->second : nullptr;
}

std::shared_ptr<Follower> TimeLog::follow(const void* qp) {
  auto queue = std::make_shared<Queue>(*this);
  const os::MutexLock lock(mutex_);
  queues_[qp] = queue;
  return queue;
}

void TimeLog::made(const Made& object) {
  if (object.kind == Kind::kSrq) {
    const os::MutexLock lock(mutex_);
    times_[object.handle] = std::make_shared<ReceiveTimes>();
  }
  if (object.kind != Kind::kQp) return;
  const QueueRef queue = queue_of(object.handle);
  if (queue == nullptr) return;
  const void* const srq = object.parents.at(kSrqOfQp);
  queue->made(object.number, srq != nullptr ? times_of(srq) : nullptr);
  const os::MutexLock lock(mutex_);
  numbers_[object.number] = queue;
}

void TimeLog::destroyed(const void* handle) {
  QueueRef queue;
  {
    const os::MutexLock lock(mutex_);
    times_.erase(handle);
    const auto found = queues_.find(handle);
    if (found == queues_.end()) return;
    queue = found->second;
    queues_.erase(found);
    std::erase_if(numbers_, [&](const auto& one) { return one.second == queue; });
  }
  queue->change([](auto& book, auto& out) { book.emptied(out); });
}

void TimeLog::posting(const Posted& request) {
  const QueueRef queue = queue_of(request.qp);
  if (queue == nullptr) return;
  const timeline::QueueBook::Post post{request.wr_id, op_of(request.opcode),
                                       static_cast<std::uint32_t>(request.bytes), request.signaled};
  queue->change([&](auto& book, auto&) {
    const std::uint32_t number = book.posting(post, now_ns());
    if (std::exchange(posts_of, request.qp) != request.qp) first_post = number;
  });
}

void TimeLog::not_posted(const void* qp) {
  if (const QueueRef queue = queue_of(qp))
    queue->change([](auto& book, auto&) { book.not_posted(); });
}

void TimeLog::posting_receive(const void* queue) {
  if (const TimesRef times = times_of(queue)) times->posted(now_ns());
}

void TimeLog::not_posted_receive(const void* queue) {
  if (const TimesRef times = times_of(queue)) times->refused(1);
}

void TimeLog::late_receive(const void* qp, Late what) {
  if (what != Late::kBegins && what != Late::kLost) return;
  const QueueRef queue = queue_of(qp);
  if (queue == nullptr) return;
  queue->change([&](auto& book, auto&) {
    if (what == Late::kBegins) return book.receive_is_late(now_ns());
    book.message_is_lost();
  });
}

void TimeLog::completed(const Completed& completion) {
  QueueRef queue;
  {
    const os::MutexLock lock(mutex_);
    const auto found = numbers_.find(completion.qp_number);
    if (found != numbers_.end()) queue = found->second;
  }
  if (queue == nullptr) return;
  const std::uint8_t status = completion.success ? 0 : completion.flushed ? 5 : 255;
  queue->change([&](auto& book, auto& out) {
    book.polled({completion.wr_id, status, completion.receive}, now_ns(), out);
  });
}

void TimeLog::emptied(const void* qp) {
  const QueueRef queue = queue_of(qp);
  if (queue == nullptr) return;
  queue->change([](auto& book, auto& out) { book.emptied(out); });
  if (const TimesRef times = queue->own_receives()) times->clear();
}

void TimeLog::call_begins(const char* call) {
  posts_of = nullptr;
  call_began = has_record(call) ? now_ns() : 0;
}

void TimeLog::call_ends(const char* call) {
  const std::uint64_t now = now_ns();
  if (call_began != 0) {
    timeline::Call out;
    out.start = call_began;
    out.duration = now - call_began;
    put(out.name, call);
    return write(std::bit_cast<Octets64>(out));
  }
  const void* const qp = std::exchange(posts_of, nullptr);
  const QueueRef queue = qp != nullptr ? queue_of(qp) : nullptr;
  if (queue != nullptr)
    queue->change([&](auto& book, auto&) { book.post_returned(first_post, now); });
}

}  // namespace weft::check

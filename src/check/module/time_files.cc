#include "check/module/time_files.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <exception>
#include <fstream>
#include <new>
#include <string_view>
#include <utility>

#include "check/module/process_name.h"
#include "os/cancel.h"
#include "os/clock.h"

namespace weft::check {

using timeline::Octets64;

namespace {

constexpr std::size_t kRecordsPerThread = 1U << 20U;      // 64 MiB
constexpr std::size_t kRecordsOfConnections = 1U << 16U;  // 4 MiB

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

thread_local constinit TimeFiles::Own own;

}  // namespace

// --- a turn ---

// Without memory it is none.
TimeFiles::Turn::Turn(TimeFiles& files) : files_(files) {
  Own& mine = own;
  if (mine.busy) return;
  if (mine.records == nullptr) {
    mine.records = new (std::nothrow) Records;
    if (mine.records == nullptr) return;
    mine.files = &files;
    if (files.has_key_) pthread_setspecific(files.key_, &mine);
  }
  mine.busy = true;
  own_ = &mine;
}

void TimeFiles::write_all(Records& records) noexcept {
  RecordFile* file = nullptr;
  try {
    file = own_file();
  } catch (const std::exception&) {  // without memory there is none
  }
  if (file == nullptr) {
    lose(records.size());
  } else {
    for (const timeline::Record& record : records) file->write(std::bit_cast<Octets64>(record));
  }
  records.clear();
}

// A destructor of a key is called once more where others behind it have used a file again; one of a
// thread_local object is not.
void TimeFiles::thread_ends(void* of) {
  Own& ending = *static_cast<Own*>(of);
  if (ending.file != nullptr) ending.files->give_back(std::exchange(ending.file, nullptr));
  delete std::exchange(ending.records, nullptr);
}

// --- the files ---

TimeFiles::TimeFiles(std::string folder)
    : folder_(std::move(folder)), process_(getpid()), began_(os::monotonic_ns()) {
  // Without it the files of threads that end are not used again.
  has_key_ = pthread_key_create(&key_, thread_ends) == 0;
}

TimeFiles::~TimeFiles() = default;

timeline::FileHeader TimeFiles::header() const {
  timeline::FileHeader out;
  out.process = static_cast<std::uint32_t>(process_);
  out.thread = static_cast<std::uint32_t>(syscall(SYS_gettid));
  out.began = static_cast<std::uint64_t>(os::monotonic_ns());
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
std::string TimeFiles::file_name(std::size_t number) const {
  std::array<char, 64> host{};
  gethostname(host.data(), host.size() - 1);
  std::string name = host.data();
  std::ranges::replace(name, '/', '_');
  return folder_ + "/" + name + "." + std::to_string(process_) + "." + std::to_string(began_) +
         "." + std::to_string(number) + ".weft";
}

RecordFile* TimeFiles::take_file() {
  const os::NoCancel guard;
  const os::MutexLock lock(mutex_);
  if (idle_.empty()) {
    if (failed_) return nullptr;
    const std::string name = file_name(files_.size() + 1);
    idle_.reserve(files_.size() + 1);
    auto file = RecordFile::open(name, header(), kRecordsPerThread);
    if (file == nullptr) {
      failed_ = true;
      say_no_room(name, errno);
      return nullptr;
    }
    idle_.push_back(file.get());
    files_.push_back(std::move(file));
    count_lost(0);
  }
  RecordFile* const file = idle_.back();
  idle_.pop_back();
  return file;
}

RecordFile* TimeFiles::own_file() {
  if (own.file == nullptr) own.file = take_file();
  return own.file;
}

void TimeFiles::give_back(RecordFile* file) {
  if (getpid() != process_) return;  // a child of fork(): the mutex may be held
  const os::MutexLock lock(mutex_);
  idle_.push_back(file);
}

void TimeFiles::count_lost(std::size_t records) {
  lost_ += records;
  if (told_ == nullptr) told_ = files_.empty() ? connections_.get() : files_.front().get();
  if (told_ != nullptr) told_->set_lost(lost_);
}

void TimeFiles::lose(std::size_t records) noexcept {
  const os::NoCancel guard;
  const os::MutexLock lock(mutex_);
  count_lost(records);
}

void TimeFiles::write(const Octets64& record) {
  const Turn turn(*this);
  if (!turn) return;
  if (RecordFile* const file = own_file(); file != nullptr) {
    file->write(record);
  } else {
    lose(1);
  }
}

std::uint32_t TimeFiles::note_connection(int fd, std::uint32_t qp) {
  const os::NoCancel guard;
  timeline::Connection out;
  out.start = static_cast<std::uint64_t>(os::monotonic_ns());
  out.qp = qp;
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) == 0)
    read_address(address, out.local, out.local_port);
  address = {};
  size = sizeof address;
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&address), &size) == 0)
    read_address(address, out.peer, out.peer_port);
  const os::MutexLock lock(mutex_);
  if (connections_ == nullptr && !connections_failed_) {
    const std::string name = file_name(0);
    connections_ = RecordFile::open(name, header(), kRecordsOfConnections);
    connections_failed_ = connections_ == nullptr;
    if (connections_failed_) say_no_room(name, errno);
    count_lost(0);
  }
  out.number = ++connection_count_;
  if (connections_ != nullptr) {
    connections_->write(std::bit_cast<Octets64>(out));
  } else {
    count_lost(1);
  }
  return out.number;
}

}  // namespace weft::check

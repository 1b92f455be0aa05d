#include "io/counters_page.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <filesystem>

namespace weft::io {

namespace {

constexpr Duration kAnswerLimit{200'000'000};

// One device of a process has the page: the fork generation of the process that owns it, or 0.
std::atomic<std::uint32_t> g_owner{0};

std::int64_t wall_clock_ns() {
  timespec t{};
  clock_gettime(CLOCK_REALTIME, &t);
  return static_cast<std::int64_t>(t.tv_sec) * 1'000'000'000 + t.tv_nsec;
}

// Where the page of `pid` is. /dev/shm is everybody's: a file there is trusted only if it is ours.
std::string page_path(const char* folder, int pid) {
  return std::string(folder) + "/weft." + std::to_string(getuid()) + "." + std::to_string(pid);
}

// Killed processes leave their pages. Those of this user go when the next one is made.
void sweep(const std::string& folder) {
  const std::string prefix = "weft." + std::to_string(getuid()) + ".";
  std::error_code failed;
  std::filesystem::directory_iterator at(folder, failed);
  for (; !failed && at != std::filesystem::directory_iterator(); at.increment(failed)) {
    const std::string name = at->path().filename().string();
    if (name.compare(0, prefix.size(), prefix) != 0) continue;
    const int pid = std::atoi(name.c_str() + prefix.size());
    if (pid > 0 && kill(pid, 0) != 0 && errno == ESRCH) unlink(at->path().c_str());
  }
}

// Programs that end without destroying the device, as most users of the drop-in libraries do. A
// child of fork() leaves the page alone.
std::array<char, 256> g_page_at_exit{};
pid_t g_process_at_exit = 0;

void unlink_at_exit() {
  if (g_process_at_exit == getpid()) unlink(g_page_at_exit.data());
}

void unlink_later(const std::string& path) {
  static const bool registered = std::atexit(unlink_at_exit) == 0;
  if (!registered || path.size() >= g_page_at_exit.size()) return;
  std::memcpy(g_page_at_exit.data(), path.c_str(), path.size() + 1);
  g_process_at_exit = getpid();
}

// The folders to try, in order.
std::array<const char*, 2> page_folders() { return {secure_getenv("XDG_RUNTIME_DIR"), "/dev/shm"}; }

void pause_a_little() {
  const timespec t{0, 500'000};
  nanosleep(&t, nullptr);
}

// How long ago `pid` was started; never, if that cannot be found out.
Duration age_of_process(int pid) {
  char text[1024] = {};
  const Fd fd(open(("/proc/" + std::to_string(pid) + "/stat").c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd || read(fd.get(), text, sizeof text - 1) <= 0) return Duration::max();
  // The name may have blanks and brackets; the field wanted is the twentieth after it.
  const char* at = std::strrchr(text, ')');
  for (int i = 0; i < 20 && at != nullptr; ++i) at = std::strchr(at + 1, ' ');
  if (at == nullptr) return Duration::max();
  const double started_s = static_cast<double>(std::strtoull(at, nullptr, 10)) /
                           static_cast<double>(sysconf(_SC_CLK_TCK));
  timespec up{};
  clock_gettime(CLOCK_BOOTTIME, &up);
  const double age_s =
      static_cast<double>(up.tv_sec) + static_cast<double>(up.tv_nsec) / 1e9 - started_s;
  return Duration(static_cast<std::int64_t>(age_s * 1e9));
}

// A page that is older than its process was left by another, killed one that had the same number.
bool is_left_over(const CountersPage& page, int pid) {
  constexpr std::int64_t kSlackNs = 1'000'000'000;
  const Duration age = age_of_process(pid);
  return age < Duration::max() - Duration(kSlackNs) &&
         wall_clock_ns() - page.started_ns > age.count() + kSlackNs;
}

// The page as words. Each is stored with release and loaded with acquire order: who sees a word of
// a refresh also sees that the refresh has begun.
constexpr std::size_t kWords = sizeof(CountersPage) / sizeof(std::uint64_t);
constexpr std::size_t kSequenceWord = offsetof(CountersPage, sequence) / sizeof(std::uint64_t);
static_assert(sizeof(CountersPage) % sizeof(std::uint64_t) == 0);
using Words = std::array<std::uint64_t, kWords>;

std::atomic_ref<std::uint64_t> word_of(CountersPage& page, std::size_t index) {
  return std::atomic_ref<std::uint64_t>(reinterpret_cast<std::uint64_t*>(&page)[index]);
}

void store_all(CountersPage& page, const CountersPage& fresh) {
  Words words;
  std::memcpy(words.data(), &fresh, sizeof words);
  for (std::size_t i = 0; i < kWords; ++i) {
    if (i != kSequenceWord) word_of(page, i).store(words[i], std::memory_order_release);
  }
}

// Copies the page. False: the writer changed it meanwhile.
bool copy_whole(CountersPage& page, CountersPage& out) {
  Words words;
  for (std::size_t i = 0; i < kWords; ++i) {
    words[i] = word_of(page, i).load(std::memory_order_acquire);
  }
  std::memcpy(static_cast<void*>(&out), words.data(), sizeof out);
  const std::uint64_t after = word_of(page, kSequenceWord).load(std::memory_order_relaxed);
  return out.sequence % 2 == 0 && out.sequence == after;
}

bool is_full(int error) { return error == ENOSPC || error == EDQUOT || error == ENOMEM; }

class Mapping {
 public:
  Mapping(int fd, int protection)
      : at_(mmap(nullptr, sizeof(CountersPage), protection, MAP_SHARED, fd, 0)) {}
  ~Mapping() {
    if (at_ != MAP_FAILED) munmap(at_, sizeof(CountersPage));
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  [[nodiscard]] CountersPage* get() const {
    return at_ == MAP_FAILED ? nullptr : static_cast<CountersPage*>(at_);
  }

 private:
  void* at_;
};

Result<Fd> open_page_of(int pid) {
  for (const char* folder : page_folders()) {
    if (folder == nullptr) continue;
    Fd fd(open(page_path(folder, pid).c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
    struct stat st {};
    if (!fd || fstat(fd.get(), &st) != 0 || st.st_uid != getuid()) continue;
    if (static_cast<std::size_t>(st.st_size) < sizeof(CountersPage)) {
      return fail(Error::kBadVersion);
    }
    return fd;
  }
  return fail(Error::kNotFound);
}

}  // namespace

Result<std::unique_ptr<CountersPublisher>> CountersPublisher::create(Engine& engine, Fill fill) {
  std::uint32_t nobody = 0;
  const std::uint32_t here = fork_generation();
  if (!g_owner.compare_exchange_strong(nobody, here) && nobody == here) return fail(Error::kBusy);
  g_owner.store(here);
  std::unique_ptr<CountersPublisher> out(new CountersPublisher(engine, std::move(fill)));
  if (auto file = out->open_file(); !file) return fail(file.error());
  out->refresh();
  if (auto watched = out->watch(); !watched) return fail(watched.error());
  return out;
}

// Storage is reserved. In a full folder a file can be lengthened all the same, and the first write
// to its mapping would end the program by SIGBUS.
Status CountersPublisher::open_file() {
  Error error = Error::kSystem;
  for (const char* folder : page_folders()) {
    if (folder == nullptr || *folder != '/') continue;
    sweep(folder);
    std::string path = page_path(folder, getpid());
    // What is there is of a dead process that had our number.
    static_cast<void>(unlink(path.c_str()));
    Fd fd(open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!fd) {
      if (is_full(errno)) error = Error::kNoSpace;
      continue;
    }
    void* at = MAP_FAILED;
    const int reserved = posix_fallocate(fd.get(), 0, sizeof(CountersPage));
    if (is_full(reserved)) error = Error::kNoSpace;
    if (reserved == 0) {
      at = mmap(nullptr, sizeof(CountersPage), PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
    }
    if (at == MAP_FAILED) {
      unlink(path.c_str());
      continue;
    }
    page_ = new (at) CountersPage;
    page_->size = sizeof(CountersPage);
    page_->pid = static_cast<std::uint32_t>(getpid());
    page_->started_ns = wall_clock_ns();
    path_ = std::move(path);
    unlink_later(path_);
    return {};
  }
  return fail(error);
}

Status CountersPublisher::watch() {
  inotify_ = Fd(inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
  if (!inotify_ || inotify_add_watch(inotify_.get(), path_.c_str(), IN_OPEN) < 0) {
    return fail(Error::kSystem);
  }
  return engine_.add(inotify_.get(), EPOLLIN, this);
}

CountersPublisher::~CountersPublisher() {
  if (!fork_.forked()) {
    if (inotify_) engine_.remove(inotify_.get());
    if (page_ != nullptr) unlink(path_.c_str());
    g_owner.store(0);
  }
  if (page_ != nullptr) munmap(page_, sizeof(CountersPage));
}

void CountersPublisher::on_io(std::uint32_t /*events*/) {
  alignas(inotify_event) char buffer[4096];
  while (read(inotify_.get(), buffer, sizeof buffer) > 0) {
  }
  refresh();
}

void CountersPublisher::refresh() {
  CountersPage fresh = *page_;
  fill_(fresh);
  fresh.updated_ns = wall_clock_ns();
  const auto sequence = word_of(*page_, kSequenceWord);
  const std::uint64_t before = sequence.load(std::memory_order_relaxed);
  sequence.store(before + 1, std::memory_order_relaxed);
  store_all(*page_, fresh);
  sequence.store(before + 2, std::memory_order_release);
}

Status read_counters_page(int pid, CountersPage& out) {
  const std::int64_t asked_ns = wall_clock_ns();
  const auto fd = open_page_of(pid);  // this is what the other process notices
  if (!fd) return fail(fd.error());
  const Mapping mapping(fd->get(), PROT_READ);
  CountersPage* page = mapping.get();
  if (page == nullptr) return fail(Error::kSystem);
  if (page->magic != CountersPage::kMagic || page->version != CountersPage::kVersion) {
    return fail(Error::kBadVersion);
  }
  const Instant until = now() + kAnswerLimit;
  while (now() < until) {
    if (copy_whole(*page, out) && out.updated_ns >= asked_ns) return {};
    pause_a_little();
  }
  if (copy_whole(*page, out) && is_left_over(out, pid)) return fail(Error::kNotFound);
  return fail(copy_whole(*page, out) ? Error::kTimedOut : Error::kBusy);
}

}  // namespace weft::io

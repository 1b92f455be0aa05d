#include "io/counters_page.h"

#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cassert>
#include <cstddef>
#include <cstdlib>
#include <cstring>

#include "os/clock.h"

namespace weft::io {

namespace {

constexpr Duration kAnswerLimit{200'000'000};

// One device of a process has the page: the fork generation of the process that owns it, or 0.
std::atomic<std::uint32_t> g_owner{0};

// Programs that end without destroying the device, as most users of the drop-in libraries do. A
// child of fork() leaves the page alone; one in another PID namespace may have our number.
std::array<char, 256> g_page_at_exit{};
pid_t g_process_at_exit = 0;
std::uint32_t g_generation_at_exit = 0;

void unlink_at_exit() {
  if (g_process_at_exit != getpid() || g_generation_at_exit != os::fork_generation()) return;
  unlink(g_page_at_exit.data());
}

void unlink_later(const std::string& path) {
  static const bool registered = std::atexit(unlink_at_exit) == 0;
  if (!registered || path.size() >= g_page_at_exit.size()) return;
  std::memcpy(g_page_at_exit.data(), path.c_str(), path.size() + 1);
  g_process_at_exit = getpid();
  g_generation_at_exit = os::fork_generation();
}

void pause_a_little() { os::nap(500'000); }

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

}  // namespace

// Called when the page was opened. The destructor of the publisher waits until no call runs.
class CountersPublisher::Watcher final : public Handler {
 public:
  explicit Watcher(CountersPublisher& publisher) : publisher_(publisher) {}
  void on_io(std::uint32_t /*events*/) override {
    alignas(inotify_event) char buffer[4096];
    while (read(publisher_.inotify_.get(), buffer, sizeof buffer) > 0) {
    }
    publisher_.refresh();
  }

 private:
  CountersPublisher& publisher_;
};

Result<std::unique_ptr<CountersPublisher>> CountersPublisher::create(Engine& engine, Fill fill) {
  std::unique_ptr<CountersPublisher> out(new CountersPublisher(engine, std::move(fill)));
  if (!out->become_owner()) return fail(Error::kBusy);
  if (auto file = out->make_page(); !file) return fail(file.error());
  out->refresh();
  if (auto watched = out->watch(); !watched) return fail(watched.error());
  return out;
}

bool CountersPublisher::become_owner() {
  assert(!owner_);
  std::uint32_t nobody = 0;
  const std::uint32_t here = os::fork_generation();
  if (!g_owner.compare_exchange_strong(nobody, here) && nobody == here) return false;
  g_owner.store(here);
  owner_ = true;
  return true;
}

Status CountersPublisher::make_page() {
  assert(owner_ && page_ == nullptr);
  auto file = make_page_file(sizeof(CountersPage));
  if (!file) return fail(file.error());
  void* at =
      mmap(nullptr, sizeof(CountersPage), PROT_READ | PROT_WRITE, MAP_SHARED, file->fd.get(), 0);
  if (at == MAP_FAILED) {
    unlink(file->path.c_str());
    return fail(Error::kSystem);
  }
  // A mapping keeps the lock of its file: a child of fork() gets neither.
  static_cast<void>(madvise(at, sizeof(CountersPage), MADV_DONTFORK));
  file_ = std::move(*file);
  page_ = new (at) CountersPage;
  page_->size = sizeof(CountersPage);
  page_->pid = static_cast<std::uint32_t>(getpid());
  page_->started_ns = os::clock_ns(CLOCK_REALTIME);
  unlink_later(file_.path);
  return {};
}

Status CountersPublisher::watch() {
  assert(page_ != nullptr && watcher_ == nullptr);
  inotify_ = os::Fd(inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
  if (!inotify_ || inotify_add_watch(inotify_.get(), file_.path.c_str(), IN_OPEN) < 0) {
    return fail(Error::kSystem);
  }
  watcher_ = std::make_shared<Watcher>(*this);
  return engine_.add(inotify_.get(), EPOLLIN, watcher_);
}

CountersPublisher::~CountersPublisher() {
  if (fork_.forked() || !owner_) return;
  if (inotify_) engine_.remove(inotify_.get());
  if (page_ != nullptr) {
    unlink(file_.path.c_str());
    munmap(page_, sizeof(CountersPage));
  }
  assert(g_owner.load() == os::fork_generation());
  g_owner.store(0);
}

void CountersPublisher::refresh() {
  assert(page_ != nullptr);
  CountersPage fresh = *page_;
  fill_(fresh);
  fresh.updated_ns = os::clock_ns(CLOCK_REALTIME);
  const auto sequence = word_of(*page_, kSequenceWord);
  const std::uint64_t before = sequence.load(std::memory_order_relaxed);
  assert(before % 2 == 0);  // one refresh at a time: create(), then the engine's thread
  sequence.store(before + 1, std::memory_order_relaxed);
  store_all(*page_, fresh);
  sequence.store(before + 2, std::memory_order_release);
}

Status read_counters_page(int pid, CountersPage& out) {
  const std::int64_t asked_ns = os::clock_ns(CLOCK_REALTIME);
  const auto fd = open_page_file(pid);  // this is what the other process notices
  if (!fd) return fail(fd.error());
  struct stat st {};
  if (fstat(fd->get(), &st) != 0) return fail(Error::kSystem);
  if (st.st_size == 0) return fail(Error::kNotFound);  // it is being made
  if (static_cast<std::size_t>(st.st_size) < sizeof(CountersPage)) return fail(Error::kBadVersion);
  const Mapping mapping(fd->get(), PROT_READ);
  CountersPage* page = mapping.get();
  if (page == nullptr) return fail(Error::kSystem);
  if (page->magic != CountersPage::kMagic || page->version != CountersPage::kVersion) {
    return fail(Error::kBadVersion);
  }
  const Instant until = os::now() + kAnswerLimit;
  while (os::now() < until) {
    if (copy_whole(*page, out) && out.updated_ns >= asked_ns) return {};
    pause_a_little();
  }
  return fail(copy_whole(*page, out) ? Error::kTimedOut : Error::kBusy);
}

}  // namespace weft::io

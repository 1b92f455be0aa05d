#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <functional>
#include <optional>
#include <string>

#include "io/counters_page.h"

namespace {
int g_interruptions = 0;  // of posix_fallocate()
}

// In place of the C library's, which a signal interrupts at times.
extern "C" int posix_fallocate(int fd, off_t offset, off_t length) {
  if (g_interruptions > 0) {
    --g_interruptions;
    return EINTR;
  }
  return fallocate(fd, 0, offset, length) == 0 ? 0 : errno;
}

namespace weft::io {
namespace {

// What another process sees of this one.
std::pair<Error, std::uint64_t> seen_by_another(int pid) {
  int pipe_fds[2];
  EXPECT_EQ(pipe(pipe_fds), 0);
  const pid_t child = fork();
  if (child == 0) {
    CountersPage page;
    const auto read_page = read_counters_page(pid, page);
    const std::uint64_t out[2] = {read_page ? 0 : static_cast<std::uint64_t>(read_page.error()),
                                  page.counters.tx_bytes};
    _exit(write(pipe_fds[1], out, sizeof out) == sizeof out ? 0 : 1);
  }
  std::uint64_t in[2] = {};
  EXPECT_EQ(read(pipe_fds[0], in, sizeof in), static_cast<ssize_t>(sizeof in));
  close(pipe_fds[0]);
  close(pipe_fds[1]);
  waitpid(child, nullptr, 0);
  return {static_cast<Error>(in[0]), in[1]};
}

TEST(CountersPage, AnotherProcessSeesFreshValuesEachTimeItLooks) {
  auto engine = std::move(*Engine::create());
  std::atomic<std::uint64_t> bytes{100};
  auto page =
      CountersPublisher::create(*engine, [&](CountersPage& p) { p.counters.tx_bytes = bytes; });
  ASSERT_TRUE(page);
  EXPECT_EQ(seen_by_another(getpid()), (std::pair<Error, std::uint64_t>{Error{}, 100}));
  bytes = 250;
  EXPECT_EQ(seen_by_another(getpid()), (std::pair<Error, std::uint64_t>{Error{}, 250}));
}

TEST(CountersPage, IsPrivateAndGoesWithItsOwner) {
  auto engine = std::move(*Engine::create());
  auto page = CountersPublisher::create(*engine, [](CountersPage&) {});
  ASSERT_TRUE(page);
  const std::string path = (*page)->path();
  struct stat st {};
  ASSERT_EQ(stat(path.c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 0777U, 0600U);
  EXPECT_EQ(static_cast<std::size_t>(st.st_size), sizeof(CountersPage));
  page->reset();
  EXPECT_NE(stat(path.c_str(), &st), 0);
  EXPECT_EQ(seen_by_another(getpid()).first, Error::kNotFound);
}

TEST(CountersPage, SecondDeviceOfAProcessGoesWithout) {
  auto engine = std::move(*Engine::create());
  auto first = CountersPublisher::create(*engine, [](CountersPage& p) { p.counters.tx_bytes = 1; });
  ASSERT_TRUE(first);
  const auto second =
      CountersPublisher::create(*engine, [](CountersPage& p) { p.counters.tx_bytes = 2; });
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error(), Error::kBusy);
  EXPECT_EQ(seen_by_another(getpid()).second, 1U);
}

// The path of the page of a child process that ends in the way of `end`, without destroying it.
template <class End>
std::string page_of_child(End end) {
  int pipe_fds[2];
  EXPECT_EQ(pipe(pipe_fds), 0);
  const pid_t child = fork();
  if (child == 0) {
    auto engine = std::move(*Engine::create());
    auto page = CountersPublisher::create(*engine, [](CountersPage&) {});
    const std::string path = page ? (*page)->path() : "";
    static_cast<void>(!write(pipe_fds[1], path.data(), path.size()));
    page->release();
    static_cast<void>(engine.release());
    end();
  }
  close(pipe_fds[1]);
  waitpid(child, nullptr, 0);
  char path[256] = {};
  EXPECT_GT(read(pipe_fds[0], path, sizeof path - 1), 0);
  close(pipe_fds[0]);
  return path;
}

TEST(CountersPage, GoesWithAProcessThatJustExits) {
  const std::string path = page_of_child([] { std::exit(0); });
  struct stat st {};
  EXPECT_NE(stat(path.c_str(), &st), 0) << path;
}

// A folder for the pages of this process and its children alone. In the usual one any process of
// this user may make a page at any time, and so take away those of killed ones.
class FolderOfOurOwn {
 public:
  FolderOfOurOwn() {
    if (const char* usual = std::getenv("XDG_RUNTIME_DIR")) usual_ = usual;
    EXPECT_NE(mkdtemp(path_.data()), nullptr);
    setenv("XDG_RUNTIME_DIR", path_.c_str(), 1);
  }
  ~FolderOfOurOwn() {
    usual_ ? setenv("XDG_RUNTIME_DIR", usual_->c_str(), 1) : unsetenv("XDG_RUNTIME_DIR");
    rmdir(path_.c_str());
  }
  FolderOfOurOwn(const FolderOfOurOwn&) = delete;
  FolderOfOurOwn& operator=(const FolderOfOurOwn&) = delete;

 private:
  std::optional<std::string> usual_;
  std::string path_ = ::testing::TempDir() + "weft-pages-XXXXXX";
};

TEST(CountersPage, OfAKilledProcessGoesWhenTheNextOneIsMade) {
  const FolderOfOurOwn folder;
  const std::string path = page_of_child([] { std::raise(SIGKILL); });
  struct stat st {};
  ASSERT_EQ(stat(path.c_str(), &st), 0) << path;
  auto engine = std::move(*Engine::create());
  auto page = CountersPublisher::create(*engine, [](CountersPage&) {});
  ASSERT_TRUE(page);
  EXPECT_NE(stat(path.c_str(), &st), 0) << path;
}

TEST(CountersPage, OfAProcessThatWasKilledWhileItMadeItGoesToo) {
  const FolderOfOurOwn folder;
  const std::string path = page_of_child([] { std::raise(SIGKILL); });
  ASSERT_EQ(truncate(path.c_str(), 0), 0) << path;
  auto engine = std::move(*Engine::create());
  auto page = CountersPublisher::create(*engine, [](CountersPage&) {});
  ASSERT_TRUE(page);
  struct stat st {};
  EXPECT_NE(stat(path.c_str(), &st), 0) << path;
}

// Makes a page file like the one of this process at `path`, without counters in it.
os::Fd leave_page(const std::string& path) {
  CountersPage page;
  page.size = sizeof page;
  os::Fd fd(open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  EXPECT_EQ(write(fd.get(), &page, sizeof page), static_cast<ssize_t>(sizeof page)) << path;
  return fd;
}

// A process that was killed could not remove its page, and its number may be given again.
TEST(CountersPage, APageThatNobodyHoldsIsNotOfTheProcessWithThatNumber) {
  auto engine = std::move(*Engine::create());
  auto page = CountersPublisher::create(*engine, [](CountersPage&) {});
  ASSERT_TRUE(page);
  const std::string mine = (*page)->path();
  const pid_t child = fork();
  if (child == 0) {
    pause();
    _exit(0);
  }
  const std::string left = mine.substr(0, mine.rfind('.') + 1) + std::to_string(child);
  const os::Fd fd = leave_page(left);
  EXPECT_EQ(seen_by_another(child).first, Error::kNotFound);
  {
    const os::Fd asker(open(left.c_str(), O_RDONLY | O_CLOEXEC));
    ASSERT_EQ(flock(asker.get(), LOCK_SH), 0);
    EXPECT_EQ(seen_by_another(child).first, Error::kNotFound);
  }
  ASSERT_EQ(flock(fd.get(), LOCK_EX), 0);  // as if it were of the child, which does not answer
  EXPECT_EQ(seen_by_another(child).first, Error::kTimedOut);
  unlink(left.c_str());
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
}

TEST(CountersPage, TakesTheNameOfADeadProcessWithTheSameNumber) {
  const FolderOfOurOwn folder;
  auto engine = std::move(*Engine::create());
  auto page = CountersPublisher::create(*engine, [](CountersPage&) {});
  ASSERT_TRUE(page);
  const std::string path = (*page)->path();
  page->reset();
  static_cast<void>(leave_page(path));
  page = CountersPublisher::create(*engine, [](CountersPage& p) { p.counters.tx_bytes = 7; });
  ASSERT_TRUE(page);
  EXPECT_EQ((*page)->path(), path);
  EXPECT_EQ(seen_by_another(getpid()), (std::pair<Error, std::uint64_t>{Error{}, 7}));
}

// Who asks for a page locks it for a moment, to learn whether its process has ended.
TEST(CountersPage, TakesTheNameOfADeadProcessThoughAnAskerLooksAtItsPage) {
  const FolderOfOurOwn folder;
  std::string path;
  {
    const auto made = make_page_file(64);
    ASSERT_TRUE(made);
    path = made->path;
  }
  const os::Fd asker(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  ASSERT_EQ(flock(asker.get(), LOCK_SH | LOCK_NB), 0);
  const auto file = make_page_file(64);
  ASSERT_TRUE(file);
  EXPECT_EQ(file->path, path);
  unlink(path.c_str());
}

TEST(CountersPage, IsMadeThoughSignalsInterruptIt) {
  const FolderOfOurOwn folder;
  g_interruptions = 3;
  const auto file = make_page_file(64);
  EXPECT_EQ(g_interruptions, 0);
  ASSERT_TRUE(file);
  EXPECT_EQ(file->path.find("/dev/shm"), std::string::npos) << file->path;
  unlink(file->path.c_str());
}

TEST(CountersPage, APageThatIsHeldIsNotTakenFromItsProcess) {
  const FolderOfOurOwn folder;
  const auto file = make_page_file(64);
  ASSERT_TRUE(file);
  const auto again = make_page_file(64);
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error(), Error::kBusy);
  unlink(file->path.c_str());
}

TEST(CountersPage, ChildOfForkDoesNotKeepItsParentsPage) {
  const FolderOfOurOwn folder;
  int pid_pipe[2];
  ASSERT_EQ(pipe(pid_pipe), 0);
  const std::string path = page_of_child([&] {
    if (fork() != 0) std::raise(SIGKILL);
    // What fork() does in a child has been done.
    const pid_t mine = getpid();
    static_cast<void>(!write(pid_pipe[1], &mine, sizeof mine));
    pause();
    _exit(0);
  });
  pid_t grandchild = 0;
  ASSERT_EQ(read(pid_pipe[0], &grandchild, sizeof grandchild),
            static_cast<ssize_t>(sizeof grandchild));
  close(pid_pipe[0]);
  close(pid_pipe[1]);
  auto engine = std::move(*Engine::create());
  auto page = CountersPublisher::create(*engine, [](CountersPage&) {});
  struct stat st {};
  EXPECT_NE(stat(path.c_str(), &st), 0) << path;
  kill(grandchild, SIGKILL);
}

// --- namespaces ---

constexpr int kNotAllowed = 77;

void write_text(const char* path, const std::string& text) { std::ofstream(path) << text; }

// Moves this process to new namespaces. False: it may not.
bool enter_namespaces(int which) {
  if (unshare(which) == 0) return true;
  const uid_t user = getuid();
  const gid_t group = getgid();
  if (unshare(which | CLONE_NEWUSER) != 0) return false;
  write_text("/proc/self/setgroups", "deny");
  write_text("/proc/self/uid_map", std::to_string(user) + " " + std::to_string(user) + " 1");
  write_text("/proc/self/gid_map", std::to_string(group) + " " + std::to_string(group) + " 1");
  return true;
}

// Runs `body` in a child of this process, in new namespaces, and returns its exit status. In a new
// PID namespace it is process 1.
int in_namespaces(int which, const std::function<int()>& body) {
  const pid_t child = fork();
  if (child == 0) {
    if (!enter_namespaces(which)) _exit(kNotAllowed);
    if ((which & CLONE_NEWPID) == 0) _exit(body());
    const pid_t first = fork();
    if (first == 0) _exit(body());
    int status = 0;
    waitpid(first, &status, 0);
    _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

bool mount_on(const char* path, const char* type, const char* options) {
  return mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
         mount("none", path, type, 0, options) == 0;
}

// The storage that Docker gives to all processes of a container together is 64 MiB.
TEST(CountersPage, FullFolderMeansNoPageAndNoSignal) {
  const int status = in_namespaces(CLONE_NEWNS, [] {
    unsetenv("XDG_RUNTIME_DIR");
    if (!mount_on("/dev/shm", "tmpfs", "size=64k")) return kNotAllowed;
    const std::string block(4096, 'x');
    std::ofstream filler("/dev/shm/filler");
    while (filler << block && filler.flush()) {
    }
    filler.close();
    auto engine = std::move(*Engine::create());
    const auto page = CountersPublisher::create(*engine, [](CountersPage&) {});
    if (page || page.error() != Error::kNoSpace) return 1;
    CountersPage out;
    const auto seen = read_counters_page(getpid(), out);
    if (seen || seen.error() != Error::kNotFound) return 2;
    unlink("/dev/shm/filler");
    return CountersPublisher::create(*engine, [](CountersPage&) {}) ? 0 : 3;
  });
  if (status == kNotAllowed) GTEST_SKIP() << "no right to make a mount namespace";
  EXPECT_EQ(status, 0);
}

TEST(CountersPage, ProcessOfAnotherPidNamespaceLeavesThePagesOfOthersAlone) {
  const FolderOfOurOwn folder;
  auto engine = std::move(*Engine::create());
  auto page = CountersPublisher::create(*engine, [](CountersPage& p) { p.counters.tx_bytes = 5; });
  ASSERT_TRUE(page);
  const std::string path = (*page)->path();
  const int status = in_namespaces(CLONE_NEWPID, [] {
    auto other = std::move(*Engine::create());
    return CountersPublisher::create(*other, [](CountersPage&) {}) ? 0 : 1;
  });
  if (status == kNotAllowed) GTEST_SKIP() << "no right to make a PID namespace";
  EXPECT_EQ(status, 0);
  struct stat st {};
  EXPECT_EQ(stat(path.c_str(), &st), 0) << path;
  EXPECT_EQ(seen_by_another(getpid()), (std::pair<Error, std::uint64_t>{Error{}, 5}));
}

// A process with a page, in a PID namespace of its own, where it is process 1.
class Container {
 public:
  explicit Container(std::uint64_t bytes) {
    int ready[2];
    int stop[2];
    EXPECT_EQ(pipe2(ready, O_CLOEXEC), 0);
    EXPECT_EQ(pipe2(stop, O_CLOEXEC), 0);
    outer_ = fork();
    if (outer_ == 0) {
      close(stop[1]);
      static_cast<void>(in_namespaces(CLONE_NEWPID, [&] { return run(bytes, ready[1], stop[0]); }));
      _exit(0);
    }
    close(ready[1]);
    close(stop[0]);
    stop_ = os::Fd(stop[1]);
    char made = 'n';
    allowed_ = read(ready[0], &made, 1) == 1;
    made_ = made == 'y';
    close(ready[0]);
  }
  ~Container() {
    stop_.reset();
    waitpid(outer_, nullptr, 0);
  }
  Container(const Container&) = delete;
  Container& operator=(const Container&) = delete;

  [[nodiscard]] bool allowed() const { return allowed_; }
  [[nodiscard]] bool made() const { return made_; }
  // Its number here: it is the child of a child of the process that we know.
  [[nodiscard]] pid_t number() const { return child_of(child_of(outer_)); }

 private:
  static int run(std::uint64_t bytes, int ready, int stop) {
    auto engine = std::move(*Engine::create());
    const auto page =
        CountersPublisher::create(*engine, [&](CountersPage& p) { p.counters.tx_bytes = bytes; });
    char octet = page && getpid() == 1 ? 'y' : 'n';
    static_cast<void>(!write(ready, &octet, 1));
    static_cast<void>(!read(stop, &octet, 1));
    return 0;
  }
  static pid_t child_of(pid_t parent) {
    const std::string id = std::to_string(parent);
    pid_t child = 0;
    std::ifstream("/proc/" + id + "/task/" + id + "/children") >> child;
    return child;
  }
  pid_t outer_ = 0;
  os::Fd stop_;
  bool allowed_ = false;
  bool made_ = false;
};

TEST(CountersPage, EqualNumbersOfTwoPidNamespacesDoNotCollide) {
  const FolderOfOurOwn folder;
  const Container first(11);
  const Container second(22);
  if (!first.allowed() || !second.allowed()) GTEST_SKIP() << "no right to make a PID namespace";
  ASSERT_TRUE(first.made());
  ASSERT_TRUE(second.made());
  EXPECT_EQ(seen_by_another(first.number()), (std::pair<Error, std::uint64_t>{Error{}, 11}));
  EXPECT_EQ(seen_by_another(second.number()), (std::pair<Error, std::uint64_t>{Error{}, 22}));
}

// Seen from a container that shares the folder, and whose /proc does not show the process.
TEST(CountersPage, ProcessThatIsNotVisibleIsFoundByTheNumberOnItsPage) {
  const FolderOfOurOwn folder;
  auto engine = std::move(*Engine::create());
  auto page = CountersPublisher::create(*engine, [](CountersPage& p) { p.counters.tx_bytes = 9; });
  ASSERT_TRUE(page);
  const pid_t pid = getpid();
  const int status = in_namespaces(CLONE_NEWPID | CLONE_NEWNS, [pid] {
    if (!mount_on("/proc", "proc", nullptr)) return kNotAllowed;
    CountersPage out;
    const auto seen = read_counters_page(pid, out);
    return seen && out.counters.tx_bytes == 9 && static_cast<pid_t>(out.pid) == pid ? 0 : 1;
  });
  if (status == kNotAllowed) GTEST_SKIP() << "no right to make the namespaces";
  EXPECT_EQ(status, 0);
}

TEST(CountersPage, LookingWakesTheEngineAndNothingElseDoes) {
  auto engine = std::move(*Engine::create());
  auto page = CountersPublisher::create(*engine, [](CountersPage&) {});
  ASSERT_TRUE(page);
  usleep(20000);
  const std::uint64_t before = engine->wakeups();
  usleep(50000);
  EXPECT_EQ(engine->wakeups(), before);
  EXPECT_EQ(seen_by_another(getpid()).first, Error{});
  EXPECT_GT(engine->wakeups(), before);
}

}  // namespace
}  // namespace weft::io

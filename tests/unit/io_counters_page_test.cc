#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <functional>
#include <optional>
#include <string>

#include "io/counters_page.h"

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

// A process that was killed could not remove its page, and its number may be given again.
TEST(CountersPage, APageOlderThanItsProcessIsNotItsOwn) {
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
  const auto leave_page = [&](std::int64_t seconds_ago) {
    CountersPage old;
    old.size = sizeof old;
    timespec t{};
    clock_gettime(CLOCK_REALTIME, &t);
    old.started_ns = (t.tv_sec - seconds_ago) * std::int64_t{1'000'000'000};
    FILE* file = std::fopen(left.c_str(), "w");
    ASSERT_NE(file, nullptr);
    EXPECT_EQ(std::fwrite(&old, sizeof old, 1, file), 1U);
    std::fclose(file);
  };
  leave_page(3600);
  EXPECT_EQ(seen_by_another(child).first, Error::kNotFound);
  leave_page(0);  // could be its own: it just does not answer
  EXPECT_EQ(seen_by_another(child).first, Error::kTimedOut);
  unlink(left.c_str());
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
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

// Runs `body` in a child of this process, in new namespaces, and returns its exit status.
int in_namespaces(int which, const std::function<int()>& body) {
  const pid_t child = fork();
  if (child == 0) {
    if (!enter_namespaces(which)) _exit(kNotAllowed);
    _exit(body());
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

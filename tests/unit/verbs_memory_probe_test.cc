// Memory that cannot be used is refused when it is registered, not found out by a fault.
#include "os/memory_probe.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <weft/system_error.h>

#include <cerrno>
#include <fstream>
#include <optional>
#include <string>
#include <thread>

#include "verbs_testing.h"

namespace weft::verbs::test {
namespace {

using os::kTouchedMax;
using os::MappingsBy;
using os::probe_mappings;
using os::probe_memory;
using os::UnusableMemory;

constexpr std::size_t kMiB = std::size_t{1} << 20U;
constexpr int kReadWrite = PROT_READ | PROT_WRITE;
constexpr auto kWritable = Access::kLocalWrite | Access::kRemoteWrite;

const std::size_t page_bytes = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));

class Area {
 public:
  explicit Area(std::size_t size, int prot = kReadWrite, int flags = MAP_PRIVATE | MAP_ANONYMOUS,
                int fd = -1)
      : size_(size), at_(mmap(nullptr, size, prot, flags, fd, 0)) {}
  ~Area() {
    if (mapped()) munmap(at_, size_);
  }
  Area(const Area&) = delete;
  Area& operator=(const Area&) = delete;
  [[nodiscard]] bool mapped() const { return at_ != MAP_FAILED; }
  [[nodiscard]] std::uint8_t* at(std::size_t offset = 0) const {
    return static_cast<std::uint8_t*>(at_) + offset;
  }
  [[nodiscard]] std::size_t size() const { return size_; }
  void protect(std::size_t from, std::size_t size, int prot) const {
    ASSERT_EQ(mprotect(at(from), size, prot), 0);
  }
  // Nothing else is mapped there meanwhile: tests have one thread.
  void unmap(std::size_t from, std::size_t size) const { ASSERT_EQ(munmap(at(from), size), 0); }

 private:
  std::size_t size_;
  void* at_;
};

// Older kernels than Linux 6.11 do not find guard pages.
bool kernel_answers_queries() {
  const Area guard(page_bytes, PROT_NONE);
  const auto begin = reinterpret_cast<std::uintptr_t>(guard.at());
  return probe_mappings(begin, begin + page_bytes, false, MappingsBy::kQuery).has_value();
}

class TemporaryFile {
 public:
  explicit TemporaryFile(std::size_t size) : fd_(memfd_create("weft-probe-test", MFD_CLOEXEC)) {
    EXPECT_EQ(ftruncate(fd_, static_cast<off_t>(size)), 0);
  }
  ~TemporaryFile() { close(fd_); }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  [[nodiscard]] int fd() const { return fd_; }

 private:
  int fd_;
};

// Every kind of probe gives the same answer, and what was probed can be registered or not.
class MemoryProbe : public ::testing::TestWithParam<std::size_t> {
 protected:
  // The address that is at fault; 0: none.
  static std::uintptr_t fault(const std::optional<UnusableMemory>& unusable) {
    if (!unusable) return 0;
    EXPECT_EQ(unusable->error, system_error(EFAULT)) << unusable->why;
    return unusable->at;
  }
  static std::uintptr_t number(const void* at) { return reinterpret_cast<std::uintptr_t>(at); }

  static std::uintptr_t first_page(const std::uint8_t* at) {
    return number(at) / page_bytes * page_bytes;
  }
  static std::uintptr_t page_behind(const std::uint8_t* at, std::size_t length) {
    return (number(at) + length + page_bytes - 1) / page_bytes * page_bytes;
  }

  void expect_usable(std::uint8_t* at, std::size_t length, bool writable) {
    EXPECT_FALSE(probe_memory(at, length, writable));
    for (const MappingsBy by : {MappingsBy::kQuery, MappingsBy::kSync}) {
      EXPECT_FALSE(probe_mappings(first_page(at), page_behind(at, length), writable, by))
          << static_cast<int>(by);
    }
    const Access access = writable ? kWritable : Access::kRemoteRead;
    EXPECT_TRUE(host.pd->register_memory(at, length, access));
  }
  // What kernels without queries do not find is told in memory_probe.h.
  void expect_fault(std::uint8_t* at, std::size_t length, bool writable, const std::uint8_t* where,
                    bool found_without_query = true) {
    if (!found_without_query && !kernel_answers_queries()) return;
    EXPECT_NE(fault(probe_memory(at, length, writable)), 0U);
    for (const MappingsBy by : {MappingsBy::kQuery, MappingsBy::kSync}) {
      if (by == MappingsBy::kSync && !found_without_query) continue;
      EXPECT_EQ(fault(probe_mappings(first_page(at), page_behind(at, length), writable, by)),
                number(where))
          << static_cast<int>(by);
    }
    const Access access = writable ? kWritable : Access::kRemoteRead;
    const auto region = host.pd->register_memory(at, length, access);
    ASSERT_FALSE(region);
    EXPECT_EQ(region.error(), system_error(EFAULT));
    EXPECT_EQ(host.pd->users(), 0U);
  }

  Host host;
  const std::size_t size = GetParam();  // at least four pages
  const std::size_t middle = size / 2 / page_bytes * page_bytes;
};

TEST_P(MemoryProbe, OrdinaryMemoryIsUsableAtAnyOffsetAndKeepsItsContent) {
  const Area area(size);
  area.at()[1] = 7;
  area.at()[size - 1] = 9;
  for (const bool writable : {false, true}) {
    expect_usable(area.at(), size, writable);
    expect_usable(area.at(1), size - 1, writable);
    expect_usable(area.at(1), 1, writable);
    expect_usable(area.at(size - 1), 1, writable);
  }
  EXPECT_EQ(area.at()[1], 7);
  EXPECT_EQ(area.at()[size - 1], 9);
}

TEST_P(MemoryProbe, UnmappedMemoryIsAFaultWhereverTheHoleIs) {
  for (const std::size_t hole : {std::size_t{0}, middle, size - page_bytes}) {
    SCOPED_TRACE(hole);
    const Area area(size);
    area.unmap(hole, page_bytes);
    expect_fault(area.at(), size, true, area.at(hole));
    expect_fault(area.at(), size, false, area.at(hole));
    if (hole != 0) expect_usable(area.at(), hole, true);
    if (hole != 0) expect_fault(area.at(), hole + 1, true, area.at(hole));
  }
}

TEST_P(MemoryProbe, AGuardPageInsideIsAFault) {
  const Area area(size);
  area.protect(middle, page_bytes, PROT_NONE);
  expect_fault(area.at(), size, false, area.at(middle), false);
  expect_fault(area.at(), size, true, area.at(middle), false);
  expect_usable(area.at(), middle, true);
  expect_usable(area.at(middle + page_bytes), size - middle - page_bytes, true);
}

TEST_P(MemoryProbe, ReadOnlyMemoryMayBeASourceButNoTarget) {
  const Area area(size);
  area.protect(middle, page_bytes, PROT_READ);
  expect_usable(area.at(), size, false);
  expect_fault(area.at(), size, true, area.at(middle), size <= kTouchedMax);
}

TEST_P(MemoryProbe, AFileMappedForReadingIsNoTargetAndAPrivateCopyIs) {
  const TemporaryFile file(size);
  const Area read_only(size, PROT_READ, MAP_SHARED, file.fd());
  expect_usable(read_only.at(), size, false);
  expect_fault(read_only.at(), size, true, read_only.at());
  const Area copy(size, kReadWrite, MAP_PRIVATE, file.fd());
  expect_usable(copy.at(), size, true);
  const Area shared(size, kReadWrite, MAP_SHARED, file.fd());
  expect_usable(shared.at(), size, true);
}

TEST_P(MemoryProbe, AMappingBeyondTheEndOfItsFileIsAFault) {
  const TemporaryFile file(size - page_bytes);
  const Area area(size, kReadWrite, MAP_SHARED, file.fd());
  expect_usable(area.at(), size - page_bytes, true);
  expect_fault(area.at(), size, true, area.at(size - page_bytes));
  expect_fault(area.at(), size, false, area.at(size - page_bytes));
}

TEST_P(MemoryProbe, MemoryThatMayOnlyBeWrittenIsATarget) {
  const Area area(size, PROT_WRITE);
  expect_usable(area.at(), size, true);
}

TEST_P(MemoryProbe, ReregistrationProbesWhatItTakes) {
  const Area good(size);
  const Area bad(size, PROT_READ);
  const auto region = *host.pd->register_memory(good.at(), size, kWritable);
  const std::uint32_t key = region->rkey();
  EXPECT_EQ(region->reregister(nullptr, bad.at(), size, nullptr).error(), system_error(EFAULT));
  EXPECT_EQ(region->rkey(), key);
  EXPECT_EQ(region->addr(), good.at());
  const Access reading = Access::kRemoteRead;
  const Access writing = kWritable;
  ASSERT_TRUE(region->reregister(nullptr, bad.at(), size, &reading));
  EXPECT_EQ(region->reregister(nullptr, nullptr, 0, &writing).error(), system_error(EFAULT));
  EXPECT_EQ(region->access(), reading);
}

INSTANTIATE_TEST_SUITE_P(Sizes, MemoryProbe,
                         ::testing::Values(kTouchedMax, kTouchedMax + 4096, 2 * kMiB),
                         [](const auto& suite) { return std::to_string(suite.param); });

// Without MAP_NORESERVE the mapping fails where there are not enough huge pages.
TEST(ProbeMemory, HugePagesAreUsableIfThereAreAny) {
  constexpr int kHuge = MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB;
  const Area reserved(2 * kMiB, kReadWrite, kHuge);
  if (reserved.mapped()) {
    EXPECT_FALSE(probe_memory(reserved.at(), reserved.size(), true));
    EXPECT_FALSE(probe_memory(reserved.at(100), 1, true));
    return;
  }
  const Area promised(2 * kMiB, kReadWrite, kHuge | MAP_NORESERVE);
  if (!promised.mapped()) return;  // a kernel without them
  EXPECT_TRUE(probe_memory(promised.at(), promised.size(), true));
  EXPECT_TRUE(probe_memory(promised.at(100), 1, true));
}

// Memory that the kernel does not populate, as that of a device: the clock's, where there is such.
TEST(ProbeMemory, MemoryThatIsNotPopulatedIsJudgedByItsMapping) {
  std::ifstream maps("/proc/self/maps");
  std::string line;
  while (std::getline(maps, line) && line.find("[vvar]") == std::string::npos) {
  }
  if (line.find("[vvar]") == std::string::npos) return;
  const auto* at = reinterpret_cast<const void*>(std::stoull(line, nullptr, 16));
  EXPECT_FALSE(probe_memory(at, page_bytes, false));
  EXPECT_EQ(probe_memory(at, page_bytes, true).has_value(), kernel_answers_queries());
}

TEST(ProbeMemory, ALargeRangeIsNotPopulated) {
  const std::size_t size = std::size_t{1} << 30U;
  const Area area(size, kReadWrite, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE);
  ASSERT_TRUE(area.mapped());
  EXPECT_FALSE(probe_memory(area.at(), size, true));
  std::vector<unsigned char> resident(size / page_bytes);
  ASSERT_EQ(mincore(area.at(), size, resident.data()), 0);
  std::size_t count = 0;
  for (const unsigned char page : resident) count += page & 1U;
  EXPECT_LE(count, kernel_answers_queries() ? 0U : 2U);
}

TEST(ProbeMemory, ManyMappingsAreAllLookedAt) {
  constexpr std::size_t kPages = 2000;
  const Area area(kPages * page_bytes);
  for (std::size_t i = 0; i < kPages; i += 2) area.protect(i * page_bytes, page_bytes, PROT_READ);
  const auto begin = reinterpret_cast<std::uintptr_t>(area.at());
  const std::uintptr_t end = begin + area.size();
  for (const MappingsBy by : {MappingsBy::kQuery, MappingsBy::kSync}) {
    EXPECT_FALSE(probe_mappings(begin, end, false, by));
  }
  area.protect((kPages - 2) * page_bytes, page_bytes, PROT_NONE);
  const auto guard = probe_mappings(begin, end, false, MappingsBy::kQuery);
  ASSERT_EQ(guard.has_value(), kernel_answers_queries());
  if (guard) {
    EXPECT_EQ(guard->at, end - 2 * page_bytes);
  }
  area.unmap((kPages - 2) * page_bytes, page_bytes);
  const auto hole = probe_mappings(begin, end, false, MappingsBy::kSync);
  ASSERT_TRUE(hole);
  EXPECT_EQ(hole->at, end - 2 * page_bytes);
}

// How often this thread has called read(). Nothing where the kernel does not count.
std::optional<std::uint64_t> reads_of_this_thread() {
  std::ifstream io("/proc/thread-self/io");
  std::optional<std::uint64_t> calls;
  for (std::string line; std::getline(io, line);) {
    if (line.starts_with("syscr:")) calls = std::stoull(line.substr(line.find(':') + 1));
  }
  return calls;
}

// A process may have very many mappings.
TEST(ProbeMemory, TheListOfAllMappingsIsNotRead) {
  const Area area(kMiB);
  const auto begin = reinterpret_cast<std::uintptr_t>(area.at());
  const auto first = reads_of_this_thread();
  if (!first) GTEST_SKIP() << "this kernel does not count reads";
  const auto second = reads_of_this_thread();
  EXPECT_FALSE(probe_mappings(begin, begin + kMiB, true, MappingsBy::kSync));
  const auto third = reads_of_this_thread();
  EXPECT_EQ(third.value() - second.value(), second.value() - *first);
}

// How many of the ways to probe 1 MiB refuse good memory.
int refusals_of_good_memory() {
  const Area area(kMiB);
  const auto begin = reinterpret_cast<std::uintptr_t>(area.at());
  int refused = probe_memory(area.at(), kMiB, true) ? 1 : 0;
  for (const MappingsBy by : {MappingsBy::kQuery, MappingsBy::kSync}) {
    if (probe_mappings(begin, begin + kMiB, true, by)) ++refused;
  }
  return refused;
}

// The kernel takes the memory away from a thread that has ended, so /proc/self/maps is empty then.
void wait_for_the_end_of_the_main_thread() {
  char octet = 0;
  while (std::ifstream("/proc/self/maps").read(&octet, 1)) std::this_thread::yield();
}

// A program may end its main thread by pthread_exit() and go on with others. The system call here
// is what pthread_exit() comes to; it does not unwind the frames of the test.
TEST(ProbeMemory, GoodMemoryStaysUsableWhenTheMainThreadHasEnded) {
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    alarm(60);
    std::thread([] {
      wait_for_the_end_of_the_main_thread();
      _exit(refusals_of_good_memory());
    }).detach();
    syscall(SYS_exit, 99);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status)) << status;
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST(ProbeMemory, TheEndsOfTheAddressSpaceAreNotMapped) {
  for (const std::uintptr_t at : {std::uintptr_t{1}, ~std::uintptr_t{0} - 100}) {
    for (const std::size_t size : {std::size_t{1}, std::size_t{100}}) {
      const auto unusable = probe_memory(reinterpret_cast<const void*>(at), size, false);
      ASSERT_TRUE(unusable);
      EXPECT_EQ(unusable->error, system_error(EFAULT));
    }
  }
}

}  // namespace
}  // namespace weft::verbs::test

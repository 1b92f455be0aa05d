#include "os/cores.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace weft::os {
namespace {

TEST(Cores, TheFourthColumnCountsThreadsThatRunOrWait) {
  EXPECT_EQ(running_threads("6.17 5.28 3.36 9/137 23144\n"), 9U);
  EXPECT_EQ(running_threads("0.00 0.00 0.00 1/2 3\n"), 1U);
}

TEST(Cores, WhatIsNotThatTextSaysNothing) {
  for (const char* text :
       {"", "6.17", "6.17 5.28 3.36", "6.17 5.28 3.36 ", "6.17 5.28 3.36 9", "6.17 5.28 3.36 x/1 2",
        "6.17 5.28 3.36 99999999999/1 2", "0.00 0.00 0.00 0/0 0\n"}) {
    EXPECT_EQ(running_threads(text), std::nullopt) << text;
  }
}

// /proc and /sys as a container has them.
class Groups : public ::testing::Test {
 protected:
  void SetUp() override {
    if (all() < 2) GTEST_SKIP() << "this machine has one core only";
    std::string name = std::filesystem::temp_directory_path() / "weft-cores-XXXXXX";
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    root_ = name;
  }
  void TearDown() override {
    if (!root_.empty()) std::filesystem::remove_all(root_);
  }
  void write(const std::string& path, const std::string& text) const {
    std::filesystem::create_directories(std::filesystem::path(root_ + path).parent_path());
    std::ofstream(root_ + path) << text;
  }
  [[nodiscard]] static unsigned all() {
    return static_cast<unsigned>(::sysconf(_SC_NPROCESSORS_ONLN));
  }

  std::string root_;
};

TEST_F(Groups, WithoutFilesThereIsNoQuota) { EXPECT_EQ(usable_cores(root_), all()); }

TEST_F(Groups, AQuotaOfLessThanACoreLeavesOne) {
  write("/proc/self/cgroup", "0::/\n");
  for (const auto& [max, cores] :
       std::initializer_list<std::pair<const char*, unsigned>>{{"50000 100000\n", 1},
                                                               {"99999 100000\n", 1},
                                                               {"100000 100000\n", all()},
                                                               {"150000 100000\n", all()},
                                                               {"max 100000\n", all()},
                                                               {"100000 0\n", all()},
                                                               {"100000", all()},
                                                               {"", all()}}) {
    write("/sys/fs/cgroup/cpu.max", max);
    EXPECT_EQ(usable_cores(root_), cores) << max;
  }
}

TEST_F(Groups, TheQuotaOfAGroupAroundItHoldsToo) {
  write("/proc/self/cgroup", "0::/outer/inner\n");
  write("/sys/fs/cgroup/outer/inner/cpu.max", "max 100000\n");
  EXPECT_EQ(usable_cores(root_), all());
  write("/sys/fs/cgroup/outer/cpu.max", "20000 100000\n");
  EXPECT_EQ(usable_cores(root_), 1U);
}

TEST_F(Groups, TheFirstVersionNamesItsControllers) {
  write("/proc/self/cgroup", "3:cpuset:/\n2:cpu,cpuacct:/docker/x\n1:name=systemd:/\n0::/\n");
  write("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
  write("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(usable_cores(root_), all());
  write("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "20000\n");
  EXPECT_EQ(usable_cores(root_), 1U);
}

TEST_F(Groups, WhatIsNotThatTextSetsNoLimit) {
  for (const char* text :
       {"", "\n\n", "0", "0:", "0:/", "a:cpu", "1:cpuacct:/x\n", "1:cpux,xcpu:/\n"}) {
    write("/proc/self/cgroup", text);
    write("/sys/fs/cgroup/cpu.max", "20000 100000\n");
    write("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "20000\n");
    write("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
    EXPECT_EQ(usable_cores(root_), all()) << text;
  }
}

TEST(Cores, TheSystemSays) { EXPECT_TRUE(Cores().are_enough().has_value()); }

}  // namespace
}  // namespace weft::os

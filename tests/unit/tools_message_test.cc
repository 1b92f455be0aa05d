// What `weft` says: suggestions, wrapped text, and the findings of `weft doctor`.
#include <gmock/gmock.h>
#include <unistd.h>

#include <cstdlib>

#include "weft/common/message.h"
#include "weft/doctor/findings.h"

namespace weft::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const std::vector<std::string> kWords = {"write", "read", "send", "write-imm", "fetch-add"};

TEST(DidYouMean, SuggestsAtOneMistakeInThreeLetters) {
  EXPECT_EQ(did_you_mean("wirte", kWords), "did you mean 'write'?");
  EXPECT_EQ(did_you_mean("raed", kWords), "did you mean 'read'?");
  EXPECT_EQ(did_you_mean("sent", kWords), "did you mean 'send'?");
  EXPECT_EQ(did_you_mean("fetch_add", kWords), "did you mean 'fetch-add'?");
}

TEST(DidYouMean, SuggestsAWordThatWasCutShort) {
  EXPECT_EQ(did_you_mean("fetch", kWords), "did you mean 'fetch-add'?");
}

TEST(DidYouMean, IsSilentWhenNothingIsNear) {
  for (const char* text : {"", "x", "banana", "writing-everything", "--", "write"}) {
    EXPECT_EQ(did_you_mean(text, kWords), "") << text;
  }
  EXPECT_EQ(did_you_mean(std::string(100'000, 'w'), kWords), "");
}

TEST(DidYouMean, ReadsLegalValuesFromASentence) {
  EXPECT_EQ(did_you_mean("autp", "auto, mss, 16k or 64k"), "did you mean 'auto'?");
  EXPECT_EQ(did_you_mean("ot", "write, read or send"), "");
}

TEST(Wrap, KeepsLinesWithinTheWidthAndLongWordsWhole) {
  EXPECT_THAT(wrap("one two three", 7), ElementsAre("one two", "three"));
  EXPECT_THAT(wrap("one two three", 6), ElementsAre("one", "two", "three"));
  EXPECT_THAT(wrap("a  incomprehensible b", 5), ElementsAre("a", "incomprehensible", "b"));
  EXPECT_THAT(wrap("", 5), ElementsAre(""));
}

TEST(HideControls, LeavesTextAndTakesWhatSteersATerminal) {
  std::string text =
      "\x1b[31mred\x7f\r \xc2\x9b"
      "2J \xc3\x9c \xc2\xa0\tend\n";
  hide_controls(text);
  EXPECT_EQ(text, "?[31mred?? ??2J \xc3\x9c \xc2\xa0\tend\n");
  std::string first = "\x9b";  // no UTF-8: a terminal shows it as damage
  hide_controls(first);
  EXPECT_EQ(first, "\x9b");
}

TEST(Color, IsOffWithoutATerminalAndWithNoColor) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  EXPECT_FALSE(use_color(ends[1]));
  EXPECT_EQ(screen_columns(ends[1]), 100U);
  setenv("NO_COLOR", "1", 1);
  EXPECT_FALSE(use_color(STDOUT_FILENO));
  unsetenv("NO_COLOR");
  close(ends[0]);
  close(ends[1]);
}

// A machine that needs nothing.
Machine good_machine() {
  Machine m;
  m.kernel = "Linux 6.1";
  m.cpus = 4;
  m.crc_method = "isa-l";
  m.open_files_soft = 65536;
  m.open_files_hard = 65536;
  m.congestion_default = "cubic";
  m.congestion_allowed = "reno cubic";
  m.congestion_available = "reno cubic";
  m.congestion_wanted = "reno";
  m.receive_buffer_max = 6U << 20U;
  m.send_buffer_max = 4U << 20U;
  m.somaxconn = 4096;
  m.slow_start_after_idle = 0;
  m.dropin_folder = "/usr/lib/weft";
  m.system_verbs = "/lib/libibverbs.so.1";
  m.rdma_core = 44;
  m.ports = {{7471, "weft perf", false}};
  m.network_namespaces = true;
  return m;
}

// The only finding of `m` that is not "ok".
Finding only_finding(const Machine& m) {
  Finding found;
  int count = 0;
  for (const Finding& f : judge(m)) {
    EXPECT_FALSE(f.topic.empty() || f.found.empty());
    if (f.level == Finding::Level::kOk) {
      EXPECT_TRUE(f.change.empty() && f.gain.empty()) << f.topic;
      continue;
    }
    EXPECT_FALSE(f.change.empty() || f.gain.empty()) << f.topic;
    found = f;
    ++count;
  }
  EXPECT_EQ(count, 1);
  return found;
}

TEST(Doctor, HasNoAdviceForAGoodMachine) {
  for (const Finding& f : judge(good_machine())) {
    EXPECT_EQ(f.level, Finding::Level::kOk) << f.topic << ": " << f.found;
  }
}

TEST(Doctor, BrokenConfigurationAndMissingLibrariesAreProblems) {
  Machine m = good_machine();
  m.configuration_error = "/etc/weft.conf:3: 'x' is not a known setting";
  EXPECT_EQ(only_finding(m).level, Finding::Level::kProblem);
  EXPECT_EQ(only_finding(m).found, m.configuration_error);
  m = good_machine();
  m.dropin_folder = "";
  m.dropin_error = "not there";
  EXPECT_EQ(only_finding(m).level, Finding::Level::kProblem);
}

TEST(Doctor, AdvisesAtEachLimit) {
  Machine m = good_machine();
  m.cpus = 1;
  EXPECT_EQ(only_finding(m).topic, "CPUs");
  m = good_machine();
  m.crc_method = "table";
  EXPECT_EQ(only_finding(m).topic, "CRC32C");
  m = good_machine();
  m.open_files_soft = 1024;
  EXPECT_EQ(only_finding(m).topic, "open files");
  m = good_machine();
  m.send_buffer_max = (4U << 20U) - 1;
  EXPECT_EQ(only_finding(m).topic, "TCP buffers");
  m = good_machine();
  m.somaxconn = 1023;
  EXPECT_EQ(only_finding(m).topic, "listen backlog");
  m = good_machine();
  m.slow_start_after_idle = 1;
  EXPECT_EQ(only_finding(m).topic, "idle connections");
  m = good_machine();
  m.network_namespaces = false;
  EXPECT_EQ(only_finding(m).topic, "network namespaces");
}

TEST(Doctor, CongestionThatMayNotBeChosenIsNamedWithTheCommand) {
  Machine m = good_machine();
  m.congestion_default = "bbr";
  m.congestion_allowed = "bbr";
  EXPECT_THAT(only_finding(m).change, HasSubstr("'bbr reno'"));
  m.root = true;  // may choose every one that the kernel has
  for (const Finding& f : judge(m)) EXPECT_EQ(f.level, Finding::Level::kOk) << f.topic;
}

TEST(Doctor, RealDevicesTakeRdmaCmWhereTheyCan) {
  Machine m = good_machine();
  m.kernel_rdma.devices = {"mlx5_0"};
  for (const Finding& f : judge(m)) EXPECT_EQ(f.level, Finding::Level::kOk) << f.topic;
  m.kernel_rdma.cm = true;
  EXPECT_THAT(only_finding(m).change, HasSubstr("--real-cm=off"));
  m.cm_wish = "off";
  for (const Finding& f : judge(m)) EXPECT_EQ(f.level, Finding::Level::kOk) << f.topic;
}

TEST(Doctor, KnowsAKernelWithRdmaCmAndWithoutADevice) {
  Machine m = good_machine();
  m.kernel_rdma.cm = true;
  bool seen = false;
  for (const Finding& f : judge(m)) {
    EXPECT_EQ(f.level, Finding::Level::kOk) << f.topic;
    seen = seen || f.found.find("rdma_ucm") != std::string::npos;
  }
  EXPECT_TRUE(seen);
  m.cm_wish = "on";
  EXPECT_EQ(only_finding(m).level, Finding::Level::kProblem);
  EXPECT_THAT(only_finding(m).change, HasSubstr("WEFT_REAL_CM"));
}

TEST(ChoiceOfTheDevice, IsWeftsWhereTheKernelHasNone) {
  EXPECT_FALSE(is_real_cm({{}, false}, "auto"));
  EXPECT_FALSE(is_real_cm({{}, true}, "auto"));
  EXPECT_FALSE(is_real_cm({{"siw0"}, false}, "auto"));
  EXPECT_TRUE(is_real_cm({{"siw0"}, true}, "auto"));
  EXPECT_FALSE(is_real_cm({{"siw0"}, true}, "off"));
  EXPECT_TRUE(is_real_cm({{}, false}, "on"));
}

TEST(ChoiceOfTheDevice, IsSaidInOneLineWithTheWayToTheOther) {
  EXPECT_EQ(describe_choice({{}, true}, "auto"), "");
  const std::string real = describe_choice({{"siw0"}, true}, "auto");
  EXPECT_THAT(real, HasSubstr("get siw0 (--real-cm=off for weft0)"));
  EXPECT_EQ(real.find('\n'), std::string::npos);
  EXPECT_THAT(describe_choice({{"siw0"}, true}, "off"),
              HasSubstr("get weft0 (--real-cm=on for siw0)"));
  EXPECT_THAT(describe_choice({{"siw0"}, false}, "auto"), HasSubstr("get weft0 (/dev"));
}

TEST(Doctor, NamesPortsInUseAndNewerReleases) {
  Machine m = good_machine();
  m.ports[0].taken = true;
  EXPECT_THAT(only_finding(m).found, HasSubstr("7471"));
  m = good_machine();
  m.rdma_core = 66;
  EXPECT_EQ(only_finding(m).topic, "rdma-core");
}

TEST(Doctor, LooksAtThisMachineWithoutChangingIt) {
  const Machine m = look_at_machine();
  EXPECT_GT(m.cpus, 0U);
  EXPECT_GT(m.open_files_soft, 0U);
  EXPECT_FALSE(m.kernel.empty());
  EXPECT_EQ(judge(m).size(), judge(good_machine()).size());
}

}  // namespace
}  // namespace weft::cli

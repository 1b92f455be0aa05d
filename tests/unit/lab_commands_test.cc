// Which command of `weft lab run` runs where.
#include "lab/commands.h"

#include <gtest/gtest.h>

namespace weft::lab {
namespace {

std::vector<Words> words_of(const Words& words, unsigned hosts) {
  const auto commands = commands_of(words, hosts);
  EXPECT_TRUE(commands) << commands.error();
  std::vector<Words> out;
  for (const Command& command : *commands) {
    EXPECT_EQ(command.rank, out.size());
    out.push_back(command.words);
  }
  return out;
}

TEST(LabCommands, OneRunsOnEveryHost) {
  EXPECT_EQ(words_of({"echo", "{host}", "{rank}/{hosts}", "{address}"}, 2),
            (std::vector<Words>{{"echo", "h1", "0/h1,h2", "10.76.0.1"},
                                {"echo", "h2", "1/h1,h2", "10.76.0.2"}}));
}

TEST(LabCommands, OnLoopbackHostsHaveAddressesForNames) {
  const auto commands = commands_of({"x", "{server}", "{host}", "{address}", "{hosts}"}, 2, true);
  ASSERT_TRUE(commands);
  EXPECT_EQ(commands->at(0).words, (Words{"x", "127.0.0.1", "127.0.0.1", "127.0.0.1,127.0.0.2"}));
  EXPECT_EQ(commands->at(1).words,
            (Words{"x", "127.0.0.1", "127.0.0.2", "127.0.0.2", "127.0.0.1,127.0.0.2"}));
}

TEST(LabCommands, TheServerIsGivenNoName) {
  EXPECT_EQ(words_of({"ib_write_bw", "{server}"}, 3),
            (std::vector<Words>{{"ib_write_bw"}, {"ib_write_bw", "h1"}, {"ib_write_bw", "h1"}}));
  EXPECT_EQ(words_of({"x", "tcp://{server}"}, 2)[0], (Words{"x", "tcp://h1"}));
}

TEST(LabCommands, SeveralRunOnAHostEach) {
  EXPECT_EQ(words_of({"rping", "-s", "---", "rping", "-c", "-a", "h1"}, 4),
            (std::vector<Words>{{"rping", "-s"}, {"rping", "-c", "-a", "h1"}}));
}

TEST(LabCommands, ALauncherRunsOnTheFirst) {
  EXPECT_EQ(words_of({"/usr/bin/mpirun.openmpi", "-np", "4", "hello"}, 4).size(), 1U);
  EXPECT_TRUE(is_launcher("mpiexec"));
  EXPECT_FALSE(is_launcher("mpirunner"));
  EXPECT_EQ(words_of({"mpirun", "a", "---", "mpirun", "b"}, 2).size(), 2U);
}

TEST(LabCommands, MistakesSayWhatToWrite) {
  EXPECT_NE(commands_of({"a", "---"}, 2).error().find("each side of ---"), std::string::npos);
  EXPECT_NE(commands_of({}, 2).error().find("missing"), std::string::npos);
  EXPECT_NE(commands_of({"a", "---", "b", "---", "c"}, 2).error().find("3 commands and 2 hosts"),
            std::string::npos);
  EXPECT_NE(commands_of({"{server}"}, 2).error().find("no command"), std::string::npos);
}

}  // namespace
}  // namespace weft::lab

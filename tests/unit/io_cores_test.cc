#include "io/cores.h"

#include <gtest/gtest.h>

namespace weft::io {
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

TEST(Cores, TheSystemSays) { EXPECT_TRUE(Cores().are_enough().has_value()); }

}  // namespace
}  // namespace weft::io

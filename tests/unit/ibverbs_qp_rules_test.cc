// Which attributes each move of a wired queue pair takes.
#include "ibverbs/qp_rules.h"

#include <gtest/gtest.h>

namespace weft::ibverbs {
namespace {

// The masks that every program uses.
constexpr int kInit = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
constexpr int kRtr = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                     IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
constexpr int kRts = IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                     IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC;
static_assert(kInit == 0x39 && kRtr == 0x129181 && kRts == 0x12e01);

TEST(QpRules, TheWayOfEveryProgramIsLegal) {
  EXPECT_TRUE(move_is_legal(IBV_QPT_RC, IBV_QPS_RESET, IBV_QPS_INIT, kInit));
  EXPECT_TRUE(move_is_legal(IBV_QPT_RC, IBV_QPS_INIT, IBV_QPS_RTR, kRtr));
  EXPECT_TRUE(move_is_legal(IBV_QPT_RC, IBV_QPS_RTR, IBV_QPS_RTS, kRts));
}

TEST(QpRules, UnreliableOnesTakeNothingAboutReadsAndRetries) {
  constexpr int kRtrUc = kRtr & ~(IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
  constexpr int kRtsUc = IBV_QP_STATE | IBV_QP_SQ_PSN;
  EXPECT_TRUE(move_is_legal(IBV_QPT_UC, IBV_QPS_RESET, IBV_QPS_INIT, kInit));
  EXPECT_TRUE(move_is_legal(IBV_QPT_UC, IBV_QPS_INIT, IBV_QPS_RTR, kRtrUc));
  EXPECT_TRUE(move_is_legal(IBV_QPT_UC, IBV_QPS_RTR, IBV_QPS_RTS, kRtsUc));
  EXPECT_FALSE(move_is_legal(IBV_QPT_UC, IBV_QPS_INIT, IBV_QPS_RTR, kRtr));
  EXPECT_FALSE(move_is_legal(IBV_QPT_UC, IBV_QPS_RTR, IBV_QPS_RTS, kRts));
  EXPECT_FALSE(move_is_legal(IBV_QPT_RC, IBV_QPS_INIT, IBV_QPS_RTR, kRtrUc));
}

TEST(QpRules, DatagramsTakeAKeyAndNoPeer) {
  constexpr int kInitUd = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY;
  EXPECT_TRUE(move_is_legal(IBV_QPT_UD, IBV_QPS_RESET, IBV_QPS_INIT, kInitUd));
  EXPECT_TRUE(move_is_legal(IBV_QPT_UD, IBV_QPS_INIT, IBV_QPS_RTR, IBV_QP_STATE));
  EXPECT_TRUE(move_is_legal(IBV_QPT_UD, IBV_QPS_RTR, IBV_QPS_RTS, IBV_QP_STATE | IBV_QP_SQ_PSN));
  EXPECT_TRUE(move_is_legal(IBV_QPT_UD, IBV_QPS_SQE, IBV_QPS_RTS, IBV_QP_STATE));
  EXPECT_FALSE(move_is_legal(IBV_QPT_UD, IBV_QPS_RESET, IBV_QPS_INIT, kInit));
  EXPECT_FALSE(move_is_legal(IBV_QPT_UD, IBV_QPS_INIT, IBV_QPS_RTR, kRtr));
}

TEST(QpRules, EachRequiredAttributeIsMissed) {
  const struct {
    ibv_qp_state from, to;
    int mask;
  } moves[] = {{IBV_QPS_RESET, IBV_QPS_INIT, kInit},
               {IBV_QPS_INIT, IBV_QPS_RTR, kRtr},
               {IBV_QPS_RTR, IBV_QPS_RTS, kRts}};
  for (const auto& move : moves) {
    for (int bit = 1; bit != 0 && bit <= move.mask; bit <<= 1) {
      if ((move.mask & bit) == 0 || bit == IBV_QP_STATE) continue;
      EXPECT_FALSE(move_is_legal(IBV_QPT_RC, move.from, move.to, move.mask & ~bit))
          << std::hex << bit;
    }
  }
}

TEST(QpRules, AttributesOfOtherMovesAreRefused) {
  EXPECT_FALSE(move_is_legal(IBV_QPT_RC, IBV_QPS_RESET, IBV_QPS_INIT, kInit | IBV_QP_AV));
  EXPECT_FALSE(move_is_legal(IBV_QPT_RC, IBV_QPS_RESET, IBV_QPS_INIT, kInit | IBV_QP_QKEY));
  EXPECT_FALSE(move_is_legal(IBV_QPT_RC, IBV_QPS_RTR, IBV_QPS_RTS, kRts | IBV_QP_DEST_QPN));
  EXPECT_TRUE(move_is_legal(IBV_QPT_RC, IBV_QPS_RTR, IBV_QPS_RTS, kRts | IBV_QP_MIN_RNR_TIMER));
}

TEST(QpRules, ResetAndErrorAreReachedFromEverywhereWithNothingElse) {
  for (const ibv_qp_state from :
       {IBV_QPS_RESET, IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS, IBV_QPS_SQD, IBV_QPS_ERR}) {
    EXPECT_TRUE(move_is_legal(IBV_QPT_RC, from, IBV_QPS_RESET, IBV_QP_STATE));
    EXPECT_TRUE(move_is_legal(IBV_QPT_RC, from, IBV_QPS_ERR, IBV_QP_STATE));
    EXPECT_FALSE(move_is_legal(IBV_QPT_RC, from, IBV_QPS_ERR, IBV_QP_STATE | IBV_QP_PORT));
  }
}

TEST(QpRules, NoStateIsSkipped) {
  EXPECT_FALSE(move_is_legal(IBV_QPT_RC, IBV_QPS_RESET, IBV_QPS_RTR, kRtr));
  EXPECT_FALSE(move_is_legal(IBV_QPT_RC, IBV_QPS_INIT, IBV_QPS_RTS, kRts));
  EXPECT_FALSE(move_is_legal(IBV_QPT_RC, IBV_QPS_RTS, IBV_QPS_INIT, kInit));
  EXPECT_FALSE(move_is_legal(IBV_QPT_RC, IBV_QPS_ERR, IBV_QPS_INIT, kInit));
  EXPECT_FALSE(move_is_legal(IBV_QPT_RC, IBV_QPS_RTR, IBV_QPS_RTR, IBV_QP_STATE));
}

}  // namespace
}  // namespace weft::ibverbs

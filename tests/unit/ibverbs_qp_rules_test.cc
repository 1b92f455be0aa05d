// Which attributes each move of a wired queue pair takes.
#include "ibverbs/ibv_qp_rules.h"

#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>

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

// --- the whole table ---

// One line per move: type, from, to, what is required, what is optional. As InfiniBand's table of
// transitions and the kernel's qp_state_table have it, in words of its own.
constexpr std::string_view kTable =
    "RC RESET INIT : pkey port access :\n"
    "RC INIT INIT : : pkey port access\n"
    "RC INIT RTR : av mtu dqpn rqpsn served rnrtimer : alt access pkey\n"
    "RC RTR RTS : timeout retry rnr sqpsn asked : cur alt access rnrtimer mig\n"
    "RC RTS RTS : : cur alt access rnrtimer mig\n"
    "RC RTS SQD : : notify\n"
    "RC SQD RTS : : cur alt access rnrtimer mig\n"
    "RC SQD SQD : : port av timeout retry rnr asked served alt access pkey rnrtimer mig\n"
    "UC RESET INIT : pkey port access :\n"
    "UC INIT INIT : : pkey port access\n"
    "UC INIT RTR : av mtu dqpn rqpsn : alt access pkey\n"
    "UC RTR RTS : sqpsn : cur alt access mig\n"
    "UC RTS RTS : : cur alt access mig\n"
    "UC RTS SQD : : notify\n"
    "UC SQD RTS : : cur alt access mig\n"
    "UC SQD SQD : : av alt access pkey mig\n"
    "UC SQE RTS : : cur access\n"
    "UD RESET INIT : pkey port qkey :\n"
    "UD INIT INIT : : pkey port qkey\n"
    "UD INIT RTR : : pkey qkey\n"
    "UD RTR RTS : sqpsn : cur qkey\n"
    "UD RTS RTS : : cur qkey\n"
    "UD RTS SQD : : notify\n"
    "UD SQD RTS : : cur qkey\n"
    "UD SQD SQD : : pkey qkey\n"
    "UD SQE RTS : : cur qkey\n";

const std::map<std::string, int> kBits = {{"cur", IBV_QP_CUR_STATE},
                                          {"notify", IBV_QP_EN_SQD_ASYNC_NOTIFY},
                                          {"access", IBV_QP_ACCESS_FLAGS},
                                          {"pkey", IBV_QP_PKEY_INDEX},
                                          {"port", IBV_QP_PORT},
                                          {"qkey", IBV_QP_QKEY},
                                          {"av", IBV_QP_AV},
                                          {"mtu", IBV_QP_PATH_MTU},
                                          {"timeout", IBV_QP_TIMEOUT},
                                          {"retry", IBV_QP_RETRY_CNT},
                                          {"rnr", IBV_QP_RNR_RETRY},
                                          {"rqpsn", IBV_QP_RQ_PSN},
                                          {"asked", IBV_QP_MAX_QP_RD_ATOMIC},
                                          {"alt", IBV_QP_ALT_PATH},
                                          {"rnrtimer", IBV_QP_MIN_RNR_TIMER},
                                          {"sqpsn", IBV_QP_SQ_PSN},
                                          {"served", IBV_QP_MAX_DEST_RD_ATOMIC},
                                          {"mig", IBV_QP_PATH_MIG_STATE},
                                          {"cap", IBV_QP_CAP},
                                          {"dqpn", IBV_QP_DEST_QPN},
                                          {"rate", IBV_QP_RATE_LIMIT}};
const std::map<std::string, ibv_qp_state> kStates = {
    {"RESET", IBV_QPS_RESET}, {"INIT", IBV_QPS_INIT}, {"RTR", IBV_QPS_RTR}, {"RTS", IBV_QPS_RTS},
    {"SQD", IBV_QPS_SQD},     {"SQE", IBV_QPS_SQE},   {"ERR", IBV_QPS_ERR}};
const std::map<std::string, ibv_qp_type> kTypes = {
    {"RC", IBV_QPT_RC}, {"UC", IBV_QPT_UC}, {"UD", IBV_QPT_UD}};

struct Masks {
  int required = 0;
  int optional = 0;
};

// Nothing: there is no such move.
std::optional<Masks> expected_of(const std::string& type, const std::string& from,
                                 const std::string& to) {
  if (to == "RESET" || to == "ERR") return Masks{};
  const std::string wanted = type + " " + from + " " + to + " :";
  std::istringstream lines{std::string(kTable)};
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with(wanted)) continue;
    Masks masks;
    int* part = &masks.required;
    std::istringstream words(line.substr(wanted.size()));
    for (std::string word; words >> word;) {
      if (word == ":") {
        part = &masks.optional;
      } else {
        *part |= kBits.at(word);
      }
    }
    return masks;
  }
  return std::nullopt;
}

TEST(QpRules, EveryMoveOfEveryTypeTakesExactlyItsAttributes) {
  for (const auto& [type_name, type] : kTypes) {
    for (const auto& [from_name, from] : kStates) {
      for (const auto& [to_name, to] : kStates) {
        SCOPED_TRACE(type_name + " " + from_name + " -> " + to_name);
        const auto masks = expected_of(type_name, from_name, to_name);
        const int required = masks ? masks->required : 0;
        EXPECT_EQ(move_is_legal(type, from, to, required | IBV_QP_STATE), masks.has_value());
        if (!masks) continue;
        EXPECT_TRUE(move_is_legal(type, from, to, required | masks->optional | IBV_QP_STATE));
        for (const auto& [bit_name, bit] : kBits) {
          SCOPED_TRACE(bit_name);
          if ((required & bit) != 0) {
            EXPECT_FALSE(move_is_legal(type, from, to, (required & ~bit) | IBV_QP_STATE));
          } else {
            EXPECT_EQ(move_is_legal(type, from, to, required | bit | IBV_QP_STATE),
                      (masks->optional & bit) != 0);
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace weft::ibverbs
